# SPDX-License-Identifier: Apache-2.0
"""Files that a model names, which must be in the model's folder."""

from __future__ import annotations

from pathlib import Path, PurePosixPath, PureWindowsPath

from hexforge.errors import CallError, FormatError


def locate(location: str, folder: Path | None, model: Path | None, subject: str) -> Path:
    """The file a model names, which lies in its folder; `subject` begins the error where it does not."""
    if folder is None:
        raise CallError(f"{subject} lies in {location!r}; give the model by path, or the folder that holds it")
    posix, windows = PurePosixPath(location), PureWindowsPath(location)
    if not location or posix.is_absolute() or windows.drive or windows.root or ".." in windows.parts:
        raise FormatError(f"{subject}: {location!r} leaves the model's folder, which is not allowed")
    try:
        real = (folder / posix).resolve(strict=True)
        # A model file that is itself a link (as in download caches) may have its data beside what it links to.
        allowed = {folder.resolve()}
        if model is not None:
            allowed.add(model.resolve().parent)
    except FileNotFoundError:
        raise FormatError(f"{subject}: {location!r} is missing; put it beside the model") from None
    except (OSError, ValueError, RuntimeError) as error:
        raise FormatError(f"{subject}: {location!r} cannot be read: {error}") from None
    if not any(real.is_relative_to(a) for a in allowed):
        raise FormatError(f"{subject}: {location!r} links to a file outside the model's folder")
    if not real.is_file():
        raise FormatError(f"{subject}: {location!r} is not a file")
    return real
