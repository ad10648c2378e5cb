# SPDX-License-Identifier: Apache-2.0
"""Run tests in a copy of the checkout whose path has a space, a letter outside ASCII, and a folder called hexforge.

`python -m tools.odd_path [pytest's arguments]`; where those name no tests, the tests that meet a path: processes,
compilers, files that native code opens. Temporary files of the tests lie below such a path too. What is installed in
the running environment is used again (hard links), so nothing is fetched or compiled.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
ABOVE = ROOT / "build" / "a cloné"
TESTS = (
    "tests/addons/gpu/test_loss.py",
    "tests/backends/ir",
    "tests/cli/contexts/test_lora.py",
    "tests/addons/tools/test_full_disk_and_ctrl_c.py",
    "tests/addons/tools/test_tools.py",
    "tests/cli/quality/test_quantize.py",
    "tests/cli/test_startup.py",
    "tests/docs",
    "tests/addons/executorch/test_executor_runner.py",
    "tests/model/test_reader_errors.py",
    "tests/ops/test_packages.py",
    "tests/ort/test_context_models.py",
    "tests/ort/test_profiling.py",
    "tests/ort/test_scripts.py",
    "tests/ort/test_stand_in.py",
    "tests/quant/data/test_samples.py",
    "tests/runtime/contexts/test_compile.py",
    "tests/runtime/contexts/test_loading.py",
    "tests/runtime/contexts/test_truncation.py",
    "tests/test_headers.py",
    "tests/wheel",
)


def copy_checkout(target: Path) -> None:
    """The files of the working tree that git does not ignore, and the real models where they were fetched."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, cwd=ROOT, check=True, capture_output=True).stdout.split(b"\0"):
        source = ROOT / os.fsdecode(name)
        if name and source.is_file():
            (target / os.fsdecode(name)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / os.fsdecode(name))
    if (ROOT / ".models").exists():
        shutil.copytree(ROOT / ".models", target / ".models", copy_function=os.link)
    if (ROOT.parent / "shared").exists():
        (target.parent / "shared").symlink_to(ROOT.parent / "shared")


def copy_environment(target: Path) -> Path:
    """The running environment in the copy, with the copy's own modules in it; the path of its interpreter."""
    shutil.copytree(sys.prefix, target / ".venv", symlinks=True, copy_function=_link)
    (packages,) = (target / ".venv" / "lib").glob("python3*/site-packages")
    for file in {*packages.glob("_editable_*hexforge*"), *packages.glob("*.pth")}:
        if file.suffix != ".pth" or str(ROOT) in file.read_text(encoding="utf-8") or "hexforge" in file.name:
            file.unlink(missing_ok=True)
    (packages / "hexforge_checkout.pth").write_text(f"{target / 'src'}\n", encoding="utf-8")
    shutil.rmtree(packages / "hexforge", ignore_errors=True)
    native = importlib.util.find_spec("hexforge._native")
    if native is None or native.origin is None:
        raise SystemExit("odd path: hexforge's native module is not built; run make test first")
    shutil.copy2(native.origin, target / "src" / "hexforge")
    python = target / ".venv" / "bin" / "python"
    for script in python.parent.iterdir():
        if script.is_file() and not script.is_symlink() and script.open("rb").read(2) == b"#!":
            _point_at(script, python)
    return python


def _link(source: str, target: str) -> str:
    os.link(source, target, follow_symlinks=False)
    return target


def _point_at(script: Path, python: Path) -> None:
    """Start a command with another interpreter, as pip writes it where the path has a space."""
    first, _, rest = script.read_bytes().partition(b"\n")
    if b"python" in first:
        script.unlink()  # a hard link: what it is linked to stays as it is
        line = f"#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\n"
        script.write_bytes(line.encode() + rest)
        script.chmod(0o755)


def main(arguments: list[str]) -> int:
    """The exit status of pytest in the copy."""
    shutil.rmtree(ABOVE, ignore_errors=True)
    copy = ABOVE / "hexforge"
    copy.mkdir(parents=True)
    copy_checkout(copy)
    python = copy_environment(copy)
    print(f"odd path: pytest in {copy.relative_to(ROOT)}", flush=True)
    named = any((ROOT / argument.partition("::")[0]).exists() for argument in arguments)
    command = [str(python), "-m", "pytest", f"--basetemp={ABOVE / 'tempörary files'}", *arguments]
    command += () if named else TESTS
    environment = {**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)
    return subprocess.run(command, cwd=copy, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
