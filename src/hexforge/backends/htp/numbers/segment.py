# SPDX-License-Identifier: Apache-2.0
"""Segment: native steps that run in one call, and what a file holds of them (native/context/segment.cpp reads it)."""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hexforge import _native
from hexforge.backend import Put, Spinning, interruption
from hexforge.backends.htp.numbers.file_arrays import write_array
from hexforge.errors import CallError, CapacityError, FormatError
from hexforge.ir import Array

ROOM = max(_native.step_rooms().values())
"""Bytes behind a tensor that kernels may read, and never use."""
EXACT_FROM: dict[str, int] = _native.step_exact_from()
"""Of every kind of step the first input from which on it reads nothing behind its tensors."""
Known = dict[str, tuple[int, np.dtype[Any]]]
"""Tensors by name: their bytes and data type."""


@dataclass(frozen=True, slots=True)
class NativeCall:
    """One native step: its kind, tensors by number, attributes (integers, reals, lists of integers, arrays)."""

    kind: str
    ins: tuple[int, ...]
    outs: tuple[int, ...]
    attributes: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Segment:
    """Tensors in the order of their numbers, and the steps over them."""

    reads: tuple[str, ...]
    writes: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]
    arena_bytes: int
    tensors: tuple[tuple[str, int, int] | Array, ...]
    """("input" | "output" | "arena", offset, bytes), or a constant."""
    calls: tuple[NativeCall, ...]

    def to_json(self, put: Put, packing: bool = False) -> dict[str, Any]:
        """What a context file holds of it; arrays are put elsewhere, with `packing` in 4 bits where those do."""
        return {
            "reads": list(self.reads),
            "writes": [[name, dtype.str, list(shape)] for name, (dtype, shape) in self.writes.items()],
            "arena_bytes": self.arena_bytes,
            "tensors": [write_array(t, put, packing) if isinstance(t, np.ndarray) else list(t) for t in self.tensors],
            "steps": [
                [c.kind, list(c.ins), list(c.outs), {k: _attribute(v, put, packing) for k, v in c.attributes.items()}]
                for c in self.calls
            ],
        }

    def runner(self) -> SegmentRunner:
        """The segment, ready to run."""
        program = _native.Program(self.arena_bytes)
        # an output that a step reads again has bytes behind its end; inputs have none, so steps that need them refuse
        read = {tensor for call in self.calls for tensor in call.ins[: EXACT_FROM.get(call.kind, len(call.ins))]}
        rooms = []
        for i, tensor in enumerate(self.tensors):
            if isinstance(tensor, np.ndarray):
                program.constant_tensor(tensor)
            elif tensor[0] == "arena":
                program.arena_tensor(tensor[1], tensor[2])
            elif tensor[0] == "input":
                program.input_tensor(tensor[2])
            else:
                rooms.append(i in read)
                program.output_tensor(tensor[2], ROOM if i in read else 0)
        for call in self.calls:
            program.step(call.kind, call.ins, call.outs, call.attributes)
        program.require_assigned()
        rows = zip(self.writes.items(), rooms, strict=True)
        writes = [(name, dtype, shape, room) for (name, (dtype, shape)), room in rows]
        return SegmentRunner(program, self.arena_bytes, self.reads, writes)


