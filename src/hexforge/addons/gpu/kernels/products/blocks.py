# SPDX-License-Identifier: Apache-2.0
"""Weights of 4 bits with a scale for each 32 along the depth: they stay packed in memory, and kernels unpack them.

On a GPU the 32 elements of a block and column are 16 bytes, columns side by side. On a processor a row of a panel of 16
columns is 8 bytes: the first eight columns are the low halves, the others the high ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hexforge.addons.gpu.kernels.code import FLOAT, BufferType, KernelCode
from hexforge.addons.gpu.kernels.launch import Constant, Kernel
from hexforge.ir import Array, Block, DType, Value

BLOCK = 32
_CHAR, _SHORT, _BYTE = BufferType("char", 1), BufferType("ushort", 2), BufferType("uchar", 1)


@dataclass(frozen=True, slots=True)
class FourBitWeight:
    """A weight [columns, depth] of 4 bits: its numbers, and a scale and an offset for each block."""

    columns: int
    depth: int
    numbers: Constant
    scales: Constant
    offsets: Constant

    @classmethod
    def of(cls, weight: Value, panel: int = 0) -> FourBitWeight:
        """The packed form of a weight: for a GPU, or in panels of columns for a processor."""
        encoding, data = weight.encoding, weight.data
        assert isinstance(encoding, Block)
        assert data is not None
        columns, depth = weight.shape
        shift = 8 if weight.dtype is DType.INT4 else 0

        def constant(name: str, storage: BufferType, size: int, make: Callable[[], Array]) -> Constant:
            return Constant(f"{weight.name}:{name}{panel}", storage, make, size * storage.bytes)

        def numbers() -> Array:
            return _panels(np.asarray(data).astype(np.int8) + shift, panel) if panel else _columns(data, shift)

        def blocks(given: Sequence[float], dtype: type) -> Array:
            table: Array = np.asarray(given).reshape(columns, depth // BLOCK).T.astype(dtype)
            padded: Array = np.zeros((depth // BLOCK, across), dtype)
            padded[:, :columns] = table
            return padded

        across = -(-columns // panel) * panel if panel else columns
        count = depth // BLOCK * across
        packed = (_BYTE, across * depth // 2) if panel else (_SHORT, across * depth // 4)
        offsets = tuple(o - shift for o in encoding.offsets)
        return cls(
            columns,
            depth,
            constant("numbers", *packed, numbers),
            constant("scales", FLOAT, count, lambda: blocks(encoding.scales, np.float32)),
            constant("offsets", _CHAR, count, lambda: blocks(offsets, np.int8)),
        )

    def names(self, kernel: Kernel) -> tuple[str, str, str]:
        """The arguments that numbers, scales and offsets are read from."""
        return kernel.source(self.numbers).name, kernel.source(self.scales).name, kernel.source(self.offsets).name

    def read(self, kernel: Kernel, at: str, width: int) -> str:
        """Elements from number `at` of [columns, depth] on, unpacked: one, or four of a block."""
        numbers, scales, offsets = self.names(kernel)
        name = "unpacked" if width == 1 else "unpacked4"
        kernel.functions[name] = _UNPACK[width].format(depth=self.depth, columns=self.columns)
        return f"{name}({numbers}, {scales}, {offsets}, {at})"

    def begin(self, kernel: Kernel, code: KernelCode, columns: int) -> None:
        """On a processor: the first row of a panel."""
        numbers, scales, offsets = self.names(kernel)
        across = -(-self.columns // columns) * columns
        code.add(f"global const uchar* w = {numbers} + panel * {self.depth * columns // 2};")
        code.add(f"global const float* ws = {scales} + panel * {columns};")
        code.add(f"global const char* wo = {offsets} + panel * {columns};")
        code.add("float8 scale0, scale1, offset0, offset1;")
        loads = "scale0 = vload8(0, ws); scale1 = vload8(1, ws);"
        loads += " offset0 = convert_float8(vload8(0, wo)); offset1 = convert_float8(vload8(1, wo));"
        kernel.functions["next_block"] = f"#define NEXT_BLOCK {{ {loads} ws += {across}; wo += {across}; }}"

    def load_row(self, code: KernelCode, real: str) -> None:
        """On a processor: row `c` of the panel, as b0 and b1."""
        code.add(f"  if (c % {BLOCK} == 0) NEXT_BLOCK")
        code.add("  const uchar8 packed = vload8(0, w); w += 8;")
        rounded = "convert_half8_rte" if real == "half" else ""
        code.add(f"  const {real}8 b0 = {rounded}((convert_float8(packed & (uchar8)(15)) + offset0) * scale0);")
        code.add(f"  const {real}8 b1 = {rounded}((convert_float8(packed >> (uchar8)(4)) + offset1) * scale1);")


_HEAD = "(global const ushort* numbers, global const float* scales, global const char* offsets, int at) {{\n"
_PLACE = "  const int k = at % {depth}, n = at / {depth}, b = k / 32 * {columns} + n;\n"
_UNPACK = {
    1: "float unpacked" + _HEAD + _PLACE + "  const int bits = numbers[b * 8 + k % 32 / 4] >> (k % 4 * 4);\n"
    "  return (float)((bits & 15) + offsets[b]) * scales[b];\n}}\n",
    4: "float4 unpacked4" + _HEAD + _PLACE + "  const int bits = numbers[b * 8 + k % 32 / 4];\n"
    "  const int4 four = ((int4)(bits, bits >> 4, bits >> 8, bits >> 12) & 15) + offsets[b];\n"
    "  return convert_float4(four) * scales[b];\n}}\n",
}


def _columns(data: Array, shift: int) -> Array:
    """[columns, depth] as [block, column, 8] numbers of 16 bits, each four elements, the first lowest."""
    bits = (np.asarray(data).astype(np.int8) + shift).astype(np.uint16)
    columns, depth = bits.shape
    fours = bits.reshape(columns, depth // BLOCK, BLOCK // 4, 4)
    packed = fours[..., 0] | fours[..., 1] << 4 | fours[..., 2] << 8 | fours[..., 3] << 12
    return np.ascontiguousarray(packed.transpose(1, 0, 2))


def _panels(bits: Array, columns: int) -> Array:
    """[columns, depth] as [panel, depth, 8] bytes."""
    count, depth = bits.shape
    padded = np.zeros((-(-count // columns) * columns, depth), np.uint8)
    padded[:count] = bits
    halves = padded.reshape(-1, 2, columns // 2, depth).transpose(0, 3, 1, 2)
    return np.ascontiguousarray(halves[:, :, 0] | halves[:, :, 1] << 4)
