# SPDX-License-Identifier: Apache-2.0
"""NonMaxSuppression, RoiAlign and Stft by native steps: against onnxruntime and the op's definition, random cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import hexforge
from hexforge import _native
from hexforge.backends.htp.backend import HtpBackend
from hexforge.errors import CallError
from hexforge.ir import Array, DType, Graph, Role, ScaleOffset, TensorType, lookup
from hexforge.ir.fixed_point import quantize
from hexforge.ops.evaluate import evaluate
from tests.native.halves import half
from tests.native.kernels import LEVELS, assert_bits

SEEDS = st.integers(0, 2**32 - 1)


def computed(op: str, inputs: dict[str, tuple[Array, TensorType]], outs: list[TensorType], params: Any) -> list[Array]:
    """The node's outputs by native steps alone: the same at every level and number of threads.

    An input that is called `constant` is one.
    """
    graph = Graph("one")
    values = [
        graph.value(n, t, Role.STATIC if n == "constant" else Role.APP_WRITE, a if n == "constant" else None)
        for n, (a, t) in inputs.items()
    ]
    made = [graph.value(f"y{i}", t, Role.APP_READ) for i, t in enumerate(outs)]
    graph.node(op, values, made, **params)
    program = HtpBackend().compile(graph)
    assert not program.facts.references
    feeds = {n: a for n, (a, _) in inputs.items() if n != "constant"}
    first: dict[str, Array] = {}
    try:
        for level in LEVELS:
            _native.set_level(level)
            for threads, split in ((1, False), (3, True)):
                _native.split_everything(split)
                program.running.threads = threads
                found = program.run(feeds)
                first = first or found
                for name, array in found.items():
                    assert_bits(array, first[name], f"{name} at {level} with {threads} threads")
    finally:
        _native.set_level(LEVELS[-1])
        _native.split_everything(False)
    return [first[v.name] for v in made]


def defined(op: str, inputs: dict[str, tuple[Array, TensorType]], outs: list[TensorType], params: Any) -> list[Array]:
    """The same by the op's definition."""
    found = lookup(op)
    call = hexforge.ir.Call(found, tuple(t for _, t in inputs.values()), tuple(outs), found.complete(params))
    return [*evaluate(call, [a for a, _ in inputs.values()])]


def theirs(op: str, feeds: dict[str, Array], constants: dict[str, Array], out: int, **attributes: Any) -> Array:
    """What onnxruntime's CPU provider gives."""
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()
    ]
    node = helper.make_node(op, [*feeds, *constants], ["y"], **attributes)
    held = [numpy_helper.from_array(a, n) for n, a in constants.items()]
    graph = helper.make_graph([node], "g", infos, [helper.make_tensor_value_info("y", out, None)], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return np.asarray(onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)[0])


def real(array: Array) -> tuple[Array, TensorType]:
    """A float tensor of numbers that float16 has."""
    array = half(array)
    return array, TensorType(DType.FLOAT32, array.shape)


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.integers(1, 3), st.integers(1, 4), st.integers(1, 40), st.sampled_from([0.0, 0.3, 0.5, 1.0]))
def test_selected_boxes_are_onnxruntimes(seed: int, batch: int, classes: int, count: int, iou: float) -> None:
    rng = np.random.default_rng(seed)
    corner, size = rng.random((2, batch, count, 2))
    boxes = real(np.concatenate([corner, corner + size * rng.choice([-0.5, 0.0, 0.3, 0.6], (batch, count, 1))], -1))
    scores = real(rng.integers(0, 12, (batch, classes, count)) / 10)  # many are equal
    most, least = int(rng.integers(1, 12)), float(np.float32(0.25))
    limits = {"m": np.array([most], np.int64), "i": np.array([iou], np.float32), "l": np.array([least], np.float32)}
    want = theirs("NonMaxSuppression", {"b": boxes[0], "s": scores[0]}, limits, TensorProto.INT64)  # type: ignore[arg-type]
    params = {"iou_threshold": iou, "score_threshold": least, "max_boxes_selected": most}
    outs = [TensorType(DType.INT32, (len(want) + 2, 3)), TensorType(DType.INT32, (1,))]
    inputs = {"boxes": boxes, "scores": scores}
    got, used = computed("NonMaxSuppression", inputs, outs, params)
    assert used.tolist() == [len(want)]
    np.testing.assert_array_equal(got[: len(want)], want)
    assert (got[len(want) :] == -1).all()
    for mine, definition in zip((got, used), defined("NonMaxSuppression", inputs, outs, params), strict=True):
        np.testing.assert_array_equal(mine, definition)


def test_boxes_that_are_no_numbers_select_what_the_definition_does() -> None:
    boxes = real(np.array([[[0, 0, 1, np.nan], [0, 0, np.inf, 1], [0, 0, 1, 1], [0, 0, 1, 1], [0.5, 0, 0.5, 1]]]))
    scores = real(np.array([[[0.9, 0.8, 0.7, np.nan, 0.5]]]))
    outs = [TensorType(DType.INT32, (6, 3)), TensorType(DType.INT32, (1,))]
    case = ("NonMaxSuppression", {"boxes": boxes, "scores": scores}, outs, {"max_boxes_selected": 5})
    with np.errstate(all="ignore"):
        want = defined(*case)
    for got, definition in zip(computed(*case), want, strict=True):
        np.testing.assert_array_equal(got, definition)


def test_another_number_of_rows_is_an_error() -> None:
    boxes = real(np.array([[[0, 0, 1, 1], [5, 5, 6, 6]]]))
    scores = real(np.ones((1, 1, 2)))
    with pytest.raises(CallError, match="2 boxes are selected, the output is declared with 3 rows"):
        computed("NonMaxSuppression", {"boxes": boxes, "scores": scores}, [TensorType(DType.INT32, (3, 3))],
                 {"max_boxes_selected": 5})  # fmt: skip


