# SPDX-License-Identifier: Apache-2.0
"""htp_bf16_enable: float32 graphs computed in bfloat16, cast where tensors enter and leave, as the EP does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hexforge.backend import Put, WrappedProgram
from hexforge.backends.htp.numbers.program import HtpProgram
from hexforge.ir import Array, DType, Graph, Role, TensorType


def to_bfloat16(graph: Graph) -> frozenset[str]:
    """Make the float32 tensors of a graph bfloat16; the names of its inputs and outputs among them."""
    changed = set()
    for value in graph.values.values():
        if value.dtype is not DType.FLOAT32 or value.encoding is not None:
            continue
        # beside fixed point a float constant is a part of the fixed-point computation
        if value.data is not None and any(node.outputs[0].encoding is not None for node in value.users):
            continue
        if value.role in (Role.APP_WRITE, Role.APP_READ):
            changed.add(value.name)
        data = None if value.data is None else value.data.astype(DType.BFLOAT16.numpy)
        graph.retype(value, TensorType(DType.BFLOAT16, value.shape), data)
    return frozenset(changed)


class BFloat16Program(WrappedProgram):
    """A program in bfloat16 behind float32 inputs and outputs."""

    def __init__(self, program: HtpProgram, cast: frozenset[str]) -> None:
        super().__init__(program)
        self._cast = cast

    def save(self, put: Put) -> dict[str, Any]:
        """What a context file holds of it; arrays are put elsewhere in it."""
        return {**self._program.save(put), "bfloat16": sorted(self._cast)}

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by name for inputs by name, float32 where the model has it."""
        narrow, wide = DType.BFLOAT16.numpy, DType.FLOAT32.numpy
        given = {name: array.astype(narrow) if name in self._cast else array for name, array in feeds.items()}
        results = self._program.run(given)
        return {name: array.astype(wide) if name in self._cast else array for name, array in results.items()}
