# SPDX-License-Identifier: Apache-2.0
"""Kernels that go along rows: reductions, arg-reductions, softmax and normalizations.

A row is what is reduced: any set of axes. A work-group takes a row, and its work-items share it; on a processor a
work-group is one work-item.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from hexforge.addons.gpu.kernels.code import C_TYPES, Index, KernelCode, affine, literal, strides
from hexforge.addons.gpu.kernels.launch import Epilogue, Kernel, Launch
from hexforge.ir import DType, Node, Value

_SUM = """
#define GROUP_REDUCE(name, type, combine) \\
type name(type v, local type* shared) { \\
  const int i = get_local_id(0); \\
  shared[i] = v; barrier(CLK_LOCAL_MEM_FENCE); \\
  for (int n = get_local_size(0) / 2; n > 0; n /= 2) { \\
    if (i < n) { const type a = shared[i], b = shared[i + n]; shared[i] = combine; } \\
    barrier(CLK_LOCAL_MEM_FENCE); \\
  } \\
  const type r = shared[0]; barrier(CLK_LOCAL_MEM_FENCE); return r; \\
}
"""
_COMBINE = {
    "sum": "a + b",
    "product": "a * b",
    "max": "(a >= b || a != a) ? a : b",
    "min": "(a <= b || a != a) ? a : b",
}
_LOWEST = {"float": "-INFINITY", "char": "CHAR_MIN", "uchar": "0", "short": "SHRT_MIN", "ushort": "0", "int": "INT_MIN",
           "uint": "0", "long": "LONG_MIN"}  # fmt: skip
_HIGHEST = {"float": "INFINITY", "char": "CHAR_MAX", "uchar": "255", "short": "SHRT_MAX", "ushort": "USHRT_MAX",
            "int": "INT_MAX", "uint": "UINT_MAX", "long": "LONG_MAX"}  # fmt: skip


def group_size(length: int, most: int) -> int:
    """Work-items that share a row: a power of two, no more than the row has elements."""
    return min(most, 1 << max(0, length - 1).bit_length()) if most > 1 else 1


class _Rows:
    """The rows of a value along some axes: which row a work-item has, where its elements lie, and a loop over them."""

    def __init__(
        self, kernel: Kernel, code: KernelCode, x: Value, shape: Sequence[int], axes: Sequence[int], most: int
    ) -> None:
        """At most so many work-items share a row."""
        code.add("const int row = get_group_id(0);" if most > 1 else "const int row = get_global_id(0);")
        steps = strides(shape)
        self.kept = [i for i in range(len(shape)) if i not in axes]
        self.count = math.prod(shape[i] for i in self.kept)
        self.length = math.prod(shape[i] for i in axes)
        self.shared_by, self.source = group_size(self.length, most), kernel.source(x)
        at = code.axes(Index(tuple(shape[i] for i in self.kept), "row")) if self.kept else ()
        self.base = code.let("int", affine(at, [steps[i] for i in self.kept]))
        self._code, self._shape = code, tuple(shape[i] for i in axes)
        self._steps = [steps[i] for i in axes]

    @contextmanager
    def each(self, type: str) -> Iterator[tuple[KernelCode, str]]:
        """A loop over a work-item's share of its row: the block, where element `v` is, and the place of that."""
        code = KernelCode(self._code.buffers, 1, 2)
        code._counter = self._code._counter
        place = self._at(code, "j")
        code.add(f"const {type} v = {self.source.load(place)};")
        yield code, place
        first = "get_local_id(0)" if self.shared_by > 1 else "0"
        self._code.add(f"for (int j = {first}; j < {self.length}; j += {self.shared_by}) {{")
        self._code.lines += code.lines
        self._code.add("}")

    def _at(self, code: KernelCode, j: str) -> str:
        if all(s == t for s, t in zip(self._steps, strides(self._shape), strict=True)):
            return code.let("int", f"{self.base} + {j}")
        inner = code.axes(Index(self._shape, j))
        return code.let("int", f"{self.base} + {affine(inner, self._steps)}")


def _reduced(name: str, value: str, wg: int) -> str:
    return value if wg == 1 else f"{name}({value}, shared)"


def _functions(wg: int, wanted: dict[str, str], type: str) -> str:
    if wg == 1:
        return ""
    return _SUM + "\n".join(f"GROUP_REDUCE({name}, {type}, ({_COMBINE[kind]}))" for name, kind in wanted.items())


