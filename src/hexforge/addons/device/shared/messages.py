# SPDX-License-Identifier: Apache-2.0
"""Messages between a shared device and programs: a length of four bytes, then one JSON object; records as their fields.

A record is a dataclass of numbers, texts, enums by their values, tuples of texts and other records. What comes out of a
message is checked by the types of the record, or of the method that a request asks for (`formats.validated`).
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Annotated, Any

from hexforge.addons.device.codes import Code, DeviceError, ProcessEndedError
from hexforge.errors import CallError, FormatError, HexforgeError
from hexforge.formats.validated import MOST, ByName, validated

VERSION = 1
"""Of these messages; both sides must have the same."""
LENGTH = struct.Struct(">I")
MOST_BYTES = 32 << 20
"""Of a message: the text of a large graph is some megabytes."""
MOST_HELLO_BYTES = 4096
"""Of the first one, before its sender is known."""
Message = dict[str, Any]
_HALF_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")
"""The escape of a character's half, alone or with its other half."""


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
        text = body.decode("utf-8")
        message = json.loads(text, parse_constant=_refuse, parse_int=_whole, parse_float=_real)
        if _HALF_CHARACTER.search(text):
            json.dumps(message, ensure_ascii=False).encode()  # half a character alone is no text that can be written
    except (ValueError, RecursionError) as error:
        raise FormatError(f"a message that is no JSON: {error}") from None
    if not isinstance(message, dict):
        raise FormatError(f"a message is a {type(message).__name__}, not an object")
    return message


def _refuse(word: str) -> Any:
    raise ValueError(f"{word[:40]} is no number that can be here")


def _whole(digits: str) -> int:
    return int(digits) if len(digits) <= 20 and abs(int(digits)) <= MOST else int(_refuse(digits))


def _real(digits: str) -> float:
    return value if abs(value := float(digits)) <= 1e15 else float(_refuse(digits))


# -- records ----------------------------------------------------------------------------------------------------------


def to_json(value: Any, without: tuple[str, ...] = ()) -> Any:
    """A record, or what is in one, as JSON data; `without` some of its fields."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in fields(value) if f.name not in without}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_json(item) for item in value]
    return value


# -- errors -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _ErrorMessage:
    kind: str
    message: str
    code: Annotated[Code, ByName()] | None = None
    number: int = 0
    """Of the code, for programs in C."""


def error_to_json(error: HexforgeError) -> Message:
    """An error so that the other side can raise it again."""
    if isinstance(error, DeviceError):
        return {
            "kind": "device",
            "code": error.name,
            "number": error.code,
            "message": str(error).removesuffix(_suffix(error)),
        }
    kind = "ended" if isinstance(error, ProcessEndedError) else "call" if isinstance(error, CallError) else "other"
    return {"kind": kind, "message": str(error)}


def error_from_json(data: Any) -> HexforgeError:
    """An error that the other side sent."""
    told = validated(_ErrorMessage, data, "error of the shared device")
    if told.code is not None:
        return DeviceError(told.code, told.message)
    return {"ended": ProcessEndedError, "call": CallError}.get(told.kind, HexforgeError)(told.message)


def _suffix(error: DeviceError) -> str:
    return f" ({error.name}, {error.code})"
