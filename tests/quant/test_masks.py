# SPDX-License-Identifier: Apache-2.0
"""Masks before a Softmax: a padded text encoder keeps its numbers, whatever the samples it was calibrated on hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import pytest
from onnx import TensorProto, helper, numpy_helper

import hexforge
from hexforge.ir import Array
from hexforge.model.reader import read
from hexforge.quant.data.observe import Statistics, TensorStatistics
from hexforge.quant.masks import UNTOLD, find_masks, limit_masks, masked_tensors
from tests.cli.test_cli import run
from tests.quant.padded_encoder import LAYERS, LOWEST, MASKS, padded_encoder, texts


def of_inputs(model: onnx.ModelProto, samples: list[dict[str, Array]]) -> list[dict[str, Array]]:
    """Samples with what a model takes of them, in its types."""
    types = {v.name: helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type) for v in model.graph.input}
    return [{name: feeds[name].astype(dtype) for name, dtype in types.items()} for feeds in samples]


def quantized_on_padded(
    folder: Path, mask: str, recipe: str, *, padded: bool, by: float = LOWEST
) -> hexforge.Comparison:
    """How an encoder that was calibrated on such samples does on padded ones."""
    model = padded_encoder(mask, taken_out_by=by)
    onnx.save(model, folder / "encoder.onnx")
    samples = of_inputs(model, texts(12, padded=padded))
    made = hexforge.quantize(folder / "encoder.onnx", samples, recipe, folder / "q.onnx")
    (limited,) = made.masks
    assert limited.written <= by * 0.99
    assert -300 < limited.limited < -UNTOLD
    assert limited.seen == padded
    assert made.to_json()["masks"][0]["limited"] == limited.limited
    assert any("no sample has padding" in warning for warning in made.warnings) != padded
    unseen = of_inputs(model, texts(12, padded=True, seed=5))
    return hexforge.compare(folder / "encoder.onnx", folder / "q.onnx", unseen, metric="embedding")


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize(("mask", "recipe"), [("multiplied", "w8a16"), ("chosen", "w8a16"), ("multiplied", "w8a8")])
def test_padded_inputs_are_good_whatever_it_was_calibrated_on(
    tmp_path: Path, mask: str, recipe: str, padded: bool
) -> None:
    compared = quantized_on_padded(tmp_path, mask, recipe, padded=padded)
    assert compared.decisions is not None
    assert compared.decisions.verdict == "good", compared.decisions.text()
    assert compared.decisions.agreement > 0.98
    shown = {row.name for row in compared.tensors}
    assert not shown & {"mask", "masked_0", "masked_1"}  # -89 beside -3.4e38 says nothing
    assert {"scaled_0", "chances_0"} <= shown


@pytest.mark.parametrize("mask", MASKS)
def test_every_way_to_take_padding_out_is_limited(tmp_path: Path, mask: str) -> None:
    by = -np.inf if "filled" in mask or mask == "by ids" else -65504.0
    compared = quantized_on_padded(tmp_path, mask, "w8a16", padded=False, by=by)
    assert compared.decisions is not None
    assert compared.decisions.verdict == "good", compared.decisions.text()


def test_improving_keeps_the_limit(tmp_path: Path) -> None:
    onnx.save(padded_encoder(), tmp_path / "encoder.onnx")
    better = hexforge.quantize(tmp_path / "encoder.onnx", texts(15, padded=True), "w8a16+equalize", quality=True)
    assert better.quality is not None
    assert better.quality.sqnr_db > 15


def test_the_command_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(padded_encoder(), tmp_path / "encoder.onnx")
    (tmp_path / "data").mkdir()
    for i, feeds in enumerate(texts(6, padded=False)):
        np.savez(tmp_path / "data" / f"{i}.npz", **feeds)  # type: ignore[arg-type]
    model, data = str(tmp_path / "encoder.onnx"), str(tmp_path / "data")
    assert run("quantize", model, "--data", data, "-o", str(tmp_path / "q.onnx"), "--recipe", "w8a16") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "mask 'mask' takes places out with -" in said
    assert "warning: no sample has padding" in said


def attention(mask: Array | None, *, own_input: bool = False) -> onnx_ir.Model:
    """A Softmax over scores with a constant mask, or with one that is an input."""
    shape = [1, 4, 4]
    inputs = [helper.make_tensor_value_info("scores", TensorProto.FLOAT, shape)]
    if own_input:
        inputs.append(helper.make_tensor_value_info("mask", TensorProto.FLOAT, shape))
    nodes = [
        helper.make_node("Add", ["mask", "scores"], ["sum"], "add"),
        helper.make_node("Softmax", ["sum"], ["y"], "softmax"),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)]
    constants = [] if mask is None else [numpy_helper.from_array(mask, "mask")]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    return onnx_ir.serde.deserialize_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))


def seen(**arrays: Array) -> Statistics:
    """Statistics of these tensors."""
    tensors = {}
    for name, array in arrays.items():
        tensors[name] = TensorStatistics()
        tensors[name].update(array)
    return Statistics(tensors)


def test_a_causal_mask_is_limited_and_softmax_cannot_tell() -> None:
    lowest = np.triu(np.full((1, 4, 4), np.finfo(np.float32).min), 1).astype(np.float32)
    scores = np.random.default_rng(0).normal(0, 3, (1, 4, 4)).astype(np.float32)
    model = attention(lowest)
    (limited,) = limit_masks(model, seen(scores=scores, sum=scores + lowest))
    constant = model.graph.initializers["mask"].const_value
    assert constant is not None
    narrow = constant.numpy()
    assert narrow.min() == limited.limited == -np.ceil(scores.max() - scores.min() + UNTOLD)
    assert limited.seen

    def softmax(x: Array) -> Array:
        powers = np.exp(x - x.max(-1, keepdims=True))
        return np.asarray(powers / powers.sum(-1, keepdims=True))

    assert np.abs(softmax(scores + lowest) - softmax(scores + narrow)).max() < 2**-24


def test_a_mask_that_is_an_input_is_told_by_the_samples() -> None:
    scores, lowest = np.ones((1, 4, 4), np.float32), np.full((1, 4, 4), -3e38, np.float32)
    statistics = seen(scores=scores, mask=lowest, sum=lowest)
    (limited,) = limit_masks(attention(None, own_input=True), statistics)
    assert statistics["mask"].minimum == limited.limited
    assert statistics["sum"].minimum == limited.limited + 1
    bias = seen(scores=scores, mask=scores, sum=2 * scores)
    assert limit_masks(attention(None, own_input=True), bias) == ()


def test_a_bias_that_is_added_before_softmax_is_no_mask() -> None:
    bias = np.random.default_rng(0).normal(0, 3, (1, 4, 4)).astype(np.float32)
    model = attention(bias)
    assert limit_masks(model, seen(scores=bias, sum=bias)) == ()
    assert masked_tensors(model) == set()


def test_one_mask_serves_all_layers_and_limiting_twice_changes_nothing() -> None:
    model = read(padded_encoder().SerializeToString()).ir
    names = [str(v.name) for node in model.graph for v in node.outputs]
    statistics = seen(**{name: np.linspace(-4, 4, 9, dtype=np.float32) for name in names})
    (mask,) = find_masks(model, statistics)
    assert len(mask.softmax) == LAYERS
    first = limit_masks(model, statistics)
    ranges = {name: (own.minimum, own.maximum) for name, own in statistics.items()}
    (again,) = limit_masks(model, statistics)
    assert again.limited == first[0].limited
    assert ranges == {name: (own.minimum, own.maximum) for name, own in statistics.items()}
    assert ranges["inverted"] == (0.0, 1.0)
    assert ranges["mask"] == (first[0].limited, 0.0)
