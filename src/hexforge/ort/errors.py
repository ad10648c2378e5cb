# SPDX-License-Identifier: Apache-2.0
"""Errors of sessions: hexforge's own, that code written for onnxruntime catches as onnxruntime's."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from onnxruntime.capi import onnxruntime_pybind11_state as real

from hexforge.errors import (
    CallError,
    CapacityError,
    ExistingFileError,
    FormatError,
    HexforgeError,
    ModelError,
    NoFallbackError,
    UnsupportedError,
)

_P = ParamSpec("_P")
_R = TypeVar("_R")


class InvalidArgumentError(CallError, real.InvalidArgument):  # type: ignore[misc]
    """A CallError that is onnxruntime's InvalidArgument."""


class NoSuchFileError(FormatError, real.NoSuchFile):  # type: ignore[misc]
    """A FormatError that is onnxruntime's NoSuchFile."""


class InvalidGraphError(ModelError, real.InvalidGraph):  # type: ignore[misc]
    """A ModelError that is onnxruntime's InvalidGraph."""


class InvalidProtobufError(FormatError, real.InvalidProtobuf):  # type: ignore[misc]
    """A FormatError that is onnxruntime's InvalidProtobuf."""


class NotTakenError(UnsupportedError, real.NotImplemented):  # type: ignore[misc]
    """An UnsupportedError that is onnxruntime's NotImplemented."""


class DoesNotFitError(CapacityError, real.Fail):  # type: ignore[misc]
    """A CapacityError that is onnxruntime's Fail."""


class NotPlacedError(NoFallbackError, real.Fail):  # type: ignore[misc]
    """A NoFallbackError that is onnxruntime's Fail."""


class FileIsThereError(ExistingFileError, real.Fail):  # type: ignore[misc]
    """An ExistingFileError that is onnxruntime's Fail."""


class EngineFailedError(HexforgeError, real.EngineError):  # type: ignore[misc]
    """The device crashed or was lost: onnxruntime's EngineError (ENGINE_ERROR)."""


class FailedError(HexforgeError, real.Fail):  # type: ignore[misc]
    """Any other error, that is onnxruntime's Fail."""


_KINDS: tuple[tuple[type[HexforgeError], type[HexforgeError]], ...] = (
    (ExistingFileError, FileIsThereError),
    (CallError, InvalidArgumentError),
    (ModelError, InvalidGraphError),
    (FormatError, InvalidProtobufError),
    (NoFallbackError, NotPlacedError),
    (UnsupportedError, NotTakenError),
    (CapacityError, DoesNotFitError),
    (HexforgeError, FailedError),
)
_DEVICE_LOST = 1007  # QNN_COMMON_ERROR_SYSTEM_COMMUNICATION
_OURS = (*(kind for _, kind in _KINDS), NoSuchFileError, EngineFailedError)


def as_onnxruntime(error: HexforgeError, source: Any = None) -> HexforgeError:
    """The error as one that is also onnxruntime's; `source` is the model a session is made of."""
    if isinstance(error, _OURS):
        return error
    kind = next(ours for theirs, ours in _KINDS if isinstance(error, theirs))
    if error.code == _DEVICE_LOST:
        kind = EngineFailedError
    if kind is InvalidProtobufError and isinstance(source, str | os.PathLike) and not Path(source).exists():
        kind = NoSuchFileError
    made = kind.__new__(kind, *error.args)
    made.__dict__.update(error.__dict__)
    return made


def raises_onnxruntime_errors(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """A method of a session whose errors are onnxruntime's too."""

    @functools.wraps(method)
    def call(*arguments: _P.args, **named: _P.kwargs) -> _R:
        try:
            return method(*arguments, **named)
        except HexforgeError as error:
            source = arguments[1] if method.__name__ == "__init__" and len(arguments) > 1 else None
            raise as_onnxruntime(error, source).with_traceback(error.__traceback__) from error.__cause__

    return call
