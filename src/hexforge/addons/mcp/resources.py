# SPDX-License-Identifier: Apache-2.0
"""The resources: pages and results below the folders, as an agent lists and reads them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from urllib.parse import unquote, urlsplit

from hexforge.cli.command_forms import Folders
from hexforge.errors import CallError

_KINDS = {
    ".html": "text/html", ".json": "application/json", ".csv": "text/csv", ".md": "text/markdown", ".txt": "text/plain",
    ".yaml": "application/yaml", ".yml": "application/yaml", ".log": "text/plain",
}  # fmt: skip
_MOST = 500
_MOST_FILES = 20_000
"""Looked at below the folders."""
_MOST_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Resource:
    """A file that an agent may read."""

    path: Path

    @property
    def uri(self) -> str:
        """Its address."""
        return self.path.as_uri()

    @property
    def kind(self) -> str:
        """Its media type."""
        return _KINDS[self.path.suffix.lower()]


def resources(folders: Folders) -> list[Resource]:
    """The readable files below the folders, the newest first."""
    files = sorted(islice(_files(folders), _MOST_FILES), key=lambda entry: -entry[1])
    return [Resource(path) for path, _ in files[:_MOST]]


def read_resource(uri: str, folders: Folders) -> tuple[str, str]:
    """The text of a resource and its media type; CallError for what is none, is elsewhere or is too large."""
    parts = urlsplit(uri)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise CallError(f"{uri!r:.200}: is no address of a file; resources/list has those that can be read")
    path = folders.path(unquote(parts.path))
    if path.suffix.lower() not in _KINDS or not path.is_file():
        raise CallError(f"{path.name!r}: is no file that is read as text; those end in {', '.join(_KINDS)}")
    if path.stat().st_size > _MOST_BYTES:
        raise CallError(f"{path.name!r}: has more than {_MOST_BYTES >> 20} MB")
    return path.read_text(encoding="utf-8", errors="replace"), _KINDS[path.suffix.lower()]


def _files(folders: Folders) -> Iterator[tuple[Path, float]]:
    """Files with a kind, and when each was changed; hidden folders and links are left out."""
    for root in folders.roots:
        for folder, inner, names in os.walk(root):
            inner[:] = [name for name in inner if not name.startswith(".")]
            for name in names:
                path = Path(folder, name)
                if path.suffix.lower() in _KINDS and path.is_file() and not path.is_symlink():
                    yield path, path.stat().st_mtime
