# SPDX-License-Identifier: Apache-2.0
"""Every tensor of a model shown, its units computed from given tensors, and few units alone."""

from __future__ import annotations

import numpy as np
import onnx

from hexforge.frontends.onnx.placing import PlacedUnits
from hexforge.frontends.onnx.separate_units import MADE, separated_model, shown_model, unit_tensors, units_alone
from hexforge.ir import Array
from hexforge.model.reader import read
from hexforge.runtime.cpu_part import WholeOnCpu
from hexforge.runtime.prepare import ModelRequest, prepare_model
from hexforge.runtime.registry import backend
from tests.addons.vendor.models import gated, sample, small_chain


def placed(model: onnx.ModelProto) -> PlacedUnits:
    request = ModelRequest(offload_io_quantization=True)
    return prepare_model(read(model.SerializeToString()), backend("htp", {"soc_model": "57"}), request).placed


def run(model: bytes, feeds: dict[str, Array]) -> dict[str, Array]:
    names = {value.name for value in onnx.load_from_string(model).graph.input}
    return WholeOnCpu(model, "model").run({name: array for name, array in feeds.items() if name in names})


def test_every_tensor_between_units_is_shown() -> None:
    tensors = run(shown_model(placed(small_chain())), sample())
    assert set(tensors) == {"x_q", "conv1_q", "relu1_q", "conv2_q", "add1_q", "pool1_q", "pool1_r"}
    assert "add1_q" not in run(shown_model(placed(small_chain()), hidden=["add1_q"]), sample())


def test_separate_units_compute_what_the_whole_does() -> None:
    model = placed(gated())
    tensors = run(shown_model(model), sample())
    alone = run(separated_model(model), tensors)
    assert {name.removesuffix(MADE) for name in alone} == {"conv1_q", "sigmoid1_q", "mul1_q"}
    assert all(np.array_equal(made, tensors[name.removesuffix(MADE)]) for name, made in alone.items())


def test_a_unit_reads_what_it_is_given_not_what_others_computed() -> None:
    model = placed(gated())
    tensors = run(shown_model(model), sample())
    other = {**tensors, "conv1_q": np.full_like(tensors["conv1_q"], 40000)}
    alone = run(separated_model(model), other)
    assert np.array_equal(alone[f"conv1_q{MADE}"], tensors["conv1_q"])
    assert len(np.unique(alone[f"sigmoid1_q{MADE}"])) == 1


def test_few_units_alone_are_a_small_model() -> None:
    model = placed(gated())
    numbers = [i for i, unit in enumerate(unit_tensors(model)) if unit.taken]
    data = units_alone(model, numbers)
    graph = onnx.load_from_string(data).graph
    assert [value.name for value in graph.input] == ["x_q"]
    assert [value.name for value in graph.output] == ["mul1_q"]
    tensors = run(shown_model(model), sample())
    assert np.array_equal(run(data, tensors)["mul1_q"], tensors["mul1_q"])
    last = onnx.load_from_string(units_alone(model, numbers[-1:])).graph
    assert {value.name for value in last.input} == {"conv1_q", "sigmoid1_q"}
