# SPDX-License-Identifier: Apache-2.0
"""ETDump: what happened in runs of an ExecuTorch program, as the file that executorch.devtools.Inspector reads.

The file is a size-prefixed flatbuffer of ExecuTorch's schema etdump_schema_flatcc.fbs; tensors lie in a file beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import numpy as np

from hexforge.formats.executorch.pte import ScalarType

IDENTIFIER = b"ED00"
_TENSOR = 5
_ALIGN = 64
_TYPES = {t.numpy: t for t in ScalarType}


@dataclass(frozen=True, slots=True)
class ProfileEvent:
    """Something that took time; `delegate_id` names a part of a delegate."""

    name: str
    start: int
    end: int
    instruction: int = -1
    delegate_id: str = ""


@dataclass(frozen=True, slots=True)
class LoggedTensor:
    """A tensor that was computed, and where its numbers lie in the file beside."""

    name: str
    dtype: ScalarType
    sizes: tuple[int, ...]
    offset: int
    instruction: int = -1
    delegate_id: str = ""
    is_output: bool = False


@dataclass(slots=True)
class RunLog:
    """The events of one run."""

    name: str
    events: list[ProfileEvent | LoggedTensor] = field(default_factory=list)


class TensorStore:
    """Numbers of tensors, one after the other; at most `limit` bytes of them."""

    def __init__(self, limit: int) -> None:
        self._parts: list[bytes] = []
        self._end = 0
        self._limit = limit
        self.is_full = False
        """True where a tensor was left out, and with it all that came later."""

    def put(self, array: np.ndarray[Any, Any]) -> int | None:
        """Store an array: its offset; None where there is no room."""
        data = np.ascontiguousarray(array).tobytes()
        if self.is_full or self._end + len(data) > self._limit:
            self.is_full = True
            return None
        offset = self._end
        padding = -len(data) % _ALIGN
        self._parts += [data, bytes(padding)]
        self._end += len(data) + padding
        return offset

    @property
    def parts(self) -> Sequence[bytes]:
        """The file's bytes."""
        return self._parts


def scalar_type(dtype: np.dtype[Any]) -> ScalarType | None:
    """ExecuTorch's name of a numpy type; None where it has none."""
    return _TYPES.get(dtype)


def dump(runs: Sequence[RunLog]) -> bytes:
    """The file."""
    builder = flatbuffers.Builder(1 << 16)
    blocks = [_run(builder, run) for run in runs]
    vector = _offsets(builder, blocks)
    builder.StartObject(2)
    builder.PrependUOffsetTRelativeSlot(1, vector, 0)
    builder.FinishSizePrefixed(builder.EndObject(), IDENTIFIER)
    return bytes(builder.Output())


def _offsets(builder: Any, items: Sequence[int]) -> int:
    builder.StartVector(4, len(items), 4)
    for item in reversed(items):
        builder.PrependUOffsetTRelative(item)
    return int(builder.EndVector())


def _longs(builder: Any, numbers: Sequence[int]) -> int:
    builder.StartVector(8, len(numbers), 8)
    for number in reversed(numbers):
        builder.PrependInt64(number)
    return int(builder.EndVector())


def _run(builder: Any, run: RunLog) -> int:
    name = builder.CreateString(run.name)
    events = _offsets(builder, [_event(builder, event) for event in run.events])
    builder.StartObject(4)
    builder.PrependUOffsetTRelativeSlot(0, name, 0)
    builder.PrependUOffsetTRelativeSlot(3, events, 0)
    return int(builder.EndObject())


def _event(builder: Any, event: ProfileEvent | LoggedTensor) -> int:
    slot, inner = (0, _profile(builder, event)) if isinstance(event, ProfileEvent) else (2, _debug(builder, event))
    builder.StartObject(3)
    builder.PrependUOffsetTRelativeSlot(slot, inner, 0)
    return int(builder.EndObject())


def _profile(builder: Any, event: ProfileEvent) -> int:
    name = builder.CreateString(event.name) if not event.delegate_id else 0
    delegate = builder.CreateString(event.delegate_id) if event.delegate_id else 0
    builder.StartObject(8)
    builder.PrependUOffsetTRelativeSlot(0, name, 0)
    builder.PrependInt32Slot(2, event.instruction, -1)
    builder.PrependUOffsetTRelativeSlot(4, delegate, 0)
    builder.PrependUint64Slot(6, event.start, 0)
    builder.PrependUint64Slot(7, event.end, 0)
    return int(builder.EndObject())


def _debug(builder: Any, event: LoggedTensor) -> int:
    name = builder.CreateString(event.name)
    delegate = builder.CreateString(event.delegate_id) if event.delegate_id else 0
    value = _value(builder, event)
    builder.StartObject(6)
    builder.PrependInt32Slot(1, event.instruction, -1)
    builder.PrependUOffsetTRelativeSlot(2, value, 0)
    builder.PrependUOffsetTRelativeSlot(4, delegate, 0)
    builder.PrependUOffsetTRelativeSlot(5, name, 0)
    return int(builder.EndObject())


def _value(builder: Any, event: LoggedTensor) -> int:
    strides = np.cumprod((1, *event.sizes[:0:-1]))[::-1].tolist() if event.sizes else []
    sizes, steps = _longs(builder, event.sizes), _longs(builder, strides)
    builder.StartObject(4)
    builder.PrependInt8Slot(0, int(event.dtype), 0)
    builder.PrependUOffsetTRelativeSlot(1, sizes, 0)
    builder.PrependUOffsetTRelativeSlot(2, steps, 0)
    builder.PrependInt64Slot(3, event.offset, 0)
    tensor = builder.EndObject()
    builder.StartObject(1)
    builder.PrependBoolSlot(0, event.is_output, False)
    output = builder.EndObject()
    builder.StartObject(8)
    builder.PrependInt8Slot(0, _TENSOR, 0)
    builder.PrependUOffsetTRelativeSlot(1, tensor, 0)
    if event.is_output:
        builder.PrependUOffsetTRelativeSlot(7, output, 0)
    return int(builder.EndObject())
