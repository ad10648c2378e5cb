# SPDX-License-Identifier: Apache-2.0
"""Messages between a library and its compiler process: parts of bytes with their lengths before them; no pickle.

A message is the bytes HXQ1, the number of parts (u32), and for each its length (u64) and its bytes, little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from io import BufferedRWPair
from typing import BinaryIO

from hexforge.errors import FormatError

MAGIC = b"HXQ1"
_HEAD, _SIZE = struct.Struct("<4sI"), struct.Struct("<Q")
MOST_PARTS = 1 << 22
Stream = BinaryIO | BufferedRWPair


def read_message(stream: Stream) -> list[bytes] | None:
    """The parts of the next message; None where the other side is gone."""
    head = stream.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    magic, count = _HEAD.unpack(head)
    if magic != MAGIC or count > MOST_PARTS:
        raise FormatError(
            "what came is no message of a QNN library of hexforge; library and package must be of one version"
        )
    parts: list[bytes] = []
    for _ in range(count):
        size = stream.read(_SIZE.size)
        if len(size) < _SIZE.size:
            return None
        (length,) = _SIZE.unpack(size)
        part = stream.read(length)
        if len(part) < length:
            return None
        parts.append(part)
    return parts


def write_message(stream: Stream, parts: Sequence[bytes | memoryview]) -> None:
    """Send a message."""
    stream.write(_HEAD.pack(MAGIC, len(parts)))
    for part in parts:
        stream.write(_SIZE.pack(len(part)))
        stream.write(part)
    stream.flush()
