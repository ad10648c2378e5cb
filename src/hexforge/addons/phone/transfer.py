# SPDX-License-Identifier: Apache-2.0
"""Push and pull: files to a phone and back, each whole or not at all, with adb's words for what was done."""

from __future__ import annotations

import os
import secrets
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from hexforge.addons.phone.phones import Phone, UnpluggedError
from hexforge.addons.phone.program_files import head_of, open_own

_CHUNK = 1 << 18


class TransferError(Exception):
    """Something could not be copied: adb's words, after `adb: error: `."""


@dataclass(frozen=True, slots=True)
class Transferred:
    """What was copied."""

    files: int
    size_bytes: int
    seconds: float

    def __add__(self, other: Transferred) -> Transferred:
        return Transferred(self.files + other.files, self.size_bytes + other.size_bytes, self.seconds + other.seconds)

    def line(self, done: str) -> str:
        """adb's line for it; `done` is pushed or pulled."""
        rate = self.size_bytes / max(self.seconds, 1e-6) / 1e6
        plural = "" if self.files == 1 else "s"
        sizes = f" {rate:.1f} MB/s ({self.size_bytes} bytes in {self.seconds:.3f}s)" if self.files else ""
        return f"{self.files} file{plural} {done}, 0 skipped.{sizes}"


def push(phone: Phone, sources: Sequence[str], target: str) -> Iterator[tuple[str, Transferred]]:
    """Copy files and folders to the phone; each source with what was copied of it."""
    storage = phone.storage
    place = _on_phone(phone, target)
    if (len(sources) > 1 or target.endswith("/")) and place.exists() and not place.is_dir():
        raise TransferError(f"target '{target}' is not a directory")
    if len(sources) > 1 and not place.is_dir():
        raise TransferError(f"target '{target}' is not a directory")
    for source in sources:
        path = Path(source)
        if not path.exists():
            raise TransferError(f"cannot stat '{source}': No such file or directory")
        into = place.is_dir() or (target.endswith("/") and not path.is_dir())
        goal = place / path.name if into and path.name and not source.endswith("/.") else place
        goal = storage.host(storage.phone_path(goal))
        yield source, _copy_all(phone, path, goal, source, storage.phone_path(goal), keep_times=False)


def pull(
    phone: Phone, sources: Sequence[str], target: str, *, keep_times: bool = False
) -> Iterator[tuple[str, Transferred]]:
    """Copy files and folders from the phone; each source with what was copied of it."""
    place = Path(target)
    if len(sources) > 1 and not place.is_dir():
        raise TransferError(f"target '{target}' is not a directory")
    for source in sources:
        path = _on_phone(phone, source)
        if not path.exists():
            raise TransferError(f"failed to stat remote object '{source}': No such file or directory")
        name = path.name if path != phone.storage.folder else ""
        # `adb pull folder/. here` copies what is in the folder
        inside = place.is_dir() and not source.endswith("/.")
        goal = place / name if inside else place
        shown = str(goal)
        if not goal.parent.is_dir():
            raise TransferError(f"cannot create file/directory '{shown}': No such file or directory")
        yield source, _copy_all(phone, path, goal, source, shown, keep_times=keep_times)


def _on_phone(phone: Phone, path: str) -> Path:
    try:
        return phone.storage.host(path)
    except OSError as error:
        raise TransferError(f"'{path}': {error.strerror}") from None


def _copy_all(phone: Phone, source: Path, target: Path, shown: str, goal: str, *, keep_times: bool) -> Transferred:
    start = time.perf_counter()
    phone.require_plugged()
    files = size = 0
    try:
        for path, place in _pairs(source, target):
            if path.is_relative_to(phone.storage.folder):
                path = phone.storage.host(phone.storage.phone_path(path))  # links lead where they do on the phone
            if path.is_dir():
                place.mkdir(parents=True, exist_ok=True)
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            size += copy_whole(phone, path, place, keep_times=keep_times)
            files += 1
    except UnpluggedError:
        raise TransferError(f"failed to copy '{shown}' to '{goal}': couldn't read from device") from None
    except OSError as error:
        raise TransferError(f"failed to copy '{shown}' to '{goal}': {error.strerror or error}") from None
    return Transferred(files, size, time.perf_counter() - start)


def _pairs(source: Path, target: Path) -> Iterator[tuple[Path, Path]]:
    """Files and folders, and where they go."""
    if not source.is_dir():
        yield source, target / source.name if target.is_dir() else target
        return
    yield source, target
    for folder, names, files in os.walk(source):
        names.sort()
        below = target / Path(folder).relative_to(source)
        yield from ((Path(folder) / name, below / name) for name in names)
        yield from ((Path(folder) / name, below / name) for name in sorted(files))


def copy_whole(phone: Phone, source: Path, target: Path, *, keep_times: bool = False) -> int:
    """Copy a file so that it is there whole or not at all; its size. UnpluggedError leaves what was there before."""
    size = 0
    from_phone = source.is_relative_to(phone.storage.folder)
    with staged(target) as place:
        with open_own(source) if from_phone else source.open("rb") as read, place.open("xb") as write:
            if not from_phone:
                write.write(head_of(target.name))
            while chunk := read.read(_CHUNK):
                phone.require_plugged()
                write.write(chunk)
                size += len(chunk)
            facts = os.fstat(read.fileno())
        phone.require_plugged()
        place.chmod(stat.S_IMODE(facts.st_mode) | 0o600)
        if keep_times:
            os.utime(place, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    return size


@contextmanager
def staged(target: Path) -> Iterator[Path]:
    """Where a file is written before it takes its place; after an error nothing of it is left."""
    place = target.with_name(f".{target.name[:200]}.{secrets.token_hex(8)}.part")
    try:
        yield place
        place.replace(target)
    finally:
        with suppress(OSError):
            place.unlink(missing_ok=True)
