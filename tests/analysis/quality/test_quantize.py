# SPDX-License-Identifier: Apache-2.0
"""From a float model and samples to a model the NPU takes whole, or the reasons why not."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import hexforge
from hexforge.errors import CallError
from hexforge.model import save as saving
from hexforge.model.reader import read
from hexforge.quant.compare import sqnr_db
from tests.digits import MODEL as DIGITS
from tests.digits import held_out
from tests.quant.graphs import emulated, reference


@pytest.fixture(scope="module")
def digits() -> tuple[list[dict[str, np.ndarray]], list[dict[str, np.ndarray]]]:
    """Calibration and test images."""
    images = held_out()[0]
    name = str(read(DIGITS).ir.graph.inputs[0].name)
    return [{name: image} for image in images[:32]], [{name: image} for image in images[32:48]]


@pytest.mark.parametrize(("recipe", "floor"), [("w8a8", 25), ("w8a8_channel", 28), ("w8a16", 35), ("w16a16", 60)])
def test_digits(digits: tuple[list, list], recipe: str, floor: float) -> None:
    found = hexforge.quantize(DIGITS, digits[0], recipe)
    assert found.placed_whole
    assert found.model is not None
    assert found.quantized == found.nodes
    exact = np.concatenate([reference(onnx.load(DIGITS), f)[0] for f in digits[1]])
    got = np.concatenate([emulated(found.model, f, "htp")[0] for f in digits[1]])
    assert sqnr_db(exact, got) > floor


def test_improvements_are_applied(digits: tuple[list, list]) -> None:
    found = hexforge.quantize(DIGITS, digits[0], "w8a8+equalize+bias+adaround+range")
    assert found.placed_whole
    assert any(t.kept and t.after_db > t.before_db for t in found.tried)
    assert not hexforge.quantize(DIGITS, digits[0], "w8a8").tried
    exact = np.concatenate([reference(onnx.load(DIGITS), f)[0] for f in digits[1]])
    losses = {}
    for recipe in ("w8a8", "w8a8+equalize+bias+adaround+range"):
        model = hexforge.quantize(DIGITS, digits[0], recipe).model
        assert model is not None
        losses[recipe] = sqnr_db(exact, np.concatenate([emulated(model, f, "htp")[0] for f in digits[1]]))
    assert losses["w8a8+equalize+bias+adaround+range"] > losses["w8a8"]


def test_a_file_an_encodings_file_and_back(digits: tuple[list, list], tmp_path: Path) -> None:
    path = tmp_path / "out.onnx"
    found = hexforge.quantize(DIGITS, digits[0], "w8a8_channel", path)
    assert found.files == (path,)
    assert found.model is None
    found.export(tmp_path / "e.json")
    again = hexforge.quantize(DIGITS, digits[0][:1], "w8a16", tmp_path / "b.onnx", encodings=tmp_path / "e.json")
    assert again.plan.tensors == found.plan.tensors
    assert not again.unused
    np.testing.assert_array_equal(
        reference(path.read_bytes(), digits[1][0])[0], reference((tmp_path / "b.onnx").read_bytes(), digits[1][0])[0]
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b.onnx", "e.json", "out.onnx"]


@settings(max_examples=16, deadline=None)
@given(
    st.sampled_from(["w8a8", "w8a8_channel", "w8a16", "w16a16", "w4a16", "w4a16_block[4]", "w8a8; Conv=w8a16_channel",
                     "w8a8; conv2=float", "w8a16; tensor:relu1=a8"]),
    st.sampled_from(["minmax", "percentile=99.9", "mse"]),
    st.sampled_from(["1.0.0", "0.6.1"]),
)  # fmt: skip
def test_exported_encodings_give_the_same_model(text: str, method: str, version: str) -> None:
    data = [{"image": image} for image in held_out()[0][:4]]
    found = hexforge.quantize(DIGITS, data, text, method=method)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "e.json"
        if version == "0.6.1" and "block" in text:
            with pytest.raises(CallError, match="cannot say; write version 1"):
                found.export(path, version)
            return
        found.export(path, version)
        again = hexforge.quantize(DIGITS, data, text, encodings=path)  # ranges by another method, which do not count
    assert again.plan.tensors == found.plan.tensors
    assert again.plan.converts == found.plan.converts
    assert again.model == found.model


def test_encodings_of_another_model(digits: tuple[list, list], tmp_path: Path) -> None:
    path = tmp_path / "e.json"
    path.write_text('{"version": "1.0.0", "activation_encodings": [{"name": "nowhere", "bw": 8, "scale": [1]}]}')
    with pytest.raises(CallError, match="none of its 1 tensors"):
        hexforge.quantize(DIGITS, digits[0], encodings=path)


def test_an_op_that_stays_float_is_named_and_refused_where_there_is_no_float() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="relu"),
        helper.make_node("Tan", ["r"], ["t"], name="tan"),
        helper.make_node("Neg", ["t"], ["y"], name="neg"),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3))]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 3))]
    proto = helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    found = hexforge.quantize(proto, "random:4")
    assert set(found.plan.floats) == {"tan"}
    assert found.placed_whole
    assert (found.quantized, found.nodes) == (2, 3)
    old = hexforge.quantize(proto, "random:4", soc="SM7750")
    assert not old.placed_whole
    ((node, why),) = old.refused
    assert node == "tan"
    assert "no float math" in why


def test_old_chips_get_products_they_can_do() -> None:
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, 4, 4)) for n in "xz"]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 4, 4))]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "z"], ["y"], name="m")], "g", inputs, outputs)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    for soc in ("SM8350", "SM8650"):
        assert hexforge.quantize(proto, "random:4", "w8a16", soc=soc).placed_whole, soc
    weight = numpy_helper.from_array(np.eye(4, dtype=np.float32), "z")
    graph = helper.make_graph(list(graph.node), "g", inputs[:1], outputs, [weight])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    refused = hexforge.quantize(proto, "random:4", "w16a16", soc="SM8350").refused
    assert "needs v73" in refused[0][1]


@pytest.mark.parametrize("data", [None, "", "  "])
def test_no_data(data: str | None) -> None:
    with pytest.raises(CallError, match="quantizing needs samples of its inputs"):
        hexforge.quantize(DIGITS, data)


def test_wrong_data_and_models(digits: tuple[list, list], tmp_path: Path) -> None:
    name = next(iter(digits[0][0]))
    with pytest.raises(CallError):
        hexforge.quantize(DIGITS, [{name: np.zeros((3, 3), np.float32)}])
    with pytest.raises(CallError, match=r"[Nn]a[Nn]|infinit"):
        hexforge.quantize(DIGITS, [{name: np.full_like(digits[0][0][name], np.nan)}])
    hexforge.quantize(DIGITS, "random:2", output=tmp_path / "q.onnx")
    with pytest.raises(CallError, match="quantized already"):
        hexforge.quantize(tmp_path / "q.onnx", "random:2")
    with pytest.raises(CallError, match="recipe"):
        hexforge.quantize(DIGITS, "random:2", "w8b8")
    with pytest.raises(CallError, match="cannot be written"):
        hexforge.quantize(DIGITS, "random:2", output=tmp_path / "none" / "q.onnx")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["q.onnx"]


def test_constant_activations() -> None:
    found = hexforge.quantize(DIGITS, [np.zeros(d.shape, np.float32) for d in held_out()[0][:2]], "w8a8")
    assert found.placed_whole


def test_large_models_have_their_constants_beside_them(
    digits: tuple[list, list], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = hexforge.quantize(DIGITS, digits[0][:4]).model
    assert whole is not None
    monkeypatch.setattr(saving, "EMBEDDED_BYTES", 10)
    with pytest.raises(CallError, match="name a file"):
        hexforge.quantize(DIGITS, digits[0][:4])
    found = hexforge.quantize(DIGITS, digits[0][:4], output=tmp_path / "big.onnx")
    assert [p.name for p in found.files] == ["big.onnx", "big.onnx.data"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["big.onnx", "big.onnx.data"]
    session = hexforge.InferenceSession(str(tmp_path / "big.onnx"), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(None, digits[1][0])[0], reference(whole, digits[1][0])[0])


def test_statistics_are_kept(digits: tuple[list, list], tmp_path: Path) -> None:
    state, seen = tmp_path / "state.npz", []
    hexforge.quantize(DIGITS, digits[0], state=state, progress=lambda what, done, whole: seen.append((what, done)))
    assert seen[-1] == ("calibrating", 32)
    seen.clear()
    again = hexforge.quantize(DIGITS, digits[0], "w8a16", state=state, progress=lambda w, d, n: seen.append((w, d)))
    assert seen[:-1] == []
    assert again.statistics.samples == 32


def test_several_processes_give_the_same_model() -> None:
    from hexforge.analysis.workers import Workers
    from tests.digits import MODEL, held_out

    data = [{"image": picture} for picture in held_out()[0][:20]]
    alone, two = (
        hexforge.quantize(MODEL, data, "w8a8_channel+equalize", workers=Workers(jobs), method="moving_average")
        for jobs in (1, 2)
    )
    assert alone.model == two.model
    assert [(t.name, t.after_db) for t in alone.tried] == [(t.name, t.after_db) for t in two.tried]
