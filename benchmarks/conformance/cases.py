# SPDX-License-Identifier: Apache-2.0
"""Which of onnx's node cases there are, what tensor types they use, and which of their inputs are parameters."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

SEED = frozenset(
    """Abs Add And ArgMax ArgMin Asin Atan AveragePool BatchNormalization Cast Clip Concat Conv ConvTranspose Cos
    DepthToSpace DequantizeLinear Div Elu Equal Exp Expand Flatten Floor Gather Gelu Gemm GlobalAveragePool Greater
    GreaterOrEqual GridSample HardSwish InstanceNormalization LRN LayerNormalization LeakyRelu Less LessOrEqual Log
    LogSoftmax LpNormalization MatMul Max MaxPool Min Mul Neg Not Or PRelu Pad Pow QuantizeLinear ReduceMax ReduceMean
    ReduceMin ReduceProd ReduceSum Relu Resize Round Sigmoid Sign Sin Slice Softmax SpaceToDepth Split Sqrt Squeeze Sub
    Tanh Tile TopK Transpose Unsqueeze Where""".split()
)
"""The 77 op types of the QNN EP's documentation."""

NEWER = frozenset(
    """ArrayFeatureExtractor Attention Bernoulli CastLike Ceil ConvInteger CumSum DynamicQuantizeLinear Einsum
    FusedMatMul GRU GatherBlockQuantized GatherElements GatherND GlobalMaxPool GroupNormalization GroupQueryAttention
    HardSigmoid Identity If Inverse IsInf IsNaN LSTM LpPool MatMulInteger MatMulNBits MaxRoiPool Mean Mod
    NonMaxSuppression NonZero OneHot QLinearConv QLinearMatMul QuickGelu RMSNormalization RandomNormalLike
    RandomUniformLike Range Reciprocal ReduceL2 ReduceLogSumExp Reshape RoiAlign RotaryEmbedding STFT ScatterElements
    ScatterND Selu Shape SimplifiedLayerNormalization Softplus Sum Swish Tan ThresholdedRelu Upsample Xor""".split()
)
"""Op types that newer releases of the EP take as well."""

RANDOM = frozenset({"Bernoulli", "RandomNormalLike", "RandomUniformLike"})
"""Ops whose numbers no two implementations share: shape, type and range are compared."""

PARAMETERS = {
    "BatchNormalization": (1, 2, 3, 4),
    "CastLike": (1,),
    "Clip": (1, 2),
    "CumSum": (1,),
    "DequantizeLinear": (1, 2),
    "Expand": (1,),
    "GRU": (4,),
    "LSTM": (4,),
    "NonMaxSuppression": (2, 3, 4),
    "OneHot": (1, 2),
    "Pad": (1, 2, 3),
    "QLinearConv": (1, 2, 4, 5, 6, 7),
    "QLinearMatMul": (1, 2, 4, 5, 6, 7),
    "QuantizeLinear": (1, 2),
    "Range": (0, 1, 2),
    "ReduceL2": (1,),
    "ReduceLogSumExp": (1,),
    "ReduceMax": (1,),
    "ReduceMean": (1,),
    "ReduceMin": (1,),
    "ReduceProd": (1,),
    "ReduceSum": (1,),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "STFT": (1, 2, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
}
"""Inputs, by position, that carry shapes, axes, encodings or other parameters: made constant."""

_PLAIN = {TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL}
_QNN = _PLAIN | {
    getattr(TensorProto, name) for name in "FLOAT16 BFLOAT16 INT4 INT8 INT16 UINT4 UINT8 UINT16 UINT32 UINT64".split()
}


@dataclass(frozen=True, slots=True)
class Case:
    """One node case: its model with the parameters made constant, what it is fed, what must come out."""

    name: str
    ops: frozenset[str]
    types: frozenset[int]
    model: bytes
    feeds: dict[str, Any]
    expected: dict[str, Any]

    @property
    def seed(self) -> bool:
        """True where all its ops are of the 77."""
        return self.ops <= SEED

    @property
    def plain(self) -> bool:
        """True where all its tensors are float32, int32, int64 or bool."""
        return self.types <= _PLAIN

    @property
    def has_float32(self) -> bool:
        """True where one of its tensors is float32."""
        return TensorProto.FLOAT in self.types

    @property
    def qnn_types(self) -> bool:
        """True where QNN has all its tensor types."""
        return self.types <= _QNN

    @property
    def foreign_types(self) -> str:
        """The tensor types QNN does not have, by name."""
        return ", ".join(sorted(TensorProto.DataType.Name(t) for t in self.types - _QNN))


def collect() -> Iterator[Case]:
    """Every node case whose op types the EP documents, old or new."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        collected = collect_testcases(None)
    for case in collected:
        ops = frozenset(node.op_type for node in case.model.graph.node)
        if ops <= SEED | NEWER:
            yield _case(case, ops)


def _case(case: Any, ops: frozenset[str]) -> Case:
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    inputs, outputs = case.data_sets[0]
    graph = model.graph
    types = frozenset(
        v.type.tensor_type.elem_type if v.type.HasField("tensor_type") else TensorProto.UNDEFINED
        for v in (*graph.input, *graph.output)
    )
    parameters = {node.input[i] for node in graph.node for i in PARAMETERS.get(node.op_type, ()) if i < len(node.input)}
    feeds = {}
    kept = []
    for value, data in zip(graph.input, inputs, strict=True):
        if value.name in parameters and value.type.HasField("tensor_type"):
            tensor = TensorProto()
            tensor.CopyFrom(data if isinstance(data, TensorProto) else numpy_helper.from_array(np.asarray(data)))
            tensor.name = value.name
            graph.initializer.append(tensor)
        else:
            feeds[value.name] = _array(data)
            kept.append(value)
    del graph.input[:]
    graph.input.extend(kept)
    expected = {v.name: _array(data) for v, data in zip(graph.output, outputs, strict=True)}
    return Case(case.name, ops, types, model.SerializeToString(), feeds, expected)


def _array(data: Any) -> Any:
    """A tensor as an array; sequences and optionals as they are."""
    if isinstance(data, TensorProto):
        return numpy_helper.to_array(data)
    return data if isinstance(data, (list, dict, type(None))) else np.asarray(data)
