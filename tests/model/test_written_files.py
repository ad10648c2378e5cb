# SPDX-License-Identifier: Apache-2.0
"""Files that commands write load in onnxruntime with its defaults, whatever IR and opset the model came in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import hexforge
from hexforge.errors import CallError, ModelError
from hexforge.model.declarations import fix_shapes
from hexforge.model.load_check import load_problem
from hexforge.model.opset_conversion import to_opset
from hexforge.model.reader import read
from hexforge.model.save import save
from tests.cli.test_cli import run
from tests.light import light


def outputs(path: Path | bytes, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    source = path if isinstance(path, bytes) else str(path)
    session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def old_model(batch: int | str = 1, terms: int = 3) -> onnx.ModelProto:
    """Of IR 3: its weight is an input too, and a Sum adds what two convolutions and the input give."""
    weight = np.random.default_rng(0).normal(size=(4, 4, 1, 1)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("Conv", ["a", "w"], ["b"]),
        helper.make_node("Sum", ["a", "b", "x"][:terms], ["s"], name="sum"),
        helper.make_node("BatchNormalization", ["s", "one", "zero", "zero", "one"], ["n"]),
        helper.make_node("Softmax", ["n"], ["y"]),
    ]
    sizes = [batch, 4, 2, 2]
    constants = {"w": weight, "one": np.ones(4, np.float32), "zero": np.zeros(4, np.float32)}
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)]
    inputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, a.shape) for name, a in constants.items()]
    graph = helper.make_graph(
        nodes, "old", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, sizes)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, ir_version=3, opset_imports=[helper.make_opsetid("", 7)])


@pytest.mark.parametrize("recipe", ["w8a8", "w8a8_channel", "w8a16", "w4a16"])
def test_a_quantized_model_of_ir_3_loads_and_has_no_sum(recipe: str, tmp_path: Path) -> None:
    source, target = tmp_path / "old.onnx", tmp_path / "q.onnx"
    onnx.save(old_model(), source)
    quantized = hexforge.quantize(source, "random:4", recipe, target)
    feeds = {"x": np.random.default_rng(1).normal(size=(1, 4, 2, 2)).astype(np.float32)}
    assert np.abs(outputs(source, feeds)[0] - outputs(target, feeds)[0]).max() < 0.3
    ops = [node.op_type for node in onnx.load(target).graph.node]
    assert "Sum" not in ops
    assert ops.count("Add") == 2
    assert not quantized.plan.floats
    assert quantized.placed_whole


@pytest.mark.parametrize("terms", [1, 2])
def test_a_sum_of_one_or_two(terms: int) -> None:
    found = hexforge.quantize(old_model(terms=terms), "random:2")
    assert found.model is not None
    assert "Sum" not in [node.op_type for node in onnx.load_from_string(found.model).graph.node]


@pytest.mark.parametrize("opset", [11, 13, 17, 21])
def test_a_converted_model_computes_the_same(opset: int, tmp_path: Path) -> None:
    source, target = tmp_path / "old.onnx", tmp_path / "new.onnx"
    onnx.save(old_model(), source)
    assert run("convert-opset", str(source), str(target), "--opset", str(opset)) == 0
    assert {o.domain: o.version for o in onnx.load(target).opset_import}[""] == opset
    feeds = {"x": np.random.default_rng(1).normal(size=(1, 4, 2, 2)).astype(np.float32)}
    np.testing.assert_allclose(outputs(source, feeds)[0], outputs(target, feeds)[0], rtol=1e-5, atol=1e-6)


def test_weights_stay_what_they_were() -> None:
    model = read(light("squeezenet"))
    weights = {v.name: v.const_value for v in model.ir.graph.initializers.values()}
    made = to_opset(model.ir, 21)
    large = [v for v in made.graph.initializers.values() if v.const_value is not None and v.const_value.size > 64]
    assert large
    assert all(value.const_value is weights[value.name] for value in large)
    assert not {v.name for v in made.graph.inputs} & set(weights)
    assert all(v.type is not None and v.shape is not None for n in made.graph for v in n.outputs)


def test_what_cannot_be_converted_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "old.onnx"
    onnx.save(old_model(), source)
    assert run("convert-opset", str(source), str(tmp_path / "new.onnx"), "--opset", "99") == 2
    assert "from 7 to" in capsys.readouterr().err
    assert not (tmp_path / "new.onnx").exists()
    assert run("convert-opset", str(source), str(source)) == 2
    assert "is the model itself" in capsys.readouterr().err


def test_fix_shapes_does_not_write_over_its_model(tmp_path: Path) -> None:
    source = tmp_path / "m.onnx"
    onnx.save(old_model("N"), source)
    before = source.read_bytes()
    link = tmp_path / "link.onnx"
    link.hardlink_to(source)
    for target in (source, link):
        with pytest.raises(CallError, match="is the model itself"):
            fix_shapes(source, target, dims={"N": 1})
        assert run("fix-shapes", str(source), str(target), "--dim", "N=1") == 2
    assert source.read_bytes() == before


def test_fixed_shapes_load(tmp_path: Path) -> None:
    source, target = tmp_path / "m.onnx", tmp_path / "f.onnx"
    onnx.save(old_model("N"), source)
    fix_shapes(source, target, dims={"N": 2})
    assert load_problem(target) is None


def test_a_file_that_would_not_load_is_not_written(tmp_path: Path) -> None:
    model = read(old_model())
    model.ir.graph.node(0).op_type = "NoSuchOp"
    with pytest.raises(ModelError, match=r"is not written.*NoSuchOp"):
        save(model.ir, tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())
