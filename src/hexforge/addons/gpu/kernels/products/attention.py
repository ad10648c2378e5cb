# SPDX-License-Identifier: Apache-2.0
"""Attention: softmax(Q K) V in one kernel, whose scores are never written.

Keys are gone through a block at a time. Each row keeps its largest score so far, and what was summed up under a smaller
one is scaled down when a larger one comes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from hexforge.addons.gpu.kernels.code import Index, KernelCode, literal
from hexforge.addons.gpu.kernels.launch import Epilogue, Kernel, Launch
from hexforge.addons.gpu.kernels.products.product import Matrix, Product, Results, argument, batch_axes, operand_base
from hexforge.ir import Node

LARGEST = 128
"""Elements of a head at most: more has no room in local memory."""
_THREADS = 256
_ROWS, _KEYS = 8, 8


@dataclass(frozen=True, slots=True)
class Attention:
    """What is computed: a product of queries and keys, what happens to its scores, and a product with values."""

    scores: Product
    chain: Epilogue
    softmax: Node
    mixed: Product

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Every node of it."""
        return (self.scores.node, *self.chain.chain, self.softmax, self.mixed.node)

    @property
    def flops(self) -> int:
        """Additions and multiplications of both products."""
        return self.scores.flops + self.mixed.flops

    def score(self, kernel: Kernel, code: KernelCode, batch: str, row: str, column: str, sum: str) -> str:
        """A score as the softmax takes it; keys past the end weigh nothing."""
        m, n = self.scores.m, self.scores.n
        at = code.let("int", f"({batch} * {m} + min({row}, {m - 1})) * {n} + min({column}, {n - 1})")
        value, _ = self.chain.value(kernel, code, sum, Index(self.chain.result.shape, at))
        beta = self.softmax.params["beta"]
        scaled = value if beta == 1 else f"{value} * {literal(beta, 'float')}"
        return code.let("float", f"{column} < {n} ? {scaled} : -INFINITY")


def _rescale(code: KernelCode, row: str, highest: str) -> None:
    """Take a new largest score of a row: `scale` for what was summed up before, `most` to subtract from scores."""
    code.add(f"const float high = fmax(top[{row}], {highest});")
    code.add("const float most = high == -INFINITY ? 0.0f : high;")
    code.add(f"const float scale = exp(top[{row}] - most); top[{row}] = high;")


# -- processors --------------------------------------------------------------------------------------------------------


