# SPDX-License-Identifier: Apache-2.0
"""The three showcase pairs of QNN's linting profiling guide, as models: an image, two branches, and what joins them.

Each original has a bottleneck the guide names (Sub, Div, PReLU); each optimised one is what the guide makes of it. The
guide shows no sizes: these are an image of so many bands that the convolutions take less than what joins them, as in
its profiles. The strided slice they have beside that is left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CHANNELS = 32
SIZE = 256


class _Net:
    def __init__(self, name: str, size: int) -> None:
        self.name, self.nodes, self.constants = name, [], []
        self.random = np.random.default_rng(7)
        self.size = size

    def constant(self, array: np.ndarray, name: str) -> str:
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def add(self, op: str, inputs: list[str], name: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [f"{name}_out"], name=name, **attributes))
        return f"{name}_out"

    def conv(self, x: str, name: str, deep: int, wide: int, kernel: int = 1, weight: np.ndarray | None = None) -> str:
        if weight is None:
            weight = (self.random.standard_normal((wide, deep, kernel, kernel)) / np.sqrt(deep * kernel**2)).astype(
                "f4"
            )
        inputs = [x, self.constant(weight, f"{name}_w")]
        if kernel > 1 or deep != 2 * wide:
            bias = (0.1 * self.random.standard_normal(wide)).astype(np.float32)
            inputs.append(self.constant(bias, f"{name}_b"))
        group = deep // weight.shape[1]
        return self.add("Conv", inputs, name, kernel_shape=[kernel] * 2, pads=[kernel // 2] * 4, group=group)

    def activation(self, x: str, name: str, wide: int, prelu: bool) -> str:
        if not prelu:
            return self.add("Relu", [x], name)
        slopes = self.random.uniform(0.05, 0.4, (wide, 1, 1)).astype(np.float32)
        return self.add("PRelu", [x, self.constant(slopes, f"{name}_slope")], name)

    def start(self) -> str:
        """The convolution both branches read."""
        return self.activation(self.conv("image", "convStart", CHANNELS, CHANNELS), "reluStart", CHANNELS, False)

    def model(self, y: str) -> bytes:
        image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, CHANNELS, self.size, self.size])
        out = helper.make_tensor_value_info(y, TensorProto.FLOAT, [1, CHANNELS, self.size, self.size])
        graph = helper.make_graph(self.nodes, self.name, [image], [out], self.constants)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
        onnx.checker.check_model(made)
        return bytes(made.SerializeToString())


def _two_branches(name: str, op: str, size: int) -> bytes:
    net = _Net(name, size)
    x = net.start()
    bounds = [net.constant(np.array(v, np.float32), n) for n, v in (("least", 0.5), ("most", 6.0))]
    ends = []
    for side in ("Left", "Right"):
        y = x
        for n in (1, 2):
            y = net.conv(y, f"conv{side}{n}", CHANNELS, CHANNELS)
            if op == "Sub" or n == 1:
                y = net.activation(y, f"relu{side}{n}", CHANNELS, False)
            else:  # keeps a divisor away from 0
                y = net.add("Clip", [y, *bounds], f"clip{side}{n}")
        ends.append(y)
    return net.model(net.add("Add", [net.add(op, ends, op.lower()), x], "add"))


def _combined(name: str, prelu: bool, size: int) -> bytes:
    net = _Net(name, size)
    x = net.start()
    y = net.conv(x, "convCombined1", CHANNELS, 2 * CHANNELS)
    y = net.activation(y, "actCombined1", 2 * CHANNELS, prelu)
    weight = net.random.standard_normal((2 * CHANNELS, CHANNELS, 1, 1)).astype(np.float32) / np.float32(6)
    y = net.conv(y, "convCombined2", 2 * CHANNELS, 2 * CHANNELS, weight=weight)
    y = net.activation(y, "actCombined2", 2 * CHANNELS, prelu)
    one = np.eye(CHANNELS, dtype=np.float32)
    y = net.conv(y, "subConv", 2 * CHANNELS, CHANNELS, weight=np.concatenate([one, -one], 1)[:, :, None, None])
    return net.model(net.add("Add", [y, x], "add"))


def sub(size: int = SIZE) -> tuple[bytes, bytes]:
    """Showcase model 1: the difference of two branches; and its branches merged, with a convolution for Sub."""
    return _two_branches("sub", "Sub", size), _combined("sub_optimised", False, size)


def div(size: int = SIZE) -> tuple[bytes, bytes]:
    """Showcase model 2: the quotient of two branches; and their product."""
    return _two_branches("div", "Div", size), _two_branches("div_optimised", "Mul", size)


def prelu(size: int = SIZE) -> tuple[bytes, bytes]:
    """Showcase model 3: model 1 optimised with PReLU; and with ReLU."""
    return _combined("prelu", True, size), _combined("prelu_optimised", False, size)
