# SPDX-License-Identifier: Apache-2.0
"""Few rows times a weight of 4 bits on a GPU: the weight is read once, packed, columns side by side."""

from __future__ import annotations

from hexforge.backends.gpu.kernels.blocks import BLOCK, FourBitWeight
from hexforge.backends.gpu.kernels.launch import Epilogue, Kernel, Launch
from hexforge.backends.gpu.kernels.product import Product, Results, argument

MOST_ROWS = 4
_COLUMNS, _SLICES = 32, 8


def vector_product(kernel: Kernel, product: Product, weight: FourBitWeight, epilogue: Epilogue) -> Launch:
    """A work-item takes a column and every eighth block; the slices are added up in local memory, in their order."""
    rows, n = product.m, product.n
    a, storage = argument(kernel, product.a), product.a.storage
    numbers, scales, offsets = weight.names(kernel)
    code = kernel.code()
    code.add(f"const int lane = get_local_id(0) % {_COLUMNS}, slice = get_local_id(0) / {_COLUMNS};")
    code.add(f"const int column = get_group_id(0) * {_COLUMNS} + lane, n = min(column, {n - 1});")
    code.add(f"local float shared[{_SLICES}][{rows}][{_COLUMNS}];")
    code.add(f"float acc[{rows}]; for (int r = 0; r < {rows}; r++) acc[r] = 0.0f;")
    code.add(f"for (int b = slice; b < {weight.depth // BLOCK}; b += {_SLICES}) {{")
    code.add(f"  const int at = b * {n} + n, offset = {offsets}[at];")
    code.add(f"  uint words[4]; vstore4(*(global const uint4*)({numbers} + at * 8), 0, words);")
    code.add(f"  float part[{rows}]; for (int r = 0; r < {rows}; r++) part[r] = 0.0f;")
    code.add("#pragma unroll")
    code.add(f"  for (int k = 0; k < {BLOCK}; k++) {{")
    code.add("    const float q = (float)((int)(words[k / 8] >> (k % 8 * 4) & 15) + offset);")
    load = storage.load(a, f"(r * {product.a.row} + b * {BLOCK} + k)")
    code.add(f"    for (int r = 0; r < {rows}; r++) part[r] = fma({load}, q, part[r]);")
    code.add("  }")
    code.add(f"  for (int r = 0; r < {rows}; r++) acc[r] = fma(part[r], {scales}[at], acc[r]);")
    code.add("}")
    code.add(f"for (int r = 0; r < {rows}; r++) shared[slice][r][lane] = acc[r];")
    code.add("barrier(CLK_LOCAL_MEM_FENCE);")
    code.add(f"if (slice || column >= {n}) return;")
    results = Results.of(kernel, code, product, epilogue, ("0",))
    with code.block(f"for (int r = 0; r < {rows}; r++)") as row:
        row.add("float total = 0.0f;")
        row.add(f"for (int s = 0; s < {_SLICES}; s++) total += shared[s][r][lane];")
        results.finish(row, "r", "column", "total")
    threads = _COLUMNS * _SLICES
    return kernel.launch(
        f"{product.node.op.name} 4 bits", (product.node, *epilogue.nodes), kernel.text("\n".join(code.lines)),
        (epilogue.out,), (-(-n // _COLUMNS) * threads,), (threads,), product.flops,
    )  # fmt: skip
