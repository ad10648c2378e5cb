# SPDX-License-Identifier: Apache-2.0
"""Errors of tensors, summed up in pieces; which tensor of a QDQ model is which of the float one; layers taken apart."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from hexforge import _native
from hexforge.model.reader import read
from hexforge.quant import compare, sensitivity
from hexforge.quant.compare import ErrorSums, ExactMean, LinearQuantizer
from tests.digits import MODEL, held_out
from tests.models.quantize import quantized
from tests.native.several import LEVELS

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def qdq(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("digits") / "digits.qdq.onnx"
    quantized(MODEL, path, "a8w8", [{"image": picture} for picture in held_out()[0][:16]])
    return path


def test_figures_by_hand() -> None:
    reference, found = np.array([3.0, 4.0]), np.array([3.0, 4.5])
    assert compare.sqnr_db(reference, found) == pytest.approx(10 * math.log10(25 / 0.25))
    assert compare.cosine(reference, found) == pytest.approx((9 + 18) / (5 * math.hypot(3, 4.5)))
    assert compare.max_error(reference, found) == 0.5


def test_nothing_lost_and_everything_lost() -> None:
    array = np.arange(5.0)
    assert compare.sqnr_db(array, array) == math.inf
    assert compare.cosine(array, array) == pytest.approx(1)
    assert compare.sqnr_db(np.zeros(3), np.ones(3)) == -math.inf
    assert compare.cosine(np.zeros(3), np.zeros(3)) == 1.0


def test_what_is_no_number_is_the_worst_and_masks_are_left_out() -> None:
    assert compare.sqnr_db(np.ones(2), np.array([1.0, np.nan])) == -math.inf
    assert compare.max_error(np.ones(2), np.array([1.0, np.inf])) == math.inf
    assert compare.sqnr_db(np.array([-np.inf, 2.0]), np.array([-3e38, 2.0])) == math.inf
    assert compare.sqnr_db(np.ones(3), np.ones(2)) == pytest.approx(10 * math.log10(3))  # the third one is lost


@settings(max_examples=40)
@given(st.integers(1, 90_000), st.integers(0, 2**32 - 1), st.integers(1, 5))
def test_pieces_add_up(size: int, seed: int, cuts: int) -> None:
    random = np.random.default_rng(seed)
    reference = random.standard_normal(size).astype(np.float32)
    found = (reference + 0.1 * random.standard_normal(size)).astype(np.float32)
    whole, merged = ErrorSums(), ErrorSums()
    whole.update(reference, found)
    for a, b in zip(np.array_split(reference, cuts), np.array_split(found, cuts), strict=True):
        part = ErrorSums()
        part.update(a, b)
        merged.merge(part)
    error = reference.astype(np.float64) - found
    assert whole.sqnr_db == pytest.approx(10 * np.log10((reference.astype(np.float64) ** 2).sum() / (error**2).sum()))
    assert merged.sqnr_db == pytest.approx(whole.sqnr_db)
    assert merged.cosine == pytest.approx(whole.cosine)
    assert (merged.max_error, merged.count) == (whole.max_error, size)


@pytest.mark.parametrize(("dtype", "zero"), [("uint8", 3), ("int8", -5), ("uint16", 40000), ("int16", 0)])
def test_rounding_is_onnxs(dtype: str, zero: int) -> None:
    scale = np.float32(0.03)
    x = np.random.default_rng(1).normal(0, 5, (4, 7)).astype(np.float32)
    info = np.iinfo(dtype)
    steps = np.clip(np.rint(x / scale) + zero, info.min, info.max)
    linear = LinearQuantizer(onnx_ir.DataType[dtype.upper()], np.array(scale), np.array(zero), 1, 0)
    np.testing.assert_allclose(linear.rounded(x), (steps - zero) * scale, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(linear.dequantize(steps.astype(dtype)), (steps - zero) * scale, rtol=1e-6, atol=1e-7)


def test_blocks_and_axes() -> None:
    integers = np.arange(24, dtype=np.int8).reshape(4, 6)
    by_axis = LinearQuantizer(onnx_ir.DataType.INT8, np.array([1, 2, 3, 4], np.float32), np.zeros(4, int), 0, 0)
    np.testing.assert_array_equal(by_axis.dequantize(integers), integers * np.array([[1], [2], [3], [4]]))
    blocks = np.array([[1, 10]] * 4, np.float32)
    by_block = LinearQuantizer(onnx_ir.DataType.INT8, blocks, np.zeros((4, 2), int), 1, 3)
    np.testing.assert_array_equal(by_block.dequantize(integers), integers * np.array([1, 1, 1, 10, 10, 10]))


def test_every_quantized_tensor_finds_its_float(qdq: Path) -> None:
    model, names = read(qdq).ir, compare.float_tensors(read(MODEL).ir)
    watched = {item.name: item for item in compare.watch(model, names)}
    assert set(watched) == {"image", "relu1", "pool1", "relu2", "pool2", "flat", "logits"}
    assert watched["image"].kind == "input"
    assert (watched["logits"].kind, watched["logits"].output) == ("output", "logits")
    assert watched["pool1"].output in {v.name for v in model.graph.outputs}
    constants = compare.float_constants(read(MODEL).ir)
    assert {name for name, *_ in compare.quantized_weights(model, constants)} == set(constants)


def test_a_tensor_in_two_types_is_two_rows() -> None:
    nodes = []
    for name, source, target in (("8", "x", "real8"), ("16", "real8", "real16")):
        nodes.append(helper.make_node("QuantizeLinear", [source, "s", f"z{name}"], [f"q{name}"], f"q{name}"))
        nodes.append(helper.make_node("DequantizeLinear", [f"q{name}", "s", f"z{name}"], [target], f"d{name}"))
    nodes.append(helper.make_node("Neg", ["real16"], ["y"], "neg"))
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y")]
    constants = {"s": np.float32(0.1), "z8": np.uint8(3), "z16": np.uint16(9)}
    held = [numpy_helper.from_array(np.array(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "converts", values[:1], values[1:], held)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    watched = compare.watch(read(made).ir, {"x", "y"})
    assert [(item.name, item.linear.type) for item in watched if item.linear] == [("x", "uint8"), ("x", "uint16")]
    assert [item.name for item in watched if item.linear is None] == ["y"]
    (layer,) = sensitivity.layers(read(made).ir)
    assert (layer.name, layer.quantizers) == ("input x", {"q8", "q16"})


def test_layers_own_every_quantizer_once(qdq: Path) -> None:
    model = read(qdq).ir
    found = sensitivity.layers(model)
    assert [layer.name for layer in found] == ["input image", "conv1", "conv2", "fc"]
    quantizers = [name for layer in found for name in layer.quantizers]
    assert len(quantizers) == len(set(quantizers))
    activations = {n.name for n in model.graph if n.op_type == "QuantizeLinear"}
    constants = {n.name for n in model.graph if n.op_type == "DequantizeLinear" and n.inputs[0].const_value is not None}
    assert set(quantizers) == activations | constants


def test_without_quantizers_the_model_is_the_float_one(qdq: Path) -> None:
    from hexforge.analysis.quality.runners import runner
    from hexforge.model.save import to_bytes

    exact, model = read(MODEL).ir, read(qdq).ir
    before = runner(to_bytes(model), "ort")
    sensitivity.restore_clips(model, exact)  # onnxruntime left the Relus to the saturation of uint8
    after = runner(to_bytes(model), "ort")
    numbers = sensitivity.float_weights(model, compare.float_constants(exact))
    plain = runner(to_bytes(sensitivity.quantized_only(model, (), numbers)), "ort")
    truth = runner(MODEL, "ort")
    for picture in held_out()[0][:5]:
        feeds = {"image": picture}
        np.testing.assert_allclose(plain(feeds)["logits"], truth(feeds)["logits"], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(after(feeds)["logits"], before(feeds)["logits"], atol=0.25)  # a step of the output
    assert any(n.op_type == "QuantizeLinear" for n in model.graph), "the model that is given stays as it is"


def test_a_changed_weight_is_not_taken_for_the_float_ones(qdq: Path) -> None:
    model = read(qdq).ir
    constants = compare.float_constants(read(MODEL).ir)
    same = sensitivity.float_weights(model, constants)
    other = sensitivity.float_weights(model, constants | {"conv2.weight": 1.5 * constants["conv2.weight"]})
    assert len(same) == len(other) + 1


@settings(max_examples=60)
@given(st.integers(0, 5000), st.sampled_from(["float32", "float64", "int32"]), st.integers(0, 3), st.integers(0, 2**32))
def test_sums_are_those_of_numpy(size: int, dtype: str, odd: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    reference = (100 * random.standard_normal(size)).astype(dtype)
    found = (reference + random.standard_normal(size)).astype(dtype)
    if dtype != "int32" and size:
        for array in (reference, found):
            array[random.integers(0, size, odd)] = random.choice([np.nan, np.inf, -np.inf])
    sums = ErrorSums()
    sums.update(reference, found)
    first, second = reference.astype(np.float64), found.astype(np.float64)
    known = np.isfinite(first) & np.isfinite(second)
    assert sums.count == known.sum()
    assert sums.not_finite == (np.isfinite(first) & ~np.isfinite(second)).sum()
    first, second = first[known], second[known]
    wanted = [(first**2).sum(), ((first - second) ** 2).sum(), (second**2).sum(), np.abs(first - second).max(initial=0)]
    np.testing.assert_allclose([sums.signal, sums.noise, sums.power, sums.max_error], wanted, rtol=1e-12, atol=1e-300)


@settings(max_examples=40)
@given(st.sampled_from(["UINT8", "INT8", "UINT16", "INT16"]), st.integers(0, 2**32))
def test_what_rounding_costs_is_the_difference_of_rounded_numbers(dtype: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    type = onnx_ir.DataType[dtype]
    zero = int(random.integers(0, 100))
    linear = LinearQuantizer(type, np.array(random.uniform(1e-4, 3), np.float32), np.array(zero), 1, 0)
    real = (random.uniform(1, 1e4) * random.standard_normal(3000)).astype(np.float32)
    fast, slow = ErrorSums(), ErrorSums()
    fast.update_rounded(real, linear)
    slow.update(real, linear.rounded(real))
    assert fast == slow


@pytest.mark.parametrize("shape", [(2, 5, 7), (3, 4), (1, 3, 8, 9), (6, 1)])
def test_factors_of_channels_are_found_along_both_axes(shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(3)
    reference, found = (random.standard_normal(shape).astype(np.float32) for _ in range(2))
    fit = compare.ChannelFit()
    fit.update(reference, found)
    fit.update(found, reference)
    for axis, sums in fit._sums.items():
        others = tuple(i for i in range(len(shape)) if i != axis)
        products = [(a.astype(np.float64) * b).sum(others) for a, b in ((reference, reference), (reference, found))]
        both = products[0] + (found.astype(np.float64) ** 2).sum(others)
        np.testing.assert_allclose(sums, [both, 2 * products[1], both], rtol=1e-10, atol=1e-10)


def test_every_instruction_set_adds_up_the_same() -> None:
    random = np.random.default_rng(5)
    first, second = (random.standard_normal(10_007).astype(np.float32) for _ in range(2))
    found = set()
    for level in LEVELS:
        _native.set_level(level)
        found.add((_native.difference(first, second), _native.rounding_difference(first, 0.01, -128, 127)))
    _native.set_level(LEVELS[-1])
    assert len(found) == 1


@given(st.lists(st.floats(-1e300, 1e300) | st.sampled_from([0.1, 1e-310, 5e-324, math.inf]), min_size=1, max_size=40))
def test_a_mean_is_exact_in_any_order(figures: list[float]) -> None:
    mean = ExactMean()
    for figure in reversed(figures):
        mean.add(figure)
    assert mean.result() == math.fsum(figures) / len(figures)
