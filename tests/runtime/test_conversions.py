# SPDX-License-Identifier: Apache-2.0
"""QuantizeLinear and DequantizeLinear left to the CPU: bit for bit as onnxruntime, and without a session of it."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import hexforge
from hexforge.backend import Spinning
from hexforge.errors import CallError
from hexforge.model.load_check import Extract
from hexforge.runtime.cpu_part import CpuPart
from tests.ort.models import quantized

KINDS = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8, "uint16": TensorProto.UINT16, "int16": TensorProto.INT16}
FLOAT = TensorProto.FLOAT


def conversion(
    op: str, kind: str, shape: tuple[int, ...], scale: Any, zero: Any = None, domain: str = "", **attributes: Any
) -> onnx.ModelProto:
    """A model of one conversion, from x to y."""
    constants = {"scale": np.asarray(scale, np.float32)}
    if zero is not None:
        constants["zero"] = np.asarray(zero, kind)
    types = (FLOAT, KINDS[kind]) if op == "QuantizeLinear" else (KINDS[kind], FLOAT)
    graph = helper.make_graph(
        [helper.make_node(op, ["x", *constants], ["y"], name="c", domain=domain, **attributes)],
        "conversion",
        [helper.make_tensor_value_info("x", types[0], shape)],
        [helper.make_tensor_value_info("y", types[1], shape)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    imports = [helper.make_opsetid("", 21), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def both(model: onnx.ModelProto, x: np.ndarray, threads: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """What the part computes natively, and what onnxruntime computes."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    part = CpuPart(Extract(model), ["c"], threads=threads, spinning=Spinning(0, 0))
    assert part.conversions is not None
    (theirs,) = session.run(None, {"x": x})
    ours = part.run({"x": x})["y"]
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    return ours, theirs


def floats(random: np.random.Generator, shape: tuple[int, ...], scale: Any, kind: str) -> np.ndarray:
    """Numbers in and around a type's range: ties, both ends, infinities, denormals."""
    limits = np.iinfo(kind)
    steps = random.uniform(2.2 * limits.min - 300, 2.2 * limits.max + 300, shape)
    steps = np.where(random.integers(0, 2, shape) == 1, np.rint(steps) + 0.5, steps)
    x = (steps * scale).astype(np.float32)
    x[random.random(shape) < 0.02] = random.choice(np.array([np.inf, -np.inf, 3e38, -3e38, 1e-44, 0, -0.0], np.float32))
    return x


@pytest.mark.parametrize("domain", ["", "com.microsoft"])
@pytest.mark.parametrize("kind", KINDS)
def test_quantize_linear_has_onnxruntimes_bits(kind: str, domain: str) -> None:
    random = np.random.default_rng(len(kind))
    limits = np.iinfo(kind)
    for zero in (0, limits.min, limits.max, 7):
        for scale in (2.0**-9, 0.0173, 3.1, 1e-40):
            shape = (3, int(random.integers(1, 9000)))
            model = conversion("QuantizeLinear", kind, shape, scale, zero, domain)
            ours, theirs = both(model, floats(random, shape, np.float32(scale), kind))
            np.testing.assert_array_equal(ours, theirs, err_msg=f"{kind} zero {zero} scale {scale}")


@pytest.mark.parametrize("kind", KINDS)
def test_dequantize_linear_has_onnxruntimes_bits(kind: str) -> None:
    random = np.random.default_rng(3)
    limits = np.iinfo(kind)
    for zero in (0, limits.min, limits.max, 7):
        shape = (2, int(random.integers(1, 70000)))
        x = random.integers(limits.min, limits.max + 1, shape).astype(kind)
        ours, theirs = both(conversion("DequantizeLinear", kind, shape, 0.0173, zero), x)
        np.testing.assert_array_equal(ours.view(np.uint32), theirs.view(np.uint32))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("kind", KINDS)
