# SPDX-License-Identifier: Apache-2.0
"""Pools and convolutions with every combination of the attributes that decide their windows, beside onnxruntime."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import hexforge

SHAPE, KERNEL = (1, 2, 7, 6), (3, 2)
OPSETS = {"AveragePool": (19, 21), "MaxPool": (12,), "LpPool": (18,), "Conv": (11,), "ConvTranspose": (11,)}


def combinations(op: str, opset: int) -> Iterator[dict[str, Any]]:
    """Attributes of a window of two axes; pads only where auto_pad leaves them open."""
    pools, averages = op.endswith("Pool"), op == "AveragePool"
    dilations = (1,) if averages and opset < 19 else (1, 2)
    for auto, stride, dilation, ceil, count in itertools.product(
        ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"), (1, 3), dilations, (0, 1)[: 1 + pools], (0, 1)[: 1 + averages]
    ):
        for pads in ((0, 0, 0, 0), (1, 0, 1, 1)) if auto == "NOTSET" else (None,):
            attributes: dict[str, Any] = {"auto_pad": auto, "strides": [stride, stride]}
            attributes |= {"kernel_shape": KERNEL, "ceil_mode": ceil} if pools else {}
            attributes |= {"count_include_pad": count} if averages else {}
            attributes |= {"dilations": [dilation, dilation]} if len(dilations) > 1 else {}
            yield attributes | ({"pads": pads} if pads is not None else {})


def model(op: str, opset: int, attributes: dict[str, Any]) -> bytes:
    """One node, its output's shape as onnx infers it."""
    weights = np.random.default_rng(0).standard_normal((SHAPE[1], SHAPE[1], *KERNEL)).astype(np.float32)
    constants = [] if op.endswith("Pool") else [numpy_helper.from_array(weights, "w")]
    node = helper.make_node(op, ["x", *(c.name for c in constants)], ["y"], **attributes)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", [x], [y], constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return onnx.shape_inference.infer_shapes(made).SerializeToString()


@pytest.mark.parametrize(("op", "opset"), [(op, opset) for op, opsets in OPSETS.items() for opset in opsets])
def test_windows_are_those_of_onnxruntime(op: str, opset: int) -> None:
    x = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level = 4
    compared = 0
    for attributes in combinations(op, opset):
        data = model(op, opset, attributes)
        try:
            session = onnxruntime.InferenceSession(data, quiet, providers=["CPUExecutionProvider"])
            want = session.run(None, {"x": x})[0]
        except Exception:  # onnxruntime does not take this combination
            continue
        provider = ("QNNExecutionProvider", {"backend_type": "cpu"})
        got = hexforge.InferenceSession(data, providers=[provider]).run(None, {"x": x})[0]
        assert got.shape == want.shape, attributes
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4, err_msg=str(attributes))
        compared += 1
    assert compared >= 10
