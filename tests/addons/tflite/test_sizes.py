# SPDX-License-Identifier: Apache-2.0
"""Sizes: those that a file computes of shapes, leaves open, or has a placeholder for, follow from its inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexforge
from hexforge.addons.tflite.compare import run_onnx
from hexforge.addons.tflite.convert import onnx_model
from hexforge.addons.tflite.model_file import parse
from tests.addons.tflite.tflite_files import Made, MadeModel, MadeOperator, MadeSubgraph

FILTER = np.random.default_rng(3).normal(0, 0.3, (4, 1, 1, 2)).astype(np.float32)


def number(*values: int) -> Made:
    return Made((len(values),), np.int32, np.array(values))


def twice_as_large(shape: tuple[int, ...], signature: tuple[int, ...] = ()) -> MadeModel:
    """A resize to twice the size, which the file computes, and a convolution of what it declares to be one pixel."""
    tensors = [
        Made(shape, name="image", signature=signature),
        Made((4,), np.int32, name="shape"),
        *(number(*n) for n in ([1], [3], [1])),
        Made((2,), np.int32, name="size"),
        Made((), np.int32, np.array(2)),
        Made((2,), np.int32, name="double"),
        Made((1, 1, 1, 1), name="large", signature=(-1, -1, -1, -1)),
        Made(FILTER.shape, data=FILTER),
        Made((1, 1, 1, 4), name="out", signature=(-1, -1, -1, -1)),
    ]
    slice_options = [("i", 0), ("i", 0), ("i", 0), ("i", 0), ("i", 0)]
    operators = [
        MadeOperator("SHAPE", [0], [1], [("b", 2)]),
        MadeOperator("STRIDED_SLICE", [1, 2, 3, 4], [5], slice_options),
        MadeOperator("MUL", [5, 6], [7], [("b", 0)]),
        MadeOperator("RESIZE_NEAREST_NEIGHBOR", [0, 7], [8], [("?", False), ("?", False)]),
        MadeOperator("CONV_2D", [8, 9, -1], [10], [("b", 1), ("i", 1), ("i", 1), ("b", 0)]),
    ]
    return MadeModel([MadeSubgraph(tensors, operators, [0], [10])])


def made_of(model: MadeModel) -> Any:
    return onnx_model(parse(model.content(), "made.tflite"))


@pytest.mark.parametrize("signature", [(), (-1, 2, 3, 2)])
def test_sizes_that_follow_from_the_input_are_constants(signature: tuple[int, ...]) -> None:
    made = made_of(twice_as_large((1, 2, 3, 2), signature))
    assert not {"Shape", "Slice", "Mul"} & {node.op_type for node in made.graph.node}
    image = np.random.default_rng(0).random((1, 2, 3, 2), np.float32)
    (got,) = run_onnx(made.SerializeToString(), [image])
    wanted = np.einsum("nyxc,oc->nyxo", image.repeat(2, 1).repeat(2, 2), FILTER[:, 0, 0])
    np.testing.assert_allclose(got, wanted, atol=1e-6)


def test_a_size_that_the_application_says_stays_open(tmp_path: Path) -> None:
    model = twice_as_large((1, 1, 1, 2), (1, -1, -1, 2))
    made = made_of(model)
    assert [d.dim_param or d.dim_value for d in made.graph.input[0].type.tensor_type.shape.dim] == [
        1, "image_1", "image_2", 2,
    ]  # fmt: skip
    image = np.random.default_rng(0).random((1, 2, 3, 2), np.float32)
    (got,) = run_onnx(made.SerializeToString(), [image])
    (wanted,) = run_onnx(made_of(twice_as_large((1, 2, 3, 2))).SerializeToString(), [image])
    np.testing.assert_array_equal(got, wanted)
    (tmp_path / "open.tflite").write_bytes(model.content())
    checked = hexforge.check(tmp_path / "open.tflite", shapes={"image": (1, 2, 3, 2)})
    assert checked.totals["refused"] == 0


def test_a_file_that_fills_memory_is_not_computed_now() -> None:
    fill = MadeOperator("FILL", [0, 1], [2])
    tensors = [number(1 << 14, 1 << 14), Made((), np.float32, np.array(1.0)), Made((1, 1), name="out")]
    made = made_of(MadeModel([MadeSubgraph(tensors, [fill], [], [2])]))
    assert [node.op_type for node in made.graph.node if node.op_type == "Expand"]
    small = [number(4, 4), *tensors[1:]]
    assert "Expand" not in {n.op_type for n in made_of(MadeModel([MadeSubgraph(small, [fill], [], [2])])).graph.node}
