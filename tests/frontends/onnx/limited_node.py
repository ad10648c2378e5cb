# SPDX-License-Identifier: Apache-2.0
"""Models of one node for the EP's limits: tensors that are quantized or not, constant or not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from hexforge.frontends.onnx.unit import Unit
from hexforge.model.reader import read
from tests.frontends.onnx.parts import units

RANK = {1: (6,), 2: (4, 6), 3: (2, 4, 6), 4: (1, 4, 6, 6), 5: (1, 2, 4, 6, 6)}


@dataclass(frozen=True)
class Tensor:
    """An input of a node: its shape and type, quantized or not, constant or not."""

    shape: tuple[int, ...]
    type: str = "float32"
    fixed: str = ""
    """Integer type behind a DequantizeLinear."""
    numbers: Any = None
    """What a constant holds; zeros are enough for most."""
    constant: bool = False

    @property
    def array(self) -> np.ndarray:
        if self.numbers is not None:
            return np.asarray(self.numbers, self.type).reshape(self.shape)
        return np.zeros(self.shape, self.fixed or self.type)


@dataclass(frozen=True)
class Node:
    """A model of one node."""

    op: str
    inputs: tuple[Tensor | None, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: tuple[tuple[str, tuple[int, ...] | None], ...] = (("float32", None),)
    opset: int = 21
    quantized: str = ""
    """Integer type of a QuantizeLinear behind output 0."""

    def unit(self) -> tuple[Unit, int]:
        """The unit of the node, and the opset of its model."""
        nodes, inputs, constants, names = [], [], [], []
        constants.append(numpy_helper.from_array(np.array(0.1, np.float32), "scale"))
        for i, tensor in enumerate(self.inputs):
            name = "" if tensor is None else f"in{i}"
            names.append(name)
            if tensor is None:
                continue
            if tensor.fixed:
                zero = np.zeros((), tensor.fixed)
                constants.append(numpy_helper.from_array(zero, f"zero{i}"))
                nodes.append(helper.make_node("DequantizeLinear", [f"q{i}", "scale", f"zero{i}"], [name]))
                name = f"q{i}"
            if tensor.constant or tensor.numbers is not None:
                constants.append(numpy_helper.from_array(tensor.array, name))
            else:
                code = helper.np_dtype_to_tensor_dtype(tensor.array.dtype)
                inputs.append(helper.make_tensor_value_info(name, code, tensor.shape))
        results = [f"out{i}" for i in range(len(self.outputs))]
        nodes.append(helper.make_node(self.op, names, results, name="node", **self.attributes))
        ends = []
        for result, (type, shape) in zip(results, self.outputs, strict=True):
            code = helper.np_dtype_to_tensor_dtype(np.dtype(type))
            ends.append(helper.make_tensor_value_info(result, code, shape))
        if self.quantized:
            constants.append(numpy_helper.from_array(np.zeros((), self.quantized), "zero"))
            nodes.append(helper.make_node("QuantizeLinear", ["out0", "scale", "zero"], ["end"]))
            code = helper.np_dtype_to_tensor_dtype(np.dtype(self.quantized))
            ends[0] = helper.make_tensor_value_info("end", code, None)
        graph = helper.make_graph(nodes, "test", inputs, ends, constants)
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)
        model = read(proto, fold=False)
        (unit,) = [u for u in units(model.ir, fuse=False) if u.target.name == "node"]
        return unit, model.declared_opset