def reduce(kernel: Kernel, node: Node, epilogue: Epilogue, wg: int) -> Launch:
    """Max, min, sum, mean, product or sum of squares along axes."""
    x, out = node.operand(0), node.outputs[0]
    axes = sorted(a % len(x.shape) for a in node.params["axes"])
    type, integer = C_TYPES[x.dtype], not x.dtype.is_float
    total_type = "long" if integer else "float"
    code = kernel.code()
    rows = _Rows(kernel, code, x, x.shape, axes, wg)
    wg = rows.shared_by
    kind = node.op.name.removeprefix("Reduce")
    combine = {"Max": "max", "Min": "min", "Prod": "product"}.get(kind, "sum")
    start = {"Max": _LOWEST[type], "Min": _HIGHEST[type], "Prod": "1"}.get(kind, "0")
    if x.dtype is DType.BOOL:
        start = {"Max": "0", "Min": "1"}.get(kind, start)
    code.add(f"{total_type} acc = {start};")
    step = {"max": "acc = (acc >= v || acc != acc) ? acc : v;", "min": "acc = (acc <= v || acc != acc) ? acc : v;",
            "product": "acc *= v;"}.get(combine, "acc += v * v;" if kind == "SumSquare" else "acc += v;")  # fmt: skip
    with rows.each(total_type) as (each, _):
        each.add(step)
    if wg > 1:
        code.add(f"local {total_type} shared[{wg}];")
    code.add(f"const {total_type} r = {_reduced('reduced', 'acc', wg)};")
    if wg > 1:
        code.add("if (get_local_id(0)) return;")
    result = "r"
    if kind == "Mean":
        result = code.let(total_type, f"r / {rows.length}" if integer else f"r / {float(rows.length)!r}f")
        if not rows.length:
            result = "NAN" if not integer else "0"
    if integer:
        result = code.let(C_TYPES[out.dtype], f"({C_TYPES[out.dtype]}){result}")
    epilogue.write(kernel, code, result, Index(out.shape, "row"))
    functions = _functions(wg, {"reduced": combine}, total_type)
    size = x.type.size
    return kernel.launch(node.op.name, (node,), code, epilogue, (rows.count * wg,), (wg,), size, before=functions)


def _line(kernel: Kernel, code: KernelCode, node: Node) -> tuple[_Rows, int]:
    """A work-item for each row along the node's axis, and elements from one of its elements to the next."""
    x = node.operand(0)
    axis = node.params["axis"] % len(x.shape)
    return _Rows(kernel, code, x, x.shape, [axis], 1), strides(x.shape)[axis]


def argument(kernel: Kernel, node: Node, epilogue: Epilogue) -> Launch:
    """The index of the largest or smallest element along an axis, the first of equals."""
    x, out, code = node.operand(0), node.outputs[0], kernel.code()
    type, (rows, step) = C_TYPES[x.dtype], _line(kernel, code, node)
    better = ">" if node.op.name == "Argmax" else "<"
    code.add(f"{type} best = {rows.source.load(rows.base)}; int index = 0;")
    code.add(f"for (int j = 1; j < {rows.length}; j++) {{")
    code.add(f"  const {type} v = {rows.source.load(f'({rows.base} + j * {step})')};")
    code.add(f"  if (v {better} best || (v != v && best == best)) {{ best = v; index = j; }}")
    code.add("}")
    result = code.let(C_TYPES[out.dtype], f"({C_TYPES[out.dtype]})index")
    epilogue.write(kernel, code, result, Index(out.shape, "row"))
    return kernel.launch(node.op.name, (node,), code, epilogue, (rows.count,), (1,), x.type.size)


def cumulative(kernel: Kernel, node: Node) -> Launch:
    """Running sums along an axis."""
    x, out, code = node.operand(0), node.outputs[0], kernel.code()
    type, (rows, step) = C_TYPES[x.dtype], _line(kernel, code, node)
    target = kernel.target(out)
    code.add(f"{type} total = 0;")
    code.add(f"for (int i = 0; i < {rows.length}; i++) {{")
    code.add(f"  const int j = {f'{rows.length - 1} - i' if node.params['reverse'] else 'i'};")
    code.add(f"  const int at = {rows.base} + j * {step};")
    code.add(f"  const {type} v = {rows.source.load('at')};")
    exclusive = node.params["exclusive"]
    code.add(f"  {target.store('at', 'total')} total += v;" if exclusive
             else f"  total += v; {target.store('at', 'total')}")  # fmt: skip
    code.add("}")
    return kernel.launch(node.op.name, (node,), code, (out,), (rows.count,), (1,), x.type.size)


