# SPDX-License-Identifier: Apache-2.0
"""Where a program's tensors enter and leave: the model's arrays as stored ones, and back."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from hexforge.backend import checked_feeds
from hexforge.backends.htp.numbers.halves import vector_patterns, widened
from hexforge.backends.htp.numbers.storage import shifted, storage
from hexforge.ir import Array, Value


@dataclass(frozen=True, slots=True)
class Port:
    """A graph input or output, with all that a run asks of it worked out before."""

    name: str
    dtype: np.dtype[Any]
    """The model's data type."""
    shape: tuple[int, ...]
    convert: Callable[[Array], Array] | None
    """What makes the stored array of the model's, or the other way round; None where they are the same bytes."""

    @classmethod
    def entering(cls, value: Value) -> Port:
        """The port of a graph input; floats stay float32, as the steps that compute with them round first."""
        own = storage(value.type)
        convert: Callable[[Array], Array] | None = None
        if own.kind == "f32" and value.dtype.numpy != np.float32:
            convert = widened
        elif own.shift:
            convert = partial(shifted, dtype=own.dtype)
        return cls(value.name, value.dtype.numpy, value.shape, convert)

    @classmethod
    def leaving(cls, value: Value) -> Port:
        """The port of a graph output."""
        own, dtype = storage(value.type), value.dtype.numpy
        convert: Callable[[Array], Array] | None = None
        if own.shift:
            convert = partial(shifted, dtype=dtype)
        elif own.dtype != dtype:
            convert = vector_patterns

        return cls(value.name, dtype, value.shape, convert)


class Ports:
    """The inputs and outputs of a program."""

    def __init__(self, graph: str, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        self._graph, self._inputs = graph, tuple(inputs)
        self._entering = tuple(map(Port.entering, inputs))
        self._leaving = tuple(map(Port.leaving, outputs))

    def enter(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """The inputs as they are stored, contiguous and aligned; CallError naming every one that does not fit."""
        tensors: dict[str, Array] = {}
        for port in self._entering:
            array = feeds.get(port.name)
            if type(array) is not np.ndarray or array.dtype != port.dtype or array.shape != port.shape:
                return self._checked(feeds)
            if port.convert is not None:
                array = port.convert(np.ascontiguousarray(array))
            tensors[port.name] = array if (flags := array.flags).c_contiguous and flags.aligned else _dense(array)
        return tensors if len(feeds) == len(tensors) else self._checked(feeds)

    def _checked(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """As `enter`, for what is not a plain array of the right type, or is not right at all."""
        given = checked_feeds(self._graph, self._inputs, feeds)
        return self.enter({name: _dense(array) for name, array in given.items()})

    def writable(
        self, targets: Mapping[str, Array], tensors: Mapping[str, Array], states: Mapping[str, str]
    ) -> dict[str, Array]:
        """Of the arrays that outputs are wanted in those that hold them as they are made, and nothing else's memory.

        A state may have the memory of the input that it is the next one of.
        """
        suited: dict[str, Array] = {}
        taken = _Taken(tensors.values())
        for port in self._leaving:
            array = targets.get(port.name)
            if array is None or port.convert is not None or (array.dtype, array.shape) != (port.dtype, port.shape):
                continue
            flags = array.flags
            if not (flags.c_contiguous and flags.aligned and flags.writeable):
                continue
            own = tensors.get(states.get(port.name, ""))
            same = own is not None and own.ctypes.data == array.ctypes.data and own.nbytes == array.nbytes
            if taken.count(array) > same:
                continue
            suited[port.name] = array
            if not same:
                taken.add(array)
        return suited

    def leave(self, tensors: Mapping[str, Array], unwanted: Collection[str] = ()) -> dict[str, Array]:
        """The outputs as the model has them, but for those that are unwanted."""
        outputs = {}
        for port in self._leaving:
            if port.name in unwanted:
                continue
            array = tensors[port.name]
            if array.shape != port.shape:
                array = array.reshape(port.shape)
            outputs[port.name] = array if port.convert is None else port.convert(array)
        return outputs


class _Taken:
    """The memory of contiguous arrays: how many of them a further one meets."""

    def __init__(self, arrays: Iterable[Array]) -> None:
        held = [array for array in arrays if array.nbytes]
        self._starts = sorted(array.ctypes.data for array in held)
        self._ends = sorted(array.ctypes.data + array.nbytes for array in held)

    def count(self, array: Array) -> int:
        """How many arrays have a byte of this one's: those that begin before its end, but for those that end before."""
        start = array.ctypes.data
        return bisect_left(self._starts, start + array.nbytes) - bisect_right(self._ends, start) if array.nbytes else 0

    def add(self, array: Array) -> None:
        """One more."""
        if array.nbytes:
            insort(self._starts, array.ctypes.data)
            insort(self._ends, array.ctypes.data + array.nbytes)


def _dense(array: Array) -> Array:
    return np.require(np.asarray(array), requirements=["C", "A"])
