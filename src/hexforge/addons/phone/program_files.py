# SPDX-License-Identifier: Apache-2.0
"""Files of the phone's programs: what is pushed under the name of one becomes it.

A program that scripts push is the SDK's, for another processor; whatever it holds, its name is what counts. So it
begins on the phone with two lines of a script that call the phone's own program of that name, and it loses them when it
is pulled.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from hexforge.addons.phone.programs import RUNNERS


def head_of(name: str) -> bytes:
    """What a file of this name begins with on the phone; nothing for most."""
    return f'#!/system/bin/sh\nexec /system/bin/{name} "$@"\n'.encode() if name in RUNNERS else b""


def open_own(path: Path) -> BinaryIO:
    """A file of the phone from where its own content begins."""
    head = head_of(path.name)
    file = path.open("rb")
    if head and file.read(len(head)) != head:
        file.seek(0)
    return file


def own_size(path: Path, facts: os.stat_result) -> int:
    """How many bytes of a file of the phone are its own content."""
    if path.name not in RUNNERS or not path.is_file():
        return facts.st_size
    with open_own(path) as file:
        return facts.st_size - file.tell()
