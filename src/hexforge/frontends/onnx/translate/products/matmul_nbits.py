# SPDX-License-Identifier: Apache-2.0
"""MatMulNBits: a weight of 2, 4 or 8 bits with a scale per block becomes a FullyConnected with a block encoding."""

from __future__ import annotations

import numpy as np

from hexforge.frontends.onnx.translate.builder import Builder, translates
from hexforge.frontends.onnx.unit import Refusal, Unit
from hexforge.ir import Array, Block, DType, Value
from hexforge.ir.numbers import NumberArray


def unpack(packed: Array, bits: int, count: int) -> Array:
    """The first `count` unsigned numbers of each row of bytes, least significant bits first."""
    if bits == 8:
        return packed[..., :count]
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    numbers = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return numbers.reshape(*packed.shape[:-1], -1)[..., :count]


def _zero_points(b: Builder, u: Unit, rows: int, blocks: int, bits: int) -> Array:
    given = b.constant(u, 3, "zero_points")
    if given is None:
        return np.full((rows, blocks), 1 << bits - 1, np.uint8)
    if given.dtype == np.uint8:
        return unpack(given.reshape(rows, -1), bits, blocks)
    return given.reshape(rows, blocks)


@translates("com.microsoft:MatMulNBits", writes=("FullyConnected",))
def matmul_nbits(b: Builder, u: Unit) -> None:
    """A times the transposed weight [N, K], plus bias. Blocks that QNN cannot encode are dequantized here."""
    bits, block = int(b.attr(u, "bits", 4)), int(b.attr(u, "block_size", 0))
    depth, rows = int(b.attr(u, "K", 0)), int(b.attr(u, "N", 0))
    if bits not in (2, 4, 8):
        raise Refusal(f"weights of {bits} bits; 2, 4 and 8 are known")
    if block < 1 or depth < 1 or rows < 1:
        raise Refusal(f"K {depth}, N {rows} and block_size {block} must be positive")
    packed, scales = b.constant(u, 1, "B"), b.constant(u, 2, "scales")
    if packed is None or scales is None:
        raise Refusal("B and scales are missing")
    blocks = -(-depth // block)
    if packed.size != rows * blocks * ((block * bits + 7) // 8) or scales.size != rows * blocks:
        raise Refusal(f"B has {packed.size} bytes and {scales.size} scales, which do not fit K {depth} and N {rows}")
    x, out = b.input(u, 0), b.output(u)
    numbers = unpack(packed.reshape(rows, blocks, -1), bits, block)
    scales, zeros = scales.reshape(rows, blocks), _zero_points(b, u, rows, blocks, bits)
    groups = b.constant(u, 4, "g_idx")
    if groups is not None and (groups.size < depth or groups.min() < 0 or groups.max() >= blocks):
        raise Refusal(f"g_idx has {groups.size} groups from {groups.min()} to {groups.max()} for K {depth} of {blocks}")
    weight: Value
    if groups is not None:
        of = groups.reshape(-1)[:depth]
        real = (numbers.reshape(rows, -1)[:, :depth] - zeros.astype(np.float32)[:, of]) * scales[:, of]
        weight = b.static(real.astype(out.dtype.numpy))
    elif depth % block == 0 and zeros.dtype == np.uint8 and (scales > 0).all() and np.isfinite(scales).all():
        dtype = DType.UINT4 if bits == 4 else DType.UINT8
        encoding = Block(
            (1, block), NumberArray(scales), NumberArray(-zeros.astype(np.int16)), bits if bits != dtype.bits else 0
        )
        weight = b.static(numbers.reshape(rows, depth).astype(dtype.numpy), encoding)
    else:
        real = (numbers - zeros.astype(np.float32)[..., None]) * scales.astype(np.float32)[..., None]
        weight = b.static(real.reshape(rows, -1)[:, :depth].astype(out.dtype.numpy))
    bias = b.optional(u, 5)
    b.emit("FullyConnected", [x, weight, bias], out, keep_dims=True)
