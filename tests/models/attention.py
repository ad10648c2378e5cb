# SPDX-License-Identifier: Apache-2.0
"""Attention as ONNX models: under masks that HTP fuses into MaskedSoftmax or does not, and with KV caches."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

TYPES = {8: (TensorProto.UINT8, np.uint8), 16: (TensorProto.UINT16, np.uint16)}
CACHES_IN, CACHES_OUT = ("past_key_0_in", "past_value_0_in"), ("past_key_0_out", "past_value_0_out")
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


def decoder(
    tokens: int = 1,
    context: int = 256,
    head: int = 64,
    zero: int = 128,
    concat: bool = False,
    *,
    heads: int = 1,
    wide: bool = False,
    caches_out: bool = True,
) -> bytes:
    """Attention that puts new keys and values into its caches; one query each for some heads, `wide` with 16 bits."""
    nodes: list[Any] = []
    constants: list[Any] = []

    def scale(name: str, value: float, zero: int) -> list[str]:
        constants.append(numpy_helper.from_array(np.array(value, np.float32), f"{name}_scale"))
        kind = np.uint16 if wide and name != "cache" else np.uint8
        constants.append(numpy_helper.from_array(np.array(zero, kind), f"{name}_zero"))
        return [f"{name}_scale", f"{name}_zero"]

    def add(kind: str, inputs: list[str], output: str = "", **attributes: int) -> str:
        output = output or f"t{len(nodes)}"
        nodes.append(helper.make_node(kind, inputs, [output], f"n{len(nodes)}", **attributes))  # type: ignore[arg-type]
        return output

    def quantized(name: str, by: list[str], output: str = "") -> str:
        return add("DequantizeLinear", [add("QuantizeLinear", [name, *by], output), *by])

    codes = 65535 if wide else 255
    cache = scale("cache", 0.02, zero)
    plain, share = scale("plain", 12.8 / codes, codes // 2 + 1), scale("share", 1 / codes, 0)
    caches = [add("DequantizeLinear", [name, *cache]) for name in CACHES_IN]
    new = [quantized(name, cache) for name in ("key_new", "value_new")]
    joined = []
    for old, fresh, index, axis in zip(caches, new, ("index_k", "index_v"), (3, 2), strict=True):
        if concat:
            joined.append(add("Concat", [old, fresh], axis=axis))
        else:
            joined.append(add("ScatterElements", [old, index, fresh], axis=axis))
    written_caches = CACHES_OUT if caches_out else ("", "")
    keys, values = (quantized(name, cache, output) for name, output in zip(joined, written_caches, strict=True))
    scores = quantized(add("MatMul", [quantized("query", plain), keys]), plain)
    shares = quantized(add("Softmax", [scores], axis=-1), share)
    add("QuantizeLinear", [add("MatMul", [shares, values]), *plain], "out")
    total = context + tokens if concat else context
    shapes = {
        "query": [1, heads, tokens, head], "past_key_0_in": [1, heads, head, context],
        "past_value_0_in": [1, heads, context, head], "key_new": [1, heads, head, tokens],
        "value_new": [1, heads, tokens, head], "index_k": [1, heads, head, tokens],
        "index_v": [1, heads, tokens, head], "out": [1, heads, tokens, head],
        "past_key_0_out": [1, heads, head, total], "past_value_0_out": [1, heads, total, head],
    }  # fmt: skip
    kinds = {"index_k": TensorProto.INT64, "index_v": TensorProto.INT64}
    kinds |= dict.fromkeys((*CACHES_IN, *CACHES_OUT), TensorProto.UINT8)
    kinds["out"] = TensorProto.UINT16 if wide else TensorProto.UINT8
    made = {n: helper.make_tensor_value_info(n, kinds.get(n, TensorProto.FLOAT), s) for n, s in shapes.items()}
    if concat:
        del made["index_k"], made["index_v"]
    written = ("out", *CACHES_OUT) if caches_out else ("out",)
    inputs = [value for name, value in made.items() if name not in ("out", *CACHES_OUT)]
    graph = helper.make_graph(nodes, "decoder", inputs, [made[name] for name in written], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return bytes(model.SerializeToString())
