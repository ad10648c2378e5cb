# SPDX-License-Identifier: Apache-2.0
"""Products on GPUs: work-groups bring tiles of both operands into local memory, two at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from hexforge.addons.gpu.kernels.code import FLOAT, Index, KernelCode
from hexforge.addons.gpu.kernels.launch import Epilogue, Kernel, Launch, Scratch, rounded_up
from hexforge.addons.gpu.kernels.products.product import (
    HALF_RUN,
    ConvWindow,
    DepthwiseRows,
    Matrix,
    Product,
    Results,
    batch_axes,
    operand_base,
    window_read,
    window_row,
)

_PAD = 4
"""Elements between rows of a tile, so that neighbours do not fall into one bank."""


@dataclass(frozen=True, slots=True)
class ProductTile:
    """How a product is cut: a work-group makes bm x bn elements, a work-item tm x tn of them, bk deep at a time.

    `slices` groups of work-items in a work-group each sum up a part of every depth, `parts` work-groups a part of all.
    """

    bm: int
    bn: int
    bk: int
    tm: int
    tn: int
    slices: int = 1
    parts: int = 1
    real: str = "float"
    """What tiles hold and are multiplied in; sums are float."""

    @property
    def name(self) -> str:
        """As the cache of measurements has it."""
        cut = f":{self.slices}x{self.parts}" if self.cut else ""
        return f"{self.bm}x{self.bn}x{self.bk}:{self.tm}x{self.tn}{cut}"

    @property
    def threads(self) -> int:
        """Work-items of a work-group."""
        return (self.bm // self.tm) * (self.bn // self.tn) * self.slices

    @property
    def buffers(self) -> int:
        """Tiles of an operand in local memory: one is multiplied while the next comes, where there is room for two."""
        return 2 if self.slices <= 4 else 1

    @property
    def local_bytes(self) -> int:
        """What it takes of local memory."""
        return (2 if self.real == "half" else 4) * self.slices * self.pool

    @property
    def pool(self) -> int:
        """Elements of all tiles of a slice."""
        return self.buffers * self.bk * (self.bm + self.bn + 2 * _PAD)

    @property
    def cut(self) -> bool:
        """Whether the depth is shared between several work-items."""
        return self.slices > 1 or self.parts > 1


@dataclass(slots=True)
class _TileLoader:
    """Statements that bring a tile of an operand into registers (`load`) and from there into local memory (`put`)."""

    kernel: Kernel
    product: Product
    operand: Matrix
    tile: ProductTile
    is_a: bool
    base: str
    setup: list[str] = field(default_factory=list)
    load: list[str] = field(default_factory=list)
    put: list[str] = field(default_factory=list)

    @property
    def outer(self) -> int:
        """Rows of A or columns of B in a tile."""
        return self.tile.bm if self.is_a else self.tile.bn

    @property
    def limit(self) -> int:
        """Rows of A or columns of B altogether."""
        return self.product.m if self.is_a else self.product.n

    @property
    def window(self) -> ConvWindow | None:
        """How rows read an input, where A is never written."""
        return self.product.window if self.is_a else None

    @property
    def steps(self) -> tuple[int, int]:
        """Elements from one row (of A) or column (of B) to the next, and from one depth to the next."""
        row, column = self.operand.row, self.operand.column
        return (row, column) if self.is_a else (column, row)

    def _vectors(self, along_depth: bool) -> int:
        """Neighbours that are loaded at once."""
        outer_step, depth_step = self.steps
        window, depth = self.window, self.product.depth
        if any(s % 4 for s in self.operand.batch) or self.operand.offset % 4:
            return 1
        if not along_depth:
            fits = outer_step == 1 and self.limit % 4 == 0 and depth_step % 4 == 0 and self.outer % 4 == 0
        elif window is not None:
            fits = depth % 4 == 0 and window.channels % 4 == 0 and not window.planes
        else:
            fits = depth % 4 == 0 and depth_step == 1 and outer_step % 4 == 0
        return 4 if fits and self.tile.bk % 4 == 0 else 1

    def written(self, around: KernelCode) -> _TileLoader:
        """The loader with its statements."""
        outer_step, depth_step = self.steps
        along_depth = self.window is not None or depth_step == 1 or outer_step != 1
        width = self._vectors(along_depth)
        per_row = (self.tile.bk if along_depth else self.outer) // width
        count = (self.outer if along_depth else self.tile.bk) * per_row
        threads = self.tile.threads // self.tile.slices
        rounds = -(-count // threads)
        for i in range(rounds):
            slot = f"{'a' if self.is_a else 'b'}{i}"
            busy = "" if count % threads == 0 or i < rounds - 1 else f"{slot}_at < {count}"
            self.setup.append(f"const int {slot}_at = lane + {i * threads};")
            self.setup.append(f"{_vector(width, self.tile.real)} {slot};")
            conditions, place = (self._along if along_depth else self._across)(around, slot, per_row, width)
            guard = " && ".join(c for c in (*conditions, busy) if c)
            if self.is_a and self.product.rows is not None:
                self._compute(around, self.product.rows, slot, width, guard)
            else:
                real = self.tile.real
                read = self.operand.read(self.kernel, f"({self.base} + {place})", width, real)
                if self.is_a and self.product.scaled is not None:
                    channel = f"k0 + {slot}_k"
                    read = self.product.scaled.times(self.kernel, read, f"{slot}_row", channel, width)
                zero = f"({_vector(width, real)})({'(half)' if real == 'half' else ''}0.0f)"
                self.load.append(f"{slot} = {f'({guard}) ? {read} : {zero}' if guard else read};")
            self.put.append((f"if ({busy}) " if busy else "") + self._puts(slot, along_depth, width))
        return self

    def _depth_bound(self, slot: str) -> list[str]:
        whole = self.product.k % self.tile.bk == 0 and not self.tile.cut
        return [] if whole else [f"k0 + {slot}_k < {self.product.k}"]

    def _along(self, around: KernelCode, slot: str, per_row: int, width: int) -> tuple[list[str], str]:
        """Neighbours along the depth: conditions, and where they are."""
        outer_step, depth_step = self.steps
        first = "row0" if self.is_a else "col0"
        self.setup.append(f"const int {slot}_o = {slot}_at / {per_row}, {slot}_k = ({slot}_at % {per_row}) * {width};")
        self.setup.append(f"const int {slot}_row = min({first} + {slot}_o, {self.limit - 1});")
        if self.window is None:
            deep = f"(k0 + {slot}_k)" + (f" * {depth_step}" if depth_step != 1 else "")
            return self._depth_bound(slot), f"{slot}_row * {outer_step} + {deep}"
        code = self.kernel.code()
        code._counter = around._counter
        window_row(code, self.window, f"{slot}_row", f"{slot}r")
        self.setup += [line.strip() for line in code.lines]
        conditions, place, lines = _tap_read(self.product, self.window, slot)
        self.load += lines
        return conditions, place

    def _compute(self, around: KernelCode, rows: DepthwiseRows, slot: str, width: int, guard: str) -> None:
        """Elements of a row that a depthwise convolution gives: every tap that is inside, the bias and the chain."""
        node, type = rows.node, _vector(width)
        at = self.kernel.code()
        at._counter = around._counter
        window_row(at, rows.window, f"{slot}_row", f"{slot}r")
        self.setup += [line.strip() for line in at.lines]
        code = self.kernel.code(width)
        code._counter = around._counter
        channel = f"(k0 + {slot}_k)"
        x, filters, bias = (*node.inputs, None)[:3]
        assert x is not None
        assert filters is not None
        code.add(f"{type} sum = ({type})(0.0f);")
        for i in range(rows.window.taps[0]):
            for j in range(rows.window.taps[1]):
                inside, place = window_read(rows.window, f"{slot}r", (str(i), str(j)))
                load = self.operand.read(self.kernel, f"({place} + {channel})", width)
                tap = f"({(i * rows.window.taps[1] + j) * rows.window.channels} + {channel})"
                weight = self.kernel.source(filters).load(tap, width)
                value = f"(({inside}) ? {load} : ({type})(0.0f))" if inside else load
                code.add(f"sum = fma({value}, {weight}, sum);")
        result = "sum"
        if bias is not None:
            result = code.let(type, f"sum + {self.kernel.source(bias).load(channel, width)}")
        shape = node.outputs[0].shape
        index = Index(shape, f"({slot}_row * {rows.window.channels} + {channel})")
        result, _ = Epilogue(node.outputs[0], rows.chain).value(self.kernel, code, result, index)
        self.load.append(f"{slot} = ({type})(0.0f);")
        self.load.append(
            f"if ({guard or '1'}) {{ {' '.join(line.strip() for line in code.lines)} {slot} = {result}; }}"
        )

    def _across(self, around: KernelCode, slot: str, per_row: int, width: int) -> tuple[list[str], str]:
        """Neighbours along the other axis: conditions, and where they are."""
        first = "row0" if self.is_a else "col0"
        self.setup.append(f"const int {slot}_k = {slot}_at / {per_row}, {slot}_o = ({slot}_at % {per_row}) * {width};")
        conditions = self._depth_bound(slot)
        if self.limit % self.outer:
            conditions.append(f"{first} + {slot}_o < {self.limit}")
        return conditions, f"(k0 + {slot}_k) * {self.steps[1]} + {first} + {slot}_o"

    def _puts(self, slot: str, along_depth: bool, width: int) -> str:
        name, row = slot[0], self.outer + _PAD
        if not along_depth:
            target = f"&{name}_tile[buffer][{slot}_k * {row} + {slot}_o]"
            return f"*(local {self.tile.real}4*)({target}) = {slot};" if width == 4 else f"*({target}) = {slot};"
        parts = [slot] if width == 1 else [f"{slot}.s{j:x}" for j in range(width)]
        stores = (f"{name}_tile[buffer][({slot}_k + {j}) * {row} + {slot}_o] = {part};" for j, part in enumerate(parts))
        return "{ " + " ".join(stores) + " }"


def _vector(width: int, real: str = "float") -> str:
    return real if width == 1 else f"{real}{width}"


def _tap_read(product: Product, window: ConvWindow, slot: str) -> tuple[list[str], str, list[str]]:
    """Conditions, place and statements for element k0 + slot_k of an implicit row."""
    lines = [f"const int {slot}_kk = k0 + {slot}_k;"]
    many = product.taps > 1
    if many:
        lines.append(f"const int {slot}_tap = {slot}_kk / {product.depth};")
        lines.append(f"const int {slot}_c = {slot}_kk - {slot}_tap * {product.depth};")
    channel = f"{slot}_c" if many else f"{slot}_kk"
    taps: list[str] = []
    for i, n in enumerate(window.taps):
        inner = math.prod(window.taps[i + 1 :])
        if n == 1:
            taps.append("0")
            continue
        lines.append(f"const int {slot}_t{i} = ({slot}_tap / {inner}){f' % {n}' if i else ''};")
        taps.append(f"{slot}_t{i}")
    inside, place = window_read(window, f"{slot}r", tuple(taps))
    conditions = [inside] if inside else []
    conditions.append(f"{slot}_kk < {product.k}")
    step = f" * {window.channel_step}" if window.planes else ""
    return conditions, f"{place} + {channel}{step}", lines


def tiled_product(
    kernel: Kernel, product: Product, epilogue: Epilogue, tile: ProductTile, partial: Scratch | None = None
) -> Launch:
    """A product for GPUs; with `partial` each part of the depth is written there instead of the result."""
    code = kernel.code()
    batches, inner = math.prod(product.batch), tile.threads // tile.slices
    sliced = f" % {inner}, slice = get_local_id(0) / {inner}" if tile.slices > 1 else ""
    code.add(f"const int lane = get_local_id(0){sliced};")
    code.add(f"const int row0 = get_group_id(1) * {tile.bm}, col0 = get_group_id(0) * {tile.bn};")
    z = "get_group_id(2)"
    if tile.parts > 1:
        code.add(f"const int part = {z} % {tile.parts};")
        z = f"({z} / {tile.parts})"
    batch = batch_axes(code, product, code.let("int", z) if batches > 1 else "0")
    loaders = [
        _TileLoader(kernel, product, x, tile, is_a, operand_base(code, x, batch)).written(code)
        for x, is_a in ((product.a, True), (product.b, False))
    ]
    _declare_tiles(code, tile)
    for loader in loaders:
        for line in loader.setup:
            code.add(line)
    _sum_up(code, product, tile, loaders)
    if tile.slices > 1:
        _sum_slices(code, tile, inner)
    _store_tile(kernel, code, tile, Results.of(kernel, code, product, epilogue, batch), partial)
    attributes = f"__attribute__((reqd_work_group_size({tile.threads}, 1, 1))) "
    groups = (-(-product.n // tile.bn), -(-product.m // tile.bm), batches * tile.parts)
    return kernel.launch(
        f"{product.node.op.name} {tile.name}", product.nodes, code, (partial,) if partial else epilogue,
        (groups[0] * tile.threads, *groups[1:]), (tile.threads, 1, 1), product.flops, attributes=attributes,
    )  # fmt: skip


def _declare_tiles(code: KernelCode, tile: ProductTile) -> None:
    size_a, size_b = tile.bk * (tile.bm + _PAD), tile.bk * (tile.bn + _PAD)
    code.add(f"local float pool[{tile.local_bytes // 4}] __attribute__((aligned(16)));")
    tiles = "pool" if tile.real == "float" else "(local half*)pool"
    own = f"{tiles} + slice * {tile.pool}" if tile.slices > 1 else tiles
    second = (size_a, 2 * size_a, 2 * size_a + size_b) if tile.buffers == 2 else (0, size_a, size_a)
    code.add(f"local {tile.real}* a_tile[2] = {{{own}, {own} + {second[0]}}};")
    code.add(f"local {tile.real}* b_tile[2] = {{{own} + {second[1]}, {own} + {second[2]}}};")
    across = tile.bn // tile.tn
    code.add(f"const int ty = lane / {across}, tx = lane % {across};")
    code.add(f"float acc[{tile.tm}][{tile.tn}];")
    code.add(f"for (int i = 0; i < {tile.tm}; i++) for (int j = 0; j < {tile.tn}; j++) acc[i][j] = 0.0f;")


def _sum_up(code: KernelCode, product: Product, tile: ProductTile, loaders: list[_TileLoader]) -> None:
    """Go through a work-item's share of the depth: while one tile is multiplied, the next is on its way."""
    share = rounded_up(product.k, tile.bk * tile.slices * tile.parts) // (tile.bk * tile.slices * tile.parts)
    begin = "0"
    if tile.cut:
        which = "slice" if tile.parts == 1 else "part" if tile.slices == 1 else f"(part * {tile.slices} + slice)"
        begin = f"{which} * {share * tile.bk}"
    code.add(f"int k0 = {begin}, buffer = 0;")

    def bring(head: str) -> None:
        code.add(f"{head} {{")
        for loader in loaders:
            for line in loader.load:
                code.add("  " + line)
        code.add("}")

    def put() -> None:
        for loader in loaders:
            for line in loader.put:
                code.add(line)

    bring("")
    put()
    code.add("barrier(CLK_LOCAL_MEM_FENCE);")
    code.add(f"for (int step = 0; step < {share}; step++) {{")
    code.add(f"k0 += {tile.bk};")
    bring(f"if (step + 1 < {share})")
    _multiply(code, tile)
    code.add("buffer ^= 1;" if tile.buffers == 2 else "barrier(CLK_LOCAL_MEM_FENCE);")
    code.add(f"if (step + 1 < {share}) {{")
    put()
    code.add("}")
    code.add("barrier(CLK_LOCAL_MEM_FENCE);")
    code.add("}")


