# SPDX-License-Identifier: Apache-2.0
"""Values: arrays as OrtValues and back, and the numpy types of ONNX's element types."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime

OrtValue = onnxruntime.OrtValue


def to_array(value: Any) -> Any:
    """The numpy array of an OrtValue on the CPU; anything else as it is."""
    if not isinstance(value, OrtValue):
        return value
    if value.is_tensor() and value.element_type() == onnx.TensorProto.BFLOAT16:  # onnxruntime gives no array of it
        memory = (ctypes.c_char * value.tensor_size_in_bytes()).from_address(value.data_ptr())
        return np.frombuffer(memory, ml_dtypes.bfloat16).reshape(value.shape()).copy()
    return value.numpy()


def to_ortvalue(value: Any) -> Any:
    """An OrtValue that holds an array (bfloat16 and the like by their ONNX type)."""
    if isinstance(value, OrtValue):
        return value
    array = np.ascontiguousarray(value)
    if array.dtype == np.dtype(ml_dtypes.bfloat16):
        return OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), onnx.TensorProto.BFLOAT16)
    return OrtValue.ortvalue_from_numpy(array)


def numpy_dtype(element_type: Any) -> np.dtype[Any]:
    """The numpy type of an element type given as a numpy type or as ONNX's number."""
    if isinstance(element_type, int):
        element_type = onnx.helper.tensor_dtype_to_np_dtype(element_type)
    dtype: np.dtype[Any] = np.dtype(element_type)
    return dtype
