# SPDX-License-Identifier: Apache-2.0
"""Products on processors: each work-item keeps a few rows and columns of sums in registers; caches do the rest."""

from __future__ import annotations

import math

from hexforge.addons.gpu.kernels.code import KernelCode
from hexforge.addons.gpu.kernels.launch import Constant, Epilogue, Kernel, Launch
from hexforge.addons.gpu.kernels.products.product import (
    HALF_RUN,
    ConvWindow,
    Product,
    Results,
    argument,
    batch_axes,
    operand_base,
    window_read,
    window_row,
)

ROWS, WIDTH, VECTORS = 6, 8, 2
"""A work-item's sums: rows at most, by vectors of so many columns."""
COLUMNS = WIDTH * VECTORS
"""Columns of a panel of weights."""


def register_product(kernel: Kernel, product: Product, epilogue: Epilogue, zeros: Constant) -> Launch:
    """A product for processors; a packed right side is in panels of columns, any other is read through its strides."""
    rows, batches = min(ROWS, product.m), math.prod(product.batch)
    panels, blocks = -(-product.n // COLUMNS), -(-product.m // rows)
    code, real = kernel.code(), kernel.elements.real
    a, window = argument(kernel, product.a), product.window
    code.add("const int panel = get_global_id(0), block = get_global_id(1);")
    batch = batch_axes(code, product, "get_global_id(2)" if batches > 1 else "0")
    code.add(f"const int first = block * {rows};")
    a_base = operand_base(code, product.a, batch)
    right = _RightSide(kernel, code, product, operand_base(code, product.b, batch))
    for r in range(rows):
        code.add(f"const int m{r} = min(first + {r}, {product.m - 1});")
        if window is not None:
            window_row(code, window, f"m{r}", f"r{r}")
        for v in range(VECTORS):
            code.add(f"float{WIDTH} c{r}_{v} = (float{WIDTH})(0.0f);")
            if real == "half":
                code.add(f"half{WIDTH} h{r}_{v} = (half{WIDTH})((half)0.0f);")
    loops = _tap_loops(code, window)
    pointer = f"global const {product.a.storage.type}*"
    for r in range(rows):
        if window is not None:
            inside, place = window_read(window, f"r{r}", _taps(window))
            read = f"{a} + {a_base} + {place}"
            zero = kernel.source(zeros).name if inside else ""
            code.add(f"{pointer} p{r} = {f'({inside}) ? {read} : {zero}' if inside else read};")
        else:
            code.add(f"{pointer} p{r} = {a} + {a_base} + m{r} * {product.a.row};")
    right.begin_tap(code)
    code.add(f"for (int c = 0; c < {product.depth}; c++) {{")
    step = product.a.column if window is None else 1
    for v in range(VECTORS):
        right.load(code, v)
    for r in range(rows):
        load = product.a.storage.load(f"p{r}", "c" if step == 1 else f"c * {step}", 1, real)
        code.add(f"  const {real} a{r} = {load};")
        for v in range(VECTORS):
            half = f"h{r}_{v} = fma((half{WIDTH})(a{r}), b{v}, h{r}_{v});"
            code.add(f"  {half}" if real == "half" else f"  c{r}_{v} += a{r} * b{v};")
    right.advance(code)
    if real == "half":
        _end_runs(code, rows, product.depth)
    code.add("}")
    code.lines += ["}"] * loops
    results = Results.of(kernel, code, product, epilogue, batch)
    for r in range(rows):
        with code.block(f"if (first + {r} < {product.m})") as inner:
            for v in range(VECTORS):
                results.store(inner, f"m{r}", f"panel * {COLUMNS} + {v * WIDTH}", f"c{r}_{v}", WIDTH)
    return kernel.launch(
        f"{product.node.op.name} {rows}x{COLUMNS}", (product.node,), code, epilogue, (panels, blocks, batches),
        (1, 1, 1), product.flops, contract=True,
    )  # fmt: skip


def _end_runs(code: KernelCode, rows: int, depth: int) -> None:
    """Add sums in half to those in float, after each run and at the end of a tap."""
    code.add(f"  if (c % {HALF_RUN} == {HALF_RUN - 1} || c == {depth - 1}) {{")
    for name in (f"{r}_{v}" for r in range(rows) for v in range(VECTORS)):
        code.add(f"    c{name} += convert_float{WIDTH}(h{name}); h{name} = (half{WIDTH})((half)0.0f);")
    code.add("  }")


def _taps(window: ConvWindow) -> tuple[str, ...]:
    return tuple(f"k{i}" if n > 1 else "0" for i, n in enumerate(window.taps))


def _tap_loops(code: KernelCode, window: ConvWindow | None) -> int:
    """Begin a loop over each axis of taps; how many there are."""
    loops = [] if window is None else [(t, n) for t, n in zip(_taps(window), window.taps, strict=True) if n > 1]
    for depth, (tap, n) in enumerate(loops):
        code.add("  " * depth + f"for (int {tap} = 0; {tap} < {n}; {tap}++) {{")
    return len(loops)


class _RightSide:
    """How a panel of B's columns is read: one row of it after the other."""

    def __init__(self, kernel: Kernel, code: KernelCode, product: Product, base: str) -> None:
        self.product, self.base, self.real = product, base, kernel.elements.real
        self.buffer, self.storage = argument(kernel, product.b), product.b.storage
        self.packed = isinstance(product.b.value, Constant)
        self.blocks = product.b.packed
        if self.blocks is not None:
            self.blocks.begin(kernel, code, COLUMNS)
        elif self.packed:
            begin = f"{self.buffer} + {base} + panel * {COLUMNS * product.k}"
            code.add(f"global const {self.storage.type}* w = {begin};")

    def begin_tap(self, code: KernelCode) -> None:
        """The first row of a tap."""
        window = self.product.window
        if self.packed or window is None:
            return
        tap = "0"
        for name, n in zip(_taps(window), window.taps, strict=True):
            tap = f"({tap} * {n} + {name})"
        code.add(f"const int tap = {tap} * {self.product.depth};")

    def load(self, code: KernelCode, v: int) -> None:
        """Vector `v` of row `c`, as b<v>."""
        b, n = self.product.b, self.product.n
        if self.blocks is not None:
            if v == 0:
                self.blocks.load_row(code, self.real)
            return
        if self.packed:
            row = self.storage.load("w", str(v * WIDTH), WIDTH, self.real)
            code.add(f"  const {self.real}{WIDTH} b{v} = {row};")
            return
        row = f"(c + tap) * {b.row}" if self.product.window is not None else f"c * {b.row}"
        code.add(f"  {self.real}{WIDTH} b{v};")
        code.add(f"  const int n{v} = panel * {COLUMNS} + {v * WIDTH};")
        aligned = n % WIDTH == 0 and b.column == 1 and b.row % WIDTH == 0 and all(s % WIDTH == 0 for s in b.batch)
        if aligned:
            guard = "1" if n % COLUMNS == 0 else f"n{v} < {n}"
            whole = self.storage.load(self.buffer, f"({self.base} + {row} + n{v})", WIDTH, self.real)
            code.add(f"  if ({guard}) b{v} = {whole}; else {{")
        else:
            code.add("  {")
        at = f"({self.base} + {row} + min(n{v} + j, {n - 1}) * {b.column})"
        one = self.storage.load(self.buffer, at, 1, self.real)
        code.add(f"    {self.real} e[{WIDTH}]; for (int j = 0; j < {WIDTH}; j++) e[j] = {one};")
        code.add(f"    b{v} = vload{WIDTH}(0, e); }}")

    def advance(self, code: KernelCode) -> None:
        """Go to the next row."""
        if self.packed and self.blocks is None:
            code.add(f"  w += {COLUMNS};")
