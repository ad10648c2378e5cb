# SPDX-License-Identifier: Apache-2.0
"""Segment: native steps that run in one call, with all that is needed to make them again from a file."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hexforge import _native
from hexforge.backend import Get, Put, Spinning, interruption
from hexforge.backends.htp.numbers import large_pages
from hexforge.backends.htp.numbers.file_arrays import DTYPES, LEAST, dtype_of, number, numbers, read_array, write_array
from hexforge.backends.htp.numbers.file_forms import ROOM
from hexforge.errors import CallError, CapacityError, FormatError
from hexforge.formats.container import as_text
from hexforge.ir import Array

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

    @classmethod
    def from_json(cls, data: Any, get: Get) -> Segment:
        """The segment that `to_json` wrote; FormatError where the data are not one."""
        try:
            tensors = tuple(_tensor(t, get) for t in data["tensors"])
            last = len(tensors) - 1
            return cls(
                tuple(map(as_text, data["reads"])),
                {as_text(name): (dtype_of(dtype), numbers(shape)) for name, dtype, shape in data["writes"]},
                number(data["arena_bytes"]),
                tensors,
                tuple(
                    NativeCall(
                        as_text(kind),
                        numbers(ins, most=last),
                        numbers(outs, most=last),
                        {k: _loaded(v, get) for k, v in at.items()},
                    )
                    for kind, ins, outs, at in data["steps"]
                ),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise FormatError(f"a native segment is malformed: {error!r}") from None

    def check(self, known: Known) -> None:
        """Add what it writes to what is `known` by name; FormatError where it does not fit to that."""
        reads = [t[2] for t in self.tensors if not isinstance(t, np.ndarray) and t[0] == "input"]
        writes = [t[2] for t in self.tensors if not isinstance(t, np.ndarray) and t[0] == "output"]
        given = [known.get(name, (-1, None)) for name in self.reads]
        made: Known = {n: (math.prod(shape) * dtype.itemsize, dtype) for n, (dtype, shape) in self.writes.items()}
        sizes = [size for size, _ in given], [size for size, _ in made.values()]
        if sizes != (reads, writes) or any(dtype is None or dtype.name not in DTYPES for _, dtype in given):
            raise FormatError("a native segment reads or writes tensors that are not there, or not of that size")
        known.update(made)

    def runner(self) -> SegmentRunner:
        """The segment, ready to run."""
        return SegmentRunner(self)


class SegmentRunner:
    """A segment's native program, and no more of the segment than a run needs."""

    def __init__(self, segment: Segment) -> None:
        self.reads, self.arena_bytes = segment.reads, segment.arena_bytes
        program = _native.Program(segment.arena_bytes)
        # an output that a step reads again has bytes behind its end; inputs have none, so steps that need them refuse
        read = {tensor for call in segment.calls for tensor in call.ins[: EXACT_FROM.get(call.kind, len(call.ins))]}
        for i, tensor in enumerate(segment.tensors):
            if isinstance(tensor, np.ndarray):
                program.constant_tensor(tensor)
            elif tensor[0] == "arena":
                program.arena_tensor(tensor[1], tensor[2])
            elif tensor[0] == "input":
                program.input_tensor(tensor[2])
            else:
                program.output_tensor(tensor[2], ROOM if i in read else 0)
        packed, others = (
            [call.attributes for call in segment.calls if call.kind.startswith("packed_") is wanted]
            for wanted in (True, False)
        )
        copies = large_pages.share(packed, others)
        for call in segment.calls:
            attributes = {name: copies.get(id(value), value) for name, value in call.attributes.items()}
            program.step(call.kind, call.ins, call.outs, attributes)
        program.require_assigned()
        self._program = program
        self.states = _states(segment)
        """What runs may write in place: outputs by name, and the inputs that they are the next state of."""
        places = [i for i, t in enumerate(segment.tensors) if not isinstance(t, np.ndarray) and t[0] == "output"]
        self._steps = len(segment.calls)
        written = {tensor: at for at, call in enumerate(segment.calls, 1) for tensor in call.outs}
        self._last = {name: written[place] for name, place in zip(segment.writes, places, strict=True)}
        """The number of steps after which each tensor that it writes is whole."""
        self._writes = [
            (name, dtype, shape, place in read)
            for (name, (dtype, shape)), place in zip(segment.writes.items(), places, strict=True)
        ]

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
            targets[name]
            if name in targets and (not room or is_padded(targets[name]))
            else (padded if room else np.empty)(shape, dtype)
            for name, dtype, shape, room in self._writes
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


def _states(segment: Segment) -> dict[str, str]:
    """Outputs that are an input with something put in, where no other step reads that input."""
    borders = {place: [] for place in ("input", "output")}  # type: dict[str, list[int]]
    for i, tensor in enumerate(segment.tensors):
        if not isinstance(tensor, np.ndarray) and tensor[0] in borders:
            borders[tensor[0]].append(i)
    inputs, outputs = (
        dict(zip(borders[p], names, strict=True)) for p, names in (("input", segment.reads), ("output", segment.writes))
    )
    reads = Counter(tensor for call in segment.calls for tensor in call.ins)
    updates = (c for c in segment.calls if c.kind.startswith("scatter_") and c.ins and c.outs)
    return {
        outputs[c.outs[0]]: inputs[c.ins[0]]
        for c in updates
        if c.outs[0] in outputs and c.ins[0] in inputs and reads[c.ins[0]] == 1
    }


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


def _loaded(value: Any, get: Get) -> Any:
    if type(value) is int:
        return number(value, LEAST)
    if type(value) is list:
        return numbers(value, LEAST)
    return float.fromhex(value["real"]) if "real" in value else read_array(value, get)


def _tensor(value: Any, get: Get) -> tuple[str, int, int] | Array:
    if isinstance(value, dict):
        return read_array(value, get)
    place, offset, size = value
    if place not in ("input", "output", "arena"):
        raise ValueError(f"no place is named {place!r}")
    return place, number(offset), number(size)
