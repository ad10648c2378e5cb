# SPDX-License-Identifier: Apache-2.0
"""What a float node's result is on the chip: which unit rounds it, and what takes the place of infinity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from hexforge.backends.htp.numbers.halves import (
    LARGEST_FLOAT16,
    MATRIX_LIMIT,
    matrix_half,
    vector_half,
    vector_patterns,
)
from hexforge.ir import Array, Call, DType, Node, Role, TensorType, Work
from hexforge.ops import of_kind

_MATRIX = of_kind(Work.CONV, Work.DEPTHWISE, Work.TRANSPOSED_CONV, Work.FULLY_CONNECTED, Work.MATMUL)
_CLAMPS = of_kind(Work.CLAMP)
_MATRIX_ADD_ARCH, _MATRIX_ADD_WIDTH = 73, 16


def adds_in_matrix_unit(node: Node, arch: int) -> bool:
    """True for an addition that the matrix unit does: of two tensors of one shape, at least 16 wide, from v73 on."""
    if node.op.name != "ElementWiseAdd" or arch < _MATRIX_ADD_ARCH:
        return False
    first, second = node.operands(2)
    shape = node.outputs[0].shape
    wide = bool(shape) and shape[-1] >= _MATRIX_ADD_WIDTH
    return wide and first.shape == second.shape == shape and second.data is None


def rounding(node: Node, arch: int = 0) -> Callable[[Array], Array]:
    """How the unit that computes a node rounds."""
    return matrix_half if node.op.name in _MATRIX or adds_in_matrix_unit(node, arch) else vector_half


def without_infinity(node: Node, operands: Sequence[Array | None], result: Array) -> Array:
    """A result of the op's reference with what the chip has where IEEE 754 has infinities, before it is rounded."""
    if node.op.name == "ElementWiseDivide":
        dividend, divisor = (np.asarray(v, np.float32) for v in operands)
        if not divisor.all():  # 1 / 0 is 65504
            return np.where(divisor == 0, dividend * np.copysign(np.float32(LARGEST_FLOAT16), divisor), result)
    if node.op.name in _CLAMPS:  # their bounds are constants
        return np.clip(result, -MATRIX_LIMIT, MATRIX_LIMIT)
    return result


def in_float32(call: Call) -> Call:
    """A call with float32 in place of float16, which cannot hold all halves: results are rounded once, afterwards."""
    ins = tuple(None if t is None else _wider(t) for t in call.ins)
    return Call(call.op, ins, tuple(map(_wider, call.outs)), call.params)


def _wider(type: TensorType) -> TensorType:
    return replace(type, dtype=DType.FLOAT32) if type.dtype is DType.FLOAT16 else type


def tests_for_no_number(node: Node) -> bool:
    """True for IsNan and IsInf of halves, whose patterns they read by IEEE 754; float32 inputs stay as they are."""
    source = node.inputs[0] if node.op.name in ("IsNan", "IsInf") else None
    return source is not None and not (source.role is Role.APP_WRITE and source.dtype is DType.FLOAT32)


def as_ieee(halves: Array) -> Array:
    """Halves as their patterns read in IEEE 754: 65536 is infinity, and what is beyond is not a number."""
    return vector_patterns(halves)


def passes_float16(halves: Array) -> bool:
    """True where a half is past 65504, but for 65536, of which masks are made."""
    magnitudes = np.abs(halves)
    return bool(((magnitudes > LARGEST_FLOAT16) & (magnitudes != MATRIX_LIMIT)).any())