class SegmentRunner:
    """A segment's native program, made of a lowered graph or by native code of what a file says."""

    def __init__(
        self, program: _native.Program, arena_bytes: int, reads: Sequence[str],
        writes: Sequence[tuple[str, np.dtype[Any], tuple[int, ...], bool]],
    ) -> None:  # fmt: skip
        """`writes`: names, data types, shapes, and whether bytes lie behind that steps may read, and never use."""
        self.reads, self.arena_bytes = tuple(reads), arena_bytes
        self._program, self._writes = program, writes
        self.states = {writes[output][0]: self.reads[place] for output, place in program.states.items()}
        """What runs may write in place: outputs by name, and the inputs that they are the next state of."""
        self._steps = len(program.kinds)
        self._last = {name: last for (name, *_), last in zip(writes, program.last_steps, strict=True)}
        """The number of steps after which each tensor that it writes is whole."""
        self._results = [ResultMemory(dtype, shape, room) for _, dtype, shape, room in writes]

    @property
    def kinds(self) -> Sequence[str]:
        """The kinds of its steps, in their order."""
        return self._program.kinds

    @classmethod
    def loaded(
        cls, program: _native.Program, arena_bytes: int, reads: Sequence[tuple[str, int]],
        writes: Sequence[tuple[str, str, Sequence[int], bool]], known: Known, name: str,
    ) -> SegmentRunner:  # fmt: skip
        """One of the program `name` that native code made: adds what it writes to what is `known` by name.

        FormatError where it reads what is not known, or is not of the size that it reads.
        """
        for tensor, size in reads:
            there, dtype = known.get(tensor, (-1, None))
            if there != size or dtype is None or dtype.kind not in "biuf":
                raise FormatError(f"program {name!r}: a native segment reads or writes tensors that are not there, or "
                                  "not of that size")  # fmt: skip
        rows = [(tensor, np.dtype(code), tuple(shape), room) for tensor, code, shape, room in writes]
        known.update((tensor, (math.prod(shape) * dtype.itemsize, dtype)) for tensor, dtype, shape, _ in rows)
        return cls(program, arena_bytes, [tensor for tensor, _ in reads], rows)

    @property
    def overflowed(self) -> bool:
        """True once a run had a number past what float16 holds."""
        return self._program.overflowed

    def _count(self, unwanted: Collection[str]) -> int:
        """How many steps there are up to the last one that writes something which is not unwanted."""
        return max((last for name, last in self._last.items() if name not in unwanted), default=0)

    def run(
        self, tensors: dict[str, Array], threads: int, spinning: Spinning, targets: Mapping[str, Array],
        unwanted: Collection[str] = (),
    ) -> None:  # fmt: skip
        """Read the tensors it needs, add those it writes, in `targets` where one is there.

        Steps behind the last one that writes something which is not `unwanted` are left out.

        An output that steps read beyond its end is written there only if a run made that array: it has bytes behind.
        """
        outs = [
            targets[name] if name in targets and (not room or is_padded(targets[name])) else results.take()
            for (name, _, _, room), results in zip(self._writes, self._results, strict=True)
        ]
        try:
            given = [tensors[n] for n in self.reads]
            whole = [with_room(array) if room else array for array, (*_, room) in zip(outs, self._writes, strict=True)]
            count = self._count(unwanted) if unwanted else self._steps
            during, after = spinning.during_us, spinning.after_us
            self._program.run(given, whole, threads, during, after, interruption.get(), count)
        except IndexError as error:  # a Gather or Scatter met an index outside its axis
            raise CallError(str(error)) from None
        except RuntimeError as error:  # its file was truncated
            raise FormatError(f"{error} while it was open; write contexts anew, and rename them over the old") from None
        except MemoryError:
            raise CapacityError(
                f"a run needs {self.arena_bytes:,} bytes of working memory, which cannot be had"
            ) from None
        for (name, *_), array in zip(self._writes, outs, strict=True):
            tensors[name] = array


class ResultMemory:
    """Arrays for one of the tensors that runs write: memory that nobody holds a result in any more is used again.

    The system would else take the memory of a large result back, and clear new pages for the next one.
    """

    _LEAST_BYTES = 1 << 15
    _MOST_KEPT = 4
    _LINE = 64

    def __init__(self, dtype: np.dtype[Any], shape: tuple[int, ...], room: bool) -> None:
        self._dtype, self._shape, self._size, self._room = dtype, shape, math.prod(shape), room
        self._small = self._size * dtype.itemsize < self._LEAST_BYTES
        self._kept: list[tuple[Array, int]] = []
        """Whole arrays and where in them results begin; each has one reference more for each result in it."""

    def take(self) -> Array:
        """An array that nobody else has."""
        if self._small:
            return padded(self._shape, self._dtype) if self._room else np.empty(self._shape, self._dtype)
        kept = self._kept
        for _ in range(len(kept)):
            try:
                whole, start = kept.pop(0)  # no other thread has it then
            except IndexError:
                break
            free = sys.getrefcount(whole) == _ALONE
            if free:
                result = self._part(whole, start)
            kept.append((whole, start))
            if free:
                return result
        whole, start = self._made()
        result = self._part(whole, start)
        kept.append((whole, start))
        if len(kept) > self._MOST_KEPT:
            kept.pop(0)
        return result

    def _part(self, whole: Array, start: int) -> Array:
        return whole[start : start + self._size].reshape(self._shape)

    def _made(self) -> tuple[Array, int]:
        """A new array: with bytes behind the result, or one whose result begins with a line of the caches."""
        if self._room:
            return np.empty(self._size + -(-ROOM // self._dtype.itemsize), self._dtype), 0
        whole = np.empty(self._size + self._LINE // self._dtype.itemsize, self._dtype)
        return whole, -whole.ctypes.data % self._LINE // self._dtype.itemsize


_ALONE = 2
"""References to an object that one variable holds, as `sys.getrefcount` counts them."""


def padded(shape: Sequence[int], dtype: np.dtype[Any], data: Array | None = None) -> Array:
    """An array with readable bytes behind it: kernels may read, never use, a vector past a tensor's end."""
    size = math.prod(shape)
    array = np.empty(size + -(-ROOM // dtype.itemsize), dtype)[:size].reshape(shape)
    if data is not None:
        array[...] = data
    return array


def with_room(array: Array) -> Array:
    """What `padded` made with the bytes behind it."""
    size = array.nbytes
    whole: Array = array.base.reshape(-1).view(np.uint8)  # type: ignore[union-attr]
    return whole[: size + ROOM]


def is_padded(array: Array) -> bool:
    """True for what `padded` made."""
    base = array.base
    return isinstance(base, np.ndarray) and base.nbytes >= array.nbytes + ROOM and base.ctypes.data == array.ctypes.data


def _attribute(value: Any, put: Put, packing: bool) -> Any:
    if isinstance(value, np.ndarray):
        return write_array(value, put, packing)
    if isinstance(value, bool | int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return {"real": float(value).hex()}  # every bit of it, and infinities
    return [int(v) for v in value]
