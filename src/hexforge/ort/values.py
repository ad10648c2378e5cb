# SPDX-License-Identifier: Apache-2.0
"""Values: arrays as OrtValues and back, the numpy types of ONNX's element types, and values in shared memory.

Memory that host and HTP share (enable_htp_shared_memory_allocator) is QnnHtpShared to onnxruntime: on the CPU's side,
host accessible. A value in it is read by a session where it lies.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from typing import Any, Protocol

import ml_dtypes
import numpy as np
import onnx
import onnxruntime

from hexforge.addon import Hook, hook
from hexforge.ir import Array


class SharedMemory(Protocol):
    """Memory that host and HTP share."""

    bytes: Array
    fd: int

    @property
    def address(self) -> int:
        """Where it lies."""

    def array(self, shape: Sequence[int], dtype: Any) -> Array:
        """A tensor in it, over its own memory."""


class _IsOnnxruntimes(type):
    """A class whose instances are onnxruntime's values, whoever made them."""

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, onnxruntime.OrtValue)


class OrtValue(onnxruntime.OrtValue, metaclass=_IsOnnxruntimes):  # type: ignore[misc]
    """onnxruntime's OrtValue, which also lies in memory that host and HTP share: device type QnnHtpShared."""

    @classmethod
    def ortvalue_from_numpy(cls, numpy_obj: Array, /, device_type: str = "cpu", *device: Any, **named: Any) -> Any:
        """A value over an array, or with its numbers in shared memory."""
        if device_type != SHARED:
            return onnxruntime.OrtValue.ortvalue_from_numpy(numpy_obj, device_type, *device, **named)
        made = shared_value(numpy_obj.shape, numpy_obj.dtype)
        to_array(made)[...] = numpy_obj
        return made

    @classmethod
    def ortvalue_from_shape_and_type(
        cls, shape: Sequence[int], element_type: Any, device_type: str = "cpu", *device: Any, **named: Any
    ) -> Any:
        """A value of a shape and an element type, with shared memory of its own where that is asked for."""
        if device_type != SHARED:
            return onnxruntime.OrtValue.ortvalue_from_shape_and_type(shape, element_type, device_type, *device, **named)
        return shared_value(shape, numpy_dtype(element_type))


def to_array(value: Any) -> Any:
    """The numpy array of an OrtValue on the CPU; anything else as it is."""
    if not isinstance(value, OrtValue):
        return value
    if value.is_tensor() and (buffer := buffer_at(value.data_ptr())) is not None:
        return buffer.array(value.shape(), numpy_dtype(value.element_type()))  # where it lies, not a copy
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


# -- shared memory ----------------------------------------------------------------------------------------------------

SHARED = "QnnHtpShared"
_BUFFERS: dict[int, weakref.ref[SharedMemory]] = {}
"""Every shared buffer that lives, by its address."""


def shared_memory_info() -> Any:
    """onnxruntime's description of the memory."""
    kinds = onnxruntime.capi.onnxruntime_pybind11_state
    return kinds.OrtMemoryInfo(SHARED, kinds.OrtAllocatorType.ORT_DEVICE_ALLOCATOR, 0, kinds.OrtMemType.DEFAULT)


def shared_value(shape: Sequence[int], dtype: np.dtype[Any]) -> Any:
    """An OrtValue in a shared buffer of its own, all zeros."""
    size = max(1, int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
    buffer: SharedMemory = hook(Hook.SHARED_BUFFER)(size)
    buffer.bytes[...] = 0
    made = onnxruntime.OrtValue.ortvalue_from_numpy(buffer.array(shape, dtype))
    _BUFFERS[buffer.address] = weakref.ref(buffer)
    weakref.finalize(made, _keep, buffer)  # the buffer lives as long as the value
    weakref.finalize(buffer, _BUFFERS.pop, buffer.address, None)
    return made


def _keep(buffer: SharedMemory) -> None:
    """Nothing to do: what is kept until now may go."""


def buffer_at(address: int) -> SharedMemory | None:
    """The shared buffer that begins at an address, if one does."""
    buffer = _BUFFERS.get(address)
    return None if buffer is None else buffer()
