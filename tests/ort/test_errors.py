# SPDX-License-Identifier: Apache-2.0
"""Every mistake gets an error that says where it is, what it is, and what would work."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import hexforge
from hexforge.errors import CallError, FormatError, ModelError, UnsupportedError
from tests.ort.models import CPU_BACKEND, FLOAT, mixed, model, node, quantized, session

QNN = "QNNExecutionProvider"


def feed() -> dict[str, Any]:
    return {"x": np.ones((2, 3), np.float32)}


def raises(kind: type[Exception], *parts: str) -> Any:
    """An error whose message has all the parts, in order."""
    return pytest.raises(kind, match="(?s)" + ".*".join(map(re.escape, parts)))


# -- models ------------------------------------------------------------------------------------------------------


def loop() -> bytes:
    """A Loop that adds its input to itself."""
    value = helper.make_tensor_value_info
    inputs = [value("i", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), value("v", FLOAT, [2, 3])]
    outputs = [value("on", TensorProto.BOOL, []), value("w", FLOAT, [2, 3])]
    nodes = [node("Identity", ["go"], ["on"]), node("Add", ["v", "x"], ["w"])]
    body = helper.make_graph(nodes, "body", inputs, outputs)
    whole = [node("Relu", ["x"], ["a"], name="relu"), node("Loop", ["n", "", "a"], ["y"], name="loop", body=body)]
    return model(whole, {"x": (FLOAT, [2, 3]), "n": (TensorProto.INT64, [])}, {"y": (FLOAT, [2, 3])})


def test_loop_is_refused_with_the_reason() -> None:
    with raises(UnsupportedError, "disable_cpu_ep_fallback=1", "refuses 1 of 2 nodes", "'loop' (Loop): ", "Loop"):
        session(loop(), session__disable_cpu_ep_fallback="1")


def test_loop_runs_on_the_cpu() -> None:
    made = session(loop())
    assert [row.where for row in made.placements] == [QNN, "CPUExecutionProvider"]
    np.testing.assert_array_equal(made.run(None, {**feed(), "n": np.array(3)})[0], np.full((2, 3), 4, np.float32))


def test_dynamic_batch() -> None:
    with raises(CallError, "static shapes", "input 'x'", "dimension 0 ('batch')", "fix-shapes", "batch=1"):
        session(mixed("batch"))


def test_unknown_custom_op() -> None:
    nodes = [node("Relu", ["x"], ["a"], name="relu"), node("Magic", ["a"], ["y"], name="wand", domain="my.ops")]
    source = model(nodes, {"x": (FLOAT, [2])}, {"y": (FLOAT, [2])}, domains=["my.ops"])
    with raises(ModelError, "'wand' (my.ops:Magic)", "neither QNN nor onnxruntime", "register_custom_ops_library"):
        session(source)
    with raises(UnsupportedError, "'wand' (my.ops:Magic): ", "no op builder for my.ops:Magic"):
        session(source, session__disable_cpu_ep_fallback="1")


def test_all_refused_nodes_are_listed() -> None:
    with raises(UnsupportedError, "refuses 2 of 4 nodes", "'nonzero' (NonZero), 'cast' (Cast): ", "=0 to run them"):
        session(mixed(), session__disable_cpu_ep_fallback="1")


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.95])
def test_truncated_file(tmp_path: Path, share: float) -> None:
    source = quantized()
    path = tmp_path / "cut.onnx"
    path.write_bytes(source[: int(len(source) * share)])
    with pytest.raises((FormatError, ModelError), match=r"cut\.onnx: "):
        hexforge.InferenceSession(path, providers=CPU_BACKEND)


def test_not_a_model(tmp_path: Path) -> None:
    with raises(FormatError, "no such file"):
        hexforge.InferenceSession(tmp_path / "none.onnx", providers=CPU_BACKEND)
    with raises(FormatError, "model bytes: "):
        hexforge.InferenceSession(b"abc", providers=CPU_BACKEND)
    with raises(CallError, "by path or as bytes, not as NoneType"):
        hexforge.InferenceSession(None, providers=CPU_BACKEND)  # type: ignore[arg-type]


def test_cyclic_graph() -> None:
    nodes = [node("Add", ["x", "b"], ["a"], name="one"), node("Neg", ["a"], ["b"], name="two")]
    with raises(ModelError, "cycle", "'one' (Add)"):
        session(model(nodes, {"x": (FLOAT, [2])}, {"b": (FLOAT, [2])}))


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), 0.0])
def test_scale_that_is_no_number(scale: float) -> None:
    with raises(ModelError, "node 'q_in' (QuantizeLinear): scale 's' is ", "a finite number"):
        session(quantized(scale))


def test_negative_scale_is_refused() -> None:
    with raises(UnsupportedError, "'q_in' (QuantizeLinear)", "scale"):
        session(quantized(-0.1), session__disable_cpu_ep_fallback="1")


def test_zero_point_out_of_range() -> None:
    # the zero point's type is the quantized tensor's, so one out of range has another type
    nodes = [node("DequantizeLinear", ["x", "s", "z"], ["y"], name="dq")]
    constants = {"s": np.array(0.1, np.float32), "z": np.array(300, np.int32)}
    source = model(nodes, {"x": (TensorProto.UINT8, [4])}, {"y": (FLOAT, [4])}, constants)
    with raises(ModelError, "node 'dq' (DequantizeLinear) reads 'z', which is int32, with 'x', which is uint8"):
        session(source)


# -- feeds -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ({}, ["input 'x' is missing", "tensor(float) with shape [2, 3]"]),
        ({"X1": np.ones((2, 3), np.float32)}, ["unknown input 'X1'", "inputs are 'x'", "input 'x' is missing"]),
        ({"x": np.ones((2, 3))}, ["input 'x' has data type float64, expected float32", "astype(np.float32)"]),
        ({"x": np.ones(6, np.float32)}, ["input 'x' has 1 dimensions [6], expected 2"]),
        ({"x": np.ones((2, 4), np.float32)}, ["input 'x' has shape [2, 4]", "dimension 1 is 4, expected 3"]),
        ({"x": None}, ["input 'x' is None", "numpy array"]),
        ({"x": "text"}, ["input 'x' is a str", "numpy array"]),
        ({"x": object()}, ["input 'x' is a object", "numpy array"]),
        ({"x": [["a", "b"]]}, ["input 'x' is a list"]),
        ({"x": [[1, 2, 3]]}, ["dimension 0 is 1, expected 2"]),
        ([1], ["input_feed is a list", "dict"]),
    ],
)
def test_feeds(given: Any, parts: list[str]) -> None:
    with raises(CallError, *parts):
        session(mixed()).run(None, given)


def test_all_feed_faults_at_once() -> None:
    with pytest.raises(CallError) as caught:
        session(mixed()).run(None, {"x": np.ones(3), "y": 1, "z": 2})
    assert len(str(caught.value).splitlines()) == 3


def test_did_you_mean_an_input() -> None:
    source = model([node("Relu", ["pixels"], ["y"])], {"pixels": (FLOAT, [2])}, {"y": (FLOAT, [2])})
    with raises(CallError, "unknown input 'pixel'", "did you mean 'pixels'?"):
        session(source).run(None, {"pixel": np.ones(2, np.float32)})


def test_initializers_are_constant() -> None:
    proto = onnx.load_model_from_string(quantized())
    with raises(CallError, "'s' is an initializer"):
        session(proto.SerializeToString()).run(None, {"x": np.ones((1, 8), np.float32), "s": np.float32(1)})


def test_lists_are_arrays_as_in_onnxruntime() -> None:
    assert session(mixed()).run(["y"], {"x": [[1, 2, 3], [4, 5, 6]]})[0].tolist() == [[-1, -2, -3], [-4, -5, -6]]


def test_arrays_of_the_other_byte_order() -> None:
    swapped = np.array([[1, 2, 3], [4, 5, 6]], np.dtype(np.float32).newbyteorder())
    assert session(mixed()).run(["y"], {"x": swapped})[0].tolist() == [[-1, -2, -3], [-4, -5, -6]]


def test_unknown_outputs() -> None:
    with raises(CallError, "unknown output 'Y'", "outputs are 'y', 'm'", "did you mean 'y'?"):
        session(mixed()).run(["Y"], feed())
    with raises(CallError, "give a list of names"):
        session(mixed()).run("y", feed())


# -- calls -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ({"providers": ["QNNExecutionProvidr"]}, ["unknown execution provider", "mean 'QNNExecutionProvider'?"]),
        ({"providers": "QNNExecutionProvider"}, ["'providers' must be a sequence"]),
        ({"providers": [QNN], "provider_options": [{}, {}]}, ["1 entries and 'provider_options' 2"]),
        ({"providers": [QNN], "provider_options": {"a": "b"}}, ["a sequence of dicts"]),
        ({"providers": [QNN], "provider_options": ["a"]}, ["must be dicts"]),
        ({"providers": [(QNN, {})], "provider_options": [{}]}, ["must be names"]),
        ({"providers": [(QNN, "x")]}, ["a name or a (name, options dict) tuple"]),
        ({"provider_options": [{}]}, ["without providers"]),
        ({"providers": CPU_BACKEND, "sess_options": {}}, ["sess_options is a dict"]),
        ({"providers": CPU_BACKEND, "enable_fallbacks": 1}, ["no argument 'enable_fallbacks'", "'enable_fallback'?"]),
        ({"providers": [(QNN, {"backend_typ": "cpu"})]}, ["unknown provider option 'backend_typ'", "'backend_type'?"]),
    ],
)
def test_calls(arguments: dict[str, Any], parts: list[str]) -> None:
    with raises(CallError, *parts):
        hexforge.InferenceSession(mixed(), **arguments)


@pytest.mark.parametrize("backend", ["genie"])
def test_backends_to_come(backend: str) -> None:
    with raises(UnsupportedError, f"backend '{backend}'", "not built yet; use backend_type=htp or backend_type=cpu"):
        hexforge.InferenceSession(mixed(), providers=[(QNN, {"backend_type": backend})])


def test_the_default_backend_is_htp() -> None:
    made = hexforge.InferenceSession(mixed(), providers=[QNN])
    assert "HtpProgram" in {type(stage.runner).__name__ for stage in made.stages}


def test_unknown_chip() -> None:
    with raises(CallError, "soc_model 'SM865' is not a known chip", "did you mean SM8650?"):
        hexforge.InferenceSession(mixed(), providers=[(QNN, {"soc_model": "SM865"})])


@pytest.mark.parametrize(
    ("entries", "parts"),
    [
        ({"ep__context_enable": "1"}, ["Qnn context cache only works for HTP/DSP/GPU backend", "ModelCompiler"]),
        ({"session__load_model_format": "ORT"}, ["reads ONNX"]),
        ({"session__disable_model_compile": "1"}, ["must be compiled", "ORT_MODEL_REQUIRES_COMPILATION"]),
    ],
)
def test_session_keys_refused(entries: dict[str, str], parts: list[str]) -> None:
    with raises(UnsupportedError, *parts):
        session(mixed(), **entries)  # type: ignore[arg-type]


def test_faults_of_options_and_keys_together() -> None:
    with raises(CallError, "session config key 'session.disable_cpu_fallback'", "\n", "provider option 'vtcm'"):
        session(mixed(), {"vtcm": "8"}, session__disable_cpu_fallback="1")


def test_dynamic_options() -> None:
    with raises(CallError, "unknown dynamic option 'workload_type'", "did you mean 'ep.dynamic.workload_type'?"):
        session(mixed()).set_ep_dynamic_options({"workload_type": "Default"})


def test_misspelt_attributes() -> None:
    with raises(CallError, "no attribute 'enable_profling'", "did you mean 'enable_profiling'?"):
        hexforge.SessionOptions().enable_profling = True


def test_replaced_initializers() -> None:
    options = hexforge.SessionOptions()
    options.add_initializer("s", onnxruntime.OrtValue.ortvalue_from_numpy(np.array(1, np.float32)))
    with raises(UnsupportedError, "replaces initializers 's'"):
        session(quantized(), sess_options=options)


def test_what_only_onnxruntime_has() -> None:
    with raises(UnsupportedError, "get_tuning_results is not there with QNNExecutionProvider"):
        session(mixed()).get_tuning_results()


def test_cpu_errors_name_the_nodes() -> None:
    nodes = [node("Relu", ["x"], ["a"], name="relu"), node("Unique", ["a"], ["u"], name="unique", axis=0)]
    nodes += [node("Reshape", ["u", "shape"], ["y"], name="reshape")]
    source = model(nodes, {"x": (FLOAT, [4])}, {"y": (FLOAT, [2, 2])}, {"shape": np.array([2, 2])})
    made = session(source)
    assert made.run(None, {"x": np.arange(4, dtype=np.float32)})[0].shape == (2, 2)
    with raises(ModelError, "on the CPU: nodes 'unique' (Unique), 'reshape' (Reshape): onnxruntime failed"):
        made.run(None, {"x": np.ones(4, np.float32)})
