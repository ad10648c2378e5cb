# SPDX-License-Identifier: Apache-2.0
"""QNN's own description of a graph as plain data: tensors, ops and parameters, as its C structs have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hexforge.ir import Array

QTI_PACKAGE = "qti.aisw"
"""The package of QNN's own ops."""


@dataclass(frozen=True, slots=True)
class QuantizeParams:
    """How a tensor is quantized, under QNN's name of the encoding; `real = scale * (q + offset)`."""

    encoding: str
    """Such as QNN_QUANTIZATION_ENCODING_SCALE_OFFSET."""
    scales: Sequence[float]
    offsets: Sequence[int]
    axis: int = 0
    bitwidth: int = 0
    """Bits of the BW_ encodings, in elements of one byte."""
    block_scales: Sequence[int] = ()
    """BLOCKWISE_EXPANSION: the integer scale of each block, slice by slice."""
    blocks_per_axis: int = 0
    block_scale_bitwidth: int = 4


@dataclass(frozen=True, slots=True, eq=False)
class QnnTensor:
    """A tensor of a graph, as in Qnn_Tensor_t."""

    name: str
    tensor_type: str
    """Such as QNN_TENSOR_TYPE_NATIVE."""
    data_type: str
    """Such as QNN_DATATYPE_UFIXED_POINT_8."""
    dimensions: tuple[int, ...]
    quantization: QuantizeParams | None = None
    dynamic: tuple[bool, ...] = ()
    """Which dimensions may be smaller at run time; `dimensions` are then what the graph is prepared for."""
    data: Array | None = None


@dataclass(frozen=True, slots=True, eq=False)
class QnnOp:
    """An op of a graph, as in Qnn_OpConfig_t; parameters are numbers, or arrays in the shape of their tensor."""

    name: str
    type: str
    inputs: tuple[QnnTensor, ...]
    outputs: tuple[QnnTensor, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    package: str = QTI_PACKAGE
