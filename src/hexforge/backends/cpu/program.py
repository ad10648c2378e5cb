"""CpuProgram: the nodes of a graph, one after the other, intermediates freed after their last use."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hexforge.errors import CallError
from hexforge.ir import Array, Graph, Value
from hexforge.ops.evaluate import evaluate


class CpuProgram:
    """A compiled graph. `run` keeps nothing between calls, so threads may call it at the same time."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._outputs = graph.outputs
        self._inputs = graph.inputs
        self._statics = {v: v.data for v in graph.values.values() if v.data is not None}
        self._steps = [(node.call, node.inputs, node.outputs) for node in graph.nodes]
        last = {v: i for i, (_, inputs, outputs) in enumerate(self._steps) for v in (*inputs, *outputs) if v}
        self._frees: list[list[Value]] = [[] for _ in self._steps]
        for value, i in last.items():
            if value.data is None and value not in self._outputs:
                self._frees[i].append(value)

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs (APP_READ) by name for inputs (APP_WRITE) by name, in the tensors' own data types."""
        given = self._checked(feeds)
        environment: dict[Value, Array] = {**self._statics, **given}
        for (call, inputs, outputs), frees in zip(self._steps, self._frees, strict=True):
            arrays = [None if v is None else environment[v] for v in inputs]
            environment.update(zip(outputs, evaluate(call, arrays), strict=True))
            for value in frees:
                environment.pop(value, None)
        taken = {id(a) for a in (*given.values(), *self._statics.values())}
        return {v.name: _own(environment[v], taken) for v in self._outputs}

    def _checked(self, feeds: Mapping[str, Array]) -> dict[Value, Array]:
        wrong = [f"{name!r} is not an input" for name in feeds if name not in {v.name for v in self._inputs}]
        found: dict[Value, Array] = {}
        for value in self._inputs:
            if value.name not in feeds:
                wrong.append(f"input {value.name!r} is missing")
                continue
            array = np.asarray(feeds[value.name])
            if (array.dtype, array.shape) != (value.dtype.numpy, value.shape):
                wrong.append(
                    f"input {value.name!r} is {array.dtype.name}{list(array.shape)}, it must be {value.type}"
                )
            found[value] = array
        if wrong:
            names = ", ".join(v.name for v in self._inputs)
            raise CallError(f"graph {self.graph.name!r}: {'; '.join(wrong)}; its inputs are {names or 'none'}")
        return found


def _own(array: Array, taken: set[int]) -> Array:
    """The array C-contiguous and sharing memory with no input, constant or other output."""
    if array.base is not None or not array.flags.c_contiguous or id(array) in taken:
        array = array.copy(order="C")
    taken.add(id(array))
    return array
