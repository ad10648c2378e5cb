# SPDX-License-Identifier: Apache-2.0
"""The folders that scripts look into: one for PATH with an `adb` that speaks to the virtual phones, and one for
QNN_SDK_ROOT with tools, libraries and headers of hexforge where those of the SDK would be.

Tools for this computer are hexforge's. What scripts only push to a phone are files of the right names: the virtual
phone knows them by name, and a real one cannot run them, which each of them says.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import sys
from importlib.metadata import version
from pathlib import Path

from hexforge import _native
from hexforge.chips.soc import SOCS
from hexforge.formats.files import write_atomically

_ADB = "import sys; from hexforge.addons.phone.adb import main; sys.exit(main())"
HOST, ANDROID = "x86_64-linux-clang", "aarch64-android"
TARGETS = (ANDROID, "aarch64-oe-linux-gcc9.3", "aarch64-oe-linux-gcc11.2")
"""What scripts deploy to."""
TOOLS = (
    "qnn-net-run", "qnn-throughput-net-run", "qnn-context-binary-generator", "qnn-context-binary-utility",
    "qnn-profile-viewer", "qnn-onnx-converter",
)  # fmt: skip
ON_PHONES = ("qnn-net-run", "qnn-throughput-net-run", "qnn-context-binary-generator")
LIBRARIES = (
    "libQnnHtp.so", "libQnnCpu.so", "libQnnGpu.so", "libQnnSaver.so", "libQnnSystem.so", "libQnnHtpPrepare.so",
    "libQnnModelDlc.so", "libQnnHtpNetRunExtensions.so", "libQnnHtpOptraceProfilingReader.so",
    "libQnnHtpProfilingReader.so", "libQnnGpuNetRunExtensions.so", "libQnnIr.so",
)  # fmt: skip
EXECUTORCH = "executorch"
"""The folder in the tree that stands for ExecuTorch's repository, $EXECUTORCH_ROOT."""
EXECUTORCH_BUILD = f"{EXECUTORCH}/build-android"
"""The one that stands for its build for Android."""
EXECUTORCH_HOST = f"{EXECUTORCH}/build-x86"
"""The one that stands for its build for this computer."""
SDK_NOTES = ("QNN_README.txt", "QNN_NOTICE.txt", "NOTICE.txt", "ReleaseNotes.txt", "QNN_ReleaseNotes.txt")
SDK_FOLDERS = ("benchmarks", "docs", "examples", "share")
"""What the SDK has beside tools and libraries, which scripts ask whether it is there."""
_EXAMPLES = (
    "# The package of ExecuTorch's examples as it is named in its repository, with hexforge behind it.\n"
    "from hexforge.executorch import examples_of_repository\n\n__path__ = examples_of_repository()\n"
)
RUNNERS = (
    "examples/qualcomm/executor_runner/qnn_executor_runner", "examples/qualcomm/oss_scripts/llama/qnn_llama_runner",
)  # fmt: skip
"""What ExecuTorch's scripts push out of that folder and run."""
_MARK = (
    "#!/system/bin/sh\n# {name}: a file of hexforge {version} in the place of the SDK's.\n"
    "# A virtual phone (`hexforge phone`) runs it by its name; a real phone needs the one of Qualcomm's SDK.\n"
    "echo '{name}: is hexforge'\"'\"'s, and runs on its virtual phones alone' >&2\nexit 126\n"
)  # fmt: skip


