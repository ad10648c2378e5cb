# SPDX-License-Identifier: Apache-2.0
"""Winograd convolutions, F(4x4, 3x3): tiles of 6 by 6 elements become 36 products of matrices instead of 144.

Three kernels: tiles are transformed, multiplied by filters that were transformed beforehand, and transformed back.
The matrices are those of Lavin and Gray (2015), for the points 0, 1, -1, 2, -2 and infinity.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hexforge.addons.gpu.kernels.code import FLOAT, Index, KernelCode
from hexforge.addons.gpu.kernels.launch import Epilogue, Kernel, Launch
from hexforge.addons.gpu.kernels.products.product import Product
from hexforge.ir import Array, DType, TensorType, Value

POINTS, _OUT, _IN = 36, 4, 6
_INPUT = (
    (4, 0, -5, 0, 1, 0), (0, -4, -4, 1, 1, 0), (0, 4, -4, -1, 1, 0), (0, -2, -1, 2, 1, 0), (0, 2, -1, -2, 1, 0),
    (0, 4, 0, -5, 0, 1),
)  # fmt: skip
_FILTER = (
    (1 / 4, 0, 0), (-1 / 6, -1 / 6, -1 / 6), (-1 / 6, 1 / 6, -1 / 6), (1 / 24, 1 / 12, 1 / 6), (1 / 24, -1 / 12, 1 / 6),
    (0, 0, 1),
)  # fmt: skip
_OUTPUT = ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1))


def transformed_filters(filters: Array) -> Array:
    """Filters [3, 3, Cin, Cout] as 36 matrices [Cin, Cout]."""
    matrix = np.asarray(_FILTER)
    made = np.einsum("ik,jl,klcn->ijcn", matrix, matrix, filters.astype(np.float64), optimize=True)
    flat: Array = made.reshape(POINTS, *filters.shape[2:])
    return flat.astype(np.float32)


@dataclass(frozen=True, slots=True)
class Winograd:
    """A convolution in tiles: the values between its three kernels."""

    direct: Product
    tiles: tuple[int, int, int]
    """Pictures, and tiles down and across each."""
    inputs: Value
    sums: Value

    @classmethod
    def of(cls, product: Product, pictures: int) -> Winograd:
        """A convolution in tiles."""
        assert product.window is not None
        down, across = (-(-n // _OUT) for n in product.window.outs)
        tiles = (pictures, down, across)
        name, count = product.node.name, pictures * down * across

        def between(kind: str, channels: int) -> Value:
            return Value(f"{name}:{kind}", TensorType(DType.FLOAT32, (POINTS, count, channels)))

        return cls(product, tiles, between("tiles", product.depth), between("products", product.n))


def suits(product: Product) -> bool:
    """Whether a convolution is one of 3 by 3 taps, one step at a time."""
    window = product.window
    if window is None or window.transposed or window.planes or product.batch != (1,):
        return False
    plain = window.taps == (3, 3) and window.stride == (1, 1) and window.dilation == (1, 1)
    return plain and product.depth % 4 == 0 and product.n % 4 == 0 and min(product.depth, product.n) >= 16


def _combined(row: tuple[int, ...], names: list[str]) -> str:
    """The sum of names times a row of a matrix."""
    terms = []
    for factor, name in zip(row, names, strict=True):
        if factor:
            terms.append(name if factor == 1 else f"-{name}" if factor == -1 else f"{float(factor)!r}f * {name}")
    return " + ".join(terms)


def _both_ways(code: KernelCode, matrix: tuple[tuple[int, ...], ...], type: str) -> None:
    """`o` = matrix d matrix', of elements d<row>_<column>."""
    for i, row in enumerate(matrix):
        for j in range(_IN):
            code.add(f"const {type} t{i}_{j} = {_combined(row, [f'd{k}_{j}' for k in range(_IN)])};")
    for i in range(len(matrix)):
        for j, row in enumerate(matrix):
            code.add(f"const {type} o{i}_{j} = {_combined(row, [f't{i}_{k}' for k in range(_IN)])};")


