# SPDX-License-Identifier: Apache-2.0
"""Matrix products and convolutions as products: C[m, n] = sum over taps and depth of A[m, k] B[k, n].

A convolution's A is never written: a row is an output position, and a tap says where in the input it reads. Two
templates: registers alone (a processor, whose caches do the rest), and tiles in local memory (a GPU). The order of a
sum depends on the shape and the device alone, never on a tile that was measured to be fast.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from hexforge.backends.gpu.kernels.code import BufferType, Index, KernelCode, NotVectorizedError
from hexforge.backends.gpu.kernels.launch import Constant, Epilogue, Kernel, Launch, Scratch, rounded_up
from hexforge.ir import Node, Value


@dataclass(frozen=True, slots=True)
class ConvWindow:
    """How the rows of an implicit A read an input: sizes, taps and steps of each spatial axis."""

    sizes: tuple[int, ...]
    outs: tuple[int, ...]
    taps: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pads: tuple[int, ...]
    channels: int
    """Channels of the whole input, all groups together."""
    transposed: bool = False


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix in memory: where element (batch, row, column) lies, in elements."""

    value: Value | Constant
    storage: BufferType
    batch: tuple[int, ...]
    """Strides of the batch axes."""
    row: int
    column: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Product:
    """What is multiplied."""

    node: Node
    m: int
    n: int
    depth: int
    """Elements that are summed up for each tap."""
    batch: tuple[int, ...]
    a: Matrix
    b: Matrix
    bias: Value | None
    out_row: int
    """Elements from one row of the output to the next."""
    out_batch: tuple[int, ...]
    window: ConvWindow | None = None

    @property
    def taps(self) -> int:
        """How often the depth is gone through."""
        return math.prod(self.window.taps) if self.window else 1

    @property
    def k(self) -> int:
        """How many products each element sums up."""
        return self.taps * self.depth

    @property
    def key(self) -> str:
        """What it is known by in the cache of measurements."""
        kind = "product" if self.window is None else f"taps {self.window.taps} stride {self.window.stride}"
        types = f"{self.a.storage.type} {self.b.storage.type}"
        return f"{kind} {self.m}x{self.n}x{self.k} of {self.batch} {self.a.row},{self.a.column} {types}"

    @property
    def flops(self) -> int:
        """Additions and multiplications."""
        return 2 * self.m * self.n * self.k * math.prod(self.batch)


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

    @property
    def name(self) -> str:
        """As the cache of measurements has it."""
        return f"{self.bm}x{self.bn}x{self.bk}:{self.tm}x{self.tn}"

    @property
    def threads(self) -> int:
        """Work-items of a work-group."""
        return (self.bm // self.tm) * (self.bn // self.tn) * self.slices


def _batch_offset(code: KernelCode, product: Product, operand: Matrix, batch: tuple[str, ...]) -> str:
    terms = [f"{b} * {s}" for b, s in zip(batch, operand.batch, strict=True) if s and b != "0"]
    if operand.offset:
        terms.append(str(operand.offset))
    return code.let("int", " + ".join(terms)) if terms else "0"


def _batch(code: KernelCode, product: Product, at: str) -> tuple[str, ...]:
    if math.prod(product.batch) == 1:
        return ("0",) * len(product.batch)
    return code.axes(Index(product.batch, at))


def _window_row(code: KernelCode, window: ConvWindow, m: str, name: str) -> None:
    """The first coordinates that row `m` reads, as name_i, and where its image begins, as name_n."""
    at = code.axes(Index((1 << 30, *window.outs), m))
    # the leading axis has no bound of its own: it is what is left
    code.add(f"const int {name}_n = {at[0]} * {math.prod(window.sizes) * window.channels};")
    for i, (a, s, p) in enumerate(zip(at[1:], window.stride, window.pads, strict=True)):
        first = f"{a} + {p}" if window.transposed else f"{a} * {s} - {p}"
        code.add(f"const int {name}_{i} = {first};")


def _window_read(window: ConvWindow, name: str, taps: tuple[str, ...]) -> tuple[str, str]:
    """The condition that a tap is inside the input, and the offset of its first channel."""
    inside, place = [], "0"
    for i, (n, tap) in enumerate(zip(window.sizes, taps, strict=True)):
        if window.transposed:
            at = f"({name}_{i} - {tap})"
            stride = window.stride[i]
            if stride > 1:
                inside.append(f"{at} % {stride} == 0")
                at = f"({at} / {stride})"
            inside.append(f"{name}_{i} >= {tap}")
        else:
            at = f"({name}_{i} + {tap} * {window.dilation[i]})" if window.taps[i] > 1 else f"{name}_{i}"
            reach = (window.taps[i] - 1) * window.dilation[i]
            if not window.pads[i] and (window.outs[i] - 1) * window.stride[i] + reach < n:
                place = f"({place} * {n} + {at})" if place != "0" else at
                continue
        inside.append(f"(uint){at} < {n}u")
        place = f"({place} * {n} + {at})" if place != "0" else at
    return " && ".join(inside), f"{name}_n + {place} * {window.channels}"


def _start(product: Product, kernel: Kernel, elements_of: Callable[[Matrix], str]) -> tuple[str, str]:
    return elements_of(product.a), elements_of(product.b)


def _argument(kernel: Kernel, operand: Matrix) -> str:
    return kernel.buffers.read(operand.value, operand.storage)


def register_product(kernel: Kernel, product: Product, epilogue: Epilogue, zeros: Constant, rows: int, width: int,
                     vectors: int) -> Launch:  # fmt: skip
    """A product for processors: each work-item keeps rows x (width * vectors) sums in registers."""
    columns = width * vectors
    panels, blocks = -(-product.n // columns), -(-product.m // rows)
    code = kernel.code()
    a, b = _argument(kernel, product.a), _argument(kernel, product.b)
    batches = math.prod(product.batch)
    vector = f"float{width}"
    window = product.window
    code.add("const int panel = get_global_id(0), block = get_global_id(1);")
    batch = _batch(code, product, "get_global_id(2)" if batches > 1 else "0")
    code.add(f"const int first = block * {rows};")
    a_base, b_base = (_batch_offset(code, product, x, batch) for x in (product.a, product.b))
    packed = isinstance(product.b.value, Constant)
    for r in range(rows):
        code.add(f"const int m{r} = min(first + {r}, {product.m - 1});")
        if window is not None:
            _window_row(code, window, f"m{r}", f"r{r}")
        for v in range(vectors):
            code.add(f"{vector} c{r}_{v} = ({vector})(0.0f);")
    if packed:
        code.add(f"global const {product.b.storage.type}* w = {b} + {b_base} + panel * {columns * product.k};")
    taps: tuple[str, ...] = ()
    indent = 0
    if window is not None:
        zero = kernel.buffers.read(zeros, zeros.storage)
        taps = tuple(f"k{i}" if n > 1 else "0" for i, n in enumerate(window.taps))
        for tap, n in zip(taps, window.taps, strict=True):
            if n > 1:
                code.add("  " * indent + f"for (int {tap} = 0; {tap} < {n}; {tap}++) {{")
                indent += 1
    for r in range(rows):
        if window is not None:
            inside, place = _window_read(window, f"r{r}", taps)
            read = f"{a} + {a_base} + {place}"
            code.add(
                f"global const {product.a.storage.type}* p{r} = {f'({inside}) ? {read} : {zero}' if inside else read};"
            )
        else:
            code.add(f"global const {product.a.storage.type}* p{r} = {a} + {a_base} + m{r} * {product.a.row};")
    code.add(f"for (int c = 0; c < {product.depth}; c++) {{")
    step = product.a.column if window is None else 1
    for v in range(vectors):
        if packed:
            code.add(f"  const {vector} b{v} = {product.b.storage.load('w', str(v * width), width)};")
        else:
            code.add(f"  {vector} b{v};")
            code.add(f"  const int n{v} = panel * {columns} + {v * width};")
            at = f"{b_base} + c * {product.b.row} + n{v} * {product.b.column}"
            exact = product.n % width == 0 and product.b.column == 1
            if exact and product.b.row % width == 0 and all(s % width == 0 for s in product.b.batch):
                guard = "1" if product.n % columns == 0 else f"n{v} < {product.n}"
                code.add(f"  if ({guard}) b{v} = {product.b.storage.load(b, '(' + at + ')', width)}; else {{")
            else:
                code.add("  {")
            single = product.b.storage.load(
                b, f"({b_base} + c * {product.b.row} + min(n{v} + j, {product.n - 1}) * {product.b.column})"
            )
            code.add(f"    float e[{width}]; for (int j = 0; j < {width}; j++) e[j] = {single};")
            code.add(f"    b{v} = vload{width}(0, e); }}")
    for r in range(rows):
        code.add(f"  const float a{r} = {product.a.storage.load(f'p{r}', 'c' if step == 1 else f'c * {step}')};")
        for v in range(vectors):
            code.add(f"  c{r}_{v} += a{r} * b{v};")
    if packed:
        code.add(f"  w += {columns};")
    code.add("}")
    code.lines += ["}"] * indent
    out_base = _out_base(code, product, batch)
    for r in range(rows):
        with code.block(f"if (first + {r} < {product.m})") as block:
            for v in range(vectors):
                _store(kernel, block, product, epilogue, out_base, f"m{r}", f"panel * {columns} + {v * width}",
                       f"c{r}_{v}", width)  # fmt: skip
    source = kernel.text("\n".join(code.lines), contract=True)
    size = (panels, blocks, batches)
    return kernel.launch(
        f"{product.node.op.name} {rows}x{columns}", (product.node, *epilogue.nodes), source, (epilogue.out,), size,
        (1, 1, 1), product.flops,
    )  # fmt: skip


def _out_base(code: KernelCode, product: Product, batch: tuple[str, ...]) -> str:
    terms = [f"{b} * {s}" for b, s in zip(batch, product.out_batch, strict=True) if s and b != "0"]
    return code.let("int", " + ".join(terms)) if terms else "0"


def _store(kernel: Kernel, code: KernelCode, product: Product, epilogue: Epilogue, base: str, row: str, column: str,
           result: str, width: int) -> None:  # fmt: skip
    """Store neighbours of a row: as a vector where the chain and the row's end allow, else one by one."""
    n = code.let("int", column)
    exact = product.n % width == 0 and product.out_row % width == 0

    def one(inner: KernelCode, name: str, place: str, wide: int) -> None:
        at = inner.let("int", f"{base} + {row} * {product.out_row} + {place}")
        value = name
        if product.bias is not None:
            storage = kernel.elements.storage(product.bias)
            bias = kernel.buffers.read(product.bias, storage)
            group = "" if not product.out_batch or product.window is None else f"{base} % {product.out_row} + "
            value = inner.let(
                f"float{wide if wide > 1 else ''}", f"{name} + {storage.load(bias, f'({group}{place})', wide)}"
            )
        shape = epilogue.result.shape
        epilogue.write(kernel, inner, value, Index(shape, at))

    if exact:
        wide = KernelCode(code.buffers, width)
        wide.known, wide._counter, wide._depth = dict(code.known), code._counter, code._depth + 1
        try:
            one(wide, result, n, width)
        except NotVectorizedError:
            pass
        else:
            code.add(f"if ({n} < {product.n}) {{")
            code.lines += wide.lines
            code.add("}")
            return
    items = code.fresh()
    code.add(f"float {items}[{width}]; vstore{width}({result}, 0, {items});")
    counter = code.fresh()
    with code.block(
        f"for (int {counter} = 0; {counter} < {width} && {n} + {counter} < {product.n}; {counter}++)"
    ) as inner:
        place = inner.let("int", f"{n} + {counter}")
        one(inner, inner.let("float", f"{items}[{counter}]"), place, 1)


# -- tiles in local memory ---------------------------------------------------------------------------------------------


def _tile_loader(
    kernel: Kernel, around: KernelCode, product: Product, operand: Matrix, tile: ProductTile, *, is_a: bool, base: str
) -> dict[str, list[str]]:
    """Statements that bring a tile of an operand into registers (`load`) and from there into local memory (`put`)."""
    threads = tile.threads // tile.slices
    outer, limit = (tile.bm, product.m) if is_a else (tile.bn, product.n)
    name, first = ("a", "row0") if is_a else ("b", "col0")
    outer_step, depth_step = (operand.row, operand.column) if is_a else (operand.column, operand.row)
    buffer, storage = _argument(kernel, operand), operand.storage
    window = product.window if is_a else None
    along_depth = window is not None or depth_step == 1 or outer_step != 1
    setup: list[str] = []
    load: list[str] = []
    put: list[str] = []
    if along_depth:
        aligned = product.depth % 4 == 0 and (window is None or window.channels % 4 == 0)
        aligned = aligned and (window is not None or (depth_step == 1 and outer_step % 4 == 0))
        aligned = aligned and all(s % 4 == 0 for s in operand.batch) and operand.offset % 4 == 0
        width = 4 if aligned and tile.bk % 4 == 0 else 1
        per_row = tile.bk // width
        count = outer * per_row
    else:
        aligned = outer_step == 1 and limit % 4 == 0 and depth_step % 4 == 0 and operand.offset % 4 == 0
        aligned = aligned and all(s % 4 == 0 for s in operand.batch)
        width = 4 if aligned and outer % 4 == 0 else 1
        per_row = outer // width
        count = tile.bk * per_row
    rounds = -(-count // threads)
    type = "float" if width == 1 else f"float{width}"
    zero = f"({type})(0.0f)"
    for i in range(rounds):
        slot = f"{name}{i}"
        setup.append(f"const int {slot}_at = lane + {i * threads};")
        busy = "" if count % threads == 0 or i < rounds - 1 else f"{slot}_at < {count}"
        setup.append(f"{type} {slot};")
        if along_depth:
            setup.append(f"const int {slot}_o = {slot}_at / {per_row}, {slot}_k = ({slot}_at % {per_row}) * {width};")
            setup.append(f"const int {slot}_row = min({first} + {slot}_o, {limit - 1});")
            if window is not None:
                code = kernel.code()
                code._counter = around._counter
                _window_row(code, window, f"{slot}_row", f"{slot}r")
                setup += [line.strip() for line in code.lines]
                conditions, place, lines = _tap_read(product, window, slot)
                load += lines
            else:
                place = f"{slot}_row * {outer_step} + (k0 + {slot}_k)" + (f" * {depth_step}" if depth_step != 1 else "")
                conditions = (
                    [f"k0 + {slot}_k < {product.k}"] if product.k % tile.bk or tile.parts > 1 or tile.slices > 1 else []
                )
        else:
            setup.append(f"const int {slot}_k = {slot}_at / {per_row}, {slot}_o = ({slot}_at % {per_row}) * {width};")
            place = f"(k0 + {slot}_k) * {depth_step} + {first} + {slot}_o"
            conditions = (
                [f"k0 + {slot}_k < {product.k}"] if product.k % tile.bk or tile.parts > 1 or tile.slices > 1 else []
            )
            if limit % outer:
                conditions.append(f"{first} + {slot}_o < {limit}")
        conditions = [c for c in (*conditions, busy) if c]
        read = storage.load(buffer, f"({base} + {place})", width)
        guard = " && ".join(conditions)
        load.append(f"{slot} = {f'({guard}) ? {read} : {zero}' if guard else read};")
        stores = []
        for j in range(width):
            component = slot if width == 1 else f"{slot}.s{j:x}"
            if along_depth:
                stores.append(f"{name}_tile[buffer][({slot}_k + {j}) * {outer + _PAD} + {slot}_o] = {component};")
        if not along_depth:
            target = f"&{name}_tile[buffer][{slot}_k * {outer + _PAD} + {slot}_o]"
            stores = [f"*(local float4*)({target}) = {slot};" if width == 4 else f"*({target}) = {slot};"]
        put.append((f"if ({busy}) " if busy else "") + "{ " + " ".join(stores) + " }")
    return {"setup": setup, "load": load, "put": put}


_PAD = 4
"""Elements between rows of a tile, so that neighbours do not fall into one bank."""


def _tap_read(product: Product, window: ConvWindow, slot: str) -> tuple[list[str], str, list[str]]:
    """Conditions, place and statements for element k0 + slot_k of an implicit row."""
    lines = [f"const int {slot}_kk = k0 + {slot}_k;"]
    many = product.taps > 1
    if many:
        lines.append(f"const int {slot}_tap = {slot}_kk / {product.depth};")
        lines.append(f"const int {slot}_c = {slot}_kk - {slot}_tap * {product.depth};")
    channel = f"{slot}_c" if many else f"{slot}_kk"
    taps: list[str] = []
    rest = f"{slot}_tap"
    for i, n in enumerate(window.taps):
        inner = math.prod(window.taps[i + 1 :])
        if n == 1:
            taps.append("0")
            continue
        lines.append(f"const int {slot}_t{i} = ({rest} / {inner}){f' % {n}' if i and inner else ''};")
        taps.append(f"{slot}_t{i}")
    inside, place = _window_read(window, f"{slot}r", tuple(taps))
    conditions = [inside] if inside else []
    conditions.append(f"{slot}_kk < {product.k}")
    return conditions, f"{place} + {channel}", lines


def tiled_product(
    kernel: Kernel, product: Product, epilogue: Epilogue, tile: ProductTile, partial: Scratch | None = None
) -> Launch:
    """A product for GPUs: work-groups bring tiles of both operands into local memory, two at a time."""
    inner = tile.threads // tile.slices
    code = kernel.code()
    batches = math.prod(product.batch)
    sliced = f" % {inner}, slice = get_local_id(0) / {inner}" if tile.slices > 1 else ""
    code.add(f"const int lane = get_local_id(0){sliced};")
    code.add(f"const int row0 = get_group_id(1) * {tile.bm}, col0 = get_group_id(0) * {tile.bn};")
    z = "get_group_id(2)"
    if tile.parts > 1:
        code.add(f"const int part = {z} % {tile.parts};")
        z = f"({z} / {tile.parts})"
    batch = _batch(code, product, code.let("int", z) if batches > 1 else "0")
    bases = [_batch_offset(code, product, x, batch) for x in (product.a, product.b)]
    size_a, size_b = tile.bk * (tile.bm + _PAD), tile.bk * (tile.bn + _PAD)
    code.add(f"local float pool[{tile.slices * 2 * (size_a + size_b)}] __attribute__((aligned(16)));")
    own = f" + slice * {2 * (size_a + size_b)}" if tile.slices > 1 else ""
    code.add(f"local float* a_tile[2] = {{pool{own}, pool{own} + {size_a}}};")
    code.add(f"local float* b_tile[2] = {{pool{own} + {2 * size_a}, pool{own} + {2 * size_a + size_b}}};")
    loads = [
        _tile_loader(kernel, code, product, x, tile, is_a=is_a, base=base)
        for x, is_a, base in ((product.a, True, bases[0]), (product.b, False, bases[1]))
    ]
    for part in loads:
        for line in part["setup"]:
            code.add(line)
    across = tile.bn // tile.tn
    code.add(f"const int ty = lane / {across}, tx = lane % {across};")
    code.add(f"float acc[{tile.tm}][{tile.tn}];")
    code.add(f"for (int i = 0; i < {tile.tm}; i++) for (int j = 0; j < {tile.tn}; j++) acc[i][j] = 0.0f;")
    steps = -(-product.k // tile.bk)
    share = -(-steps // (tile.slices * tile.parts))
    begin = "0"
    if tile.slices > 1 or tile.parts > 1:
        which = "slice" if tile.parts == 1 else "part" if tile.slices == 1 else f"(part * {tile.slices} + slice)"
        begin = f"{which} * {share * tile.bk}"
    code.add(f"int k0 = {begin}, buffer = 0;")

    def bring(statement: str) -> None:
        code.add(f"{statement} {{")
        for part in loads:
            for line in part["load"]:
                code.add("  " + line)
        code.add("}")

    def put() -> None:
        for part in loads:
            for line in part["put"]:
                code.add(line)

    bring("")
    put()
    code.add("barrier(CLK_LOCAL_MEM_FENCE);")
    code.add(f"for (int step = 0; step < {share}; step++) {{")
    code.add(f"k0 += {tile.bk};")
    bring(f"if (step + 1 < {share})")
    row_chunks, column_chunks = max(1, tile.tm // 4), max(1, tile.tn // 4)
    code.add(f"for (int k = 0; k < {tile.bk}; k++) {{")
    code.add(f"  float ra[{tile.tm}] __attribute__((aligned(16))), rb[{tile.tn}] __attribute__((aligned(16)));")
    for name, chunks, size, each, item in (
        ("a", row_chunks, tile.bm, tile.tm, "ty"),
        ("b", column_chunks, tile.bn, tile.tn, "tx"),
    ):
        for chunk in range(chunks):
            width = min(4, each)
            vector = f"float{width if width > 1 else ''}"
            place = f"k * {size + _PAD} + {chunk * (size // chunks)} + {item} * {width}"
            code.add(
                f"  *(private {vector}*)(r{name} + {chunk * 4}) = *(local {vector}*)({name}_tile[buffer] + {place});"
            )
    code.add(f"  for (int i = 0; i < {tile.tm}; i++) for (int j = 0; j < {tile.tn}; j++)")
    code.add("    acc[i][j] = fma(ra[i], rb[j], acc[i][j]);")
    code.add("}")
    code.add(f"if (step + 1 < {share}) {{")
    code.add("buffer ^= 1;")
    put()
    code.add("}")
    code.add("barrier(CLK_LOCAL_MEM_FENCE);")
    code.add("}")
    if tile.slices > 1:
        _sum_slices(code, tile, inner)
    out_base = _out_base(code, product, batch)
    for i in range(tile.tm):
        chunk, within = divmod(i, 4)
        row = code.let("int", f"row0 + {chunk * (tile.bm // row_chunks)} + ty * {min(4, tile.tm)} + {within}")
        with code.block(f"if ({row} < {product.m})" if product.m % tile.bm else "") as block:
            for j in range(column_chunks):
                width = min(4, tile.tn)
                column = f"col0 + {j * (tile.bn // column_chunks)} + tx * {width}"
                result = block.let(f"float{width}", f"vload{width}(0, acc[{i}] + {j * 4})")
                if partial is not None:
                    n = block.let("int", column)
                    place = f"((get_group_id(2)) * {product.m} + {row}) * {product.n} + {n}"
                    buffer = kernel.buffers.write(partial, "float", "partial")
                    items = block.fresh()
                    block.add(f"float {items}[{width}]; vstore{width}({result}, 0, {items});")
                    block.add(
                        f"for (int j = 0; j < min({width}, {product.n} - {n}); j++) {buffer}[{place} + j] = {items}[j];"
                    )
                else:
                    _store(kernel, block, product, epilogue, out_base, row, column, result, width)
    attributes = f"__attribute__((reqd_work_group_size({tile.threads}, 1, 1))) "
    source = kernel.text("\n".join(code.lines), attributes=attributes)
    groups = (-(-product.n // tile.bn), -(-product.m // tile.bm), batches * tile.parts)
    return kernel.launch(
        f"{product.node.op.name} {tile.name}", (product.node, *(() if partial else epilogue.nodes)), source,
        (partial or epilogue.out,), (groups[0] * tile.threads, *groups[1:]), (tile.threads, 1, 1), product.flops,
    )  # fmt: skip


def _sum_slices(code: KernelCode, tile: ProductTile, inner: int) -> None:
    """Sums of the slices added up in the order of their depth, in local memory, by the first slice."""
    size, element = tile.tm * tile.tn, f"acc[i / {tile.tn}][i % {tile.tn}]"
    code.add(f"for (int s = 1; s < {tile.slices}; s++) {{")
    code.add(f"  if (slice == s) for (int i = 0; i < {size}; i++) pool[i * {inner} + lane] = {element};")
    code.add("  barrier(CLK_LOCAL_MEM_FENCE);")
    code.add(f"  if (slice == 0) for (int i = 0; i < {size}; i++) {element} += pool[i * {inner} + lane];")
    code.add("  barrier(CLK_LOCAL_MEM_FENCE);")
    code.add("}")
    code.add("if (slice != 0) return;")


def partial_sum(
    kernel: Kernel, product: Product, epilogue: Epilogue, partial: Scratch, parts: int, local: int
) -> Launch:
    """The parts of a product added up in their order, and the chain."""
    code = kernel.code()
    batches = math.prod(product.batch)
    total = batches * product.m * product.n
    storage = BufferType("float", 4)
    buffer = kernel.buffers.read(partial, storage)
    code.add("const int i = get_global_id(0);")
    code.add(f"if (i >= {total}) return;")
    code.add(f"const int column = i % {product.n}, row = (i / {product.n}) % {product.m};")
    at_batch = code.let("int", f"i / {product.m * product.n}")
    batch = _batch(code, product, at_batch)
    code.add("float acc = 0.0f;")
    code.add(f"for (int p = 0; p < {parts}; p++)")
    code.add(f"  acc += {buffer}[({at_batch} * {parts} + p) * {product.m * product.n} + row * {product.n} + column];")
    base = _out_base(code, product, batch)
    at = code.let("int", f"{base} + row * {product.out_row} + column")
    value = "acc"
    if product.bias is not None:
        bias_storage = kernel.elements.storage(product.bias)
        bias = kernel.buffers.read(product.bias, bias_storage)
        group = f"{base} % {product.out_row} + " if product.window is not None and base != "0" else ""
        value = code.let("float", f"acc + {bias_storage.load(bias, f'({group}column)')}")
    epilogue.write(kernel, code, value, Index(epilogue.result.shape, at))
    return kernel.launch(
        f"{product.node.op.name} sum of {parts}", (product.node, *epilogue.nodes), kernel.text("\n".join(code.lines)),
        (epilogue.out,), (rounded_up(total, local),), (local,),
    )  # fmt: skip
