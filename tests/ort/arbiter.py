# SPDX-License-Identifier: Apache-2.0
"""An arbiter of QDQ models: each op by its text in float64, on what the backend itself gave to it.

Rounding steps grow through deep models, so two sound runs of one may end far apart. What a backend makes of its own
inputs, op by op, is a question with one answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

Outputs = Callable[[bytes, dict[str, np.ndarray]], list[np.ndarray]]
"""Runs a model on inputs."""
ONE_STEP = 1.01
"""A step, and room for the rounding of the real numbers that are compared."""
_CONVERSIONS = ("QuantizeLinear", "DequantizeLinear")


@dataclass(frozen=True, slots=True)
class Ruling:
    """How far one op's result is from its text."""

    node: str
    op_type: str
    worst_steps: float
    """In quantization steps of the result."""
    beyond: float
    """Share of elements that are more than one step away."""
    roundings: int = 1
    """How many times its result is rounded: QNN has no Sum and no Mean, and rounds each addition of one."""

    @property
    def is_wrong(self) -> bool:
        """True where rounding does not explain it."""
        return self.worst_steps > ONE_STEP * self.roundings

    def __str__(self) -> str:
        return f"{self.op_type} {self.node}: {self.worst_steps:.4g} steps from its text, {self.beyond:.0%} beyond one"


@dataclass(frozen=True, slots=True)
class _Result:
    """Where the result of an op is read, and on which grid."""

    name: str
    scale: float
    zero: int
    low: int
    high: int


def rulings(model: bytes, feeds: dict[str, np.ndarray], outputs_of: Outputs) -> list[Ruling]:
    """A ruling for each op between DequantizeLinear and QuantizeLinear."""
    proto = onnx.load_from_string(model)
    constants = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
    results = _results(proto, constants)
    names = list(dict.fromkeys(result.name for result in results.values()))
    del proto.graph.output[:]
    proto.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    exposed = onnx.shape_inference.infer_shapes(proto).SerializeToString()
    values = _weights(proto, constants) | dict(zip(names, outputs_of(exposed, feeds), strict=True))
    return [
        _ruling(node, proto, constants, values, results[node.output[0]])
        for node in proto.graph.node
        if node.op_type not in _CONVERSIONS
    ]


def _results(proto: onnx.ModelProto, constants: Mapping[str, np.ndarray]) -> dict[str, _Result]:
    """By what is quantized: the value that comes back out of DequantizeLinear."""
    back = {node.input[0]: node.output[0] for node in proto.graph.node if node.op_type == "DequantizeLinear"}
    results = {}
    for node in proto.graph.node:
        if node.op_type == "QuantizeLinear":
            zero = constants[node.input[2]]
            limits = np.iinfo(zero.dtype)
            scale = float(constants[node.input[1]])
            results[node.input[0]] = _Result(back[node.output[0]], scale, int(zero), limits.min, limits.max)
    return results


def _weights(proto: onnx.ModelProto, constants: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Constants behind DequantizeLinear, in float64."""
    return {
        node.output[0]: (constants[node.input[0]].astype(np.float64) - int(constants[node.input[2]]))
        * float(constants[node.input[1]])
        for node in proto.graph.node
        if node.op_type == "DequantizeLinear" and node.input[0] in constants
    }


def _ruling(
    node: onnx.NodeProto,
    proto: onnx.ModelProto,
    constants: Mapping[str, np.ndarray],
    values: Mapping[str, np.ndarray],
    result: _Result,
) -> Ruling:
    given = {name: _wide(values[name] if name in values else constants[name]) for name in node.input}
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in given.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(node.output[0])]
    graph = helper.make_graph([node], "one", infos, outputs)
    alone = helper.make_model(graph, opset_imports=proto.opset_import, ir_version=proto.ir_version)
    with np.errstate(all="ignore"):
        (real,) = ReferenceEvaluator(alone).run(None, given)
        whole = np.clip(np.rint(np.asarray(real, np.float64) / result.scale) + result.zero, result.low, result.high)
        steps = np.abs(values[result.name] / result.scale - (whole - result.zero))
    steps = np.where(np.isnan(whole), 0.0, steps)  # no text says what integer NaN becomes
    roundings = len(node.input) - 1 if node.op_type in ("Sum", "Mean") else 1
    worst, beyond = float(steps.max(initial=0.0)), float((steps > ONE_STEP).mean())
    return Ruling(node.name, node.op_type, worst, beyond, max(roundings, 1))


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if array.dtype == np.float32 else array
