# SPDX-License-Identifier: Apache-2.0
"""The nine models that QNN's GPU backend was announced with, by architecture, with random weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.models.architectures import Writer, mobilenet_v2, resnet50

_FLOATS = {np.float32: TensorProto.FLOAT, np.float16: TensorProto.FLOAT16}


class _Net(Writer):
    """Adds what convolutional networks of the model zoo and transformers have."""

    def constant(self, array: np.ndarray) -> str:
        """A constant as it is."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def batch_norm(self, x: str, channels: int) -> str:
        """Batch normalization that stands by itself."""
        scale = self.constant(self._random.uniform(0.8, 1.2, channels).astype(np.float32))
        shift, mean = self.weight((channels,), 0.05), self.weight((channels,), 0.05)
        variance = self.constant(self._random.uniform(0.8, 1.2, channels).astype(np.float32))
        return self.node("BatchNormalization", x, scale, shift, mean, variance)

    def plain_conv(
        self, x: str, channels: tuple[int, int], kernel: int, stride: int = 1, pad: int | None = None
    ) -> str:
        """A convolution without bias."""
        weight = self.weight((channels[1], channels[0], kernel, kernel), (2 / (channels[0] * kernel * kernel)) ** 0.5)
        pads = [kernel // 2 if pad is None else pad] * 4
        return self.node("Conv", x, weight, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads)

    def linear(self, x: str, size: tuple[int, int]) -> str:
        """A matrix product and a bias."""
        product = self.node("MatMul", x, self.weight(size, size[0] ** -0.5))
        return self.node("Add", product, self.weight((size[1],), 0.02))

    def layer_norm(self, x: str, size: int) -> str:
        """Layer normalization."""
        scale = self.constant(self._random.uniform(0.8, 1.2, size).astype(np.float32))
        return self.node("LayerNormalization", x, scale, self.weight((size,), 0.02), axis=-1, epsilon=1e-12)

    def gelu(self, x: str) -> str:
        """The Gelu as exporters write it."""
        inner = self.node("Erf", self.node("Div", x, self.constant(np.array(2**0.5, np.float32))))
        one = self.node("Add", inner, self.constant(np.array(1, np.float32)))
        return self.node("Mul", self.node("Mul", x, one), self.constant(np.array(0.5, np.float32)))

    def attention(self, x: str, length: int, width: int, heads: int, mask: str = "") -> str:
        """Self-attention as exporters write it."""
        size = width // heads
        shape = self.constant(np.asarray([1, length, heads, size], np.int64))
        q, k, v = (self.node("Reshape", self.linear(x, (width, width)), shape) for _ in range(3))
        q, v = (self.node("Transpose", t, perm=[0, 2, 1, 3]) for t in (q, v))
        k = self.node("Transpose", k, perm=[0, 2, 3, 1])
        scores = self.node("Div", self.node("MatMul", q, k), self.constant(np.array(size**0.5, np.float32)))
        if mask:
            scores = self.node("Add", scores, mask)
        mixed = self.node("MatMul", self.node("Softmax", scores, axis=-1), v)
        joined = self.node("Transpose", mixed, perm=[0, 2, 1, 3])
        flat = self.node("Reshape", joined, self.constant(np.asarray([1, length, width], np.int64)))
        return self.linear(flat, (width, width))

    def write(
        self, path: Path, name: str, inputs: dict[str, tuple[int, list[int]]], result: str, shape: list[int]
    ) -> None:
        """Write the model with any inputs."""
        self.nodes.append(helper.make_node("Identity", [result], ["output"], name="output"))
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()],
            [helper.make_tensor_value_info("output", TensorProto.FLOAT, shape)],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        path.write_bytes(model.SerializeToString())


def resnet50_fp16(path: Path) -> None:
    """ResNet-50 with every float in 16 bits."""
    resnet50(path)
    model = onnx.load(str(path))
    for i, weight in enumerate(model.graph.initializer):
        array = numpy_helper.to_array(weight).astype(np.float16)
        model.graph.initializer[i].CopyFrom(numpy_helper.from_array(array, weight.name))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    path.write_bytes(model.SerializeToString())


