# SPDX-License-Identifier: Apache-2.0
"""A copy of the checkout with an environment of its own, for tests that need one.

What is installed in the running environment is used again (hard links), so nothing is fetched or compiled.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


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
        raise SystemExit("hexforge's native module is not built; run make test first")
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


def run_tests(copy: Path, python: Path, arguments: list[str]) -> int:
    """The exit status of pytest in a copy, by its own interpreter."""
    environment = {**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)
    command = [str(python), "-m", "pytest", *arguments]
    return subprocess.run(command, cwd=copy, env=environment, check=False).returncode
