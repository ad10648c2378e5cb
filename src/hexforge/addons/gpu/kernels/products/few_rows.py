# SPDX-License-Identifier: Apache-2.0
"""Few rows times a weight on a GPU: the weight is read once, columns side by side, its depth shared by work-items."""

from __future__ import annotations

from hexforge.addons.gpu.kernels.code import KernelCode
from hexforge.addons.gpu.kernels.launch import Epilogue, Kernel, Launch
from hexforge.addons.gpu.kernels.products.blocks import BLOCK, FourBitWeight
from hexforge.addons.gpu.kernels.products.product import HALF_RUN, Product, Results, argument

MOST_ROWS = 4
MOST_DEPTH = 4096
"""Elements that are summed up at most where the weight is no 4-bit one: more are cut between work-groups."""
_ITEMS, _STEP = 512, HALF_RUN
_COLUMNS = (32, 16, 8)
"""Columns of a work-group: eight neighbours are still what memory gives at once."""


def suits(product: Product) -> bool:
    """Whether few rows are multiplied by columns that lie side by side."""
    few = (
        product.m <= MOST_ROWS
        and product.window is None
        and product.rows is None
        and product.batch == (1,)
        and product.a.column == 1
    )
    return few and (product.b.packed is not None or (product.b.column == 1 and product.k <= MOST_DEPTH))


def vector_product(kernel: Kernel, product: Product, epilogue: Epilogue, units: int, most_items: int) -> Launch:
    """A work-item takes a column and a slice of the depth; the slices are added up in local memory, in their order."""
    rows, n = product.m, product.n
    narrow = next((c for c in _COLUMNS if -(-n // c) >= units), _COLUMNS[-1])
    columns = _COLUMNS[0] if product.b.packed is not None else narrow
    slices = max(1, min(_ITEMS, most_items) // columns)
    code = kernel.code()
    code.add(f"const int lane = get_local_id(0) % {columns}, slice = get_local_id(0) / {columns};")
    code.add(f"const int column = get_group_id(0) * {columns} + lane, n = min(column, {n - 1});")
    code.add(f"local float shared[{slices}][{rows}][{columns}];")
    code.add(f"float acc[{rows}]; for (int r = 0; r < {rows}; r++) acc[r] = 0.0f;")
    if product.b.packed is not None:
        _unpacked(kernel, code, product, product.b.packed, slices)
    else:
        _plain(kernel, code, product, slices)
    code.add(f"for (int r = 0; r < {rows}; r++) shared[slice][r][lane] = acc[r];")
    code.add("barrier(CLK_LOCAL_MEM_FENCE);")
    code.add(f"if (slice || column >= {n}) return;")
    results = Results.of(kernel, code, product, epilogue, ("0",))
    with code.block(f"for (int r = 0; r < {rows}; r++)") as row:
        row.add("float total = 0.0f;")
        row.add(f"for (int s = 0; s < {slices}; s++) total += shared[s][r][lane];")
        results.finish(row, "r", "column", "total")
    threads = columns * slices
    kind = "4 bits" if product.b.packed is not None else "few rows"
    return kernel.launch(
        f"{product.node.op.name} {kind}", (product.node,), code, epilogue, (-(-n // columns) * threads,), (threads,),
        product.flops,
    )  # fmt: skip


def _plain(kernel: Kernel, code: KernelCode, product: Product, slices: int) -> None:
    a, storage, real = argument(kernel, product.a), product.a.storage, kernel.elements.real
    sums = _begin_run(
        code, f"for (int k0 = slice * {_STEP}; k0 < {product.k}; k0 += {slices * _STEP}) {{", product.m, real
    )
    code.add("#pragma unroll")
    code.add(f"  for (int i = 0; i < {_STEP}; i++) {{")
    code.add(f"    const int k = min(k0 + i, {product.k - 1});")
    weight = product.b.read(kernel, f"({product.b.offset} + k * {product.b.row} + n)", 1, real)
    inside = f"k0 + i < {product.k} ? {weight} : ({real})0.0f"
    code.add(f"    const {real} w = {inside if product.k % _STEP else weight};")
    load = storage.load(a, f"({product.a.offset} + r * {product.a.row} + k)", 1, real)
    code.add(f"    for (int r = 0; r < {product.m}; r++) {sums}[r] = fma({load}, w, {sums}[r]);")
    code.add("  }")
    if real == "half":
        code.add(f"  for (int r = 0; r < {product.m}; r++) acc[r] += (float)run[r];")
    code.add("}")


def _begin_run(code: KernelCode, loop: str, rows: int, real: str) -> str:
    """Begin a loop whose every turn sums up a run of products; the name of its sums."""
    code.add(loop)
    if real == "float":
        return "acc"
    code.add(f"  half run[{rows}]; for (int r = 0; r < {rows}; r++) run[r] = (half)0.0f;")
    return "run"


def _unpacked(kernel: Kernel, code: KernelCode, product: Product, weight: FourBitWeight, slices: int) -> None:
    a, storage, rows, real = argument(kernel, product.a), product.a.storage, product.m, kernel.elements.real
    numbers, scales, offsets = weight.names(kernel)
    code.add(f"for (int b = slice; b < {weight.depth // BLOCK}; b += {slices}) {{")
    code.add(f"  const int at = b * {product.n} + n, offset = {offsets}[at];")
    code.add(f"  uint words[4]; vstore4(*(global const uint4*)({numbers} + at * 8), 0, words);")
    code.add(f"  float part[{rows}]; for (int r = 0; r < {rows}; r++) part[r] = 0.0f;")
    sums, first, end = "part", "0", str(BLOCK)
    if real == "half":
        sums = _begin_run(code, f"for (int k0 = 0; k0 < {BLOCK}; k0 += {HALF_RUN}) {{", rows, real)
        first, end = "k0", f"k0 + {HALF_RUN}"
    code.add("#pragma unroll")
    code.add(f"  for (int k = {first}; k < {end}; k++) {{")
    code.add(f"    const {real} q = ({real})((int)(words[k / 8] >> (k % 8 * 4) & 15) + offset);")
    load = storage.load(a, f"(r * {product.a.row} + b * {BLOCK} + k)", 1, real)
    code.add(f"    for (int r = 0; r < {rows}; r++) {sums}[r] = fma({load}, q, {sums}[r]);")
    code.add("  }")
    if real == "half":
        code.add(f"  for (int r = 0; r < {rows}; r++) part[r] += (float)run[r];")
        code.add("}")
    code.add(f"  for (int r = 0; r < {rows}; r++) acc[r] = fma(part[r], {scales}[at], acc[r]);")
    code.add("}")
