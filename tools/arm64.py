# SPDX-License-Identifier: Apache-2.0
"""Build hexforge for 64-bit ARM Linux, and try it under QEMU: `python -m tools.arm64 [pytest's arguments]`.

Debian's arm64 packages bring that computer's Python 3.11 into build/arm64/root (nothing of this system is changed, and
no rights are needed); Debian's cross compiler makes the wheel; QEMU's user mode installs it into a virtual environment
and runs it: the README's lines, models whose outputs must have the bits of this computer, and the kernels' tests.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORK = ROOT / "build" / "arm64"
SYSTEM = WORK / "root"
VENV = WORK / "venv"
NEEDED = {
    "aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu",
    "qemu-aarch64-static": "qemu-user-static",
    "apt-get": "apt",
    "dpkg": "dpkg",
}
PACKAGES = ("python3.11-venv", "libpython3.11-dev", "libstdc++6")
# The deselected test starts a process of its own, which this computer would not run under QEMU.
TESTS = ("tests/native", "--deselect", "tests/native/test_parallel.py::test_idle_workers_use_no_cpu")
# QEMU's user mode shows this computer's /proc/cpuinfo, which onnxruntime reads as an ARM processor's and fails.
PROCESSOR = """processor\t: {number}
Features\t: fp asimd aes pmull sha1 sha2 crc32 atomics fphp asimdhp asimdrdm asimddp
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: 0xd0c
CPU revision\t: 1

"""
SUFFIX = ".cpython-311-aarch64-linux-gnu.so"


def _run(command: Sequence[str | Path], **variables: str) -> None:
    subprocess.run([str(part) for part in command], check=True, cwd=ROOT, env={**os.environ, **variables})


def _emulated(*arguments: str | Path) -> list[str]:
    """A command line of the ARM virtual environment's Python."""
    return [str(part) for part in ("qemu-aarch64-static", "-L", SYSTEM, VENV / "bin" / "python", *arguments)]


def make_system() -> None:
    """Unpack the packages of Debian's arm64 that Python needs."""
    if (SYSTEM / "usr/bin/python3.11").exists():
        return
    apt = WORK / "apt"
    for folder in ("lists/partial", "archives/partial", "state"):
        (apt / folder).mkdir(parents=True, exist_ok=True)
    (apt / "status").touch()
    settings = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "Dir::State": apt / "state",
        "Dir::State::Lists": apt / "lists",
        "Dir::State::status": apt / "status",
        "Dir::Cache": apt,
        "Dir::Cache::archives": apt / "archives",
        "Debug::NoLocking": 1,
    }
    options = [part for key, value in settings.items() for part in ("-o", f"{key}={value}")]
    _run(["apt-get", "-qq", *options, "update"])
    _run(["apt-get", "-qq", *options, "install", "-y", "--download-only", "--no-install-recommends", *PACKAGES])
    fresh = WORK / "root.part"
    shutil.rmtree(fresh, ignore_errors=True)
    for package in sorted((apt / "archives").glob("*.deb")):
        _run(["dpkg", "-x", package, fresh])
    (fresh / "proc").mkdir(exist_ok=True)
    text = "".join(PROCESSOR.format(number=number) for number in range(2))
    (fresh / "proc" / "cpuinfo").write_text(text, encoding="utf-8")
    fresh.rename(SYSTEM)


def make_wheel() -> Path:
    """The wheel, by the cross compiler."""
    target = WORK / "wheel"
    shutil.rmtree(target, ignore_errors=True)
    launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    arguments = [f"-DCMAKE_TOOLCHAIN_FILE={ROOT / 'tools/arm64.cmake'}", "-DHEXFORGE_WERROR=ON", *launcher]
    _run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "wheel", ".", "--no-deps", "-w", target],
        HEXFORGE_ARM64=str(SYSTEM),
        SKBUILD_CMAKE_ARGS=";".join(arguments),
        SETUPTOOLS_EXT_SUFFIX=SUFFIX,
        _PYTHON_HOST_PLATFORM="linux-aarch64",
    )
    (wheel,) = target.glob("*linux_aarch64.whl")
    return wheel


def install(wheel: Path) -> None:
    """The wheel and what the tests need into a virtual environment, by its own pip."""
    if not VENV.exists():
        python = SYSTEM / "usr/bin/python3.11"
        _run(["qemu-aarch64-static", "-L", SYSTEM, python, "-m", "venv", "--without-pip", VENV])
    (archive,) = (SYSTEM / "usr/share/python-wheels").glob("pip-*.whl")
    pip: list[str | Path] = [archive / "pip", "--disable-pip-version-check", "-q", "install", "--only-binary", ":all:"]
    _run(_emulated(*pip, "-c", "constraints.txt", wheel, "pytest", "pytest-timeout", "hypothesis"))
    _run(_emulated(*pip, "--force-reinstall", "--no-deps", wheel))


def compare_bits() -> int:
    """Run models here and there at every instruction set of each; how many outputs were compared."""
    import hexforge
    from hexforge import demo

    models = WORK / "models"
    models.mkdir(exist_ok=True)
    shutil.copy(demo.MODEL, models / "float.onnx")
    data = [{demo.INPUT: shot} for shot in demo.calibration()[:4]]
    for recipe in ("w8a8_channel", "w8a16"):
        hexforge.quantize(demo.MODEL, data, recipe, models / f"{recipe}.onnx")
    module = ("-m", "tools.output_digests", str(models))
    texts = [
        subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True).stdout
        for command in ([sys.executable, *module], _emulated(*module))
    ]
    here, there = (json.loads(text) for text in texts)
    for name, expected in here.items():
        different = {**expected, **there[name]}
        if len(set(different.values())) != 1:
            raise SystemExit(f"{name}: not the same bits everywhere: {different}")
        print(f"{name}: the same bits at {', '.join(expected)} here and at {', '.join(there[name])} under QEMU")
    return sum(len(levels) for levels in there.values())


def main(tests: Sequence[str]) -> None:
    """Build, install, run."""
    missing = [package for command, package in NEEDED.items() if shutil.which(command) is None]
    if missing:
        raise SystemExit(f"arm64: not installed here: {', '.join(missing)}; try: apt-get install {' '.join(missing)}")
    if sys.version_info[:2] != (3, 11):
        raise SystemExit("arm64: Debian 12 has Python 3.11 for ARM, so the wheel must be made by Python 3.11")
    WORK.mkdir(parents=True, exist_ok=True)
    make_system()
    wheel = make_wheel()
    install(wheel)
    _run(_emulated("tests/wheel/run_readme.py", "README.md"))
    compare_bits()
    _run(_emulated("-m", "pytest", "-q", "-p", "no:cacheprovider", *(tests or TESTS)))


if __name__ == "__main__":
    main(sys.argv[1:])