def vit_base(path: Path) -> None:
    """ViT-Base, patches of 16 (Dosovitskiy et al. 2020): 86 M parameters, 197 tokens of 768, 12 layers."""
    w = _Net()
    width, length = 768, 197
    kernel = w.weight((width, 3, 16, 16), 768**-0.5)
    x = w.node("Conv", "image", kernel, w.weight((width,), 0.02), kernel_shape=[16, 16], strides=[16, 16])
    x = w.node("Transpose", w.node("Reshape", x, w.constant(np.asarray([1, width, 196], np.int64))), perm=[0, 2, 1])
    x = w.node("Concat", w.weight((1, 1, width), 0.02), x, axis=1)
    x = w.node("Add", x, w.weight((1, length, width), 0.02))
    for _ in range(12):
        x = w.node("Add", x, w.attention(w.layer_norm(x, width), length, width, 12))
        inner = w.gelu(w.linear(w.layer_norm(x, width), (width, 4 * width)))
        x = w.node("Add", x, w.linear(inner, (4 * width, width)))
    x = w.node("Gather", w.layer_norm(x, width), w.constant(np.asarray(0, np.int64)), axis=1)
    w.write(path, "vit_base", {"image": (TensorProto.FLOAT, [1, 3, 224, 224])}, w.linear(x, (width, 1000)), [1, 1000])


def squeezenet(path: Path) -> None:
    """SqueezeNet 1.0 (Iandola et al. 2016): 1.2 M parameters, fire modules that concatenate."""
    w = _Net()

    def relu_conv(x: str, channels: tuple[int, int], kernel: int) -> str:
        return w.node("Relu", w.conv(x, channels, kernel))

    weight = w.weight((96, 3, 7, 7), (2 / 147) ** 0.5)
    x = w.node("Conv", "image", weight, w.weight((96,), 0.01), kernel_shape=[7, 7], strides=[2, 2])
    x, before = w.node("Relu", x), 96
    for i, (squeeze, expand) in enumerate(
        ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))
    ):
        if i in (0, 3, 7):
            x = w.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2])
        y = relu_conv(x, (before, squeeze), 1)
        x = w.node("Concat", relu_conv(y, (squeeze, expand), 1), relu_conv(y, (squeeze, expand), 3), axis=1)
        before = 2 * expand
    x = w.node("Relu", w.conv(x, (512, 1000), 1))
    x = w.node("Softmax", w.node("GlobalAveragePool", x), axis=1)
    w.write(path, "squeezenet", {"image": (TensorProto.FLOAT, [1, 3, 224, 224])}, x, [1, 1000, 1, 1])


def emotion_ferplus(path: Path) -> None:
    """Emotion FER+ (Barsoum et al. 2016): a VGG13 of 64 by 64 pixels, 8.8 M parameters."""
    w = _Net()
    x, before = (
        w.node(
            "Div",
            w.node("Sub", "image", w.constant(np.array(127.5, np.float32))),
            w.constant(np.array(127.5, np.float32)),
        ),
        1,
    )
    for channels, count in ((64, 2), (128, 2), (256, 3), (256, 3)):
        for _ in range(count):
            product = w.plain_conv(x, (before, channels), 3)
            x, before = w.node("Relu", w.node("Add", product, w.weight((channels, 1, 1), 0.02))), channels
        x = w.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = w.node("Reshape", x, w.constant(np.asarray([1, 4096], np.int64)))
    for size in ((4096, 1024), (1024, 1024)):
        x = w.node("Relu", w.linear(x, size))
    w.write(path, "emotion_ferplus", {"image": (TensorProto.FLOAT, [1, 1, 64, 64])}, w.linear(x, (1024, 8)), [1, 8])


def arcface_resnet100(path: Path) -> None:
    """ArcFace's LResNet100E-IR (Deng et al. 2018): 65 M parameters, PRelu, 112 by 112 pixels."""
    w = _Net()

    def prelu(x: str, channels: int) -> str:
        return w.node("PRelu", x, w.weight((channels, 1, 1), 0.25))

    x = w.node(
        "Mul",
        w.node("Sub", "image", w.constant(np.array(127.5, np.float32))),
        w.constant(np.array(0.0078125, np.float32)),
    )
    x = prelu(w.batch_norm(w.plain_conv(x, (3, 64), 3), 64), 64)
    before = 64
    for channels, units in ((64, 3), (128, 13), (256, 30), (512, 3)):
        for unit in range(units):
            stride = 2 if unit == 0 else 1
            y = w.batch_norm(w.plain_conv(w.batch_norm(x, before), (before, channels), 3), channels)
            y = w.batch_norm(w.plain_conv(prelu(y, channels), (channels, channels), 3, stride), channels)
            short = x
            if unit == 0:
                short = w.batch_norm(w.plain_conv(x, (before, channels), 1, stride, 0), channels)
            x, before = w.node("Mul", w.node("Add", y, short), w.constant(np.array(0.7, np.float32))), channels
    x = w.node("Flatten", w.batch_norm(x, 512), axis=1)
    weight = w.weight((512, 25088), 25088**-0.5)
    x = w.batch_norm(w.node("Gemm", x, weight, w.weight((512,), 0.01), transB=1), 512)
    w.write(path, "arcface", {"image": (TensorProto.FLOAT, [1, 3, 112, 112])}, x, [1, 512])