def normalized_axes(node: Node) -> tuple[int, ...]:
    """The axes that make up a row."""
    x = node.operand(0)
    rank = len(x.shape)
    match node.op.name:
        case "Softmax" | "LogSoftmax":
            return (node.params["axis"] % rank,)
        case "InstanceNorm":
            spatial, channel = tuple(range(1, rank - 1)), (rank - 1,)
            axes: tuple[int, ...] = (spatial, channel, spatial + channel)[node.params["region"]]
            return axes
        case _:
            return tuple(sorted(a % rank for a in node.params["axes"]))


def normalize(kernel: Kernel, node: Node, epilogue: Epilogue, wg: int) -> Launch:
    """Softmax, LogSoftmax, LayerNorm, RmsNorm, L2Norm, InstanceNorm and GroupNorm."""
    x, out, name, params = node.operand(0), node.outputs[0], node.op.name, node.params
    code = kernel.code()
    rows = _Rows(kernel, code, x, *_grouped(node, x), wg)
    wg = rows.shared_by

    def loop(statement: str) -> None:
        with rows.each("float") as (each, _):
            each.add(statement)

    if wg > 1:
        code.add(f"local float shared[{wg}];")
    count = f"{float(rows.length)!r}f"
    if name in ("Softmax", "LogSoftmax"):
        beta = literal(params["beta"], "float")
        code.add("float top = -INFINITY;")
        loop(f"const float s = v * {beta}; top = (top >= s || top != top) ? top : s;")
        code.add(f"const float most = {_reduced('group_max', 'top', wg)};")
        code.add("float total = 0.0f;")
        loop(f"total += exp(v * {beta} - most);")
        code.add(f"const float sum = {_reduced('group_sum', 'total', wg)};")
        expression = f"exp(v * {beta} - most) / sum" if name == "Softmax" else f"v * {beta} - most - log_sum"
        if name == "LogSoftmax":
            code.add("const float log_sum = log(sum);")
    elif name == "L2Norm":
        code.add("float total = 0.0f;")
        loop("total += v * v;")
        epsilon = literal(params["epsilon"], "float")
        code.add(f"const float norm = fmax(sqrt({_reduced('group_sum', 'total', wg)}), {epsilon});")
        expression = "v / norm"
    else:
        epsilon = literal(params["epsilon"], "float")
        rms = name == "RmsNorm" or (name == "InstanceNorm" and params["mode"] == 1)
        code.add("float total = 0.0f;")
        if not rms:
            loop("total += v;")
            code.add(f"const float mean = {_reduced('group_sum', 'total', wg)} / {count};")
            code.add("float squares = 0.0f;")
            loop("squares += (v - mean) * (v - mean);")
        else:
            code.add("const float mean = 0.0f; float squares = 0.0f;")
            loop("squares += v * v;")
        code.add(f"const float spread = sqrt({_reduced('group_sum', 'squares', wg)} / {count} + {epsilon});")
        scaled = params.get("normalize_variance", True) or rms
        expression = "(v - mean) / spread" if scaled else "v - mean"
    with rows.each("float") as (each, place):
        result = each.let("float", expression)
        for i, sign in ((1, "*"), (2, "+")):
            value = node.inputs[i] if len(node.inputs) > i else None
            if value is not None:
                result = each.let("float", f"{result} {sign} {_affine(kernel, each, node, value, place)}")
        epilogue.write(kernel, each, result, Index(out.shape, place))
    functions = _functions(wg, {"group_max": "max", "group_sum": "sum"}, "float")
    flops = 5 * x.type.size
    return kernel.launch(name, (node,), code, epilogue, (rows.count * wg,), (wg,), flops, before=functions)


def _grouped(node: Node, x: Value) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape that rows are taken of, and the axes of a row."""
    if node.op.name == "GroupNorm":
        group = node.params["group"]
        return (x.shape[0], math.prod(x.shape[1:-1]), group, x.shape[-1] // group), (1, 3)
    return x.shape, normalized_axes(node)


def _affine(kernel: Kernel, code: KernelCode, node: Node, value: Value, place: str) -> str:
    """The element of weight or bias that goes with an element of the input."""
    x = node.operand(0)
    at = code.axes(Index(x.shape, place))
    if node.op.name in ("InstanceNorm", "GroupNorm"):
        index = Index(value.shape, None, at[-1:])
    else:
        index = Index(value.shape, None, tuple(at[a] for a in normalized_axes(node)))
    return kernel.elements.element(code, value, index)