def test_a_scale_for_each_channel(kind: str, axis: int) -> None:
    random = np.random.default_rng(5)
    shape = (4, 5, 6)
    scale = random.uniform(0.01, 2, shape[axis]).astype(np.float32)
    zero = random.integers(np.iinfo(kind).min, np.iinfo(kind).max, shape[axis])
    form = [1, 1, 1]
    form[axis] = -1
    x = floats(random, shape, scale.reshape(form), kind)
    ours, theirs = both(conversion("QuantizeLinear", kind, shape, scale, zero, axis=axis), x)
    np.testing.assert_array_equal(ours, theirs)
    ours, theirs = both(conversion("DequantizeLinear", kind, shape, scale, zero, axis=axis), ours)
    np.testing.assert_array_equal(ours.view(np.uint32), theirs.view(np.uint32))


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="onnxruntime's NaN differs by processor")
def test_not_a_number_is_the_lowest() -> None:
    x = np.full((1, 37), np.nan, np.float32)
    ours, theirs = both(conversion("QuantizeLinear", "int8", x.shape, 0.5, 3), x)
    np.testing.assert_array_equal(ours, theirs)


def test_no_zero_point_is_uint8() -> None:
    x = np.linspace(-4, 300, 1001, dtype=np.float32).reshape(1, -1)
    ours, theirs = both(conversion("QuantizeLinear", "uint8", x.shape, 1.0), x)
    np.testing.assert_array_equal(ours, theirs)


def test_what_is_no_plain_conversion_is_onnxruntimes() -> None:
    blocks = conversion("DequantizeLinear", "int8", (4, 8), np.ones((4, 2)), np.zeros((4, 2)), axis=1, block_size=4)
    part = CpuPart(Extract(blocks), ["c"])
    assert part.conversions is None
    x = np.arange(32, dtype=np.int8).reshape(4, 8)
    np.testing.assert_array_equal(part.run({"x": x})["y"], x.astype(np.float32))


def test_other_arrays_are_refused() -> None:
    part = CpuPart(Extract(conversion("QuantizeLinear", "uint8", (2, 3), 1.0, 0)), ["c"])
    with pytest.raises(CallError, match=r"'x' is float32 of shape \(3, 2\); the model has float32 of \(2, 3\)"):
        part.run({"x": np.zeros((3, 2), np.float32)})


def test_the_border_of_a_quantized_model_needs_no_session_of_onnxruntime() -> None:
    session = hexforge.InferenceSession(quantized(), providers=["QNNExecutionProvider"])
    parts = [stage.runner for stage in session.stages if isinstance(stage.runner, CpuPart)]
    assert len(parts) == 2
    assert all(part.conversions is not None for part in parts)
    on_cpu = {row.op_type for row in session.placements if row.where == "CPUExecutionProvider"}
    assert on_cpu == {"QuantizeLinear", "DequantizeLinear"}


def test_threads_of_other_parts_sleep_behind_a_run_unless_told_otherwise() -> None:
    from tests.ort.models import sandwich

    def entry(options: Any) -> str:
        session = hexforge.InferenceSession(sandwich(), options, providers=["QNNExecutionProvider"])
        (part,) = [stage.runner for stage in session.stages if isinstance(stage.runner, CpuPart)]
        try:
            return str(part._session.get_session_options().get_session_config_entry("session.force_spinning_stop"))
        except RuntimeError:  # how onnxruntime says that the key is not set
            return ""

    told = hexforge.SessionOptions()
    told.add_session_config_entry("session.intra_op.allow_spinning", "1")
    plain = hexforge.SessionOptions()
    assert [entry(None), entry(plain), entry(onnxruntime.SessionOptions()), entry(told)] == ["1", "1", "1", ""]
    with pytest.raises(RuntimeError):  # the user's own options stay as they are
        onnxruntime.SessionOptions.get_session_config_entry(plain, "session.force_spinning_stop")
