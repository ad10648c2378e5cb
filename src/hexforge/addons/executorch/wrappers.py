# SPDX-License-Identifier: Apache-2.0
"""The wrappers that ExecuTorch's op builders fill: tensors and ops, held as plain QNN declarations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from hexforge.addons.executorch.qnn_types import (
    Qnn_DataType_t,
    Qnn_Definition_t,
    Qnn_QuantizationEncoding_t,
    Qnn_TensorType_t,
    QnnNumber,
)
from hexforge.addons.qnn_graphs.declarations import QnnOp, QnnTensor, QuantizeParams
from hexforge.errors import CallError


class TensorWrapper:
    """A tensor that an op builder declares."""

    def __init__(
        self,
        tensor_name: str,
        tensor_type: QnnNumber,
        data_type: QnnNumber,
        encoding: QnnNumber,
        quant_info: Mapping[str, Any],
        rank: int,
        dims: Sequence[int],
        dynamic_dims: Sequence[int],
        data: Any,
        copy_data: bool,
    ) -> None:
        if len(dims) != rank:
            raise CallError(f"tensor {tensor_name!r}: has rank {rank} but dimensions {list(dims)}")
        if len(dynamic_dims) not in (0, rank):
            raise CallError(f"tensor {tensor_name!r}: {len(dynamic_dims)} dynamic marks for {rank} dimensions")
        self.tensor_type, self.data_type, self.encoding = tensor_type, data_type, encoding
        static = tensor_type == Qnn_TensorType_t.QNN_TENSOR_TYPE_STATIC
        self.declaration = QnnTensor(
            tensor_name,
            Qnn_TensorType_t(tensor_type).name,
            Qnn_DataType_t(data_type).name,
            tuple(int(d) for d in dims),
            _quantization(tensor_name, encoding, quant_info),
            tuple(bool(d) for d in dynamic_dims),
            (np.array(data) if copy_data else np.asarray(data)) if static else None,
        )

    def GetName(self) -> str:  # noqa: N802 - the stock name
        """The tensor's name."""
        return self.declaration.name


def _quantization(name: str, encoding: QnnNumber, info: Mapping[str, Any]) -> QuantizeParams | None:
    kinds = Qnn_QuantizationEncoding_t
    if encoding == kinds.QNN_QUANTIZATION_ENCODING_UNDEFINED:
        return None
    qnn_name = kinds(encoding).name
    try:
        bits = int(info.get("bitwidth", 0))
        match encoding:
            case kinds.QNN_QUANTIZATION_ENCODING_SCALE_OFFSET | kinds.QNN_QUANTIZATION_ENCODING_BW_SCALE_OFFSET:
                return QuantizeParams(qnn_name, [float(info["scale"])], [int(info["offset"])], bitwidth=bits)
            case (
                kinds.QNN_QUANTIZATION_ENCODING_AXIS_SCALE_OFFSET | kinds.QNN_QUANTIZATION_ENCODING_BW_AXIS_SCALE_OFFSET
            ):
                pairs = info["scale_offset"]
                scales, offsets = pairs["scale"].tolist(), pairs["offset"].tolist()
                return QuantizeParams(qnn_name, scales, offsets, int(info["axis"]), bits)
            case kinds.QNN_QUANTIZATION_ENCODING_BLOCKWISE_EXPANSION:
                pairs = info["block_scale_offset"]
                return QuantizeParams(
                    qnn_name, pairs["scale"].tolist(), pairs["offset"].tolist(), int(info["axis"]), bits,
                    np.asarray(info["block_scales"]).tolist(), int(info["num_blocks_per_axis"]),
                    int(info["block_scale_bitwidth"]),
                )  # fmt: skip
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise CallError(f"tensor {name!r}: its {qnn_name} is malformed: {error!r}") from None
    raise CallError(f"tensor {name!r}: ExecuTorch has no {qnn_name}")


class PyQnnTensorWrapper:
    """A look at a tensor: its name, shape, type and encoding."""

    def __init__(self, tensor: TensorWrapper | None) -> None:
        if tensor is None:
            raise CallError(
                "ExecuTorch uses an output that the builder of its op does not declare, such as the indices of "
                "x.max(dim); write torch.max(x, dim), which ExecuTorch takes apart, or name the op in skip_node_op_set"
            )
        self._tensor = tensor

    def GetName(self) -> str:  # noqa: N802 - the stock name
        """The tensor's name."""
        return self._tensor.declaration.name

    def GetDims(self) -> list[int]:  # noqa: N802 - the stock name
        """The tensor's shape."""
        return list(self._tensor.declaration.dimensions)

    def GetDataType(self) -> QnnNumber:  # noqa: N802 - the stock name
        """The tensor's element type."""
        return self._tensor.data_type

    def GetEncodings(self) -> SimpleNamespace:  # noqa: N802 - the stock name
        """The tensor's scales and offsets: an array of records, and the axis they run along."""
        quantization = self._tensor.declaration.quantization
        pairs = np.empty(
            0 if quantization is None else len(quantization.scales), [("scale", np.float32), ("offset", np.int32)]
        )
        if quantization is not None:
            pairs["scale"], pairs["offset"] = quantization.scales, quantization.offsets
        return SimpleNamespace(data=pairs, axis=-1 if quantization is None else quantization.axis)


