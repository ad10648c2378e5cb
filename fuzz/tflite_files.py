# SPDX-License-Identifier: Apache-2.0
"""Damaged .tflite files: a reason in words or a model, never a traceback, and never memory without bounds."""

from __future__ import annotations

import contextlib
import random
import resource
import traceback
from collections.abc import Sequence
from functools import cache

from hexforge.addons.tflite.convert import onnx_of_file
from hexforge.errors import HexforgeError
from hexforge.model.reader import read
from tests.addons.tflite.operator_cases import CASES
from tests.addons.tflite.test_control import branches, counter, detector, loop
from tests.addons.tflite.test_files import net

MOST_KIB = 600 << 10
"""What a round may add to the most memory that was ever held."""
_EXTREMES = (0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


@cache
def seeds() -> tuple[bytes, ...]:
    """A file for each operator and type, and nets with branches, loops and variables."""
    nets = [made.content() for made in (net(), branches(), loop(), counter(), detector())]
    return (*nets * 20, *(case.model(kind).content() for case in CASES for kind in case.types))


def damaged(seed: int) -> bytes:
    """One of the files, with a few bytes or numbers changed, or cut off."""
    dice = random.Random(seed)
    data = bytearray(dice.choice(seeds()))
    for _ in range(dice.choice((1, 1, 2, 4, 16))):
        at = dice.randrange(len(data))
        match dice.randrange(4):
            case 0:
                data[at] = dice.randrange(256)
            case 1:
                data[at & ~3 : (at & ~3) + 4] = dice.choice(_EXTREMES).to_bytes(4, "little")
            case 2:
                start = dice.randrange(len(data)) & ~3
                data[at & ~3 : (at & ~3) + 8] = data[start : start + 8]
            case 3 if dice.random() < 0.1:
                del data[at:]
        if not data:
            break
    return bytes(data)


def tflite_file(data: bytes) -> None:
    """Read a file as every command does."""
    with contextlib.suppress(HexforgeError):
        read(onnx_of_file(data, "damaged.tflite"))


def damaged_tflite(seed: int) -> Sequence[str]:
    """What is wrong with a round."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        tflite_file(damaged(seed))
    except Exception:
        return [f"seed {seed}: {traceback.format_exc(limit=-4)}"]
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return [f"seed {seed}: took {grown >> 10} MiB more"] if grown > MOST_KIB else []
