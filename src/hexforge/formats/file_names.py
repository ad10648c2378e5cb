# SPDX-License-Identifier: Apache-2.0
"""File names out of names that a file says: graphs, tensors and models may be called anything.

Every path that is made of such a name is made here. A name becomes one part of a path, never a folder, never one above;
different names become different files.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

_ODD = re.compile(r"[^\w.+-]")
_MOST_BYTES = 180
"""Of a stem: file systems take 255 for a whole name, and writers add endings and the mark of a temporary."""


def file_stem(name: str) -> str:
    """A name as a file may be called: without separators, never empty or hidden, not too long."""
    stem = _ODD.sub("_", name)
    stem = "_" + stem[1:] if stem.startswith(".") else stem
    return stem.encode()[:_MOST_BYTES].decode(errors="ignore") or "unnamed"


def file_names(names: Iterable[str], endings: Sequence[str] = ("",), *, taken: Collection[str] = ()) -> dict[str, str]:
    """A stem for each of different names, no two of which are one file, with whichever of the endings.

    A name that is a file name as it is stays so. Another has `_` for each odd character and, where that is another's
    name, a number behind it. `taken` are file names of others in the same folder.
    """
    known = list(dict.fromkeys(names))
    used = set(taken)
    stems: dict[str, str] = {}
    for name in sorted(known, key=lambda name: file_stem(name) != name):  # those that stay as they are come first
        stem, number = file_stem(name), 1
        while any(f"{stem}{ending}" in used for ending in endings):
            number += 1
            stem = f"{file_stem(name)}~{number}"
        stems[name] = stem
        used.update(f"{stem}{ending}" for ending in endings)
    return {name: stems[name] for name in known}
