# SPDX-License-Identifier: Apache-2.0
"""Weight files: constants of several ONNX models, each written once into a file of their folder and shared by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx
from onnx import TensorProto, helper

from hexforge.ir import Array, DType
from hexforge.ir.types import pack

ALIGNMENT = 64
"""Bytes; a mapped weight begins where a vector load likes it."""
_HALF_BYTES: dict[int, DType] = {TensorProto.INT4: DType.INT4, TensorProto.UINT4: DType.UINT4}


class WeightFile:
    """A file that constants are appended to, and what was written where."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO = path.open("wb")
        self._written: dict[str, onnx.TensorProto] = {}

    def close(self) -> None:
        """Everything is on its way to disk."""
        self._file.close()

    def constant(self, name: str, make: Callable[[], Array], data_type: int) -> onnx.TensorProto:
        """A constant that lies in the file; made and written the first time that its name is asked for."""
        if name not in self._written:
            array = make()
            half = _HALF_BYTES.get(data_type)
            raw = np.ascontiguousarray(array).view(np.uint8).reshape(-1).data if half is None else pack(array, half)
            self._file.write(b"\0" * (-self._file.tell() % ALIGNMENT))
            offset = self._file.tell()
            self._file.write(raw)
            tensor = TensorProto(name=name, data_type=data_type, dims=array.shape)
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", self.path.name), ("offset", str(offset)), ("length", str(len(raw)))):
                tensor.external_data.add(key=key, value=value)
            self._written[name] = tensor
        return self._written[name]


def small(name: str, array: Array) -> onnx.TensorProto:
    """A constant that lies in the model itself."""
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor(name, kind, array.shape, np.ascontiguousarray(array).tobytes(), raw=True)
