# SPDX-License-Identifier: Apache-2.0
"""FolderManifest: what a deployed folder says of itself, checked as the file of somebody else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Literal

from hexforge.errors import FormatError
from hexforge.formats.validated import validated_json

FORMAT = 1
_MOST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class ShippedFile:
    """Size and checksum of a file."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ShippedChip:
    """What a folder has for one chip."""

    provider_options: dict[str, str]
    context_model: str | None
    """None where no context was made yet."""
    context_bytes: int | None = None
    proof_holds: bool | None = None
    left_on_cpu: tuple[dict[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class FolderManifest:
    """The record in manifest.json."""

    format: Literal[1]
    model: str
    chips: dict[str, ShippedChip]
    files: dict[str, ShippedFile]
    made_of: str = ""
    versions: dict[str, Any] | None = None
    doctor: tuple[dict[str, str], ...] = ()
    make_contexts: str | None = None

    def stray_names(self) -> list[str]:
        """Names that leave the folder."""
        contexts = [chip.context_model or "" for chip in self.chips.values()]
        return [name for name in (self.model, *self.chips, *self.files, *contexts) if _leaves(name)]

    def without_checksum(self, *names: str) -> list[str]:
        """Files that the folder is used by and that nothing is known of; `names` are used beside models."""
        contexts = [chip.context_model for chip in self.chips.values() if chip.context_model]
        return [name for name in (self.model, *contexts, *names) if name not in self.files]


def _leaves(name: str) -> bool:
    path = PurePosixPath(name)
    return path.is_absolute() or ".." in path.parts or bool(PureWindowsPath(name).anchor) or "\0" in name


def read_manifest_file(path: Path) -> FolderManifest:
    """The manifest in a file; FormatError with what is wrong with it."""
    fault = f"{path}: is no manifest, or a damaged one"
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise FormatError(f"{path}: is larger than any manifest")
        manifest = validated_json(FolderManifest, path.read_bytes(), fault, FormatError)
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror or error}") from None
    if not manifest.chips:
        raise FormatError(f"{fault}: it names no chip")
    if stray := manifest.stray_names():
        raise FormatError(f"{fault}: {stray[0]!r} is not in the folder")
    return manifest