def _regions(rng: np.random.Generator, count: int, size: float, turned: bool) -> Array:
    """Inside and outside the image, with a few that are empty; some with their end before their start."""
    corners = rng.uniform(-0.5, 1.5, (2, count, 2)) * size
    first, second = corners if turned else np.sort(corners, 0)
    second = np.where(rng.random((count, 1)) < 0.2, first, second)
    return np.concatenate([first, second], -1)


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.sampled_from([(1, 1), (3, 5), (9, 4)]), st.sampled_from([1, 3, 20]), st.integers(0, 3), st.booleans())
def test_regions_are_onnxruntimes(seed: int, bins: tuple[int, int], channels: int, samples: int, aligned: bool) -> None:
    rng = np.random.default_rng(seed)
    x, regions = real(rng.standard_normal((2, 6, 9, channels))), real(_regions(rng, 5, 20, False))
    images = rng.integers(0, 2, 5)
    mode = "half_pixel" if aligned else "output_half_pixel"
    want = theirs(
        "RoiAlign", {"x": np.ascontiguousarray(x[0].transpose(0, 3, 1, 2)), "r": regions[0], "i": images}, {},
        TensorProto.FLOAT, output_height=bins[0], output_width=bins[1], sampling_ratio=samples, spatial_scale=0.5,
        coordinate_transformation_mode=mode,
    ).transpose(0, 2, 3, 1)  # fmt: skip
    inputs = {"x": x, "regions": regions, "images": (images.astype(np.int32), TensorType(DType.INT32, (5,)))}
    outs = [TensorType(DType.FLOAT32, (5, *bins, channels))]
    params = {"img_size_ratio": (2.0, 2.0), "num_samples_y": samples, "num_samples_x": samples, "aligned": aligned}
    (got,) = computed("RoiAlign", inputs, outs, params)
    np.testing.assert_allclose(got, half(want), rtol=1e-3, atol=1e-3)
    (definition,) = defined("RoiAlign", inputs, outs, params)
    np.testing.assert_allclose(got, half(definition), rtol=1e-3, atol=2e-6)


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.sampled_from([DType.UINT8, DType.INT8, DType.UINT16, DType.INT16]), st.booleans())
def test_fixed_point_regions_are_the_definitions(seed: int, dtype: DType, fixed_regions: bool) -> None:
    rng = np.random.default_rng(seed)
    signed = dtype in (DType.INT8, DType.INT16)
    steps = 255 if dtype.bits == 8 else 65535

    def fixed(array: Array, low: float, high: float) -> tuple[Array, TensorType]:
        scale = (high - low) / steps
        offset = round(low / scale) + (steps + 1) // 2 * signed
        type = TensorType(dtype, array.shape, ScaleOffset(scale, offset))
        return quantize(array, type), type

    x = fixed(rng.uniform(-2, 3, (2, 5, 7, 4)), -2, 3)
    regions = fixed(_regions(rng, 4, 16, True), -16, 32) if fixed_regions else real(_regions(rng, 4, 16, True))
    images = (rng.integers(0, 2, 4).astype(np.int32), TensorType(DType.INT32, (4,)))
    outs = [fixed(np.zeros((4, 3, 2, 4)), -2.5, 2.5)[1]]
    params = {"img_size_ratio": (2.0, 2.5), "num_samples_y": 2, "num_samples_x": int(rng.integers(0, 3))}
    case = ("RoiAlign", {"x": x, "regions": regions, "images": images}, outs, params)
    difference = computed(*case)[0].astype(np.int64) - defined(*case)[0]
    assert np.abs(difference).max() <= 1
    assert (difference != 0).mean() < 0.1  # next to half a step


def test_an_image_that_is_not_there_is_an_error() -> None:
    x, regions = real(np.ones((1, 4, 4, 1))), real(np.array([[0, 0, 2, 2]]))
    inputs = {"x": x, "regions": regions, "images": (np.array([1], np.int32), TensorType(DType.INT32, (1,)))}
    with pytest.raises(CallError, match="batch index 1 is outside 1 images"):
        computed("RoiAlign", inputs, [TensorType(DType.FLOAT32, (1, 2, 2, 1))], {"img_size_ratio": (1.0, 1.0)})


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.integers(1, 70), st.integers(1, 20), st.sampled_from(["real", "whole", "complex"]), st.booleans())
def test_frames_are_onnxruntimes(seed: int, length: int, step: int, signal: str, windowed: bool) -> None:
    rng = np.random.default_rng(seed)
    x = real(rng.standard_normal((2, length + 3 * step + 1, 2 if signal == "complex" else 1)))
    inputs = {"x": x} | ({"constant": real(rng.random(length))} if windowed else {})
    onesided = signal == "real"
    window = inputs["constant"][0] if windowed else np.ones(length, np.float32)
    held = {"s": np.array(step), "w": window, "l": np.array(length)}
    want = theirs("STFT", {"x": x[0]}, held, TensorProto.FLOAT, onesided=int(onesided))
    params = {"frame_step": step, "frame_length": length, "onesided": onesided}
    (got,) = computed("Stft", inputs, [TensorType(DType.FLOAT32, want.shape)], params)
    (definition,) = defined("Stft", inputs, [TensorType(DType.FLOAT32, want.shape)], params)
    np.testing.assert_allclose(got, half(want), rtol=1e-3, atol=1e-3 * np.abs(want).max())
    np.testing.assert_allclose(got, half(definition), rtol=1e-3, atol=1e-5 * np.abs(want).max())
