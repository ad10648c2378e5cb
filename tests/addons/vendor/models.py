# SPDX-License-Identifier: Apache-2.0
"""Small QDQ models: chains of ops between Dequantize and Quantize, written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from hexforge.ir import Array

SHAPE = (1, 8, 10, 10)


class QdqWriter:
    """Writes a QDQ model op by op."""

    def __init__(self, bits: int = 8, seed: int = 0) -> None:
        self.dtype = np.dtype(np.uint8 if bits == 8 else np.uint16)
        self.top = 2**bits - 1
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, name: str, array: Any) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def _converted(self, op: str, source: str, name: str, scale: float, zero: Any) -> str:
        given = [source, self.constant(f"{name}_scale", np.float32(scale)), self.constant(f"{name}_zero", zero)]
        self.nodes.append(helper.make_node(op, given, [name], name=f"{name}_{op}"))
        return name

    def quantized(self, source: str, name: str, low: float, high: float) -> str:
        """The tensor quantized and made real again; the name of the integers is NAME_q."""
        scale = (high - low) / self.top
        zero = self.dtype.type(round(-low / scale))
        self._converted("QuantizeLinear", source, f"{name}_q", scale, zero)
        return self._converted("DequantizeLinear", f"{name}_q", f"{name}_r", scale, zero)

    def op(self, kind: str, inputs: Sequence[str], name: str, low: float = -4, high: float = 4, **more: Any) -> str:
        """An op and the quantization of its result."""
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **more))
        return self.quantized(name, name, low, high)

    def conv(self, source: str, name: str, channels: int = 8, low: float = -4, high: float = 4) -> str:
        """A 3x3 convolution with weights of 8 bits."""
        weight = self.random.integers(-127, 127, (channels, channels, 3, 3), np.int8, endpoint=True)
        step = 0.4 / 127 / channels**0.5
        real = self._converted("DequantizeLinear", self.constant(f"{name}_w", weight), f"{name}_wr", step, np.int8(0))
        return self.op("Conv", [source, real], name, low, high, pads=[1] * 4)

    def model(self, result: str, shape: Sequence[int] = SHAPE) -> onnx.ModelProto:
        """The model from x to the named tensor."""
        graph = helper.make_graph(
            self.nodes, "chain", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(result, TensorProto.FLOAT, None)], self.constants,
        )  # fmt: skip
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        return onnx.shape_inference.infer_shapes(made)


def small_chain(bits: int = 8, seed: int = 0) -> onnx.ModelProto:
    """Conv, Relu, Conv, Add, AveragePool."""
    write = QdqWriter(bits, seed)
    x = write.quantized("x", "x", -3, 3)
    first = write.op("Relu", [write.conv(x, "conv1")], "relu1", 0, 4)
    second = write.conv(first, "conv2")
    added = write.op("Add", [second, first], "add1", -6, 6)
    return write.model(write.op("AveragePool", [added], "pool1", -3, 3, kernel_shape=[2, 2], strides=[2, 2]))


def gated(bits: int = 16, seed: int = 0) -> onnx.ModelProto:
    """Conv, then its result times its sigmoid: the group that the package computes otherwise at 16 bits."""
    write = QdqWriter(bits, seed)
    conv = write.conv(write.quantized("x", "x", -3, 3), "conv1")
    gate = write.op("Sigmoid", [conv], "sigmoid1", 0, 1)
    return write.model(write.op("Mul", [conv, gate], "mul1", -0.3, 4))


def saved(model: onnx.ModelProto, folder: Path, name: str = "model.onnx") -> Path:
    """The model as a file."""
    path = folder / name
    path.write_bytes(model.SerializeToString())
    return path


def sample(seed: int = 0) -> dict[str, Array]:
    """An input for those models."""
    return {"x": np.random.default_rng(seed).normal(0, 1, SHAPE).astype(np.float32)}
