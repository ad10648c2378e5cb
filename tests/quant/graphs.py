# SPDX-License-Identifier: Apache-2.0
"""Small float models, one for every op that is quantized, and random ones; and how they are run quantized."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx_ir
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import hexforge
from hexforge.frontends.onnx.unit import Unit
from hexforge.ir import ScaleOffset
from hexforge.model.reader import read
from hexforge.model.save import to_bytes
from hexforge.quant.data.calibrate import calibrate
from hexforge.quant.decide.assign import assign
from hexforge.quant.decide.encoding_plan import EncodingPlan
from hexforge.quant.decide.recipe_reading import recipe
from hexforge.quant.write import write
from tests.frontends.onnx.parts import units

Array = np.ndarray[Any, Any]
OPSET = 21


@dataclass(frozen=True)
class Case:
    """One node: run-time inputs by shape (or a range with it), constants as arrays."""

    inputs: Sequence[Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    domain: str = ""
    opset: int = OPSET
    low: float = -2.0
    high: float = 3.0


def _numbers(*shape: int, seed: int = 0, scale: float = 0.3, shift: float = 0.0) -> Array:
    return (np.random.default_rng(seed).standard_normal(shape) * scale + shift).astype(np.float32)


def _ints(*values: int) -> Array:
    return np.array(values, np.int64)


PICTURE = (1, 4, 6, 6)
ROWS = (3, 8)
POSITIVE: dict[str, Any] = {"low": 0.1, "high": 4.0}

CASES: dict[str, Case] = {
    "Gather": Case([ROWS, _ints(2, 0)]),
    "GatherElements": Case([ROWS, np.zeros(ROWS, np.int64)]),
    "Reshape": Case([ROWS, _ints(4, 6)]),
    "Expand": Case([(1, 8), _ints(3, 8)]),
    "Flatten": Case([PICTURE]),
    "Transpose": Case([PICTURE], {"perm": [0, 2, 3, 1]}),
    "MaxPool": Case([PICTURE], {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "Resize": Case([PICTURE, None, np.array([1, 1, 2, 2], np.float32)], {"mode": "nearest", "nearest_mode": "floor",
                   "coordinate_transformation_mode": "asymmetric"}),
    "Squeeze": Case([(1, 8), _ints(0)]),
    "Unsqueeze": Case([ROWS, _ints(0)]),
    "Tile": Case([ROWS, _ints(2, 1)]),
    "Slice": Case([ROWS, _ints(1), _ints(7), _ints(1)]),
    "Split": Case([ROWS, _ints(4, 4)], {"axis": 1}, outputs=2),
    "TopK": Case([ROWS, _ints(3)], outputs=2),
    "DepthToSpace": Case([PICTURE], {"blocksize": 2}),
    "SpaceToDepth": Case([PICTURE], {"blocksize": 2}),
    "Pad": Case([PICTURE, _ints(0, 0, 1, 1, 0, 0, 1, 1)]),
    "AveragePool": Case([PICTURE], {"kernel_shape": [2, 2]}),
    "GlobalAveragePool": Case([PICTURE]),
    "GlobalMaxPool": Case([PICTURE]),
    "LeakyRelu": Case([ROWS]),
    "ReduceMean": Case([ROWS, _ints(1)]),
    "ReduceMin": Case([ROWS, _ints(1)]),
    "ReduceMax": Case([ROWS, _ints(1)]),
    "ReduceProd": Case([(2, 3), _ints(1)]),
    "ReduceSum": Case([ROWS, _ints(1)]),
    "ReduceL2": Case([ROWS, _ints(1)]),
    "Relu": Case([ROWS]),
    "Gelu": Case([ROWS]),
    "Elu": Case([ROWS]),
    "HardSwish": Case([ROWS]),
    "LogSoftmax": Case([ROWS]),
    "Softplus": Case([ROWS]),
    "Sqrt": Case([ROWS], **POSITIVE),
    "Atan": Case([ROWS]),
    "Asin": Case([ROWS], low=-0.9, high=0.9),
    "Sin": Case([ROWS]),
    "Cos": Case([ROWS]),
    "Sign": Case([ROWS], **POSITIVE),
    "Exp": Case([ROWS]),
    "Log": Case([ROWS], **POSITIVE),
    "LRN": Case([PICTURE], {"size": 3}),
    "Ceil": Case([ROWS], high=40.0),
    "Floor": Case([ROWS], high=40.0),
    "Round": Case([ROWS], high=40.0),
    "Abs": Case([ROWS]),
    "Neg": Case([ROWS]),
    "LpNormalization": Case([ROWS], {"axis": 1, "p": 2}),
    "Clip": Case([ROWS, np.float32(-1), np.float32(1)]),
    "Reciprocal": Case([ROWS], low=0.5, high=4.0),
    "CumSum": Case([ROWS, np.array(1, np.int64)]),
    "Sigmoid": Case([ROWS]),
    "Softmax": Case([ROWS]),
    "HardSigmoid": Case([ROWS]),
    "Tanh": Case([ROWS]),
    "Add": Case([ROWS, ROWS]),
    "Div": Case([ROWS, _numbers(8, scale=0.2, shift=1.5)]),
    "Mul": Case([ROWS, _numbers(8)]),
    "Pow": Case([ROWS, np.float32(2)], **POSITIVE),
    "Sub": Case([ROWS, ROWS]),
    "PRelu": Case([PICTURE, _numbers(4, 1, 1)]),
    "GridSample": Case([PICTURE, (1, 5, 5, 2)], low=-0.9, high=0.9),
    "Concat": Case([ROWS, ROWS], {"axis": 1}),
    "Max": Case([ROWS, ROWS]),
    "Min": Case([ROWS, ROWS]),
    "Einsum": Case([(2, 3, 4), (2, 4, 5)], {"equation": "bij,bjk->bik"}),
    "Conv": Case([PICTURE, _numbers(5, 4, 3, 3), _numbers(5, seed=1)], {"pads": [1, 1, 1, 1]}),
    "ConvTranspose": Case([PICTURE, _numbers(4, 5, 2, 2), _numbers(5, seed=1)], {"strides": [2, 2]}),
    "Gemm": Case([ROWS, _numbers(6, 8), _numbers(6, seed=1)], {"transB": 1}),
    "MatMul": Case([(2, 3, 8), _numbers(8, 6)]),
    "InstanceNormalization": Case([PICTURE, _numbers(4, shift=1), _numbers(4, seed=1)]),
    "LayerNormalization": Case([ROWS, _numbers(8, shift=1), _numbers(8, seed=1)]),
    "RMSNormalization": Case([ROWS, _numbers(8, shift=1)], {"axis": -1}, opset=23),
    "SimplifiedLayerNormalization": Case([ROWS, _numbers(8, shift=1)], {"axis": -1}),
    "BatchNormalization": Case([PICTURE, _numbers(4, shift=1), _numbers(4), _numbers(4),
                                _numbers(4, scale=0.1, shift=1)]),
    "Equal": Case([ROWS, ROWS]),
    "Greater": Case([ROWS, ROWS]),
    "GreaterOrEqual": Case([ROWS, ROWS]),
    "Less": Case([ROWS, ROWS]),
    "LessOrEqual": Case([ROWS, ROWS]),
    "ArgMax": Case([ROWS], {"axis": 1}),
    "ArgMin": Case([ROWS], {"axis": 1}),
    "Where": Case([np.array([[True] * 4 + [False] * 4]), ROWS, ROWS]),
    "ScatterElements": Case([ROWS, _ints(0, 1, 2, 0).reshape(1, 4), (1, 4)], {"axis": 0}),
}  # fmt: skip


def single(op: str, case: Case) -> onnx.ModelProto:
    """The model of one case."""
    names, inputs, constants = [], [], []
    for i, given in enumerate(case.inputs):
        name = "" if given is None else f"in{i}"
        names.append(name)
        if isinstance(given, tuple):
            inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, given))
        elif given is not None:
            constants.append(numpy_helper.from_array(np.asarray(given), name))
    outputs = [f"out{i}" for i in range(case.outputs)]
    node = helper.make_node(op, names, outputs, name=op, domain=case.domain, **case.attributes)
    return model([node], inputs, outputs, constants, case.opset)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[str],
    constants: Sequence[onnx.TensorProto] = (),
    opset: int = OPSET,
) -> onnx.ModelProto:
    """A model whose outputs' types are inferred."""
    made = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(list(nodes), "g", list(inputs), made, list(constants))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def samples(
    read_model: onnx_ir.Model, count: int, seed: int = 0, low: float = -2.0, high: float = 3.0
) -> list[dict[str, Array]]:
    """Random inputs, evenly between two numbers."""
    generator = np.random.default_rng(seed)
    return [
        {
            str(v.name): generator.uniform(low, high, tuple(v.shape or ())).astype(np.float32)  # type: ignore[arg-type]
            for v in read_model.graph.inputs
        }
        for _ in range(count)
    ]


