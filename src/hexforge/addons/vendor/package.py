# SPDX-License-Identifier: Apache-2.0
"""Package: where Qualcomm's package is installed, in which version, and how it gets there where it is not."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from hexforge.errors import PackageError

PACKAGE = "onnxruntime-qnn"
WANTED = "2.7.0"
"""The release that the bridge is written for, and that the EP's limits here hold for."""
PYTHON_VARIABLE = "HEXFORGE_VENDOR_PYTHON"
"""The environment variable that names the Python that has the package."""
INSTALL = f"pip install 'hexforge[vendor]' ({PACKAGE}=={WANTED}), or name a Python that has it in {PYTHON_VARIABLE}"
_ASK_S = 60
_QUESTION = f"""
import sys
from importlib.metadata import version
try:
    print(version({PACKAGE!r}), version("onnxruntime"))
except Exception as error:
    sys.exit(f"{{type(error).__name__}}: {{error}}")
"""


@dataclass(frozen=True, slots=True)
class InstalledPackage:
    """The Python that has the package, and its versions."""

    python: Path
    version: str
    onnxruntime: str

    @property
    def usable(self) -> bool:
        """True for the release line that the bridge is written for."""
        return self.version.split(".")[:2] == WANTED.split(".")[:2]


def find_package() -> InstalledPackage | None:
    """The installed package; None where there is none. PackageError where the Python that is named has none."""
    named = os.environ.get(PYTHON_VARIABLE, "")
    if named:
        return _asked(named)
    try:
        return InstalledPackage(Path(sys.executable), version(PACKAGE), version("onnxruntime"))
    except PackageNotFoundError:
        pass
    return next((_asked(str(python)) for python in _pythons_above() if _is_own(python)), None)


def _pythons_above() -> Iterator[Path]:
    """The Pythons of environments for the package in this folder, in those above it, and next to this Python's own."""
    for folder in (Path.cwd(), *Path.cwd().parents, Path(sys.prefix).parent):
        places = (folder / ".venv-vendor" / "bin" / "python", folder / ".venv-vendor" / "Scripts" / "python.exe")
        yield from (place for place in places if place.exists())


def _is_own(python: Path) -> bool:
    """Whether nobody but this user and the system's can have put it there: the file, and its environment's folders."""
    if sys.platform == "win32":
        return True
    facts = [path.stat() for path in (python, *list(python.parents)[:3])]
    own_groups = {0, os.getgid()}

    def others_can_write(fact: os.stat_result) -> bool:
        by_group = fact.st_mode & stat.S_IWGRP and fact.st_gid not in own_groups
        return not fact.st_mode & stat.S_ISVTX and bool(by_group or fact.st_mode & stat.S_IWOTH)

    return all(fact.st_uid in (0, os.getuid()) and not others_can_write(fact) for fact in facts)


@cache
def _asked(python: str) -> InstalledPackage:
    where = f"{python} ({PYTHON_VARIABLE})" if os.environ.get(PYTHON_VARIABLE) == python else python
    try:
        done = subprocess.run([python, "-I", "-c", _QUESTION], capture_output=True, text=True, timeout=_ASK_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PackageError(f"{where}: cannot be run: {error}; {INSTALL}") from None
    words = done.stdout.split()
    if done.returncode or len(words) != 2:
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise PackageError(f"{where}: has no {PACKAGE}: {said}; {INSTALL}")
    return InstalledPackage(Path(python), *words)


def require_package() -> InstalledPackage:
    """The installed package; PackageError where there is none, or one of another release line."""
    installed = find_package()
    if installed is None:
        strange = next((f"; {python} is not run: others can write there" for python in _pythons_above()), "")
        raise PackageError(f"{PACKAGE}: is not installed; {INSTALL}{strange}")
    if not installed.usable:
        raise PackageError(
            f"{PACKAGE} {installed.version} in {installed.python}: hexforge is written for {WANTED}; {INSTALL}"
        )
    return installed
