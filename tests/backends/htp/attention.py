# SPDX-License-Identifier: Apache-2.0
"""Masked attention as ONNX models: the structures that HTP fuses into MaskedSoftmax, and some that it does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

TYPES = {8: (TensorProto.UINT8, np.uint8), 16: (TensorProto.UINT16, np.uint16)}
SPAN = 20.0
"""Scores lie in -10 to 10."""


class Nodes:
    """Nodes and constants of a model, written one after the other."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, name: str, value: Any, dtype: Any) -> str:
        """A constant by its name."""
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def scale(self, name: str, scale: float, zero: int, bits: int) -> list[str]:
        """The names of a scale and a zero point."""
        return [self.constant(f"{name}_scale", scale, np.float32), self.constant(f"{name}_zero", zero, TYPES[bits][1])]

    def add(self, kind: str, inputs: list[str], output: str = "", **attributes: Any) -> str:
        """A node; the name of what it writes."""
        output = output or f"t{len(self.nodes)}"
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], name, **attributes))
        return output

    def quantized(self, value: str, by: list[str]) -> str:
        """A value through QuantizeLinear and DequantizeLinear."""
        return self.add("DequantizeLinear", [self.add("QuantizeLinear", [value, *by]), *by])


def masked_attention(
    pattern: str = "A", bits: int = 16, b: float = -20.0, rows: int = 4, n: int = 40, heads: int = 2, **change: Any
) -> bytes:
    """Softmax of scores under a mask, of pattern A, B or C ("added": a mask that is added), with a change or two.

    compared: what the mask is compared with; lowest: the op in ReduceMin's place; mask_bits: of the mask.
    """
    made, full = Nodes(), (1 << bits) - 1
    mask_bits = change.get("mask_bits", 8 if pattern == "C" else 16)
    scores = made.scale("x", SPAN / full, full // 2 + 1, bits)
    wide = made.scale("wide", 2.5 * SPAN / full, full - full // 5, bits)
    of_mask = made.scale("mask", 1 / ((1 << mask_bits) - 1), 0, mask_bits)
    if pattern == "added":
        of_mask = made.scale("far", 50 / ((1 << mask_bits) - 1), (1 << mask_bits) - 1, mask_bits)
    share = made.scale("y", 1 / (full + 1), 0, bits)
    x = made.add("DequantizeLinear", ["x", *scores])
    if pattern == "added":
        query, key = (made.add("DequantizeLinear", [name, *scores]) for name in ("x", "key"))
        x = made.quantized(made.add("MatMul", [query, key]), scores)
        chosen = made.add("Add", [x, made.add("DequantizeLinear", ["mask", *of_mask])])
    else:
        axes = made.constant("axes", [-1], np.int64)
        least = made.quantized(made.add(change.get("lowest", "ReduceMin"), [x, axes], keepdims=1), scores)
        below = made.scale("b", -b / full, full, bits)
        far = made.add("DequantizeLinear", [made.constant("B", 0, TYPES[bits][1]), *below])
        far = made.quantized(made.add("Add", [least, far]), wide)
        if pattern == "C":
            condition = made.add("Cast", ["mask"], to=TensorProto.BOOL)
        else:
            zero = made.constant("zero", change.get("compared", 0), TYPES[mask_bits][1])
            mask = [made.add("DequantizeLinear", [name, *of_mask]) for name in ("mask", zero)]
            condition = made.add("Equal", mask)
            condition = condition if pattern == "A" else made.add("Not", [condition])
        chosen = made.add("Where", [condition, x, far])
    made.add("QuantizeLinear", [made.add("Softmax", [made.quantized(chosen, wide)], axis=-1), *share], "y")
    shape = [1, heads, rows, n]
    inputs = [helper.make_tensor_value_info("x", TYPES[bits][0], shape)]
    if pattern == "added":
        inputs.append(helper.make_tensor_value_info("key", TYPES[bits][0], [1, heads, n, n]))
    inputs.append(helper.make_tensor_value_info("mask", TYPES[mask_bits][0], [1, 1, rows, n]))
    outputs = [helper.make_tensor_value_info("y", TYPES[bits][0], shape)]
    graph = helper.make_graph(made.nodes, "attention", inputs, outputs, made.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return bytes(model.SerializeToString())
