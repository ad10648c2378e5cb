# SPDX-License-Identifier: Apache-2.0
"""The session: onnxruntime's names and behaviour, with nodes placed and explained."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

import hexforge
from tests.ort.models import CPU_BACKEND, FLOAT, mixed, model, node, quantized, sandwich, session

QNN, CPU = "QNNExecutionProvider", "CPUExecutionProvider"


def expected(source: bytes, feeds: dict[str, Any]) -> list[Any]:
    """What onnxruntime computes."""
    found: list[Any] = onnxruntime.InferenceSession(source, providers=[CPU]).run(None, feeds)
    return found


def x23() -> NDArray[Any]:
    return np.array([[-1, 2, 3], [1, -4, 0]], np.float32)


def test_run_in_parts() -> None:
    made = session(mixed())
    for mine, theirs in zip(made.run(None, {"x": x23()}), expected(mixed(), {"x": x23()}), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert [stage.part.taken for stage in made.stages] == [True, False]
    assert [(row.node, row.where) for row in made.placements] == [
        ("relu", QNN),
        ("nonzero", CPU),
        ("neg", QNN),
        ("cast", CPU),
    ]
    assert made.placements[2].qnn_ops == ("ElementWiseNeg",)
    assert all((row.reason is None) == (row.where == QNN) for row in made.placements)
    assert [graph.name.startswith(f"{QNN}_{QNN}_") for graph in made.graphs] == [True]


def test_three_parts() -> None:
    made = session(sandwich())
    feeds = {"x": np.random.default_rng(0).random((2, 3, 3), np.float32)}
    np.testing.assert_allclose(made.run(["y"], feeds)[0], expected(sandwich(), feeds)[0], rtol=1e-5)
    assert [stage.part.taken for stage in made.stages] == [True, False, True]


def test_what_a_session_is(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(mixed())
    made = hexforge.InferenceSession(path, providers=CPU_BACKEND)
    assert isinstance(made, onnxruntime.InferenceSession)
    real = onnxruntime.InferenceSession(str(path), providers=[CPU])
    for mine, theirs in zip(
        [*made.get_inputs(), made.get_outputs()[0]], [*real.get_inputs(), real.get_outputs()[0]], strict=True
    ):
        assert (mine.name, mine.type, list(mine.shape)) == (theirs.name, theirs.type, theirs.shape)
        assert str(mine) == str(theirs)
    assert made.get_providers() == [QNN, CPU]
    assert made.get_provider_options() == {QNN: {"backend_type": "cpu"}, CPU: {}}
    assert made.get_overridable_initializers() == []
    assert made.get_modelmeta().graph_name == real.get_modelmeta().graph_name
    assert isinstance(made.get_session_options(), onnxruntime.SessionOptions)
    assert hexforge.InferenceSession(str(path), providers=CPU_BACKEND).run(["y"], {"x": x23()})[0].shape == (2, 3)


def test_without_qnn_it_is_onnxruntime() -> None:
    for made in (
        hexforge.InferenceSession(mixed(), providers=[CPU]),
        hexforge.InferenceSession(mixed()),
        hexforge.InferenceSession(mixed(), providers=[CPU, *CPU_BACKEND]),
    ):
        assert made.get_providers() == [CPU]
        assert type(made.get_inputs()[0]) is onnxruntime.NodeArg
        assert len(made.run(None, {"x": x23()})) == 2
        binding = made.io_binding()
        binding.bind_cpu_input("x", x23())
        binding.bind_output("y")
        made.run_with_iobinding(binding)
        assert binding.copy_outputs_to_cpu()[0].shape == (2, 3)
        with pytest.raises(hexforge.CallError, match="give it in `providers`"):
            _ = made.placements


def test_providers_in_session_options() -> None:
    options = hexforge.SessionOptions()
    options.add_provider(QNN, {"backend_type": "cpu"})
    assert options.has_providers()
    assert hexforge.InferenceSession(mixed(), options).get_providers() == [QNN, CPU]


def test_provider_options_as_config_entries() -> None:
    options = hexforge.SessionOptions()
    options.add_session_config_entry("ep.qnnexecutionprovider.backend_type", "cpu")
    made = hexforge.InferenceSession(mixed(), options, providers=[QNN])
    assert made.get_provider_options()[QNN] == {"backend_type": "cpu"}


def test_set_providers() -> None:
    made = session(mixed())
    made.set_providers([CPU])
    assert made.get_providers() == [CPU]
    made.set_providers([QNN], [{"backend_type": "cpu"}])
    assert made.get_providers() == [QNN, CPU]
    assert made.run(["y"], {"x": x23()})[0].shape == (2, 3)


@pytest.mark.parametrize("kind", [hexforge.SessionOptions, onnxruntime.SessionOptions])
def test_free_dimensions_by_name(kind: type[Any]) -> None:
    options = kind()
    options.add_free_dimension_override_by_name("N", 2)
    made = session(mixed("N"), sess_options=options)
    assert made.get_inputs()[0].shape == [2, 3]
    assert made.run(["y"], {"x": x23()})[0].shape == (2, 3)


@pytest.mark.parametrize("kind", [hexforge.SessionOptions, onnxruntime.SessionOptions])
def test_free_dimensions_by_denotation(kind: type[Any]) -> None:
    import onnx

    proto = onnx.load_model_from_string(mixed("N"))
    proto.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    options = kind()
    options.add_free_dimension_override_by_denotation("DATA_BATCH", 2)
    assert session(proto.SerializeToString(), sess_options=options).get_inputs()[0].shape == [2, 3]


@pytest.mark.parametrize("kind", [hexforge.SessionOptions, onnxruntime.SessionOptions])
def test_options_of_the_whole_model_stay_what_they_are(kind: type[Any], tmp_path: Path) -> None:
    options = kind()
    options.add_free_dimension_override_by_denotation("DATA_BATCH", 2)
    options.add_free_dimension_override_by_name("N", 2)
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    made = session(mixed("N"), sess_options=options)
    made.run(None, {"x": x23()})
    assert list(tmp_path.iterdir()) == []
    assert options.optimized_model_filepath == str(tmp_path / "optimized.onnx")
    assert "optimized_model_filepath has no effect" in made.notes[0]
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    source = model([node("Relu", ["x"], ["y"])], {"x": (FLOAT, ["N"])}, {"y": (FLOAT, ["N"])})
    assert session(source, sess_options=options).get_outputs()[0].shape == [2]
    assert options.get_session_config_entry("session.disable_cpu_ep_fallback") == "1"


def test_bfloat16_in_ort_values() -> None:
    kind = TensorProto.BFLOAT16
    made = session(model([node("Relu", ["x"], ["y"])], {"x": (kind, [3])}, {"y": (kind, [3])}))
    x = np.array([-1, 2, 0.5], ml_dtypes.bfloat16)
    bits = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(x.view(np.uint16), kind)
    (y,) = made.run_with_ort_values(None, {"x": bits})
    assert y.data_type() == "tensor(bfloat16)"
    np.testing.assert_array_equal(made.run(None, {"x": y})[0].astype(np.float32), [0, 2, 0.5])


def test_onnxruntimes_own_options() -> None:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    with pytest.raises(hexforge.UnsupportedError, match="nonzero"):
        session(mixed(), sess_options=options)
    run_options = onnxruntime.RunOptions()
    run_options.add_run_config_entry("qnn.htp_perf_mode", "burst")
    made = session(mixed())
    made.run(None, {"x": x23()}, run_options)
    assert "qnn.htp_perf_mode=burst has no effect" in made.notes[0]


def test_notes_say_what_has_no_effect() -> None:
    made = session(mixed(), {"vtcm_mb": "8", "offload_graph_io_quantization": "0"}, ep__context_embed_mode="1")
    assert [note.split(" has")[0] for note in made.notes] == [
        "session config key ep.context_embed_mode=1",
        "provider option vtcm_mb=8",
    ]
    made.set_ep_dynamic_options({"ep.dynamic.workload_type": "Efficient"})
    assert "ep.dynamic.workload_type=Efficient has no effect" in made.notes[-1]


def test_graph_assignment() -> None:
    with pytest.raises(hexforge.CallError, match="record_ep_graph_assignment_info"):
        session(mixed()).get_provider_graph_assignment_info()
    made = session(mixed(), session__record_ep_graph_assignment_info="1")
    found = made.get_provider_graph_assignment_info()
    assert [(s.ep_name, [(n.name, n.op_type, n.domain) for n in s.get_nodes()]) for s in found] == [
        (QNN, [("relu", "Relu", ""), ("neg", "Neg", "")]),
        (CPU, [("nonzero", "NonZero", "")]),
        (CPU, [("cast", "Cast", "")]),
    ]


def test_ort_values_and_binding() -> None:
    made = session(mixed())
    value = onnxruntime.OrtValue.ortvalue_from_numpy(x23())
    (y,) = made.run_with_ort_values(["y"], {"x": value})
    want = -np.maximum(x23(), 0)
    np.testing.assert_array_equal(y.numpy(), want)
    np.testing.assert_array_equal(made.run(["y"], {"x": value})[0], want)

    source, target = x23(), np.zeros((2, 3), np.float32)
    binding = made.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, source.shape, source.ctypes.data)
    binding.bind_output("y", "cpu", 0, np.float32, target.shape, target.ctypes.data)
    binding.bind_output("m")
    binding.synchronize_inputs()
    made.run_with_iobinding(binding)
    binding.synchronize_outputs()
    np.testing.assert_array_equal(target, want)
    source *= 2  # the binding reads the memory anew on each run
    made.run_with_iobinding(binding)
    np.testing.assert_array_equal(target, 2 * want)
    assert [v.shape()[0] for v in binding.get_outputs()] == [2, 2]

    held = onnxruntime.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32)
    binding.clear_binding_outputs()
    binding.bind_ortvalue_input("x", value)
    binding.bind_ortvalue_output("y", held)
    made.run_with_iobinding(binding)
    np.testing.assert_array_equal(held.numpy(), want)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], want)
    binding.clear_binding_inputs()
    with pytest.raises(hexforge.CallError, match="input 'x' is missing"):
        made.run_with_iobinding(binding)
    with pytest.raises(hexforge.CallError, match="unknown output 'z'"):
        binding.bind_output("z")
    with pytest.raises(hexforge.CallError, match="another session"):
        session(mixed()).run_with_iobinding(binding)
    wrong = np.zeros((3, 2), np.float32)
    binding.bind_ortvalue_input("x", value)
    binding.bind_output("y", "cpu", 0, TensorProto.FLOAT, wrong.shape, wrong.ctypes.data)
    with pytest.raises(hexforge.CallError, match=r"bound to float32 \[3, 2\]"):
        made.run_with_iobinding(binding)


def test_many_threads() -> None:
    made = session(sandwich())
    inputs = np.random.default_rng(1).random((24, 2, 3, 3), np.float32)
    alone = [made.run(None, {"x": x})[0] for x in inputs]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda x: made.run(None, {"x": x})[0], inputs))
    np.testing.assert_array_equal(together, alone)


def test_run_async() -> None:
    made, done, got = session(mixed()), threading.Event(), []

    def callback(results: list[Any], user_data: str, error: str) -> None:
        got.append(([result.shape for result in results], user_data, error))
        done.set()

    made.run_async(["y"], {"x": x23()}, callback, "mine")
    assert done.wait(30)
    assert got == [([(2, 3)], "mine", "")]
    with pytest.raises(hexforge.CallError, match="missing"):
        made.run_async(["y"], {}, callback, "mine")
    for names, feed, words in (["y"], x23()[:1], "dimension 0 is 1"), (["z"], x23(), "unknown output 'z'"):
        done.clear()
        made.run_async(names, {"x": feed}, callback, "mine")
        assert done.wait(30)
        results, _, error = got.pop()
        assert results == []
        assert words in error


def test_run_options() -> None:
    made = session(sandwich())
    options = hexforge.RunOptions()
    options.terminate = True
    feeds = {"x": np.zeros((2, 3, 3), np.float32)}
    with pytest.raises(hexforge.HexforgeError, match=r"RunOptions\.terminate"):
        made.run(None, feeds, options)
    options = hexforge.RunOptions()
    options.only_execute_path_to_fetches = True
    np.testing.assert_array_equal(session(mixed()).run(["y"], {"x": x23()}, options)[0], -np.maximum(x23(), 0))
    options.add_run_config_entry("qnn.htp_perf_mod", "burst")
    with pytest.raises(hexforge.CallError, match=r"did you mean 'qnn\.htp_perf_mode'"):
        made.run(None, feeds, options)


def test_quantization_of_inputs_and_outputs_is_left_to_the_cpu() -> None:
    feeds = {"x": np.linspace(-6, 6, 8, dtype=np.float32)[None]}
    made = session(quantized())
    where = {row.node: row.where for row in made.placements}
    assert where == {"q_in": CPU, "dq_in": QNN, "sigmoid": QNN, "q_out": QNN, "dq_out": CPU}
    assert "offload_graph_io_quantization" in str(made.placements[0].reason)
    want = expected(quantized(), feeds)[0]
    np.testing.assert_allclose(made.run(None, feeds)[0], want, atol=1 / 128 + 1e-6)
    for whole in (
        session(quantized(), {"offload_graph_io_quantization": "0"}),
        session(quantized(), session__disable_cpu_ep_fallback="1"),
    ):
        assert {row.where for row in whole.placements} == {QNN}
        np.testing.assert_allclose(whole.run(None, feeds)[0], want, atol=1 / 128 + 1e-6)


def test_a_single_quantize_is_not_worth_a_graph() -> None:
    nodes = [
        node("Det", ["x"], ["d"], name="det"),
        node("QuantizeLinear", ["d", "s", "z"], ["q"], name="q"),
        node("Identity", ["q"], ["y"], name="id"),
    ]
    constants = {"s": np.array(0.1, np.float32), "z": np.array(0, np.uint8)}
    source = model(nodes[:2], {"x": (FLOAT, [2, 2, 2])}, {"q": (TensorProto.UINT8, [2])}, constants)  # type: ignore[arg-type]
    made = session(source)
    assert {row.where for row in made.placements} == {CPU}
    assert "one single QuantizeLinear" in str(made.placements[1].reason)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "uint16", "bool", "int64"])
def test_types_cross_to_the_cpu_and_back(dtype: str) -> None:
    kind = getattr(TensorProto, dtype.upper())
    nodes = [
        node("Reshape", ["x", "shape"], ["a"], name="before"),
        node("Loop", ["n", ""], ["b"], name="loop", body=_body(kind)),
        node("Reshape", ["b", "flat"], ["y"], name="after"),
    ]
    constants = {"shape": np.array([2, 3]), "flat": np.array([6])}
    inputs, shaped = {"x": (kind, [6]), "n": (TensorProto.INT64, [])}, {"b": (kind, [1, 2, 3])}
    source = model(nodes, inputs, {"y": (kind, [6])}, constants, opset=21, between=shaped)  # type: ignore[arg-type]
    made = session(source)
    assert [row.where for row in made.placements] == [QNN, CPU, QNN]
    x = np.array([0, 1, 1, 0, 1, 1]).astype(getattr(ml_dtypes, dtype, dtype))
    (y,) = made.run(None, {"x": x, "n": np.array(1)})
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(y.astype(np.float32), x.astype(np.float32))


@pytest.mark.parametrize("kind", ["int4", "uint4"])
def test_four_bits_cross_to_the_cpu(kind: str) -> None:
    nodes = [
        node("Reshape", ["x", "shape"], ["a"], name="reshape"),
        node("DequantizeLinear", ["a", "s"], ["y"], name="dq"),
    ]
    code = getattr(TensorProto, kind.upper())
    constants = {"shape": np.array([2, 3]), "s": np.array(0.5, np.float32)}
    made = session(model(nodes, {"x": (code, [6])}, {"y": (FLOAT, [2, 3])}, constants, opset=21))
    assert [row.where for row in made.placements] == [QNN, CPU]
    x = np.array([0, 1, 7, 3, 2, 5]).astype(getattr(ml_dtypes, kind))
    np.testing.assert_array_equal(made.run(None, {"x": x})[0].ravel(), x.astype(np.float32) / 2)


def _body(kind: int) -> Any:
    """A loop's body that collects a tensor of the graph outside."""
    inputs = [
        helper.make_tensor_value_info("i", TensorProto.INT64, []),
        helper.make_tensor_value_info("go", TensorProto.BOOL, []),
    ]
    outputs = [
        helper.make_tensor_value_info("on", TensorProto.BOOL, []),
        helper.make_tensor_value_info("out", kind, [2, 3]),
    ]
    nodes = [node("Identity", ["go"], ["on"]), node("Identity", ["a"], ["out"])]
    return helper.make_graph(nodes, "body", inputs, outputs)


def test_outputs_that_no_part_writes() -> None:
    nodes = [node("Add", ["k", "k"], ["c"], name="fold"), node("Relu", ["x"], ["y"], name="relu")]
    source = model(
        nodes, {"x": (FLOAT, [2])}, {"y": (FLOAT, [2]), "c": (FLOAT, [2])}, {"k": np.array([1, 2], np.float32)}
    )
    y, c = session(source).run(None, {"x": np.array([-1, 1], np.float32)})
    assert (y.tolist(), c.tolist()) == ([0, 1], [2, 4])


def test_sequences_stay_on_the_cpu() -> None:
    nodes = [
        node("Relu", ["x"], ["a"], name="relu"),
        node("SplitToSequence", ["a"], ["s"], name="split", axis=0),
        node("ConcatFromSequence", ["s"], ["b"], name="concat", axis=0),
        node("Neg", ["b"], ["y"], name="neg"),
    ]
    source = model(nodes, {"x": (FLOAT, [2, 3])}, {"y": (FLOAT, [2, 3])})
    np.testing.assert_array_equal(session(source).run(None, {"x": x23()})[0], -np.maximum(x23(), 0))
