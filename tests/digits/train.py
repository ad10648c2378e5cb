# SPDX-License-Identifier: Apache-2.0
"""Train the tests' digit classifier on scikit-learn's digits, in plain numpy, and write it as ONNX.

    python tests/digits/train.py [FOLDER]

Writes `digits.onnx` (Conv-Relu-MaxPool twice, then Gemm; one 8x8 picture of 0..16 in, ten logits out) and
`digits_heldout.npz` (the pictures and labels the training never saw). Both are kept in this folder.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits

Floats = NDArray[np.float32]
SEED = 7
HELD_OUT = 360
EPOCHS = 60
BATCH = 64
FOLDER = Path(__file__).parent


def split() -> tuple[Floats, NDArray[np.int64], Floats, NDArray[np.int64]]:
    """Training and held-out pictures [n, 1, 8, 8] and labels; the same split every time."""
    digits = load_digits()
    order = np.random.default_rng(SEED).permutation(len(digits.target))
    pictures = digits.images.astype(np.float32)[order, None]
    labels = digits.target.astype(np.int64)[order]
    return pictures[HELD_OUT:], labels[HELD_OUT:], pictures[:HELD_OUT], labels[:HELD_OUT]


def columns(x: Floats) -> Floats:
    """3x3 neighbourhoods, zero padded: [n, c, h, w] -> [n, h, w, c*9]."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = sliding_window_view(padded, (3, 3), axis=(2, 3))  # n, c, h, w, 3, 3
    return windows.transpose(0, 2, 3, 1, 4, 5).reshape(x.shape[0], x.shape[2], x.shape[3], -1)


