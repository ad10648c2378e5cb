# SPDX-License-Identifier: Apache-2.0
"""Messages between a shared device and programs: a length of four bytes, then one JSON object; records as their fields.

A record is a dataclass of numbers, texts, enums, tuples of texts and other records: `to_json` and `from_json` go by its
types, so that nothing but these comes out of a message.
"""

from __future__ import annotations

import json
import struct
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from hexforge.addons.device.codes import Code, DeviceError, ProcessEndedError
from hexforge.addons.device.scenario.fields import MOST, Fields
from hexforge.errors import CallError, FormatError, HexforgeError

VERSION = 1
"""Of these messages; both sides must have the same."""
LENGTH = struct.Struct(">I")
MOST_BYTES = 32 << 20
"""Of a message: the text of a large graph is some megabytes."""
MOST_HELLO_BYTES = 4096
"""Of the first one, before its sender is known."""
Message = dict[str, Any]
Record = TypeVar("Record")


def packed(message: Mapping[str, Any], most: int = MOST_BYTES) -> bytes:
    """A message as bytes; CallError where it is too large."""
    body = json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    if len(body) > most:
        raise CallError(f"a message of {len(body):,} bytes to a shared device; at most {most:,} are taken")
    return LENGTH.pack(len(body)) + body


def length_of(head: bytes, most: int = MOST_BYTES) -> int:
    """The length that a message begins with; FormatError where it is more than a message can have."""
    size: int = LENGTH.unpack(head)[0]
    if not 0 < size <= most:
        raise FormatError(f"a message of {size:,} bytes; it has 1 to {most:,}")
    return size


def unpacked(body: bytes) -> Message:
    """The message in bytes; FormatError where they are none."""
    try:
        message = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"a message that is no JSON: {error}") from None
    if not isinstance(message, dict):
        raise FormatError(f"a message is a {type(message).__name__}, not an object")
    return message


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no number")


# -- records ----------------------------------------------------------------------------------------------------------


def to_json(value: Any, without: tuple[str, ...] = ()) -> Any:
    """A record, or what is in one, as JSON data; `without` some of its fields."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in fields(value) if f.name not in without}
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_json(item) for item in value]
    return value


def from_json(kind: type[Record], given: Fields, **known: Any) -> Record:
    """A record of its JSON data, every field checked by its type; `known` are fields that do not come from there."""
    assert is_dataclass(kind)
    hints = get_type_hints(kind)
    values = dict(known)
    for field in fields(kind):
        if field.name in known:
            continue
        needed = field.default is MISSING and field.default_factory is MISSING
        if needed or given.has(field.name):
            values[field.name] = _value(hints[field.name], given, field.name)
        given.any(field.name, None)
    given.done()
    return cast(Record, kind(**values))


def _value(hint: Any, given: Fields, name: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if given.any(name) is None:
            return None
        (hint,) = (argument for argument in arguments if argument is not type(None))
        origin, arguments = get_origin(hint), get_args(hint)
    if hint is bool:
        return given.flag(name)
    if hint is int:
        return given.count(name, low=-MOST)
    if hint is float:
        return given.number(name, low=-1e15)
    if hint is str:
        return given.text(name)
    if origin is tuple:
        return given.names(name)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint[given.text(name, choices=tuple(hint.__members__))]
    inner = Fields(given.any(name), f"{given.where}: {name}")
    if origin is not None:  # a mapping to an enum
        kind = arguments[1]
        return {key: kind[inner.text(key, choices=tuple(kind.__members__))] for key in given.any(name)}
    return from_json(hint, inner)


# -- errors -----------------------------------------------------------------------------------------------------------


def error_to_json(error: HexforgeError) -> Message:
    """An error so that the other side can raise it again."""
    if isinstance(error, DeviceError):
        return {"kind": "device", "code": error.name, "message": str(error).removesuffix(_suffix(error))}
    kind = "ended" if isinstance(error, ProcessEndedError) else "call" if isinstance(error, CallError) else "other"
    return {"kind": kind, "message": str(error)}


def error_from_json(data: Any) -> HexforgeError:
    """An error that the other side sent."""
    given = Fields(data, "error of the shared device")
    kind, message = given.text("kind"), given.text("message")
    if kind == "device":
        return DeviceError(Code[given.text("code", choices=tuple(Code.__members__))], message)
    return {"ended": ProcessEndedError, "call": CallError}.get(kind, HexforgeError)(message)


def _suffix(error: DeviceError) -> str:
    return f" ({error.name}, {error.code})"
