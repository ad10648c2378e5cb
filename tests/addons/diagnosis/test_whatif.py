# SPDX-License-Identifier: Apache-2.0
"""What-ifs: small models whose worst input and its difference are known by hand, and who is to blame."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import hexforge
from hexforge.errors import CallError, UnsupportedError
from tests.cli.test_cli import run
from tests.models.attention import Nodes

SOC = "SM8650"


def model(made: Nodes, inputs: dict[str, list[int]], output: str, shape: list[int]) -> bytes:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, size) for name, size in inputs.items()]
    outputs = [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)]
    graph = helper.make_graph(made.nodes, "g", values, outputs, made.constants)
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    )


def convolutions(*layers: tuple[Any, int, int | None], channels: int, relu_zero: int = 0) -> bytes:
    """8-bit 1x1 convolutions one after the other: weights [outputs, inputs] as codes, their zero point, a Relu's."""
    made = Nodes()
    plain, weight = made.scale("plain", 1 / 16, 128, 8), made.constant("ws", 1 / 64, np.float32)
    x = made.quantized("x", plain)
    for i, (codes, zero, relu) in enumerate(layers):
        w = made.constant(f"w{i}", np.asarray(codes)[:, :, None, None], np.uint8)
        held = made.add("DequantizeLinear", [w, weight, made.constant(f"wz{i}", zero, np.uint8)])
        x = made.quantized(made.add("Conv", [x, held]), plain)
        if relu is not None:
            x = made.quantized(made.add("Relu", [x]), made.scale(f"relu{i}", 1 / 16, relu, 8))
    made.nodes[-1].output[0] = "y"
    return model(made, {"x": [1, channels, 1, 2]}, "y", [1, len(layers[-1][0]), 1, 2])


def test_a_folded_relu_loses_as_much_as_its_encoding_has_room() -> None:
    """The Relu's encoding begins at -32 / 16 = -2: all of -2 to 0 comes through, where x is -2 or less."""
    same = [[192]]  # 64 / 64: x itself
    result = hexforge.whatif(convolutions((same, 128, 32), channels=1), "fold_relu", SOC)
    assert result.difference == 2.0
    assert (result.without, result.with_switch) == (0.0, -2.0)
    assert float(result.worst_input["x"][(0, 0, *result.place[2:])]) <= -2 + 1 / 32
    (blamed,) = result.blame
    assert (blamed.alone, blamed.saves, blamed.share) == (2.0, 2.0, 1.0)


def test_rounded_weights_lose_most_where_the_input_is_farthest_from_zero() -> None:
    """Weights -1, 254 and 2 of 64 in steps of 2: -1 is rounded to 0, and x1 / 64 is lost, 8 / 64 at most."""
    result = hexforge.whatif(convolutions(([[0, 255, 3]], 1, None), channels=3), "short_depth", SOC)
    assert result.difference == 0.125
    assert abs(float(result.worst_input["x"][(0, 0, *result.place[2:])])) > 4
    assert result.blame[0].op == "Conv2d"


def test_the_order_of_sums_decides_what_a_large_term_swallows() -> None:
    """x * 60000 - x * 60000 + 1 is 1 in order; from the other end 1 is lost beside x * 60000 of 2^25 and more."""
    made = Nodes()
    one = made.constant("one", np.ones((1, 1)), np.float32)
    weights = made.constant("w", np.array([[60000], [-60000], [1]]), np.float32)
    made.add("MatMul", [made.add("Concat", ["x", "x", one], axis=1), weights], "y")
    request = hexforge.WhatIfRequest(float_range=(-4096, 4096))
    result = hexforge.whatif(model(made, {"x": [1, 1]}, "y", [1, 1]), "float_order", SOC, request)
    assert result.difference == 1.0
    assert (result.without, result.with_switch) == (1.0, 0.0)
    assert abs(float(result.worst_input["x"][0, 0])) * 60000 >= 2**24