def _items(code: KernelCode, winograd: Winograd, channels: int, width: int) -> int:
    """A work-item for each tile and some channels: `picture`, `y`, `x`, `tile` and `channel`; how many there are."""
    pictures, down, across = winograd.tiles
    total = pictures * down * across * (channels // width)
    code.item_of(total)
    code.add(f"const int channel = g % {channels // width} * {width}, tile = g / {channels // width};")
    code.add(f"const int x = tile % {across}, y = tile / {across} % {down}, picture = tile / {down * across};")
    return total


def into_tiles(kernel: Kernel, winograd: Winograd, width: int, local: int) -> Launch:
    """The input's tiles, transformed."""
    product, out = winograd.direct, winograd.inputs
    window = product.window
    assert window is not None
    (height, columns), channels = window.sizes, product.depth
    type = f"float{width}"
    code = kernel.code(width)
    buffer, storage = kernel.buffers.read(product.a.value, product.a.storage), product.a.storage
    total = _items(code, winograd, channels, width)
    code.add(f"const int y0 = y * {_OUT} - {window.pads[0]}, x0 = x * {_OUT} - {window.pads[1]};")
    code.add(f"const int base = picture * {height * columns * channels} + channel;")
    for i in range(_IN):
        for j in range(_IN):
            inside = f"(uint)(y0 + {i}) < {height}u && (uint)(x0 + {j}) < {columns}u"
            load = storage.load(buffer, f"(base + ((y0 + {i}) * {columns} + x0 + {j}) * {channels})", width)
            code.add(f"const {type} d{i}_{j} = ({inside}) ? {load} : ({type})(0.0f);")
    _both_ways(code, _INPUT, type)
    target = kernel.buffers.write(out, "float", "out")
    code.add(f"const int at = tile * {channels} + channel;")
    for i in range(_IN):
        for j in range(_IN):
            place = f"(at + {(i * _IN + j) * out.shape[1] * channels})"
            code.add(FLOAT.store(target, place, f"o{i}_{j}", width))
    return kernel.launch_items("Winograd tiles", (product.node,), code, (out,), total, local, contract=True)


def out_of_tiles(kernel: Kernel, winograd: Winograd, epilogue: Epilogue, width: int, local: int) -> Launch:
    """The products' tiles, transformed back, with bias and chain."""
    product, sums = winograd.direct, winograd.sums
    window = product.window
    assert window is not None
    (height, columns), channels = window.outs, product.n
    type = f"float{width}"
    code = kernel.code(width)
    buffer = kernel.buffers.read(sums, FLOAT)
    total = _items(code, winograd, channels, width)
    code.add(f"const int at = tile * {channels} + channel;")
    for i in range(_IN):
        for j in range(_IN):
            place = f"(at + {(i * _IN + j) * sums.shape[1] * channels})"
            code.add(f"const {type} d{i}_{j} = {FLOAT.load(buffer, place, width)};")
    _both_ways(code, _OUTPUT, type)
    if product.bias is not None:
        code.add(f"const {type} bias = {kernel.source(product.bias).load('channel', width)};")
    for i in range(_OUT):
        for j in range(_OUT):
            with code.block(f"if (y * {_OUT} + {i} < {height} && x * {_OUT} + {j} < {columns})") as block:
                row = f"(picture * {height} + y * {_OUT} + {i}) * {columns} + x * {_OUT} + {j}"
                place = f"({row}) * {channels} + channel"
                value = block.let(type, f"o{i}_{j} + bias" if product.bias is not None else f"o{i}_{j}")
                epilogue.write(kernel, block, value, Index(epilogue.result.shape, block.let("int", place)))
    return kernel.launch_items("Winograd pictures", (product.node,), code, epilogue, total, local, contract=True)
