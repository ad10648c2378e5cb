# SPDX-License-Identifier: Apache-2.0
"""How the emulator stores tensors: 8-bit as uint8, 16-bit as int16, floats as float32 holding the chip's halves."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from hexforge.backends.htp.numbers.halves import vector_half
from hexforge.ir import Array, DType, Node, ScaleOffset, TensorType
from hexforge.ir.fixed_point import quantized_range

Kind = Literal["u8", "s16", "f32", "raw"]


@dataclass(frozen=True, slots=True)
class Storage:
    """A tensor as the kernels see it. `shift` is added to the model's integers to get the stored ones."""

    kind: Kind
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    scale: float = 0.0
    zero_point: int = 0
    low: int = 0
    high: int = 0
    shift: int = 0

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the stored tensor."""
        return self.size * self.dtype.itemsize

    @property
    def fixed(self) -> bool:
        """True for the two fixed-point kinds."""
        return self.kind in ("u8", "s16")

    def output(self) -> dict[str, Any]:
        """The attributes of a step that say how its result is quantized."""
        return {"zero_point": self.zero_point, "low": self.low, "high": self.high}


_FIXED: dict[DType, tuple[Kind, Any, int]] = {
    DType.UINT8: ("u8", np.uint8, 0),
    DType.INT8: ("u8", np.uint8, 128),
    DType.INT16: ("s16", np.int16, 0),
    DType.UINT16: ("s16", np.int16, -32768),
}


def storage(type: TensorType) -> Storage:
    """How a tensor of this type is stored."""
    encoding = type.encoding
    if isinstance(encoding, ScaleOffset):
        kind, dtype, shift = _FIXED.get(type.dtype, ("raw", None, 0))
        if kind != "raw":
            low, high = (q + shift for q in quantized_range(type.dtype, encoding))
            zero = shift - encoding.offset
            return Storage(kind, np.dtype(dtype), type.shape, encoding.scale, zero, low, high, shift)
    if encoding is None and type.dtype in (DType.FLOAT16, DType.FLOAT32):
        return Storage("f32", np.dtype(np.float32), type.shape)
    return Storage("raw", type.dtype.numpy, type.shape)


def computes_in_float32(node: Node) -> bool:
    """True for a floor division of floats, which would be one off where float16 moves a quotient past an integer, and
    for what asks whether a number is one: halves have no NaN.

    They read graph inputs and constants as they are, and what they give the application is not rounded.
    """
    if node.op.name in ("IsNan", "IsInf"):
        return node.inputs[0] is not None and storage(node.inputs[0].type).kind == "f32"
    return node.op.name == "ElementWiseFloorDiv" and storage(node.outputs[0].type).kind == "f32"


def stored(array: Array, type: TensorType, rounded: Callable[[Array], Array] = vector_half) -> Array:
    """The model's array as it is stored; floats rounded as one of the units does."""
    own = storage(type)
    if own.kind == "f32":
        return rounded(np.asarray(array))
    if own.shift:
        return shifted(array.astype(type.dtype.numpy, copy=False), own.dtype)
    return np.ascontiguousarray(array)


def to_model_type(array: Array, type: TensorType) -> Array:
    """A stored array as the model's type has it, floats as float32."""
    own = storage(type)
    if own.kind == "f32":
        return array
    if own.shift:
        return shifted(array, type.dtype.numpy)
    return array.astype(type.dtype.numpy, copy=False)


def shifted(array: Array, dtype: np.dtype[Any]) -> Array:
    """Integers moved by half their range, from signed to unsigned ones or back: their highest bit is turned.

    Nothing wider is made of them, as they may be most of a model.
    """
    bits = np.dtype(f"u{dtype.itemsize}")
    turned = np.asarray(array, order="C").view(bits) ^ bits.type(1 << 8 * dtype.itemsize - 1)
    return np.asarray(turned).view(dtype)  # an array also where it has no axes


def in_range(multipliers: Any) -> bool:
    """True where multipliers are ordinary numbers of float32, with room to be multiplied by any integer."""
    return bool(np.all((np.asarray(multipliers) > 2.0**-96) & (np.asarray(multipliers) < 2.0**80)))
