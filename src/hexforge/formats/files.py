"""Files: written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hexforge.errors import CallError


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file whole or not at all: a temporary beside it, flushed to disk, then renamed."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise CallError(f"{path}: cannot be written: {error.strerror or error}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        Path(temporary).chmod(0o666 & ~umask)  # mkstemp makes it private
        Path(temporary).replace(path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise CallError(f"{path}: cannot be written: {error.strerror or error}") from None
