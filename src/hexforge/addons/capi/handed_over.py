# SPDX-License-Identifier: Apache-2.0
"""Handed over: tensors and ops as a library sends them, JSON and arrays, become QNN declarations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hexforge.addons.qnn_graphs.declarations import QnnOp, QnnTensor, QuantizeParams
from hexforge.errors import ModelError
from hexforge.ir import Array
from hexforge.qnn_api.enumerations import UNDEFINED, members_of, value_of


def _element(data_type: str) -> str:
    """The elements that a buffer of a data type has: integers of fewer than eight bits have a byte each."""
    kind, bits = data_type.rsplit("_", 1)
    letter = "f" if kind == "FLOAT" else "i" if kind in ("INT", "SFIXED_POINT") else "u"
    return f"{letter}{max(int(bits), 8) // 8}"


def _short_names(type: str, prefix: str) -> dict[int, str]:
    """The names of an enumeration without what they begin with, by their numbers."""
    return {number: name.removeprefix(prefix) for name, number in members_of(type).items() if number != UNDEFINED}


DATA_TYPES = {
    number: (name, _element(name))
    for number, name in _short_names("Qnn_DataType_t", "QNN_DATATYPE_").items()
    if name != "STRING"
}
"""Qnn_DataType_t by its number: its name, and the elements that a buffer of it has."""
TENSOR_TYPES = _short_names("Qnn_TensorType_t", "QNN_TENSOR_TYPE_")
ENCODINGS = _short_names("Qnn_QuantizationEncoding_t", "QNN_QUANTIZATION_ENCODING_")


class HandedOver:
    """The tensors and ops of a request, with its arrays."""

    def __init__(self, request: Mapping[str, Any], arrays: Sequence[bytes]) -> None:
        self._arrays = arrays
        self.tensors = [self._tensor(fields) for fields in request.get("tensors", ())]
        self.ops = [self._op(fields) for fields in request.get("nodes", ())]

    def _tensor(self, fields: Mapping[str, Any]) -> QnnTensor:
        name, shape = str(fields["name"]), tuple(int(d) for d in fields["dims"])
        data = None if fields["data"] is None else self._array(name, fields["dtype"], shape, fields["data"])
        return QnnTensor(
            name,
            f"QNN_TENSOR_TYPE_{TENSOR_TYPES[fields['type']]}",
            f"QNN_DATATYPE_{data_type(name, fields['dtype'])[0]}",
            shape,
            self._quantization(fields.get("encoding")),
            tuple(bool(d) for d in fields.get("dynamic", ())),
            data,
        )

    def _array(self, name: str, dtype: int, shape: Sequence[int], at: int) -> Array:
        kind = np.dtype(data_type(name, dtype)[1])
        data = self._arrays[at]
        count = int(np.prod(shape, dtype=np.int64))
        if len(data) != count * kind.itemsize:
            raise ModelError(
                f"tensor {name!r}: {list(shape)} elements of {kind.itemsize} bytes are not {len(data)} bytes"
            )
        array = np.frombuffer(data, kind).reshape(shape)
        return array.astype(np.bool_) if dtype == value_of("QNN_DATATYPE_BOOL_8") else array

    def _quantization(self, fields: Mapping[str, Any] | None) -> QuantizeParams | None:
        if fields is None:
            return None
        scales = np.frombuffer(self._arrays[fields["scales"]], np.float32).tolist()
        offsets = np.frombuffer(self._arrays[fields["offsets"]], np.int32).tolist()
        blocks: list[int] = []
        if fields["block_scales"] is not None:
            kind = np.uint8 if fields["block_bytes"] == 1 else np.uint16
            blocks = np.frombuffer(self._arrays[fields["block_scales"]], kind).tolist()
        return QuantizeParams(
            f"QNN_QUANTIZATION_ENCODING_{ENCODINGS[fields['kind']]}", scales, offsets, int(fields["axis"]),
            int(fields["bits"]), blocks, int(fields["blocks"]), int(fields["block_bits"]),
        )  # fmt: skip

    def _op(self, fields: Mapping[str, Any]) -> QnnOp:
        inputs, outputs = (tuple(self.tensors[i] for i in fields[side]) for side in ("inputs", "outputs"))
        params = {str(key): self._param(value) for key, value in fields["params"].items()}
        return QnnOp(str(fields["name"]), str(fields["op"]), inputs, outputs, params, str(fields["package"]))

    def _param(self, value: Any) -> Any:
        """A number, or the elements of a tensor in its shape."""
        if not isinstance(value, dict):
            return value
        if "float" in value:  # a number that JSON does not have
            return float(value["float"])
        tensor = self.tensors[value["tensor"]]
        if tensor.data is None:
            raise ModelError(f"tensor {tensor.name!r}: is a parameter and has no data")
        return tensor.data


def data_type(name: str, number: int) -> tuple[str, str]:
    """Name and elements of a data type; ModelError for one that hexforge has not."""
    known = DATA_TYPES.get(number)
    if known is None:
        raise ModelError(f"tensor {name!r}: hexforge has no tensors of data type {number:#06x}")
    return known
