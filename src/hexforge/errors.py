# SPDX-License-Identifier: Apache-2.0
"""Errors, few, each named for who must act. A message says where, what, and what would work."""

from __future__ import annotations

from hexforge.terminal_text import visible


class HexforgeError(Exception):
    """Any error hexforge raises on purpose; `code` is the QNN numeric code where QNN has one.

    Its message may name what a file says, and reaches terminals by many ways: it is made visible here.
    """

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(visible(message))
        self.code = code


class ModelError(HexforgeError):
    """The model is wrong or unsupported as it stands: fix the model."""


class CallError(HexforgeError, ValueError):
    """An argument, option or input is wrong: fix the call."""


class ExistingFileError(CallError):
    """A file that is to be written is there already: remove it, or name another."""


class UnsupportedError(HexforgeError):
    """The backend refuses something: pick another backend, or allow fallback."""


class NoFallbackError(UnsupportedError):
    """Nodes are left to the CPU, and fallback to it is disabled: change the model, or allow it."""


class CapacityError(HexforgeError):
    """Something does not fit: make it smaller."""


class PackageError(HexforgeError):
    """A package that is asked for is missing, is of another version, or failed: install it, or mend it."""


class FormatError(HexforgeError):
    """A file is damaged or not what it claims to be: get another file."""

    def __init__(self, message: str, offset: int | None = None, code: int | None = None) -> None:
        super().__init__(message if offset is None else f"{message} (at byte {offset})", code)
        self.offset = offset
