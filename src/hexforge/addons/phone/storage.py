# SPDX-License-Identifier: Apache-2.0
"""PhoneStorage: a folder of this computer as the file system of a phone; no path of the phone leaves it."""

from __future__ import annotations

import os
import posixpath
from pathlib import Path

FOLDERS = ("data/local/tmp", "sdcard", "storage/emulated/0", "system/bin", "vendor/lib64", "proc", "dev", "odm", "mnt")
"""What a new phone has."""
NULL = "/dev/null"
_MOST_LINKS = 40


class PhoneStorage:
    """Paths of a phone as paths of this computer; `..` ends at the phone's root, as on the phone."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(os.path.realpath(folder))

    def create(self) -> None:
        """Make the folders that a new phone has."""
        for name in FOLDERS:
            (self.folder / name).mkdir(parents=True, exist_ok=True)

    @staticmethod
    def absolute(path: str, working: str = "/") -> str:
        """A path of the phone from its root, without dots."""
        joined = posixpath.normpath(posixpath.join("/", working, path))
        return "/" + joined.lstrip("/")

    def host(self, path: str, working: str = "/", *, follow: bool = True) -> Path:
        """Where a path of the phone lies on this computer; links are followed as the phone sees them.

        The last part of the path, too, unless `follow` is False. OSError where links go in circles.
        """
        left = self.absolute(path, working).split("/")[1:][::-1]
        if "\0" in path:
            raise OSError(22, "Invalid argument", path.replace("\0", "?"))
        place, links = self.folder, 0
        while left:
            part = left.pop()
            if part == "..":
                place = place.parent if place != self.folder else place
            elif part not in ("", "."):
                place = place / part
                if (left or follow) and place.is_symlink():
                    target, links = str(place.readlink()), links + 1
                    if links > _MOST_LINKS:
                        raise OSError(40, "Too many symbolic links encountered", path)
                    left += target.split("/")[::-1]
                    place = self.folder if target.startswith("/") else place.parent
        return place

    def phone_path(self, host: Path) -> str:
        """The path that a file of this computer has on the phone."""
        return "/" + host.relative_to(self.folder).as_posix().removeprefix(".")

    def way_up(self, working: str) -> str:
        """A relative path from a folder of the phone to its root: `../..`, or `.` for the root itself."""
        depth = len([part for part in working.split("/") if part])
        return "/".join([".."] * depth) or "."
