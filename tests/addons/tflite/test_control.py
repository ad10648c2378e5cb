# SPDX-License-Identifier: Apache-2.0
"""Subgraphs that operators run, variables, and operators of mediapipe and of detectors."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from flatbuffers import flexbuffers

from hexforge.addons.tflite.compare import difference, run_litert, run_onnx
from hexforge.addons.tflite.convert import onnx_model
from hexforge.addons.tflite.model_file import parse
from hexforge.errors import UnsupportedError
from hexforge.ir import Array
from tests.addons.tflite.tflite_files import Made, MadeModel, MadeOperator, MadeSubgraph

_ADD = [("b", 0)]
_FLOAT4, _FLAG = Made((4,)), Made((), np.bool_)


def results(model: MadeModel, *feeds: Array) -> list[Array]:
    """What the ONNX model computes."""
    return run_onnx(onnx_model(parse(model.content(), "made.tflite")).SerializeToString(), list(feeds))


def branches() -> MadeModel:
    """Twice the input, or its square."""
    main = MadeSubgraph(
        [_FLAG, _FLOAT4, Made((4,))], [MadeOperator("IF", [0, 1], [2], [("i", 1), ("i", 2)])], [0, 1], [2]
    )
    twice = MadeSubgraph([_FLOAT4, Made((4,))], [MadeOperator("ADD", [0, 0], [1], _ADD)], [0], [1], "twice")
    square = MadeSubgraph([_FLOAT4, Made((4,))], [MadeOperator("MUL", [0, 0], [1], _ADD)], [0], [1], "square")
    return MadeModel([main, twice, square])


def loop() -> MadeModel:
    """Doubles while a counter is below three."""
    count, values = Made((), np.int32), Made((4,))
    main = MadeSubgraph(
        [count, values, Made((), np.int32), Made((4,))],
        [MadeOperator("WHILE", [0, 1], [2, 3], [("i", 1), ("i", 2)])], [0, 1], [2, 3],
    )  # fmt: skip
    below = MadeSubgraph(
        [count, values, Made((), np.int32, 3), Made((), np.bool_)],
        [MadeOperator("LESS", [0, 2], [3])],
        [0, 1],
        [3],
        "below",
    )
    body = MadeSubgraph(
        [count, values, Made((), np.int32, 1), Made((), np.int32), Made((4,))],
        [MadeOperator("ADD", [0, 2], [3], _ADD), MadeOperator("ADD", [1, 1], [4], _ADD)], [0, 1], [3, 4], "body",
    )  # fmt: skip
    return MadeModel([main, below, body])


def counter() -> MadeModel:
    """Adds its input to a variable, which begins with one and a half."""
    handle = MadeOperator("VAR_HANDLE", [], [0], [("text", ""), ("text", "total")])
    once = MadeSubgraph(
        [Made((), np.int32), Made((4,), data=np.full(4, 1.5))],
        [handle, MadeOperator("ASSIGN_VARIABLE", [0, 1], [])],
        [],
        [],
    )
    main = MadeSubgraph(
        [Made((), "resource", name="handle"), _FLOAT4, Made((4,)), Made((4,), name="sum")],
        [
            MadeOperator("CALL_ONCE", [], [], [("i", 1)]), handle, MadeOperator("READ_VARIABLE", [0], [2]),
            MadeOperator("ADD", [1, 2], [3], _ADD), MadeOperator("ASSIGN_VARIABLE", [0, 3], []),
        ],
        [1], [3],
    )  # fmt: skip
    once.tensors[0].dtype = "resource"
    return MadeModel([main, once])


@pytest.mark.parametrize("flag", [True, False])
def test_a_branch_is_taken(flag: bool) -> None:
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(results(branches(), np.array(flag), x)[0], 2 * x if flag else x * x)


def test_a_loop_runs_until_its_condition_ends_it() -> None:
    x = np.arange(4, dtype=np.float32)
    count, values = results(loop(), np.array(1, np.int32), x)
    assert count == 3
    np.testing.assert_array_equal(values, 4 * x)
    count, values = results(loop(), np.array(5, np.int32), x)
    assert count == 5
    np.testing.assert_array_equal(values, x)


def test_a_variable_is_an_input_and_an_output() -> None:
    made = onnx_model(parse(counter().content(), "made.tflite"))
    assert [v.name for v in made.graph.input] == ["t1", "total"]
    assert [v.name for v in made.graph.output] == ["sum", "total/next"]
    assert {p.key: p.value for p in made.metadata_props}["begins as total"] == "1.5"
    x = np.arange(4, dtype=np.float32)
    for result in results(counter(), x):
        np.testing.assert_array_equal(result, x + 1.5)


@pytest.mark.parametrize("field", [1, 0])
def test_a_subgraph_that_runs_itself_is_refused(field: int) -> None:
    model = branches()
    model.subgraphs[1].operators = [MadeOperator("CALL", [0], [1], [("I", field)])]
    with pytest.raises(UnsupportedError, match="by itself"):
        onnx_model(parse(model.content(), "made.tflite"))


@pytest.mark.litert
@pytest.mark.parametrize("model", [branches(), loop(), counter()], ids=["if", "while", "variable"])
def test_litert_computes_the_same(model: MadeModel) -> None:
    inputs, wanted = run_litert(model.content())
    for kept, got in zip(wanted, results(model, *inputs), strict=False):
        np.testing.assert_allclose(got, kept, rtol=1e-6)


# -- operators of others ---------------------------------------------------------------------------------------------

RANDOM = np.random.default_rng(5)
IMAGE = RANDOM.random((1, 4, 6, 2), np.float32)


def pool_options() -> bytes:
    """SAME padding, strides and window of 2."""
    return struct.pack("<5i", 1, 2, 2, 2, 2)


@pytest.mark.parametrize(("padding", "size"), [(1, 8), (2, 9)])
def test_a_transposed_convolution_with_a_bias(padding: int, size: int) -> None:
    weights, bias = RANDOM.random((3, 3, 3, 2), np.float32), np.array([1, 2, 3], np.float32)
    filled = [Made(weights.shape, data=weights), Made((3,), data=bias), Made((1, size, 2 * 6 + size % 2, 3))]
    own = MadeOperator("Convolution2DTransposeBias", [0, 1, 2], [3], custom=struct.pack("<3i", padding, 2, 2))
    mine = MadeModel([MadeSubgraph([Made(IMAGE.shape), *filled], [own], [0], [3])])
    shape = Made((4,), np.int32, filled[-1].shape)
    builtin = MadeOperator("TRANSPOSE_CONV", [4, 1, 0, 2], [3], [("b", padding - 1), ("i", 2), ("i", 2), ("b", 0)])
    theirs = MadeModel([MadeSubgraph([Made(IMAGE.shape), *filled, shape], [builtin], [0], [3])])
    np.testing.assert_array_equal(results(mine, IMAGE)[0], results(theirs, IMAGE)[0])


def test_maxima_with_their_places_and_back() -> None:
    pool = MadeOperator("MaxPoolingWithArgmax2D", [0], [1, 2], custom=pool_options())
    back = MadeOperator("MaxUnpooling2D", [1, 2], [3], custom=pool_options())
    tensors = [Made(IMAGE.shape), Made((1, 2, 3, 2)), Made((1, 2, 3, 2)), Made(IMAGE.shape)]
    largest, place, spread = results(MadeModel([MadeSubgraph(tensors, [pool, back], [0], [1, 2, 3])]), IMAGE)
    windows = IMAGE.reshape(1, 2, 2, 3, 2, 2).transpose(0, 1, 3, 5, 2, 4).reshape(1, 2, 3, 2, 4)
    np.testing.assert_array_equal(largest, windows.max(-1))
    np.testing.assert_array_equal(place.astype(int), windows.argmax(-1))
    np.testing.assert_array_equal(spread, np.where(np.isin(IMAGE, largest), IMAGE, 0))


def detector(**more: object) -> MadeModel:
    """The last operator of SSD detectors."""
    anchors = np.concatenate([RANDOM.random((50, 2)), RANDOM.random((50, 2)) * 0.3 + 0.05], 1)
    options = {
        "max_detections": 10, "max_classes_per_detection": 1, "num_classes": 5, "nms_score_threshold": 0.3,
        "nms_iou_threshold": 0.5, "y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0, **more,
    }  # fmt: skip
    shapes = [(1, 50, 4), (1, 50, 6), (50, 4), (1, 10, 4), (1, 10), (1, 10), (1,)]
    tensors = [Made(shape, data=anchors if place == 2 else None) for place, shape in enumerate(shapes)]
    last = MadeOperator(
        "TFLite_Detection_PostProcess", [0, 1, 2], [3, 4, 5, 6], custom=bytes(flexbuffers.Dumps(options))
    )
    return MadeModel([MadeSubgraph(tensors, [last], [0, 1], [3, 4, 5, 6])])


@pytest.mark.litert
def test_a_detector_finds_what_it_finds_in_litert() -> None:
    model = detector()
    inputs, wanted = run_litert(model.content())
    assert max(difference(w, g) for w, g in zip(wanted, results(model, *inputs), strict=True)) < 1e-5


def test_a_detector_puts_the_best_first() -> None:
    boxes, scores = RANDOM.normal(0, 1, (1, 50, 4)).astype(np.float32), RANDOM.random((1, 50, 6), np.float32)
    corners, kinds, best, count = results(detector(), boxes, scores)
    assert count == 10
    assert (np.diff(best[0]) <= 0).all()
    assert best[0, 0] == scores[0, :, 1:].max()
    assert kinds[0, 0] == scores[0, scores[0, :, 1:].max(1).argmax(), 1:].argmax()
    assert (corners[0, :, 2:] > corners[0, :, :2]).all()


def test_a_detector_class_by_class_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="use_regular_nms"):
        onnx_model(parse(detector(use_regular_nms=True).content(), "made.tflite"))
