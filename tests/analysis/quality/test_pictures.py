# SPDX-License-Identifier: Apache-2.0
"""What counts as a picture, and that the sample that lost most is the one that is shown."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from hexforge.analysis.quality.pictures import as_picture, compare_pictures, range_of
from hexforge.runtime import registry


@pytest.mark.parametrize(
    ("shape", "picture"),
    [
        ((1, 3, 16, 20), (16, 20, 3)),
        ((1, 16, 20, 3), (16, 20, 3)),
        ((3, 16, 20), (16, 20, 3)),
        ((1, 1, 16, 20), (16, 20, 1)),
        ((16, 20), (16, 20, 1)),
        ((2, 3, 16, 20), None),
        ((1, 19, 16, 20), None),
        ((1, 3, 8, 8), None),
        ((1, 1000), None),
        ((), None),
    ],
)
def test_what_a_picture_is(shape: tuple[int, ...], picture: tuple[int, ...] | None) -> None:
    found = as_picture(np.zeros(shape, np.float32))
    assert (None if found is None else found.shape) == picture
    assert as_picture(np.zeros(shape, bool)) is None
    assert as_picture("cat") is None


@pytest.mark.parametrize(
    ("least", "largest", "expected"),
    [
        (0, 0.9, (0, 1)),
        (-0.01, 1.02, (0, 1)),
        (-0.9, 1, (-1, 1)),
        (0, 200, (0, 255)),
        (-7, 3, (-7, 3)),
        (0, 30, (0, 30)),
        (4000, 4000, (4000, 4001)),
    ],
)
def test_ranges(least: float, largest: float, expected: tuple[float, float]) -> None:
    assert range_of(np.array([[least, largest]])) == expected


def scaled(factor: float) -> bytes:
    """A model that multiplies a picture."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3, 16, 16]) for name in "xy")
    by = helper.make_tensor("by", TensorProto.FLOAT, [], [factor])
    graph = helper.make_graph([helper.make_node("Mul", ["x", "by"], ["y"])], "g", [x], [y], [by])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def test_the_worst_sample_is_shown() -> None:
    random = np.random.default_rng(5)
    shots = [(light * random.random((1, 3, 16, 16))).astype(np.float32) for light in (0.2, 0.9, 0.5)]
    samples = [(i, {"x": shot}, shot[0] * 0.5) for i, shot in enumerate(shots)]
    models = {"near": scaled(0.52), "far": scaled(0.7)}
    found = compare_pictures(scaled(0.5), models, samples, registry.backend("cpu"))
    assert found is not None
    assert (found.sample, found.output, found.range) == (1, "y", (0, 1))  # the brightest is furthest off
    assert found.in_float_db is not None
    assert found.in_float_db > 100
    near, far = found.quantized
    assert near.to_float_db == pytest.approx(-20 * np.log10(0.02 * np.sqrt(np.mean(shots[1] ** 2))), abs=0.01)
    assert near.to_target_db == pytest.approx(near.to_float_db, abs=0.01)
    assert far.to_float_db < near.to_float_db
    np.testing.assert_array_equal(found.given, shots[1][0].transpose(1, 2, 0))
    without = compare_pictures(scaled(0.5), models, [(0, {"x": shots[0]}, None)], registry.backend("cpu"))
    assert without is not None
    assert without.target is None
    assert without.quantized[0].to_target_db is None