def cache_folder() -> Path:
    """Where hexforge keeps what it can make again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hexforge"


def adb_folder() -> Path:
    """A folder with an adb that runs in this Python; it is made where it is not there."""
    mark = hashlib.sha256(os.fsencode(sys.executable)).hexdigest()[:12]
    folder = cache_folder() / f"adb-{mark}"
    if os.name == "nt":
        write_script(folder / "adb.bat", f'@"{sys.executable}" -P -c "{_ADB}" %*\r\n')
    else:
        write_script(folder / "adb", f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -c {shlex.quote(_ADB)} "$@"\n')
    return folder


def write_script(path: Path, text: str) -> None:
    """Write a file that can be run; one that is there with the same text is left alone."""
    if path.is_file() and path.read_bytes() == text.encode():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.encode())
    path.chmod(0o755)


def sdk_root() -> Path:
    """The folder, made where it is not there or was made by another hexforge."""
    own = version("hexforge")
    native = Path(_native.__file__).parent / "lib"
    mark = hashlib.sha256(os.fsencode(f"{sys.executable}\0{native}\0{own}")).hexdigest()[:12]
    root = cache_folder() / f"sdk-{own}-{mark}"
    for name in TOOLS:
        command = f"{shlex.quote(sys.executable)} -P -m hexforge tool {name}"
        write_script(root / "bin" / HOST / name, f'#!/bin/sh\nexec {command} "$@"\n')
    archs = sorted({chip.htp_arch for chip in SOCS})
    for target in TARGETS:
        for name in ON_PHONES:
            _write_mark(root / "bin" / target / name, own)
        stubs = (f"libQnnHtpV{arch}Stub.so" for arch in archs)
        for name in (*LIBRARIES, *stubs):
            _write_mark(root / "lib" / target / name, own)
    for arch in archs:
        for name in (f"libQnnHtpV{arch}Skel.so", f"libQnnHtpV{arch}.so", "libQnnSystem.so"):
            _write_mark(root / "lib" / f"hexagon-v{arch}" / "unsigned" / name, own)
    for name in LIBRARIES:
        _place_library(root / "lib" / HOST / name, native / name, own)
    # ExecuTorch's tutorial pushes the one of v79 out of the folder of v75
    _write_mark(root / "lib" / "hexagon-v75" / "unsigned" / "libQnnHtpV79Skel.so", own)
    for name in RUNNERS:
        _write_mark(root / EXECUTORCH_BUILD / name, own)
    for folder in ("backends/qualcomm", "lib"):
        _write_mark(root / EXECUTORCH_BUILD / folder / "libqnn_executorch_backend.so", own)
    runner = f"{shlex.quote(sys.executable)} -P -m hexforge executor-runner"
    write_script(root / EXECUTORCH_HOST / RUNNERS[0], f'#!/bin/sh\nexec {runner} "$@"\n')
    (root / EXECUTORCH_HOST / "lib").mkdir(exist_ok=True)
    write_script(root / EXECUTORCH / "examples" / "__init__.py", _EXAMPLES)
    for name in SDK_FOLDERS:
        (root / name).mkdir(exist_ok=True)
    for name in SDK_NOTES:
        write_script(root / name, f"{name}: a file of hexforge {own} in the place of the SDK's, which is Qualcomm's.\n")
    write_script(root / "bin" / "envsetup.sh", _setup(root))
    headers = Path(__file__).parents[2] / "include" / "QNN"
    shutil.copytree(headers, root / "include" / "QNN", dirs_exist_ok=True)
    write_script(root / "sdk.yaml", f"# QNN_SDK_ROOT of hexforge\nversion: {own}\n")
    return root


def write_marked(name: str) -> Path:
    """A file of a name that a virtual phone runs by."""
    path = cache_folder() / "phone-programs" / name
    _write_mark(path, version("hexforge"))
    return path


def _write_mark(path: Path, own: str) -> None:
    write_script(path, _MARK.format(name=path.name, version=own))


def _place_library(path: Path, built: Path, own: str) -> None:
    """A library of hexforge where there is one, else a file of the name."""
    if not built.is_file():
        _write_mark(path, own)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_file() and path.stat().st_size == built.stat().st_size and path.read_bytes() == built.read_bytes():
        return
    staged = path.with_name(f".{path.name}.{os.getpid()}.part")
    shutil.copy2(built, staged)
    staged.replace(path)


def _setup(root: Path) -> str:
    quoted = shlex.quote(str(root))
    return (
        f"export QNN_SDK_ROOT={quoted}\nexport QAIRT_SDK_ROOT={quoted}\n"
        f'export PATH={quoted}/bin/{HOST}:"$PATH"\n'
        f'export LD_LIBRARY_PATH={quoted}/lib/{HOST}${{LD_LIBRARY_PATH:+:"$LD_LIBRARY_PATH"}}\n'
    )
