# SPDX-License-Identifier: Apache-2.0
"""Models of one node: translated here, evaluated by the ops' references, and compared with onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from hexforge.frontends.onnx.placing import place
from hexforge.model.reader import read
from hexforge.ops.evaluate import evaluate
from tests.frontends.onnx.parts import build, units

_RNG = np.random.default_rng(3)


def f32(*shape: int) -> np.ndarray:
    return _RNG.standard_normal(shape).astype(np.float32)


def i64(*values: int) -> np.ndarray:
    return np.asarray(values, np.int64)


def model(
    nodes: Sequence[onnx.NodeProto], inputs: dict[str, np.ndarray], constants: dict[str, np.ndarray],
    outputs: dict[str, Any], opset: int = 21,
) -> onnx.ModelProto:  # fmt: skip
    """A model; `outputs` map names to numpy types, or to (type, shape) where nothing infers the shape."""
    infos = []
    for name, type in outputs.items():
        dtype, shape = type if isinstance(type, tuple) else (type, None)
        code = dtype if isinstance(dtype, int) else helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        infos.append(helper.make_tensor_value_info(name, code, shape))
    graph = helper.make_graph(
        list(nodes),
        "test",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in inputs.items()
        ],
        infos,
        [numpy_helper.from_array(a, n) for n, a in constants.items()],
    )
    domains = sorted({n.domain for n in nodes if n.domain})
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def placed(proto: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> tuple[list[np.ndarray], list[str]]:
    """The outputs of a model whose every unit must be placed, and the QNN ops it became."""
    read_model = read(proto).ir
    found = units(read_model)
    refused = [p.reason for p in place(found, lambda node: None) if not p.taken]
    assert not refused, refused
    names = [o.name or "" for o in read_model.graph.outputs]
    graph = build(found, "test", names)
    values = {v.name: v.data if v.is_static else inputs.get(v.name) for v in graph.values.values()}
    for node in graph:
        arrays = [None if v is None else values[v.name] for v in node.inputs]
        values.update(zip((v.name for v in node.outputs), evaluate(node.call, arrays), strict=True))
    out = [values[n] for n in names]
    assert all(a is not None for a in out)
    return [a for a in out if a is not None], [n.op.name for n in graph]


def compare(
    op: str, inputs: dict[str, Any], constants: dict[str, Any], type: Any = np.float32, opset: int = 21,
    domain: str = "", outputs: int = 1, rtol: float = 1e-5, atol: float = 1e-6, **attributes: Any,
) -> list[str]:  # fmt: skip
    """One node, run here and by onnxruntime: equal up to float rounding. Returns the QNN ops it became."""
    names = [f"y{i}" for i in range(outputs)]
    feeds, known = ({name: np.asarray(a) for name, a in given.items()} for given in (inputs, constants))
    node = helper.make_node(op, [*inputs, *constants], names, "node", domain=domain, **attributes)
    types = type if isinstance(type, list) else [type] * outputs
    proto = model([node], feeds, known, dict(zip(names, types, strict=True)), opset)
    got, ops = placed(proto, feeds)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for mine, theirs in zip(got, session.run(None, feeds), strict=True):
        assert mine.dtype == theirs.dtype
        assert mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=atol)
    return ops
