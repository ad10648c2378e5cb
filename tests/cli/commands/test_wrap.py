# SPDX-License-Identifier: Apache-2.0
"""`hexforge wrap`: one ONNX model for each graph, which a session runs with the bits of the model it came from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import hexforge
from hexforge.cli import app
from hexforge.errors import CallError
from hexforge.runtime.contexts.compile import compile
from hexforge.runtime.contexts.request import ContextRequest
from hexforge.runtime.contexts.wrap import wrap
from tests.ort.models import quantized

QNN = [("QNNExecutionProvider", {"soc_model": "SM8650"})]
X = np.linspace(-3, 3, 8, dtype=np.float32).reshape(1, 8)


@pytest.fixture
def context(tmp_path: Path) -> Path:
    path = tmp_path / "two.bin"
    compile([quantized(), quantized(0.2)], path, request=ContextRequest(quantized_io=True, graph_names=("a", "b/c")))
    return path


def wanted(scale: float = 0.1) -> Any:
    return hexforge.InferenceSession(quantized(scale), providers=QNN).run(None, {"x": X})[0]


def test_a_wrapped_model_runs_as_any_other(context: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    done = CliRunner().invoke(app, ["wrap", str(context)])
    model = context.parent / done.output.splitlines()[0]
    data = ["--input", f"xq_dq={tmp_path / 'x.npy'}"]
    done = CliRunner().invoke(app, ["run", str(model), *data, "--output", str(tmp_path / "out"), "--soc", "SM8650"])
    assert done.exit_code == 0, done.output
    np.testing.assert_array_equal(np.load(next((tmp_path / "out").iterdir())), wanted())
    done = CliRunner().invoke(app, ["run", str(model), *data, "--dim", "n=1"])
    assert isinstance(done.exception, CallError)
    assert "is compiled already, for its own sizes; leave --dim, --shape and --pin out" in str(done.exception)


@pytest.mark.parametrize("embed", [[], ["--embed"]])
def test_float_models_around_quantized_graphs(context: Path, embed: list[str], tmp_path: Path) -> None:
    out = tmp_path / "wrapped"
    done = CliRunner().invoke(app, ["wrap", str(context), "-o", str(out), *embed])
    assert done.exit_code == 0, done.output
    names = sorted(p.name for p in out.iterdir())
    assert names == ["a_qnn_ctx_fp32_io.onnx", "b_c_qnn_ctx_fp32_io.onnx", *([] if embed else ["two.bin"])]
    moved = out.rename(tmp_path / "moved")
    for name, scale in (("a", 0.1), ("b_c", 0.2)):
        session = hexforge.InferenceSession(moved / f"{name}_qnn_ctx_fp32_io.onnx", providers=QNN)
        (value,) = session.get_inputs()
        assert value.type == "tensor(float)"
        np.testing.assert_array_equal(session.run(None, {value.name: X})[0], wanted(scale))


def test_quantized_io_stays_where_that_is_asked_for(context: Path) -> None:
    first, _ = wrap(context, quantized_io=True)
    assert first.name == "a_qnn_ctx.onnx"
    session = hexforge.InferenceSession(first, providers=QNN)
    (value,) = session.get_inputs()
    assert value.type == "tensor(uint8)"
    whole = np.clip(np.rint(X / np.float32(0.1)) + 128, 0, 255).astype(np.uint8)
    real = (session.run(None, {value.name: whole})[0].astype(np.float32) - 128) * np.float32(1 / 128)
    np.testing.assert_array_equal(real, wanted())


def test_the_node_is_onnxruntimes(context: Path) -> None:
    model = onnx.load(wrap(context)[0])
    kinds = [n.op_type for n in model.graph.node]
    assert kinds == ["QuantizeLinear", "EPContext", "DequantizeLinear"]
    node = model.graph.node[1]
    given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    assert (node.domain, given["main_context"], given["embed_mode"]) == ("com.microsoft", 1, 0)
    assert (given["ep_cache_context"], given["partition_name"]) == (b"two.bin", b"a")
    assert model.metadata_props[0].key == "ep_compatibility_info.QNNExecutionProvider"


def test_float_graphs_need_no_conversions_and_mistakes_are_named(tmp_path: Path) -> None:
    path = tmp_path / "f.bin"
    compile(quantized(), path, request=ContextRequest(graph_names=("f",)))
    (wrapper,) = wrap(path)
    assert wrapper.name == "f_qnn_ctx.onnx"
    np.testing.assert_array_equal(hexforge.InferenceSession(wrapper, providers=QNN).run(None, {"x": X})[0], wanted())
    with pytest.raises(CallError, match="is a file; give a folder"):
        wrap(path, wrapper)
