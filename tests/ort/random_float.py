# SPDX-License-Identifier: Apache-2.0
"""Random float models: graphs of a few ops with branches, and inputs for them. The fuzzer and the tests share it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Shape = tuple[int, ...]


@dataclass
class RandomFloat:
    """A model under construction: every value is float32 of four axes."""

    rng: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    shapes: dict[str, Shape] = field(default_factory=dict)
    count: int = 0

    def name(self, stem: str) -> str:
        """A new name."""
        self.count += 1
        return f"{stem}{self.count}"

    def constant(self, array: Any) -> str:
        """A constant."""
        name = self.name("c")
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weight(self, *shape: int) -> str:
        """A constant of small float16 numbers."""
        return self.constant((self.rng.integers(-8, 9, shape) / 16).astype(np.float32))

    def op(self, op: str, inputs: list[str], shape: Shape, **attributes: Any) -> str:
        """A node."""
        result = self.name(op.lower())
        self.nodes.append(helper.make_node(op, inputs, [result], self.name(f"{op}_"), **attributes))
        self.shapes[result] = shape
        return result

    def other(self, shape: Shape) -> str:
        """A value that broadcasts with one of `shape`: another of the graph, or a constant."""
        alike = [name for name, s in self.shapes.items() if s == shape]
        if alike and self.rng.integers(2):
            return str(self.rng.choice(alike))
        sizes = [n if self.rng.integers(2) else 1 for n in shape]
        return self.weight(*sizes[int(self.rng.integers(0, 4)) :])

    def step(self, value: str) -> str:
        """One random op on a value; the value itself where the op does not fit it."""
        n, c, h, w = shape = self.shapes[value]
        pick = self.rng.integers
        match str(self.rng.choice(OPS)):
            case "unary":
                return self.op(str(self.rng.choice(UNARY)), [value], shape)
            case "binary":
                op = str(self.rng.choice(["Add", "Sub", "Mul", "Max", "Min", "Sum", "Mean"]))
                ins = [value, self.other(shape)]
                return self.op(op, ins if pick(2) else ins[::-1], shape)
            case "three":
                return self.op(
                    str(self.rng.choice(["Max", "Sum", "Mean"])), [value, self.other(shape), self.other(shape)], shape
                )
            case "conv":
                group = c if pick(3) == 0 else 1
                out, k, s, d = (c if group > 1 else int(pick(1, 6))), int(pick(1, 4)), int(pick(1, 3)), int(pick(1, 3))
                pad = int(pick(0, 2))
                size = [(x + 2 * pad - d * (k - 1) - 1) // s + 1 for x in (h, w)]
                if min(size) < 1:
                    return value
                weights = [self.weight(out, c // group, k, k), *([self.weight(out)] if pick(2) else [])]
                windows = {"strides": [s, s], "dilations": [d, d], "pads": [pad] * 4}
                return self.op("Conv", [value, *weights], (n, out, *size), group=group, **windows)
            case "transposed":
                k, s = int(pick(1, 4)), int(pick(1, 3))
                size = [(x - 1) * s + k for x in (h, w)]
                if max(size) > 24:
                    return value
                return self.op("ConvTranspose", [value, self.weight(c, 2, k, k)], (n, 2, *size), strides=[s, s])
            case "pool":
                k, s, pad, ceil = int(pick(1, 4)), int(pick(1, 4)), int(pick(0, 2)), int(pick(2))
                pad = min(pad, k - 1)
                size = []
                for x in (h, w):
                    room = x + 2 * pad - k
                    if room < 0:
                        return value
                    o = (-(-room // s) if ceil else room // s) + 1
                    if ceil and (o - 1) * s >= x + pad:
                        return value  # onnxruntime's inference and its kernel disagree, in what follows too
                    size.append(o)
                op = str(self.rng.choice(["MaxPool", "AveragePool", "LpPool"]))
                if op == "LpPool":
                    ceil = 0
                    size = [(x + 2 * pad - k) // s + 1 for x in (h, w)]
                more = {} if op == "LpPool" else {"ceil_mode": ceil}
                return self.op(op, [value], (n, c, *size), kernel_shape=[k, k], strides=[s, s], pads=[pad] * 4, **more)
            case "reduce":
                op = str(self.rng.choice(["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceL1"]))
                axis = int(pick(4))
                axes = [self.constant(np.array([axis]))] if op == "ReduceSum" else []
                attributes = {} if op == "ReduceSum" else {"axes": [axis]}
                return self.op(
                    op, [value, *axes], tuple(1 if i == axis else x for i, x in enumerate(shape)), **attributes
                )
            case "transpose":
                perm = [int(i) for i in self.rng.permutation(4)]
                return self.op("Transpose", [value], tuple(shape[i] for i in perm), perm=perm)
            case "reshape":
                sizes = (n, h, w, c) if pick(2) else (1, n * c, h, w)
                return self.op("Reshape", [value, self.constant(np.array(sizes))], sizes)
            case "slice":
                axis = int(pick(4))
                start, step = int(pick(shape[axis])), int(pick(1, 3))
                bounds = [self.constant(np.array([v])) for v in (start, shape[axis], axis, step)]
                size = -(-(shape[axis] - start) // step)  # type: ignore[assignment]
                return self.op("Slice", [value, *bounds], tuple(size if i == axis else x for i, x in enumerate(shape)))  # type: ignore[misc]
            case "concat":
                axis = int(pick(4))
                if shape[axis] > 8:
                    return value
                sizes = tuple(2 * x if i == axis else x for i, x in enumerate(shape))  # type: ignore[assignment]
                return self.op("Concat", [value, value], sizes, axis=axis)
            case "pad":
                mode = str(self.rng.choice(["constant", "edge", "reflect"])) if min(h, w) > 1 else "constant"
                pads = self.constant(np.array([0, 0, 1, 0, 0, 0, 0, 1]))
                return self.op("Pad", [value, pads], (n, c, h + 1, w + 1), mode=mode)
            case "softmax":
                return self.op(str(self.rng.choice(["Softmax", "LogSoftmax"])), [value], shape, axis=int(pick(4)))
            case "matmul":
                return self.op("MatMul", [value, self.weight(w, 3)], (n, c, h, 3))
            case "gather":
                axis = int(pick(4))
                places = pick(-shape[axis], shape[axis], 3)
                sizes = tuple(3 if i == axis else x for i, x in enumerate(shape))  # type: ignore[assignment]
                return self.op("Gather", [value, self.constant(places)], sizes, axis=axis)
            case "norm":
                if pick(2):
                    return self.op("LayerNormalization", [value, self.weight(w), self.weight(w)], shape)
                return self.op("LpNormalization", [value], shape, p=int(pick(1, 3)), axis=int(pick(4)))
            case "resize" if max(h, w) <= 8:
                mode = str(self.rng.choice(["nearest", "linear"]))
                sizes = self.constant(np.array([n, c, 2 * h, 2 * w]))  # type: ignore[assignment]
                return self.op("Resize", [value, "", "", sizes], (n, c, 2 * h, 2 * w), mode=mode)  # type: ignore[list-item]
            case "clip":
                bounds = [self.constant(np.float32(b)) for b in (-0.5, 0.75)]
                return self.op("Clip", [value, *bounds], shape)
            case _:
                return self.op("Relu", [value], shape)


OPS = (
    "unary binary three conv transposed pool reduce transpose reshape slice concat pad softmax matmul gather norm "
    "resize clip relu"
).split()
UNARY = (
    "Relu Sigmoid Tanh Abs Neg Floor Ceil Sign Elu Selu LeakyRelu HardSigmoid HardSwish Softplus Softsign Erf Sin Cos "
    "ThresholdedRelu Celu Identity"
).split()


def random_float(seed: int, steps: int = 6) -> tuple[bytes, dict[str, np.ndarray]]:
    """A model of random float ops, and what to feed it: float16 numbers, so that inputs are not rounded."""
    rng = np.random.default_rng(seed)
    made = RandomFloat(rng)
    shape = tuple(int(v) for v in (rng.integers(1, 3), rng.integers(1, 6), rng.integers(1, 9), rng.integers(1, 9)))
    made.shapes["x"] = shape
    value = "x"
    for _ in range(int(rng.integers(1, steps + 1))):
        value = made.step(value)
    if value == "x":
        value = made.op("Relu", [value], shape)
    # shapes are left to inference: what it says is tested, too
    outputs = [helper.make_tensor_value_info(value, TensorProto.FLOAT, None)]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    graph = helper.make_graph(made.nodes, "random", inputs, outputs, made.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString(), {"x": (rng.integers(-512, 513, shape) / 256).astype(np.float32)}
