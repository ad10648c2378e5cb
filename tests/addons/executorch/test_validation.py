# SPDX-License-Identifier: Apache-2.0
"""Ops that Qualcomm's library refuses and the htp backend computes: refused when asked, run where a graph has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hexforge.addons.executorch import adaptor, blob
from hexforge.addons.executorch.compilation import compile_graphs
from hexforge.addons.executorch.compile_spec import CompileRequest
from hexforge.addons.qnn_graphs.compiling import refusal
from hexforge.addons.qnn_graphs.library_limits import LIMITS
from hexforge.frontends.onnx.ep_limits import ep_refuses
from hexforge.runtime import registry
from tests.frontends.onnx.limited_node import Node, Tensor

ENCODINGS, TYPES = adaptor.Qnn_QuantizationEncoding_t, adaptor.Qnn_DataType_t
FIXED = {"UFIXED_POINT_8": 8, "UFIXED_POINT_16": 16}
INTEGERS = {"UINT_32": np.uint32, "INT_32": np.int32}


def tensor(name: str, shape: tuple[int, ...], dtype: str = "FLOAT_32", kind: str = "NATIVE") -> Any:
    fixed = dtype in FIXED
    encoding = "SCALE_OFFSET" if fixed else "UNDEFINED"
    return adaptor.TensorWrapper(
        name, adaptor.Qnn_TensorType_t[f"QNN_TENSOR_TYPE_{kind}"], TYPES[f"QNN_DATATYPE_{dtype}"],
        ENCODINGS[f"QNN_QUANTIZATION_ENCODING_{encoding}"],
        {"scale": 0.01, "offset": 0, "bitwidth": FIXED[dtype]} if fixed else {}, len(shape), list(shape), [],
        np.ones(shape, INTEGERS[dtype]) if kind == "STATIC" else np.array([]), True,
    )  # fmt: skip


def made(op: str, inputs: Any, output: Any, **params: int) -> Any:
    wrapper = adaptor.PyQnnOpWrapper("node", "qti.aisw", op)
    wrapper.AddInputTensors(inputs)
    wrapper.AddOutputTensors([output])
    for name, value in params.items():
        wrapper.AddScalarParam(name, TYPES.QNN_DATATYPE_UINT_32, {"data": np.uint32(value)})
    return wrapper


def asin(dtype: str) -> Any:
    return made("ElementWiseAsin", [tensor("x", (2, 3), dtype)], tensor("y", (2, 3), dtype))


def random(op: str, dtype: str) -> Any:
    return made(op, [tensor("shape", (2,), "UINT_32", "STATIC")], tensor("y", (1, 1), dtype))


def scatter(dtype: str, reduction: int) -> Any:
    inputs = [tensor("x", (3, 5), dtype), tensor("i", (3, 5), "INT_32"), tensor("u", (3, 5), dtype)]
    return made("ScatterElements", inputs, tensor("y", (3, 5), dtype), axis=1, reduction=reduction)


def sampled(dtype: str, *sizes: int) -> Any:
    grid = tensor("g", (1, *sizes, len(sizes)), dtype)
    return made("GridSample", [tensor("x", (1, *sizes, 2), dtype), grid], tensor("y", (1, *sizes, 2), dtype))


def gather(dtype: str) -> Any:
    return made("Gather", [tensor("x", (4, 5), dtype), tensor("i", (2,), "INT_32")], tensor("y", (2, 5), dtype), axis=0)


def binary(op: str, *types: str) -> Any:
    """Two operands and the result; a condition before them, or as the result, is bool."""
    *operands, result = [tensor(f"t{i}", (2, 3), dtype) for i, dtype in enumerate(types)]
    before = [tensor("c", (2, 3), "BOOL_8")] if op == "Select" else []
    return made(f"ElementWise{op}", [*before, *operands], result)


U8, U16, F32, F16, I32 = "UFIXED_POINT_8", "UFIXED_POINT_16", "FLOAT_32", "FLOAT_16", "INT_32"
SEVERAL = "operands of several types; cast, quantize or requantize them to one"
ARITHMETIC = "Add Subtract Multiply Divide Maximum Minimum FloorDiv SquaredDifference Select".split()
COMPARISONS = "Equal Greater GreaterEqual Less LessEqual NotEqual".split()
TYPES_OF_OPERANDS: tuple[tuple[Any, tuple[Any, ...], str], ...] = (
    *((binary, (op, U8, F32, U8), SEVERAL) for op in ARITHMETIC),
    *((binary, (op, U8, U8, U8), "") for op in ARITHMETIC),
    *((binary, ("Add", *types), SEVERAL) for types in ((U8, U16, U8), (U8, U8, U16), (F32, U16, F32), (I32, U8, I32))),
    *((binary, ("Add", kind, kind, kind), "") for kind in (U16, F32, F16, I32)),
    *((binary, (op, U8, F32, "BOOL_8"), SEVERAL) for op in COMPARISONS),
    *((binary, (op, U16, U16, "BOOL_8"), "") for op in COMPARISONS),
    *((binary, ("Power", *types), "") for types in ((U8, F32, U8), (U8, U16, U8), (U16, I32, U16), (F16, F16, F16))),
    *(
        (binary, ("Power", *types), "a base of another type than the result")
        for types in ((U8, F16, U8), (U8, U8, U16), (F32, U8, F32), (I32, I32, I32), (F16, F32, F16))
    ),
)
ROWS = (
    *TYPES_OF_OPERANDS,
    (asin, ("FLOAT_32",), "asin of floats; quantize it"),
    (asin, ("FLOAT_16",), "asin of floats"),
    (asin, ("UFIXED_POINT_8",), ""),
    (asin, ("UFIXED_POINT_16",), ""),
    (random, ("RandomUniformLike", "FLOAT_32"), "uniform random numbers of more than 8 bits"),
    (random, ("RandomUniformLike", "UFIXED_POINT_16"), "uniform random numbers of more than 8 bits"),
    (random, ("RandomUniformLike", "UFIXED_POINT_8"), ""),
    (random, ("RandomNormalLike", "FLOAT_32"), "normal random numbers in float32"),
    (random, ("RandomNormalLike", "UFIXED_POINT_16"), ""),
    (random, ("RandomNormalLike", "UFIXED_POINT_8"), ""),
    (scatter, ("FLOAT_32", 0), ""),
    (scatter, ("FLOAT_32", 1), "a reduction of floats"),
    (scatter, ("FLOAT_32", 2), "a reduction of floats"),
    (scatter, ("UFIXED_POINT_8", 1), ""),
    (scatter, ("UFIXED_POINT_16", 2), ""),
    (sampled, ("FLOAT_32", 4, 5), ""),
    (sampled, ("FLOAT_32", 3, 4, 5), "volumes of floats"),
    (sampled, ("UFIXED_POINT_8", 3, 4, 5), ""),
)


@pytest.mark.parametrize("chip", ["SM8350", "SM8650"])
@pytest.mark.parametrize(("make", "given", "told"), ROWS, ids=lambda part: getattr(part, "__name__", str(part)))
def test_what_the_library_refuses_is_refused(make: Any, given: Any, told: str, chip: str) -> None:
    reason = refusal([make(*given).declaration], registry.backend("htp", {"soc_model": chip}))
    assert (reason is None) == (not told)
    assert told in (reason or "")
    assert not told or "Qualcomm's library (onnxruntime-qnn 2.5.0" in (reason or "")


def test_every_row_is_tried() -> None:
    tried = {make(*given).declaration.type for make, given, told in ROWS if told}
    assert tried == {op for row in LIMITS for op in row.ops}


def test_another_backend_is_not_the_htp() -> None:
    assert refusal([asin("FLOAT_32").declaration], registry.backend("cpu", {})) is None


@pytest.mark.parametrize("fixed", ["", "uint8"])
def test_the_ep_and_executorch_are_told_the_same(fixed: str) -> None:
    """The limits of 2.7.0 through onnxruntime, and these, on the ops that both know."""
    backend = registry.backend("htp", {"soc_model": "57"})
    dtype = "UFIXED_POINT_8" if fixed else "FLOAT_32"
    data, cube, grid = (Tensor(shape, fixed=fixed) for shape in ((3, 5), (1, 2, 3, 4, 5), (1, 3, 4, 5, 3)))
    index = Tensor((3, 5), "int32", numbers=np.zeros((3, 5)))
    pairs = (
        (asin(dtype), Node("Asin", (data,), quantized=fixed)),
        (scatter(dtype, 0), Node("ScatterElements", (data, index, data), quantized=fixed)),
        (scatter(dtype, 1), Node("ScatterElements", (data, index, data), {"reduction": "add"}, quantized=fixed)),
        (sampled(dtype, 3, 4, 5), Node("GridSample", (cube, grid), quantized=fixed)),
    )
    for op, node in pairs:
        here, there = refusal([op.declaration], backend), ep_refuses(*node.unit())
        assert (here is None) == (there is None), (here, there)


def test_the_reason_is_logged_and_kept(caplog: pytest.LogCaptureFixture) -> None:
    manager = adaptor.QnnManager(b"")
    manager._request = CompileRequest(registry.backend("htp", {"soc_model": "57"}))
    assert not manager.IsNodeSupportedByBackend([asin("FLOAT_32")])
    told = (
        "op 'node' (ElementWiseAsin): Qualcomm's library (onnxruntime-qnn 2.5.0 and 2.7.0) refuses it: asin of floats; "
        "quantize it, or compute atan(x / sqrt(1 - x * x))"
    )
    assert caplog.messages == [f"[hexforge] {told}"]
    assert manager._refused == {"node": told}


def test_a_graph_that_has_the_op_runs() -> None:
    x, y = tensor("x", (2, 3), kind="APP_WRITE"), tensor("y", (2, 3), kind="APP_READ")
    ops = [made("ElementWiseAsin", [x], y).declaration]
    context = blob.open_blob(
        blob.wrap_context(compile_graphs({"forward": ops}, registry.backend("htp", {"soc_model": "57"})))
    )
    numbers = np.linspace(-0.9, 0.9, 6, dtype=np.float32).reshape(2, 3)
    result = context.program("forward").run({"x": numbers})["y"]
    assert np.allclose(result, np.arcsin(numbers), atol=2e-3)


@pytest.mark.parametrize(
    ("make", "given", "chip", "warned"),
    [
        (gather, ("FLOAT_32",), "SM8350", True),
        (scatter, ("FLOAT_32", 0), "SM8350", True),
        (gather, ("FLOAT_16",), "SM8350", False),
        (gather, ("UFIXED_POINT_8",), "SM8350", False),
        (gather, ("FLOAT_32",), "SM8650", False),
        (gather, ("FLOAT_32",), "SA8295", False),
        (sampled, ("FLOAT_32", 4, 5), "SM8350", True),
    ],
)
def test_what_the_library_cannot_prepare_is_taken_and_said(
    make: Any, given: Any, chip: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    backend = registry.backend("htp", {"soc_model": chip})
    assert refusal([make(*given).declaration], backend) is None
    assert ("takes float32 on SM8350, and fails to prepare the graph" in caplog.text) == warned