def _bert(path: Path, length: int, outputs: int, pooled: bool) -> None:
    """BERT-Base (Devlin et al. 2018): 110 M parameters, 12 layers of 768."""
    w = _Net()
    width, ids = 768, TensorProto.INT64
    inputs = {name: (ids, [1, length]) for name in ("input_ids", "attention_mask", "token_type_ids")}
    x = w.node("Gather", w.weight((30522, width), 0.05), "input_ids", axis=0)
    x = w.node("Add", x, w.node("Gather", w.weight((2, width), 0.05), "token_type_ids", axis=0))
    x = w.layer_norm(w.node("Add", x, w.weight((1, length, width), 0.05)), width)
    mask = w.node(
        "Unsqueeze", w.node("Cast", "attention_mask", to=TensorProto.FLOAT), w.constant(np.asarray([1, 2], np.int64))
    )
    mask = w.node(
        "Mul", w.node("Sub", w.constant(np.array(1, np.float32)), mask), w.constant(np.array(-10000, np.float32))
    )
    for _ in range(12):
        x = w.layer_norm(w.node("Add", w.attention(x, length, width, 12, mask), x), width)
        x = w.layer_norm(w.node("Add", w.linear(w.gelu(w.linear(x, (width, 4 * width))), (4 * width, width)), x), width)
    if pooled:
        first = w.node("Gather", x, w.constant(np.asarray(0, np.int64)), axis=1)
        x, shape = w.linear(w.node("Tanh", w.linear(first, (width, width))), (width, outputs)), [1, outputs]
    else:
        x, shape = w.linear(x, (width, outputs)), [1, length, outputs]
    w.write(path, "bert", inputs, x, shape)  # type: ignore[arg-type]


def intel_bert(path: Path) -> None:
    """BERT-Base that marks answers in 384 tokens (question answering)."""
    _bert(path, 384, 2, pooled=False)


def google_bert(path: Path) -> None:
    """BERT-Base that classifies 128 tokens."""
    _bert(path, 128, 2, pooled=True)


@dataclass(frozen=True, slots=True)
class GpuModel:
    """A model of the list: its name there, what writes it, and how close its results must be."""

    name: str
    write: Callable[[Path], None]
    tolerance: float

    def at(self, folder: Path) -> Path:
        """The model's file, written if it is not there."""
        path = folder / f"{self.name}.onnx"
        if not path.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            self.write(path)
        return path


MODELS = (
    GpuModel("resnet_50_fp16", resnet50_fp16, 2e-2),
    GpuModel("resnet_50_fp32", resnet50, 1e-4),
    GpuModel("google_vit_base_fp32", vit_base, 1e-4),
    GpuModel("squeezenet1.0-7", squeezenet, 1e-4),
    GpuModel("mobilenetv2-7", mobilenet_v2, 1e-4),
    GpuModel("emotion-ferplus-8", emotion_ferplus, 1e-4),
    GpuModel("arcfaceresnet100-8", arcface_resnet100, 1e-4),
    GpuModel("intel_bert_fp32", intel_bert, 1e-4),
    GpuModel("google_bert_fp32", google_bert, 1e-4),
)


def feeds(path: Path, seed: int = 0) -> dict[str, np.ndarray]:
    """Random inputs for a model: pictures, tokens and a mask that hides the last quarter."""
    rng = np.random.default_rng(seed)
    made = {}
    for value in onnx.load(str(path), load_external_data=False).graph.input:
        tensor = value.type.tensor_type
        shape = tuple(d.dim_value for d in tensor.shape.dim)
        if tensor.elem_type == TensorProto.INT64:
            top = 30522 if value.name == "input_ids" else 2
            array = rng.integers(0, top, shape)
            if value.name == "attention_mask":
                array = np.broadcast_to(np.arange(shape[1]) < shape[1] * 3 // 4, shape).astype(np.int64)
            made[value.name] = array
        else:
            made[value.name] = rng.standard_normal(shape).astype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
            if value.name == "image" and shape[1] == 1:
                made[value.name] = (made[value.name] * 60 + 127).astype(np.float32)
    return made
