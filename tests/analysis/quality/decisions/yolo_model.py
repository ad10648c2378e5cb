# SPDX-License-Identifier: Apache-2.0
"""A YOLO-style model: boxes in pixels and class scores of a picture's cells, concatenated into one output."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, TensorProto, checker, helper, numpy_helper

from hexforge.ir import Array

SIDE, STRIDE, CLASSES = 64, 8, 3
CELLS = SIDE // STRIDE
COLOURS = np.eye(3, dtype=np.float32)
"""The colour of the squares of each class."""


def yolo_model() -> ModelProto:
    """Squares of one cell on black: a box about each cell, and a score for each colour, [1, 4 + classes, cells]."""
    weights = {
        "mean.w": np.full((3, 1, STRIDE, STRIDE), 1 / STRIDE**2, np.float32),
        "score.w": (16 * COLOURS).reshape(CLASSES, 3, 1, 1),
        "score.b": np.full(CLASSES, -8, np.float32),
        "size.w": np.full((2, 3, 1, 1), 4, np.float32),
        "size.b": np.full(2, STRIDE, np.float32),
        "zero": np.zeros((2, 3, 1, 1), np.float32),
        "centre": _centres(),
        "flat": np.array([1, -1, CELLS * CELLS], np.int64),
    }
    nodes = [
        helper.make_node("Conv", ["image", "mean.w"], ["cells"], "mean", strides=[STRIDE, STRIDE], group=3),
        helper.make_node("Conv", ["cells", "zero"], ["nothing"], "nothing"),
        helper.make_node("Add", ["nothing", "centre"], ["centres"], "centres"),
        helper.make_node("Conv", ["cells", "size.w", "size.b"], ["sizes"], "sizes"),
        helper.make_node("Concat", ["centres", "sizes"], ["box"], "box", axis=1),
        helper.make_node("Conv", ["cells", "score.w", "score.b"], ["logits"], "logits"),
        helper.make_node("Sigmoid", ["logits"], ["scores"], "scores"),
        helper.make_node("Concat", ["box", "scores"], ["both"], "both", axis=1),
        helper.make_node("Reshape", ["both", "flat"], ["output0"], "output"),
    ]
    graph = helper.make_graph(
        nodes,
        "yolo",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("output0", TensorProto.FLOAT, [1, 4 + CLASSES, CELLS * CELLS])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    checker.check_model(model, full_check=True)
    return model


def _centres() -> Array:
    """Centres of the cells in pixels of a picture of 640: boxes go far beyond what scores do."""
    y, x = np.mgrid[:CELLS, :CELLS]
    return (np.stack([x, y])[None].astype(np.float32) + 0.5) * 80


def pictures(count: int, seed: int = 0) -> list[dict[str, Array]]:
    """Black pictures with a few coloured cells."""
    random = np.random.default_rng(seed)
    samples = []
    for _ in range(count):
        cells = np.zeros((3, CELLS, CELLS), np.float32)
        for _ in range(5):
            y, x = random.integers(0, CELLS, 2)
            cells[:, y, x] = COLOURS[random.integers(CLASSES)] * random.uniform(0.7, 1.0)
        samples.append({"image": cells.repeat(STRIDE, 1).repeat(STRIDE, 2)[None]})
    return samples