def register_attention(kernel: Kernel, attention: Attention, epilogue: Epilogue) -> Launch:
    """Attention on a processor: a work-item takes some rows of one head."""
    scores, mixed = attention.scores, attention.mixed
    batches, d, dv = math.prod(scores.batch), scores.depth, mixed.n
    q, k, v = (argument(kernel, x) for x in (scores.a, scores.b, mixed.b))
    code = kernel.code()
    code.add(f"const int first = get_global_id(0) * {_ROWS}, z = get_global_id(1);")
    batch = batch_axes(code, scores, "z")
    q_base, k_base, v_base = (operand_base(code, x, batch) for x in (scores.a, scores.b, mixed.b))
    code.add(f"float8 acc[{_ROWS}][{dv // 8}]; float top[{_ROWS}], sum[{_ROWS}];")
    code.add(f"for (int r = 0; r < {_ROWS}; r++) {{ top[r] = -INFINITY; sum[r] = 0.0f;")
    code.add(f"  for (int c = 0; c < {dv // 8}; c++) acc[r][c] = (float8)(0.0f); }}")
    code.add(f"for (int n0 = 0; n0 < {scores.n}; n0 += {_KEYS}) {{")
    code.add(f"float8 keys[{d}]; float e[{_ROWS}][{_KEYS}];")
    at = f"({k_base} + min(n0 + j, {scores.n - 1}) * {scores.b.column} + i * {scores.b.row})"
    load = scores.b.storage.load(k, at)
    code.add(
        f"for (int j = 0; j < {_KEYS}; j++) for (int i = 0; i < {d}; i++) ((private float*)keys)[i * 8 + j] = {load};"
    )
    for r in range(_ROWS):
        code.add(f"const int q{r} = {q_base} + min(first + {r}, {scores.m - 1}) * {scores.a.row}; float8 s{r} = 0.0f;")
    code.add(f"for (int i = 0; i < {d}; i++) {{ const float8 key = keys[i];")
    for r in range(_ROWS):
        code.add(f"  s{r} += {scores.a.storage.load(q, f'(q{r} + i * {scores.a.column})')} * key;")
    code.add("}")
    for r in range(_ROWS):
        code.add(f"vstore8(s{r}, 0, e[{r}]);")
    with code.block(f"for (int r = 0; r < {_ROWS}; r++)") as row:
        row.add("float highest = -INFINITY;")
        with row.block(f"for (int j = 0; j < {_KEYS}; j++)") as item:
            item.add(f"e[r][j] = {attention.score(kernel, item, 'z', 'first + r', 'n0 + j', 'e[r][j]')};")
            item.add("highest = fmax(highest, e[r][j]);")
        _rescale(row, "r", "highest")
        row.add("const float8 p = exp(vload8(0, e[r]) - most); vstore8(p, 0, e[r]);")
        row.add("sum[r] = sum[r] * scale + (((p.s0 + p.s1) + (p.s2 + p.s3)) + ((p.s4 + p.s5) + (p.s6 + p.s7)));")
        row.add(f"for (int c = 0; c < {dv // 8}; c++) acc[r][c] *= scale;")
    value = _eight(mixed.b, v, f"{v_base} + min(n0 + j, {scores.n - 1}) * {mixed.b.row}")
    code.add(f"for (int j = 0; j < {_KEYS}; j++) for (int c = 0; c < {dv // 8}; c++) {{ const float8 value = {value};")
    code.add(f"  for (int r = 0; r < {_ROWS}; r++) acc[r][c] += e[r][j] * value; }}")
    code.add("}")
    results = Results.of(kernel, code, mixed, epilogue, batch)
    rows = f"for (int r = 0; r < {_ROWS} && first + r < {scores.m}; r++)"
    with code.block(f"{rows} for (int c = 0; c < {dv // 8}; c++)") as column:
        result = column.let("float8", "acc[r][c] / sum[r]")
        results.store(column, "(first + r)", "c * 8", result, 8)
    return kernel.launch(
        f"Attention {_ROWS}x{_KEYS}", attention.nodes, code, epilogue, (-(-scores.m // _ROWS), batches), (1, 1),
        attention.flops, contract=True,
    )  # fmt: skip


def _eight(operand: Matrix, buffer: str, row: str) -> str:
    """Columns c * 8 to c * 8 + 7 of a row."""
    aligned = all(s % 8 == 0 for s in (operand.row, operand.offset, *operand.batch))
    if operand.column == 1 and aligned:
        return operand.storage.load(buffer, f"({row} + c * 8)", 8)
    items = (operand.storage.load(buffer, f"({row} + (c * 8 + {i}) * {operand.column})") for i in range(8))
    return f"(float8)({', '.join(items)})"


# -- GPUs --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AttentionTile:
    """Rows of queries and keys that a work-group has in local memory at a time."""

    rows: int
    keys: int

    @property
    def across(self) -> int:
        """Work-items that share a row."""
        return _THREADS // self.rows

    def sizes(self, attention: Attention) -> dict[str, int]:
        """Elements of queries, keys, values, scores and weights in local memory."""
        row, weights = _padded(attention.scores.depth), self.rows * (self.keys + 1)
        return {
            "q": self.rows * row,
            "k": self.keys * row,
            "v": self.keys * attention.mixed.n,
            "s": weights,
            "p": weights,
        }

    def local_bytes(self, attention: Attention) -> int:
        """What it takes of local memory."""
        return 4 * sum(self.sizes(attention).values())


def attention_tile(attention: Attention, units: int, local_bytes: int) -> AttentionTile:
    """The largest tile that fits into local memory and leaves no unit idle."""
    batches, rows = math.prod(attention.scores.batch), attention.scores.m
    tiles = [AttentionTile(r, k) for r, k in ((32, 32), (16, 32), (32, 16), (16, 16), (32, 8))]
    tiles = [t for t in tiles if attention.mixed.n % t.across == 0]
    fitting = [t for t in tiles if t.local_bytes(attention) <= local_bytes] or tiles[-1:]
    busy = [t for t in fitting if batches * -(-rows // t.rows) >= 2 * units]
    return busy[0] if busy else next((t for t in fitting if t.rows == 16), fitting[-1])


def tiled_attention(kernel: Kernel, attention: Attention, epilogue: Epilogue, tile: AttentionTile) -> Launch:
    """Attention on a GPU: a work-group takes a tile of rows of one head, `across` work-items a row."""
    scores, mixed = attention.scores, attention.mixed
    batches, dv = math.prod(scores.batch), mixed.n
    width = next(w for w in (4, 2, 1) if dv % (tile.across * w) == 0)
    chunks, vector = dv // (tile.across * width), "float" if width == 1 else f"float{width}"
    code = kernel.code()
    code.add(f"const int lane = get_local_id(0), ty = lane / {tile.across}, tx = lane % {tile.across};")
    code.add(f"const int row0 = get_group_id(0) * {tile.rows}, z = get_group_id(1);")
    batch = batch_axes(code, scores, "z")
    bases = [operand_base(code, x, batch) for x in (scores.a, scores.b, mixed.b)]
    for name, size in tile.sizes(attention).items():
        code.add(f"local float {name}_tile[{size}] __attribute__((aligned(16)));")
    code.add(f"{vector} acc[{chunks}]; float top[1] = {{-INFINITY}}, sum = 0.0f;")
    code.add(f"for (int c = 0; c < {chunks}; c++) acc[c] = ({vector})(0.0f);")
    row = _padded(scores.depth)
    _load_rows(kernel, code, scores.a, bases[0], "q", (tile.rows, scores.depth, row), ("row0", scores.m))
    keys = replace(scores.b, row=scores.b.column, column=scores.b.row)
    code.add(f"for (int n0 = 0; n0 < {scores.n}; n0 += {tile.keys}) {{")
    _load_rows(kernel, code, keys, bases[1], "k", (tile.keys, scores.depth, row), ("n0", scores.n))
    _load_rows(kernel, code, mixed.b, bases[2], "v", (tile.keys, dv, dv), ("n0", scores.n))
    code.add("barrier(CLK_LOCAL_MEM_FENCE);")
    _score_weights(kernel, code, attention, tile, chunks)
    code.add("#pragma unroll 8")
    code.add(f"for (int j = 0; j < {tile.keys}; j++) {{")
    code.add(f"  const float p = p_tile[ty * {tile.keys + 1} + j]; sum += p;")
    value = f"*(local {vector}*)(v_tile + j * {dv} + c * {tile.across * width} + tx * {width})"
    code.add(f"  for (int c = 0; c < {chunks}; c++) acc[c] = fma(({vector})(p), {value}, acc[c]);")
    code.add("}")
    code.add("barrier(CLK_LOCAL_MEM_FENCE);")
    code.add("}")
    code.add(f"if (row0 + ty >= {scores.m}) return;")
    results = Results.of(kernel, code, mixed, epilogue, batch)
    for c in range(chunks):
        result = code.let(vector, f"acc[{c}] / sum")
        column = code.let("int", f"{c * tile.across * width} + tx * {width}")
        if width > 1:
            results.store(code, "(row0 + ty)", column, result, width)
        else:
            results.finish(code, "(row0 + ty)", column, result)
    attributes = f"__attribute__((reqd_work_group_size({_THREADS}, 1, 1))) "
    groups = (-(-scores.m // tile.rows) * _THREADS, batches)
    return kernel.launch(
        f"Attention {tile.rows}x{tile.keys}", attention.nodes, code, epilogue, groups, (_THREADS, 1), attention.flops,
        attributes=attributes,
    )  # fmt: skip


def _score_weights(kernel: Kernel, code: KernelCode, attention: Attention, tile: AttentionTile, chunks: int) -> None:
    """The weights of a block of keys in p_tile, and what was summed up before brought to their scale."""
    each, row, depth = tile.keys // tile.across, _padded(attention.scores.depth), attention.scores.depth
    step = 4 if depth % 4 == 0 else 1
    vector = "float4" if step == 4 else "float"
    code.add(f"float s[{each}]; for (int j = 0; j < {each}; j++) s[j] = 0.0f;")
    code.add("#pragma unroll 4")
    code.add(f"for (int k = 0; k < {depth}; k += {step}) {{")
    code.add(f"  const {vector} q = *(local {vector}*)(q_tile + ty * {row} + k);")
    code.add(f"  for (int j = 0; j < {each}; j++) {{")
    code.add(f"    const {vector} key = *(local {vector}*)(k_tile + (j * {tile.across} + tx) * {row} + k);")
    for part in (".s0", ".s1", ".s2", ".s3") if step == 4 else ("",):
        code.add(f"    s[j] = fma(q{part}, key{part}, s[j]);")
    code.add("  }")
    code.add("}")
    with code.block(f"for (int j = 0; j < {each}; j++)") as item:
        column = item.let("int", f"n0 + j * {tile.across} + tx")
        item.add(f"s[j] = {attention.score(kernel, item, 'z', '(row0 + ty)', column, 's[j]')};")
        item.add(f"s_tile[ty * {tile.keys + 1} + j * {tile.across} + tx] = s[j];")
    code.add("barrier(CLK_LOCAL_MEM_FENCE);")
    code.add("float highest = -INFINITY;")
    code.add("#pragma unroll 8")
    code.add(f"for (int j = 0; j < {tile.keys}; j++) highest = fmax(highest, s_tile[ty * {tile.keys + 1} + j]);")
    _rescale(code, "0", "highest")
    code.add(f"for (int j = 0; j < {each}; j++)")
    code.add(f"  p_tile[ty * {tile.keys + 1} + j * {tile.across} + tx] = exp(s[j] - most);")
    code.add(f"sum *= scale; for (int c = 0; c < {chunks}; c++) acc[c] *= scale;")
    code.add("barrier(CLK_LOCAL_MEM_FENCE);")


def _padded(depth: int) -> int:
    """Elements from one row in local memory to the next: neighbours begin in other banks."""
    return depth + 4


def _load_rows(
    kernel: Kernel, code: KernelCode, operand: Matrix, base: str, name: str, size: tuple[int, int, int],
    range: tuple[str, int],
) -> None:  # fmt: skip
    """Bring rows of an operand into local memory, four neighbours at a time where they are that in memory too."""
    rows, length, step = size
    first, limit = range
    aligned = all(n % 4 == 0 for n in (length, step, operand.row, operand.offset, *operand.batch))
    width = 4 if aligned and operand.column == 1 else 1
    per_row = length // width
    split = (f"o = t / {per_row}, i = t % {per_row} * {width}", f"i = t / {rows}, o = t % {rows}")[operand.row == 1]
    at = f"({base} + min({first} + o, {limit - 1}) * {operand.row} + i * {operand.column})"
    load = operand.storage.load(argument(kernel, operand), at, width)
    target = f"*(local float4*)({name}_tile + o * {step} + i)" if width == 4 else f"{name}_tile[o * {step} + i]"
    code.add("#pragma unroll 4")
    code.add(f"for (int t = lane; t < {rows * per_row}; t += {_THREADS}) {{")
    code.add(f"  const int {split}; {target} = {load};")
    code.add("}")
