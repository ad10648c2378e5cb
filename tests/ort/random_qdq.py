# SPDX-License-Identifier: Apache-2.0
"""Random QDQ models: chains and branches of quantized ops, with inputs for them. The fuzzer and the tests share it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

KINDS = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8, "uint16": TensorProto.UINT16, "int16": TensorProto.INT16}
LIMITS = {"uint8": (0, 255), "int8": (-128, 127), "uint16": (0, 65535), "int16": (-32768, 32767)}


@dataclass
class RandomQdq:
    """A model under construction: every value is written by DequantizeLinear."""

    rng: np.random.Generator
    kind: str
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    grids: dict[str, tuple[float, int]] = field(default_factory=dict)
    count: int = 0

    def name(self, stem: str) -> str:
        """A new name."""
        self.count += 1
        return f"{stem}{self.count}"

    def constant(self, array: Any, stem: str = "c") -> str:
        """A constant."""
        name = self.name(stem)
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def quantized(self, source: str, shape: tuple[int, ...], grid: tuple[float, int] | None = None) -> str:
        """A value through QuantizeLinear and DequantizeLinear."""
        low, high = LIMITS[self.kind]
        if grid is None:
            scale = float(np.float32(self.rng.uniform(2, 8) / (high - low)))
            grid = scale, int(self.rng.integers(low + (high - low) // 4, high - (high - low) // 4))
        scale_name = self.constant(np.float32(grid[0]))
        zero_name = self.constant(np.asarray(grid[1], self.kind))
        whole, real = self.name("q"), self.name("v")
        domain = "" if self.kind in ("uint8", "int8") else "com.microsoft"
        self.nodes += [
            helper.make_node("QuantizeLinear", [source, scale_name, zero_name], [whole], domain=domain),
            helper.make_node("DequantizeLinear", [whole, scale_name, zero_name], [real], domain=domain),
        ]
        self.shapes[real], self.grids[real] = shape, grid
        return real

    def op(self, op: str, inputs: list[str], shape: tuple[int, ...], keep: str = "", **attributes: Any) -> str:
        """A node and its result quantized; `keep` names a value whose encoding it has, as data that only moves must."""
        result = self.name(op.lower())
        self.nodes.append(helper.make_node(op, inputs, [result], self.name(f"{op}_"), **attributes))
        return self.quantized(result, shape, self.grids[keep] if keep else None)

    def step(self, value: str) -> str:
        """One random op on a value."""
        shape = self.shapes[value]
        n, c, h, w = shape
        match self.rng.choice(["tile", "expand", "pad", "conv", "relu", "add", "mul", "pool", "transpose", "reshape",
                               "slice", "concat", "sigmoid", "depthwise", "several", "selu", "l2", "lp_pool",
                               "gather_nd", "gemm", "average", "log"]):  # fmt: skip
            case "several":
                op, others = str(self.rng.choice(["Max", "Min", "Sum", "Mean"])), int(self.rng.integers(1, 3))
                return self.op(op, [value, *(self.op("Relu", [value], shape) for _ in range(others))], shape)
            case "selu":
                return self.op(str(self.rng.choice(["Selu", "ThresholdedRelu"])), [value], shape)
            case "log":
                return self.op("Log", [value], shape)
            case "l2":
                return self.op("ReduceL2", [value], (n, 1, h, w), axes=[1])
            case "lp_pool" if h > 1 and w > 1:
                return self.op("LpPool", [value], (n, c, h - 1, w - 1), kernel_shape=[2, 2])
            case "average" if h > 1 and w > 1:
                return self.op("AveragePool", [value], (n, c, h - 1, w - 1), kernel_shape=[2, 2])
            case "gather_nd":
                places = self.constant(np.array([[[0, int(i)] for i in self.rng.integers(0, c, 3)]]))
                return self.op("GatherND", [value, places], (1, 3, h, w), value)
            case "gemm" if n == c == 1:
                rows = self.op("Reshape", [value, self.constant(np.array([h, w]))], (h, w), value)
                product = self.op("Gemm", [rows, self.weight((w, 3))], (h, 3), alpha=0.5)
                return self.op("Reshape", [product, self.constant(np.array([1, 1, h, 3]))], (1, 1, h, 3), product)
            case "tile" if h * w <= 64:
                repeats = self.constant(np.array([1, 1, 2, 1]))
                return self.op("Tile", [value, repeats], (n, c, 2 * h, w), value)
            case "expand" if n == 1:
                return self.op("Expand", [value, self.constant(np.array([2, c, h, w]))], (2, c, h, w), value)
            case "pad":
                pads = self.constant(np.array([0, 0, 1, 1, 0, 0, 0, 1]))
                return self.op("Pad", [value, pads], (n, c, h + 1, w + 2), value)
            case "conv":
                out = int(self.rng.integers(1, 6))
                weight = self.weight((out, c, 3, 3))
                return self.op("Conv", [value, weight], (n, out, h, w), pads=[1, 1, 1, 1])
            case "depthwise":
                return self.op("Conv", [value, self.weight((c, 1, 3, 3))], shape, pads=[1, 1, 1, 1], group=c)
            case "relu":
                return self.op("Relu", [value], shape)
            case "sigmoid":
                return self.op("Sigmoid", [value], shape)
            case "add":
                return self.op("Add", [value, value], shape)
            case "mul":
                other = self.op("Relu", [value], shape)
                return self.op("Mul", [value, other], shape)
            case "pool" if h > 1 and w > 1:
                return self.op("MaxPool", [value], (n, c, h - 1, w - 1), value, kernel_shape=[2, 2])
            case "transpose":
                return self.op("Transpose", [value], (n, c, w, h), value, perm=[0, 1, 3, 2])
            case "reshape" if h % 2 == 0:
                sizes = self.constant(np.array([n, c, h // 2, 2 * w]))
                return self.op("Reshape", [value, sizes], (n, c, h // 2, 2 * w), value)
            case "slice" if h > 1:
                bounds = [self.constant(np.array([v])) for v in (1, h, 2)]
                return self.op("Slice", [value, *bounds], (n, c, h - 1, w), value)
            case "concat" if c <= 4:
                return self.op("Concat", [value, value], (n, 2 * c, h, w), value, axis=1)
            case _:
                return self.op("Relu", [value], shape)

    def weight(self, shape: tuple[int, ...]) -> str:
        """A constant weight through DequantizeLinear."""
        integers = self.rng.integers(-127, 128, shape).astype(np.int8)
        whole, scale, zero = self.constant(integers, "w"), self.constant(np.float32(0.01)), self.constant(np.int8(0))
        real = self.name("wr")
        self.nodes.append(helper.make_node("DequantizeLinear", [whole, scale, zero], [real]))
        return real


def random_qdq(seed: int, kind: str, steps: int = 5) -> tuple[bytes, dict[str, np.ndarray]]:
    """A model of random quantized ops over float inputs, and what to feed it."""
    rng = np.random.default_rng(seed)
    shape = (1, int(rng.integers(1, 5)), int(rng.integers(2, 9)), int(rng.integers(2, 9)))
    made = RandomQdq(rng, kind)
    value = made.quantized("x", shape)
    for _ in range(int(rng.integers(1, steps + 1))):
        value = made.step(value)
    outputs = [helper.make_tensor_value_info(value, TensorProto.FLOAT, made.shapes[value])]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    graph = helper.make_graph(made.nodes, "random", inputs, outputs, made.constants)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    proto = helper.make_model(graph, opset_imports=imports, ir_version=8)
    return proto.SerializeToString(), {"x": rng.normal(0, 1, shape).astype(np.float32)}