class Layer:
    """Conv 3x3, Relu, MaxPool 2x2, with the gradient of all three."""

    def __init__(self, rng: np.random.Generator, inputs: int, outputs: int) -> None:
        self.weight = (rng.standard_normal((inputs * 9, outputs)) * np.sqrt(2 / (inputs * 9))).astype(np.float32)
        self.bias = np.zeros(outputs, np.float32)

    def forward(self, x: Floats) -> Floats:
        """[n, c, h, w] -> [n, k, h/2, w/2]."""
        self.seen, self.cols = x, columns(x)
        y = np.maximum(self.cols @ self.weight + self.bias, 0)
        n, h, w, k = y.shape
        blocks = y.reshape(n, h // 2, 2, w // 2, 2, k).transpose(0, 1, 3, 5, 2, 4).reshape(n, h // 2, w // 2, k, 4)
        self.best = blocks.argmax(-1)
        pooled = np.take_along_axis(blocks, self.best[..., None], -1)[..., 0]
        self.alive = pooled > 0
        return pooled.transpose(0, 3, 1, 2)

    def backward(self, grad: Floats) -> tuple[Floats, list[Floats]]:
        """Gradient of the input, and of weight and bias."""
        n, _, h, w = self.seen.shape
        k = self.bias.size
        blocks = np.zeros((n, h // 2, w // 2, k, 4), np.float32)
        passed = grad.transpose(0, 2, 3, 1) * self.alive
        np.put_along_axis(blocks, self.best[..., None], passed[..., None], -1)
        y = blocks.reshape(n, h // 2, w // 2, k, 2, 2).transpose(0, 1, 4, 2, 5, 3).reshape(n * h * w, k)
        weight = self.cols.reshape(n * h * w, -1).T @ y
        back = (y @ self.weight.T).reshape(n, h, w, -1, 3, 3)
        padded = np.zeros((n, self.seen.shape[1], h + 2, w + 2), np.float32)
        for i in range(3):
            for j in range(3):
                padded[:, :, i : i + h, j : j + w] += back[..., i, j].transpose(0, 3, 1, 2)
        return padded[:, :, 1:-1, 1:-1], [weight, y.sum(0)]


def shifted(rng: np.random.Generator, x: Floats) -> Floats:
    """Each picture moved by up to one pixel, so that the net does not learn positions by heart."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    corners = rng.choice([0, 1, 1, 2], (len(x), 2))
    return np.stack([p[:, i : i + 8, j : j + 8] for p, (i, j) in zip(padded, corners, strict=True)])


class Net:
    """Two layers and a Gemm; pictures are scaled to 0..1 by the first weights, which `model` folds them into."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.layers = [Layer(rng, 1, 16), Layer(rng, 16, 32)]
        self.weight = (rng.standard_normal((128, 10)) * np.sqrt(1 / 128)).astype(np.float32)
        self.bias = np.zeros(10, np.float32)

    def forward(self, x: Floats) -> Floats:
        """Logits."""
        y = x / 16
        for layer in self.layers:
            y = layer.forward(y)  # type: ignore[arg-type, assignment]
        self.features = y.reshape(len(y), -1)
        return self.features @ self.weight + self.bias

    def step(self, x: Floats, labels: NDArray[np.int64]) -> tuple[list[Floats], list[Floats]]:
        """Parameters and their gradients of the mean cross entropy."""
        logits = self.forward(x)
        grad = np.exp(logits - logits.max(1, keepdims=True))
        grad /= grad.sum(1, keepdims=True)
        grad[np.arange(len(x)), labels] -= 1
        grad /= len(x)
        parameters, grads = [self.weight, self.bias], [self.features.T @ grad, grad.sum(0)]
        back = (grad @ self.weight.T).reshape(len(x), 32, 2, 2)
        for layer in reversed(self.layers):
            back, own = layer.backward(back)
            parameters += [layer.weight, layer.bias]
            grads += own
        return parameters, grads


def train(pictures: Floats, labels: NDArray[np.int64]) -> Net:
    """Adam with a falling rate."""
    rng = np.random.default_rng(SEED)
    net = Net(rng)
    steps = EPOCHS * (len(pictures) // BATCH)
    first: list[Floats] = []
    second: list[Floats] = []
    for step in range(steps):
        if step % (len(pictures) // BATCH) == 0:
            order = rng.permutation(len(pictures))
        batch = order[(step % (len(pictures) // BATCH)) * BATCH :][:BATCH]
        parameters, grads = net.step(shifted(rng, pictures[batch]), labels[batch])
        if not first:
            first = [np.zeros_like(p) for p in parameters]
            second = [np.zeros_like(p) for p in parameters]
        rate = 3e-3 * (1 - step / steps)
        for p, g, m, v in zip(parameters, grads, first, second, strict=True):
            m += 0.1 * (g - m)
            v += 0.01 * (g * g - v)
            p -= rate * (m / (1 - 0.9 ** (step + 1))) / (np.sqrt(v / (1 - 0.99 ** (step + 1))) + 1e-8)
    return net


def model(net: Net) -> onnx.ModelProto:
    """The net as ONNX, one picture of 0..16 at a time."""
    data = {"fc.weight": net.weight, "fc.bias": net.bias}
    for i, (layer, scale) in enumerate(zip(net.layers, (16, 1), strict=True), 1):
        inputs = layer.weight.shape[0] // 9
        data[f"conv{i}.weight"] = np.ascontiguousarray((layer.weight / scale).T.reshape(-1, inputs, 3, 3))
        data[f"conv{i}.bias"] = layer.bias
    nodes = []
    value = "image"
    for i in (1, 2):
        conv = [value, f"conv{i}.weight", f"conv{i}.bias"]
        nodes += [
            helper.make_node("Conv", conv, [f"conv{i}"], f"conv{i}", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", [f"conv{i}"], [f"relu{i}"], f"relu{i}"),
            helper.make_node("MaxPool", [f"relu{i}"], [f"pool{i}"], f"pool{i}", kernel_shape=[2, 2], strides=[2, 2]),
        ]
        value = f"pool{i}"
    nodes += [
        helper.make_node("Flatten", [value], ["flat"], "flatten"),
        helper.make_node("Gemm", ["flat", "fc.weight", "fc.bias"], ["logits"], "fc"),
    ]
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 10])],
        [numpy_helper.from_array(array, name) for name, array in data.items()],
    )
    made = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="hexforge tests/digits"
    )
    onnx.checker.check_model(made, full_check=True)
    return made


def main() -> None:
    """Train, report the held-out accuracy, write both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    folder: Path = parser.parse_args().folder
    pictures, labels, held_pictures, held_labels = split()
    net = train(pictures, labels)
    accuracy = float((net.forward(held_pictures).argmax(1) == held_labels).mean())
    print(f"trained on {len(labels)} pictures, held-out accuracy {accuracy:.2%} on {len(held_labels)}")
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model(net), folder / "digits.onnx")
    np.savez_compressed(
        folder / "digits_heldout.npz", pictures=held_pictures.astype(np.uint8), labels=held_labels.astype(np.uint8)
    )


if __name__ == "__main__":
    main()
