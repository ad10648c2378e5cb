# SPDX-License-Identifier: Apache-2.0
"""Models for benchmarks, of the published architectures with random weights: only their size and shape matter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Writer:
    """Writes nodes one after another; every method returns the name of what it wrote."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(0)

    def weight(self, shape: tuple[int, ...], scale: float) -> str:
        """A random constant."""
        name = f"w{len(self.weights)}"
        array = self._random.standard_normal(shape, np.float32) * np.float32(scale)
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        """A node with one output."""
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [f"{name}_out"], name=name, **attributes))
        return f"{name}_out"

    def conv(self, x: str, channels: tuple[int, int], kernel: int, stride: int = 1, group: int = 1) -> str:
        """A convolution with bias (a trained model's batch normalization is folded into it)."""
        fan_in = channels[0] // group * kernel * kernel
        weight = self.weight((channels[1], channels[0] // group, kernel, kernel), (2 / fan_in) ** 0.5)
        pads = [kernel // 2] * 4
        bias = self.weight((channels[1],), 0.01)
        return self.node(
            "Conv", x, weight, bias, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads, group=group
        )

    def clip(self, x: str) -> str:
        """Relu6."""
        names = []
        for bound in (0.0, 6.0):
            names.append(f"w{len(self.weights)}")
            self.weights.append(numpy_helper.from_array(np.array(bound, np.float32), names[-1]))
        return self.node("Clip", x, *names)

    def silu(self, x: str) -> str:
        """x times its sigmoid."""
        return self.node("Mul", x, self.node("Sigmoid", x))

    def squeeze_and_excite(self, x: str, channels: int, squeezed: int) -> str:
        """Channels times factors that two small layers make of the channels' means."""
        y = self.silu(self.conv(self.node("GlobalAveragePool", x), (channels, squeezed), 1))
        return self.node("Mul", x, self.node("Sigmoid", self.conv(y, (squeezed, channels), 1)))

    def classify(self, x: str, channels: int) -> str:
        """Global pooling and 1,000 classes."""
        pooled = self.node("Flatten", self.node("GlobalAveragePool", x), axis=1)
        weight, bias = self.weight((1000, channels), channels**-0.5), self.weight((1000,), 0.01)
        return self.node("Gemm", pooled, weight, bias, transB=1)

    def save(self, path: Path, name: str, result: str) -> None:
        """Write the model, `image` to `logits`."""
        self.nodes.append(helper.make_node("Identity", [result], ["logits"], name="logits"))
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 224, 224])],
            [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 1000])],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        path.write_bytes(model.SerializeToString())


def resnet50(path: Path) -> None:
    """ResNet-50 (He et al. 2015): 25.5 M parameters, 4.1 G multiply-adds."""
    w = Writer()
    x = w.node("Relu", w.conv("image", (3, 64), 7, 2))
    x = w.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    before = 64
    for width, blocks, first_stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            stride = first_stride if block == 0 else 1
            y = w.node("Relu", w.conv(x, (before, width), 1))
            y = w.node("Relu", w.conv(y, (width, width), 3, stride))
            y = w.conv(y, (width, 4 * width), 1)
            shortcut = w.conv(x, (before, 4 * width), 1, stride) if block == 0 else x
            x, before = w.node("Relu", w.node("Add", y, shortcut)), 4 * width
    w.save(path, "resnet50", w.classify(x, before))


def mobilenet_v2(path: Path) -> None:
    """MobileNetV2 (Sandler et al. 2018): 3.5 M parameters, 0.3 G multiply-adds."""
    w = Writer()
    x, before = w.clip(w.conv("image", (3, 32), 3, 2)), 32
    for expand, channels, blocks, first_stride in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        for block in range(blocks):
            stride, inside = first_stride if block == 0 else 1, before * expand
            y = x if expand == 1 else w.clip(w.conv(x, (before, inside), 1))
            y = w.clip(w.conv(y, (inside, inside), 3, stride, inside))
            y = w.conv(y, (inside, channels), 1)
            x, before = (w.node("Add", x, y) if stride == 1 and before == channels else y), channels
    x = w.clip(w.conv(x, (before, 1280), 1))
    w.save(path, "mobilenet_v2", w.classify(x, 1280))


def squeezenet(path: Path) -> None:
    """SqueezeNet 1.1 (Iandola et al. 2016): 1.2 M parameters, 0.35 G multiply-adds."""
    w = Writer()
    x, before = w.node("Relu", w.conv("image", (3, 64), 3, 2)), 64
    for squeeze, expand, pooled in (
        (16, 64, True), (16, 64, False), (32, 128, True), (32, 128, False),
        (48, 192, True), (48, 192, False), (64, 256, False), (64, 256, False),
    ):  # fmt: skip
        x = w.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2]) if pooled else x
        y = w.node("Relu", w.conv(x, (before, squeeze), 1))
        wide = [w.node("Relu", w.conv(y, (squeeze, expand), kernel)) for kernel in (1, 3)]
        x, before = w.node("Concat", *wide, axis=1), 2 * expand
    x = w.node("GlobalAveragePool", w.node("Relu", w.conv(x, (before, 1000), 1)))
    w.save(path, "squeezenet", w.node("Flatten", x, axis=1))


def efficientnet_b0(path: Path) -> None:
    """EfficientNet-B0 (Tan and Le 2019): 5.3 M parameters, 0.4 G multiply-adds, squeeze-and-excitation, SiLU."""
    w = Writer()
    x, before = w.silu(w.conv("image", (3, 32), 3, 2)), 32
    for expand, channels, blocks, first_stride, kernel in (
        (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5), (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    ):  # fmt: skip
        for block in range(blocks):
            stride, inside = first_stride if block == 0 else 1, before * expand
            y = x if expand == 1 else w.silu(w.conv(x, (before, inside), 1))
            y = w.silu(w.conv(y, (inside, inside), kernel, stride, inside))
            y = w.squeeze_and_excite(y, inside, max(1, before // 4))
            y = w.conv(y, (inside, channels), 1)
            x, before = (w.node("Add", x, y) if stride == 1 and before == channels else y), channels
    x = w.silu(w.conv(x, (before, 1280), 1))
    w.save(path, "efficientnet_b0", w.classify(x, 1280))


MODELS = {"resnet50": resnet50, "mobilenet_v2": mobilenet_v2, "squeezenet": squeezenet}