class PyQnnOpWrapper:
    """An op that an op builder declares."""

    def __init__(self, name: str, package_name: str, op_type: str) -> None:
        self._name, self._package, self._type = name, package_name, op_type
        self._inputs: list[TensorWrapper] = []
        self._outputs: list[TensorWrapper] = []
        self._params: dict[str, Any] = {}

    def AddInputTensors(self, tensors: Sequence[TensorWrapper]) -> None:  # noqa: N802 - the stock name
        """What the op reads."""
        self._inputs += tensors

    def AddOutputTensors(self, tensors: Sequence[TensorWrapper]) -> None:  # noqa: N802 - the stock name
        """What the op writes."""
        self._outputs += tensors

    def AddTensorParam(  # noqa: N802 - the stock name
        self, name: str, data_type: QnnNumber, rank: int, dims: Sequence[int], data: Any, copy_data: bool
    ) -> None:
        """A parameter that is a tensor."""
        array = np.asarray(data)
        if len(dims) != rank or array.size != int(np.prod(dims)):
            raise CallError(
                f"op {self._name!r}: parameter {name} has {array.size} elements, not the shape {list(dims)}"
            )
        self._params[name] = array.reshape(tuple(dims)).copy()

    def AddScalarParam(self, name: str, data_type: QnnNumber, data: Mapping[str, Any]) -> None:  # noqa: N802
        """A parameter that is one number, under the key "data"."""
        if "data" not in data:
            raise CallError(f"op {self._name!r}: parameter {name} has no data")
        self._params[name] = data["data"]

    def GetOpWrapper(self) -> PyQnnOpWrapper:  # noqa: N802 - the stock name
        """The op itself, as `QnnManager` takes it."""
        return self

    def GetName(self) -> str:  # noqa: N802 - the stock name
        """The op's name."""
        return self._name

    def GetOpType(self) -> str:  # noqa: N802 - the stock name
        """QNN's name of the op."""
        return self._type

    def GetOpConfig(self) -> dict[str, Any]:  # noqa: N802 - the stock name
        """The op as Qnn_OpConfig_t has it, for ExecuTorch's drawing of graphs."""
        return {
            "version": 1,
            "name": self._name,
            "packageName": self._package,
            "typeName": self._type,
            "numOfParams": len(self._params),
            "params": dict(self._params),
            "numOfInputs": len(self._inputs),
            "inputTensors": [_record(t) for t in self._inputs],
            "numOfOutputs": len(self._outputs),
            "outputTensors": [_record(t) for t in self._outputs],
        }

    @property
    def declaration(self) -> QnnOp:
        """The op as plain data."""
        inputs, outputs = (tuple(t.declaration for t in tensors) for tensors in (self._inputs, self._outputs))
        return QnnOp(self._name, self._type, inputs, outputs, dict(self._params), self._package)


def _record(tensor: TensorWrapper) -> SimpleNamespace:
    """A tensor as Qnn_Tensor_t (version 2) has it."""
    quantization = tensor.declaration.quantization
    pairs = [] if quantization is None else [
        SimpleNamespace(scale=s, offset=o) for s, o in zip(quantization.scales, quantization.offsets, strict=True)
    ]  # fmt: skip
    defined = (
        Qnn_Definition_t.QNN_DEFINITION_UNDEFINED if quantization is None else Qnn_Definition_t.QNN_DEFINITION_DEFINED
    )
    params = SimpleNamespace(
        encodingDefinition=defined,
        quantizationEncoding=tensor.encoding,
        scaleOffsetEncoding=pairs[0] if pairs else SimpleNamespace(scale=0.0, offset=0),
        axisScaleOffsetEncoding=SimpleNamespace(
            axis=0 if quantization is None else quantization.axis, numScaleOffsets=len(pairs), scaleOffset=pairs
        ),
    )
    described = SimpleNamespace(
        id=0,
        name=tensor.declaration.name,
        type=tensor.tensor_type,
        dataFormat=0,
        dataType=tensor.data_type,
        quantizeParams=params,
        rank=len(tensor.declaration.dimensions),
        dimensions=list(tensor.declaration.dimensions),
    )
    return SimpleNamespace(version=2, v2=described)