def _multiply(code: KernelCode, tile: ProductTile) -> None:
    """The tiles in local memory, one depth after the other."""
    real, halves = tile.real, tile.real == "half"
    width = min(4, tile.tn)
    if halves:
        code.add(f"for (int k1 = 0; k1 < {tile.bk}; k1 += {HALF_RUN}) {{")
        code.add(f"half{width} run[{tile.tm}][{tile.tn // width}];")
        code.add(f"for (int i = 0; i < {tile.tm}; i++) for (int j = 0; j < {tile.tn // width}; j++)")
        code.add(f"  run[i][j] = (half{width})((half)0.0f);")
    code.add(f"for (int k = {'k1' if halves else '0'}; k < {f'k1 + {HALF_RUN}' if halves else tile.bk}; k++) {{")
    code.add(f"  {real} ra[{tile.tm}] __attribute__((aligned(16))), rb[{tile.tn}] __attribute__((aligned(16)));")
    for name, size, each, item in (("a", tile.bm, tile.tm, "ty"), ("b", tile.bn, tile.tn, "tx")):
        chunks, across = max(1, each // 4), min(4, each)
        vector = _vector(across, real)
        for chunk in range(chunks):
            place = f"k * {size + _PAD} + {chunk * (size // chunks)} + {item} * {across}"
            code.add(
                f"  *(private {vector}*)(r{name} + {chunk * 4}) = *(local {vector}*)({name}_tile[buffer] + {place});"
            )
    if halves:
        code.add(f"  for (int i = 0; i < {tile.tm}; i++) for (int j = 0; j < {tile.tn // width}; j++)")
        code.add(f"    run[i][j] = fma((half{width})(ra[i]), *(private half{width}*)(rb + j * {width}), run[i][j]);")
        code.add("}")
        code.add(f"for (int i = 0; i < {tile.tm}; i++) for (int j = 0; j < {tile.tn // width}; j++) {{")
        code.add(f"  float{width} so_far = vload{width}(j, acc[i]) + convert_float{width}(run[i][j]);")
        code.add(f"  vstore{width}(so_far, j, acc[i]);")
        code.add("} }")
        return
    code.add(f"  for (int i = 0; i < {tile.tm}; i++) for (int j = 0; j < {tile.tn}; j++)")
    code.add("    acc[i][j] = fma(ra[i], rb[j], acc[i][j]);")
    code.add("}")


def _sum_slices(code: KernelCode, tile: ProductTile, inner: int) -> None:
    """Sums of the slices added up in the order of their depth, in local memory, by the first slice."""
    size, element = tile.tm * tile.tn, f"acc[i / {tile.tn}][i % {tile.tn}]"
    at_once = min(tile.slices - 1, tile.local_bytes // (4 * size * inner))
    code.add("#pragma unroll")
    code.add(f"for (int s = 1; s < {tile.slices}; s += {at_once}) {{")
    code.add(f"  if (slice >= s && slice < s + {at_once}) for (int i = 0; i < {size}; i++)")
    code.add(f"    pool[((slice - s) * {size} + i) * {inner} + lane] = {element};")
    code.add("  barrier(CLK_LOCAL_MEM_FENCE);")
    code.add(f"  if (slice == 0) for (int t = 0; t < min({at_once}, {tile.slices} - s); t++)")
    code.add(f"    for (int i = 0; i < {size}; i++) {element} += pool[(t * {size} + i) * {inner} + lane];")
    code.add("  barrier(CLK_LOCAL_MEM_FENCE);")
    code.add("}")
    code.add("if (slice != 0) return;")


def _store_tile(kernel: Kernel, code: KernelCode, tile: ProductTile, results: Results, partial: Scratch | None) -> None:
    product = results.product
    row_chunks, column_chunks, width = max(1, tile.tm // 4), max(1, tile.tn // 4), min(4, tile.tn)
    for i in range(tile.tm):
        chunk, within = divmod(i, 4)
        row = code.let("int", f"row0 + {chunk * (tile.bm // row_chunks)} + ty * {min(4, tile.tm)} + {within}")
        with code.block(f"if ({row} < {product.m})" if product.m % tile.bm else "") as block:
            for j in range(column_chunks):
                column = f"col0 + {j * (tile.bn // column_chunks)} + tx * {width}"
                result = block.let(f"float{width}", f"vload{width}(0, acc[{i}] + {j * 4})")
                if partial is None:
                    results.store(block, row, column, result, width)
                    continue
                n = block.let("int", column)
                place = f"((get_group_id(2)) * {product.m} + {row}) * {product.n} + {n}"
                buffer, items = kernel.buffers.write(partial, "float", "partial"), block.fresh()
                block.add(f"float {items}[{width}]; vstore{width}({result}, 0, {items});")
                block.add(
                    f"for (int j = 0; j < min({width}, {product.n} - {n}); j++) {buffer}[{place} + j] = {items}[j];"
                )


def partial_sum(
    kernel: Kernel, product: Product, epilogue: Epilogue, partial: Scratch, parts: int, local: int
) -> Launch:
    """The parts of a product added up in their order, and the chain."""
    code = kernel.code()
    total = math.prod(product.batch) * product.m * product.n
    buffer = kernel.buffers.read(partial, FLOAT)
    code.add("const int i = get_global_id(0);")
    code.add(f"if (i >= {total}) return;")
    code.add(f"const int column = i % {product.n}, row = (i / {product.n}) % {product.m};")
    at_batch = code.let("int", f"i / {product.m * product.n}")
    code.add("float acc = 0.0f;")
    code.add(f"for (int p = 0; p < {parts}; p++)")
    code.add(f"  acc += {buffer}[({at_batch} * {parts} + p) * {product.m * product.n} + row * {product.n} + column];")
    batch = batch_axes(code, product, at_batch)
    Results.of(kernel, code, product, epilogue, batch).finish(code, "row", "column", "acc")
    return kernel.launch_items(f"{product.node.op.name} sum of {parts}", (product.node,), code, epilogue, total, local)
