# SPDX-License-Identifier: Apache-2.0
"""Wire: a serialized model walked without parsing it, so that what it embeds is never copied along with the rest."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from hexforge.errors import FormatError

_GRAPH, _NODE, _ATTRIBUTE = 7, 1, 5  # ModelProto.graph, GraphProto.node, NodeProto.attribute
_INITIALIZER, _DIMS, _TENSOR_TYPE, _TENSOR_NAME, _RAW_DATA = 5, 1, 2, 8, 9  # GraphProto's field, and TensorProto's
_OP_TYPE, _NAME, _BYTES = 4, 1, 4  # NodeProto.op_type, AttributeProto.name, AttributeProto.s
_FIXED = {1: 8, 5: 4}  # wire types of 64 and 32 bits
_DELIMITED, _VARINT = 2, 0
_CACHE = b"ep_cache_context"
LEAST_DETACHED_BYTES = 4096  # a file name is shorter, a context is larger; a tensor that is worth it is, too


def has_contexts(data: memoryview) -> bool:
    """True where a node of the graph is an EPContext. What is no model has none."""
    try:
        for number, wire, _, start, end in message_fields(data, 0, len(data)):
            if number == _GRAPH and wire == _DELIMITED:
                for inner, kind, _, at, stop in message_fields(data, start, end):
                    if inner == _NODE and kind == _DELIMITED and _is_context(data, at, stop):
                        return True
    except FormatError:
        return False
    return False


def holds_contexts(path: Path) -> bool:
    """Whether a node of the model in a file is an EPContext; only where its parts begin is read."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return has_contexts(memoryview(mapped))


def _is_context(data: memoryview, start: int, end: int) -> bool:
    if end - start < LEAST_DETACHED_BYTES and bytes(data[start:end]).find(b"EPContext") < 0:
        return False  # which most nodes are, and finding out is quicker than walking them
    return _op_type(data, start, end) == b"EPContext"


def detach_tensors(data: bytes, types: Collection[int]) -> tuple[bytes, dict[str, memoryview]]:
    """A serialized model without the bytes of its large initializers of these data types, and these by name.

    They stay views of `data`: parsing would copy them, and asking protobuf for them once more.
    """
    views: dict[str, memoryview] = {}
    whole = memoryview(data)

    def initializer(start: int, end: int) -> bytes | memoryview:
        place = _raw_data(data, start, end, types) if end - start >= LEAST_DETACHED_BYTES else None
        if place is None or place.name in views:
            return whole[start:end]
        views[place.name] = whole[place.start : place.end]
        return b"".join((whole[start : place.key], whole[place.end : end]))

    def graph(start: int, end: int) -> bytes:
        return _rebuilt(whole, start, end, _INITIALIZER, initializer)

    return _rebuilt(whole, 0, len(data), _GRAPH, graph), views


@dataclass(frozen=True, slots=True)
class _RawData:
    """Where the bytes of a tensor are, and the key of their field; the tensor's name."""

    key: int
    start: int
    end: int
    name: str


def _raw_data(data: bytes, start: int, end: int, types: Collection[int]) -> _RawData | None:
    """The bytes of a tensor that says each thing once, and nothing of other data; None for any other."""
    fields: dict[int, tuple[int, int, int]] = {}
    before = start
    for number, wire, _, at, stop in message_fields(data, start, end):
        if number in (_TENSOR_TYPE, _TENSOR_NAME, _RAW_DATA):
            if number in fields or wire != (_VARINT if number == _TENSOR_TYPE else _DELIMITED):
                return None
            fields[number] = before, at, stop
        elif number != _DIMS:
            return None
        before = stop
    if len(fields) < 3 or _number(data, *fields[_TENSOR_TYPE][1:])[0] not in types:
        return None
    key, at, stop = fields[_RAW_DATA]
    try:
        name = data[slice(*fields[_TENSOR_NAME][1:])].decode()
    except UnicodeDecodeError:
        return None
    return _RawData(key, at, stop, name) if stop - at >= LEAST_DETACHED_BYTES // 2 else None


def detach_contexts(data: memoryview) -> tuple[bytes, dict[int, memoryview]]:
    """A serialized model without the contexts embedded in it, and these by the number of their node.

    They stay views of `data`.
    """
    embedded: dict[int, memoryview] = {}
    count = 0

    def node(start: int, end: int) -> bytes:
        nonlocal count
        count += 1
        return _rebuilt(data, start, end, _ATTRIBUTE, attribute)

    def attribute(start: int, end: int) -> bytes:
        fields = {
            number: (at, stop) for number, wire, _, at, stop in message_fields(data, start, end) if wire == _DELIMITED
        }
        at, stop = fields.get(_BYTES, (0, 0))
        name = fields.get(_NAME, (0, 0))
        if data[slice(*name)] != _CACHE or stop - at < LEAST_DETACHED_BYTES:
            return bytes(data[start:end])
        embedded[count - 1] = data[at:stop]
        return _rebuilt(data, start, end, _BYTES, lambda *_: b"")

    def graph(start: int, end: int) -> bytes:
        return _rebuilt(data, start, end, _NODE, node)

    return _rebuilt(data, 0, len(data), _GRAPH, graph), embedded


def _rebuilt(
    data: memoryview, start: int, end: int, field: int, replace: Callable[[int, int], bytes | memoryview]
) -> bytes:
    """A message with the contents of one field replaced by what a function makes of their range."""
    parts: list[bytes | memoryview] = []
    done = start
    for number, wire, head, at, stop in message_fields(data, start, end):
        if number == field and wire == _DELIMITED:
            content = replace(at, stop)
            parts += [data[done:head], _varint(len(content)), content]
            done = stop
    parts.append(data[done:end])
    return b"".join(parts)


def _op_type(data: memoryview, start: int, end: int) -> bytes:
    for number, wire, _, at, stop in message_fields(data, start, end):
        if number == _OP_TYPE and wire == _DELIMITED:
            return bytes(data[at:stop]) if stop - at < 64 else b""
    return b""


def message_fields(data: memoryview | bytes, start: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Each field of a message: number, wire type, where its key ends, and the range of its contents."""
    while start < end:
        key, head = data[start], start + 1
        if key > 0x7F:  # most numbers are one byte
            key, head = _number(data, start, end)
        number, wire, at = key >> 3, key & 7, head
        if wire == _DELIMITED:
            if head < end and (size := data[head]) <= 0x7F:
                at = head + 1
            else:
                size, at = _number(data, head, end)
            stop = at + size
        elif wire == _VARINT:
            _, stop = _number(data, at, end)
        else:
            stop = at + _FIXED.get(wire, end + 1)
        if stop > end or number == 0:
            raise FormatError("the model is cut off or damaged, or is no ONNX model", start)
        yield number, wire, head, at, stop
        start = stop


def _number(data: memoryview | bytes, start: int, end: int) -> tuple[int, int]:
    """A varint and where it ends."""
    value = shift = 0
    for at in range(start, min(end, start + 10)):
        value |= (data[at] & 0x7F) << shift
        if data[at] < 0x80:
            return value, at + 1
        shift += 7
    raise FormatError("the model is cut off or damaged, or is no ONNX model", start)


def _varint(value: int) -> bytes:
    coded = bytearray()
    while value > 0x7F:
        coded.append(value & 0x7F | 0x80)
        value >>= 7
    coded.append(value)
    return bytes(coded)