def quantized(
    float_model: onnx_ir.Model, text: str, feeds: Sequence[Mapping[str, Array]]
) -> tuple[EncodingPlan, bytes]:
    """Plan and written model of a recipe, calibrated on the samples."""
    plan = assign(float_model, calibrate(float_model, list(feeds)), recipe(text))
    return plan, to_bytes(write(float_model, plan))


def reference(proto: onnx.ModelProto | bytes, feeds: Mapping[str, Array]) -> list[Array]:
    """What onnxruntime computes."""
    data = proto if isinstance(proto, bytes) else proto.SerializeToString()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return [np.asarray(a) for a in session.run(None, dict(feeds))]


def emulated(data: bytes, feeds: Mapping[str, Array], backend: str = "cpu") -> list[Array]:
    """What a backend of ours computes, all nodes on it."""
    options = hexforge.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    session = hexforge.InferenceSession(data, options, providers=[("QNNExecutionProvider", {"backend_type": backend})])
    return [np.asarray(a) for a in session.run(None, dict(feeds))]


def stray(data: bytes) -> list[Unit]:
    """Units of Q and DQ nodes that belong to no op and are not at the model's border or around a float node."""
    found = []
    for unit in units(read(data).ir):
        if unit.kind != "node" or unit.target.op_type not in ("QuantizeLinear", "DequantizeLinear"):
            continue
        value = unit.target.inputs[0] if unit.target.op_type == "QuantizeLinear" else unit.target.outputs[0]
        border = value is not None and (value.is_graph_input() or value.is_graph_output())
        if not border:
            found.append(unit)
    return found


def step(plan: EncodingPlan, name: str) -> float:
    """The scale of a tensor."""
    encoding = plan.tensors[name].encoding
    assert isinstance(encoding, ScaleOffset)
    return encoding.scale


def sqnr_db(exact: Array, found: Array) -> float:
    """Signal to noise, in decibels."""
    exact = exact.astype(np.float64)
    noise = float(((exact - found) ** 2).sum())
    return float("inf") if noise == 0 else 10 * float(np.log10((exact**2).sum() / noise))