def test_encodings_are_blamed_for_what_rounding_to_them_costs() -> None:
    """x / 64 is rounded to sixteenths, half a step off at most, and that is doubled twice: two steps of the output."""
    made = convolutions(([[129]], 128, None), ([[255]], 128, None), ([[255]], 128, None), channels=1)
    result = hexforge.whatif(made, "encodings", SOC)
    assert any(name == "Conv_3" for name in result.blame[0].source), "the first convolution's result"
    assert 1 / 16 <= result.blame[0].alone <= 3 / 16
    assert result.difference >= result.random_difference
    assert sum(row.share for row in result.blame) == pytest.approx(1.0)


def test_blame_is_told_apart_between_nodes() -> None:
    """The first Relu has room for -2, the second none; the second convolution halves what comes through."""
    layers = convolutions(([[192]], 128, 32), ([[160]], 128, 0), channels=1)
    with pytest.raises(UnsupportedError, match="short_depth changes no node"):
        hexforge.whatif(layers, "short_depth", SOC)
    two = convolutions(([[192]], 128, 32), ([[160]], 128, 16), channels=1)
    result = hexforge.whatif(two, "fold_relu", SOC)
    assert result.nodes == 2
    assert result.difference == 1.0  # -2 halved, and the second encoding ends there
    assert [row.alone for row in result.blame] == [0.0, 0.0]  # each alone is cut by the other's Relu
    assert [row.saves for row in result.blame] == [1.0, 1.0]  # and without either nothing comes through
    assert [row.share for row in result.blame] == [0.5, 0.5]


def test_groups_are_halved_until_the_worst_nodes_stand_alone() -> None:
    """Of six Relus with room some, the two that the whole blame names first are found without telling all apart."""
    rooms = (4, 4, 32, 4, 24, 4)
    layers = convolutions(*(([[192]], 128, room) for room in rooms), channels=1)
    every = hexforge.whatif(layers, "fold_relu", SOC, hexforge.WhatIfRequest(tries=40, blamed=0))
    assert (len(every.blame), every.blame_left_out) == (len(rooms), 0)
    two = hexforge.whatif(layers, "fold_relu", SOC, hexforge.WhatIfRequest(tries=40, blamed=2))
    assert (len(two.blame), two.blame_left_out, two.nodes) == (2, 4, 6)
    assert two.to_json()["blame_left_out"] == 4
    known = {row.node: (row.alone, row.saves) for row in every.blame}
    assert all(known[row.node] == (row.alone, row.saves) for row in two.blame)
    assert max(sum(both) for both in known.values()) == max(row.alone + row.saves for row in two.blame)


def test_what_cannot_be_asked_is_an_error() -> None:
    with pytest.raises(CallError, match="0 for all of them"):
        hexforge.WhatIfRequest(blamed=-1)
    with pytest.raises(CallError, match="'fold_rely' is not known; did you mean"):
        hexforge.whatif(convolutions(([[192]], 128, 32), channels=1), "fold_rely", SOC)
    with pytest.raises(CallError, match="LOW below HIGH"):
        hexforge.WhatIfRequest(float_range=(1, 1))


def test_the_command_says_it_in_words_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(convolutions(([[192]], 128, 32), channels=1))
    worst = tmp_path / "worst.npz"
    assert run("whatif", str(path), "--switch", "fold_relu", "--tries", "20", "--save-input", str(worst)) == 0
    said = capsys.readouterr().out
    assert "differs by up to 2" in said
    assert "Relu" in said
    assert run("whatif", str(path), "--switch", "fold_relu", "--tries", "20", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["difference"] == 2.0
    assert facts["blame_left_out"] == 0
    with np.load(worst) as file:
        assert file["x"].shape == (1, 1, 1, 2)
    page = tmp_path / "page.html"
    assert run("whatif", str(path), "--switch", "fold_relu", "--tries", "20", "--report", str(page), "--json") == 0
    drawn = page.read_text("utf-8")
    assert "Share of the blame" in drawn
    assert facts["blame"][0]["node"] in drawn
