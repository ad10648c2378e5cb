# SPDX-License-Identifier: Apache-2.0
"""The folder that goes on PATH: an `adb` that speaks to the virtual phones."""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from pathlib import Path

from hexforge.formats.files import write_atomically

_CODE = "import sys; from hexforge.addons.phone.adb import main; sys.exit(main())"


def cache_folder() -> Path:
    """Where hexforge keeps what it can make again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hexforge"


def adb_folder() -> Path:
    """A folder with an adb that runs in this Python; it is made where it is not there."""
    mark = hashlib.sha256(os.fsencode(sys.executable)).hexdigest()[:12]
    folder = cache_folder() / f"adb-{mark}"
    if os.name == "nt":
        write_script(folder / "adb.bat", f'@"{sys.executable}" -P -c "{_CODE}" %*\r\n')
    else:
        write_script(folder / "adb", f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -c {shlex.quote(_CODE)} "$@"\n')
    return folder


def write_script(path: Path, text: str) -> None:
    """Write a file that can be run; one that is there with the same text is left alone."""
    if path.is_file() and path.read_bytes() == text.encode():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.encode())
    path.chmod(0o755)
