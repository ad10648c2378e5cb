# SPDX-License-Identifier: Apache-2.0
"""Elements: C expressions for any element of a value, through the pointwise and moving ops that lead to it.

This is how chains become one kernel: a value that is not in memory is computed where it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from hexforge.addons.gpu.kernels import pointwise
from hexforge.addons.gpu.kernels.code import FAULT, BufferType, Index, KernelCode, NotVectorizedError, literal, single
from hexforge.addons.gpu.kernels.moves import ALIASES, MOVES, moved, starts
from hexforge.ir import DType, Node, ScaleOffset, Value

GATHERS = ("Gather", "GatherElements", "GatherNd")
JOINS = ("Concat", "Pack", "Pad", "SpaceToBatch", "OneHot", "Batchnorm", "ElementWiseSelect", "IsInf", "Cast",
         "Dequantize", "ElementWiseUnary")  # fmt: skip
MAPS = frozenset({*pointwise.FLOAT, *pointwise.INTEGER, *pointwise.PREDICATE, *MOVES, *GATHERS, *JOINS})
"""Ops whose every output element can be computed where it is read."""


@dataclass(slots=True)
class Elements:
    """Writes elements into code: `inlined` nodes are computed on the spot, other values are loaded."""

    storage: Callable[[Value], BufferType]
    inlined: Collection[Node]
    faults: list[Node]
    """Nodes that look things up by indices; a kernel reports number + 1 of one whose index is outside."""
    round_half: bool = False
    """Round what is computed between two ops to float16, as if it had been stored."""
    real: str = "float"
    """What pointwise chains and products compute floats in: half where precision and device say so."""

    def element(self, code: KernelCode, value: Value, index: Index) -> str:
        """The name or literal of an element of a value."""
        number = single(value)
        type = code.type(value.dtype)
        if number is not None:
            return literal(number, type)
        producer = value.producer
        if producer is not None and producer in self.inlined:
            return self.computed(code, producer, producer.outputs.index(value), index)
        return self._load(code, value, index)

    def _load(self, code: KernelCode, value: Value, index: Index) -> str:
        storage = self.storage(value)
        buffer = code.buffers.read(value, storage)
        if code.width == 1:
            return code.let(code.type(value.dtype), storage.load(buffer, code.flat(index), 1, code.real))
        # wider than one: the index is that of the first of neighbours along the last axis
        if not value.dtype.is_float:
            raise NotVectorizedError
        return code.let(code.vector, storage.load(buffer, code.flat(index), code.width, code.real))

    def operand(self, code: KernelCode, value: Value, out: Index) -> str:
        """An element of an input that broadcasts to the output."""
        if single(value) is not None or value.shape == out.shape:
            return self.element(code, value, Index(value.shape, out.flat, out.axes))
        _along_a_row(code, out)
        at = code.axes(out)[len(out.shape) - len(value.shape) :]
        axes = tuple("0" if n == 1 else a for a, n in zip(at, value.shape, strict=True))
        if code.width > 1 and (not value.shape or value.shape[-1] == 1):  # one element for all neighbours
            return self.element(code.narrowed(), value, Index(value.shape, None, axes))
        return self.element(code, value, Index(value.shape, None, axes))

    def computed(self, code: KernelCode, node: Node, output: int, index: Index) -> str:
        """An element of an output of a node, computed here."""
        key = (node, output, code.flat(index), code.real, code.width)
        if key in code.known:
            return code.known[key]
        name = self._computed(code, node, output, index)
        out = node.outputs[output]
        if self.round_half and code.real == "float" and out.dtype.is_float and node.op.name not in MOVES:
            suffix = "" if code.width == 1 else str(code.width)
            name = code.let(f"float{suffix}", f"round_half{suffix}({name})")
        code.known[key] = name
        return name

    def applied(self, code: KernelCode, node: Node, arguments: tuple[str, ...]) -> str:
        """A pointwise op of arguments that are there."""
        out = node.outputs[0]
        type = code.type(out.dtype)
        first = next(v for v in node.inputs if v is not None)
        name, params = node.op.name, node.params
        if name == "Batchnorm":
            return code.let(code.vector, _batchnorm(code, *arguments))
        if code.width > 1:
            floats = all(v is None or v.dtype.is_float for v in node.inputs)
            if not floats or not out.dtype.is_float or name not in pointwise.FLOAT or name in pointwise.SCALAR_ONLY:
                raise NotVectorizedError
            wide = code.vector
            arguments = tuple(code.let(wide, f"({wide})({a})") for a in arguments)
            return code.let(wide, pointwise.real_row(name, arguments, params, wide))
        if name == "Cast":
            return code.let(type, pointwise.cast(arguments[0], code.type(first.dtype), type, out.dtype is DType.BOOL))
        if name == "Dequantize":
            encoding = first.encoding
            assert isinstance(encoding, ScaleOffset)
            scaled = f"(float)({arguments[0]} + {encoding.offset}) * {literal(encoding.scale, 'float')}"
            return code.let(type, f"({type})({scaled})")
        if name == "ElementWiseUnary":
            return code.let(type, f"({type})1.0f / {arguments[0]}")
        if name == "ElementWiseSelect":
            return code.let(type, f"({arguments[0]} ? {arguments[1]} : {arguments[2]})")
        if name == "IsInf":
            return code.let(type, pointwise.is_inf(arguments[0], params))
        if name in pointwise.PREDICATE:
            return code.let(type, pointwise.PREDICATE[name](arguments, params, type))
        if first.dtype.is_float:
            return code.let(type, pointwise.real_row(name, arguments, params, code.real))
        if name == "ElementWisePower" and node.inputs[1] is not None and node.inputs[1].dtype.is_float:
            power = f"pow((float){arguments[0]}, (float){arguments[1]})"
            return code.let(type, pointwise.cast(power, "float", type, False))
        expression = pointwise.INTEGER[name](arguments, params, type)
        return code.let(type, f"({type}){expression}")

    def _computed(self, code: KernelCode, node: Node, output: int, index: Index) -> str:
        name, params = node.op.name, node.params
        first = node.operand(0)
        if code.width > 1 and name not in pointwise.FLOAT and name not in ALIASES and name != "Batchnorm":
            raise NotVectorizedError
        if name in MOVES:
            return self.element(code, first, moved(code, node, output, index))
        if name in GATHERS:
            return self._gathered(code, node, index)
        if name == "Concat":
            return self._joined(code, node, index, params["axis"] % len(index.shape))
        if name == "Pack":
            axis = params["axis"] % len(index.shape)
            at = code.axes(index)
            rest = Index(first.shape, None, (*at[:axis], *at[axis + 1 :]))
            return self._chosen(code, node, at[axis], [(i + 1, rest) for i in range(len(node.inputs))])
        if name in ("Pad", "SpaceToBatch"):
            return self._padded(code, node, index)
        if name == "OneHot":
            return self._one_hot(code, node, index)
        if name == "Batchnorm":
            _along_a_row(code, index)
            channel = Index(first.shape[-1:], None, code.axes(index)[-1:])
            x = self.element(code, first, Index(first.shape, index.flat, index.axes))
            factors = [self.element(code, v, channel) for v in node.inputs[1:] if v is not None]
            return code.let(code.vector, _batchnorm(code, x, *factors))
        arguments = tuple(self.operand(code, v, index) for v in node.inputs if v is not None)
        return self.applied(code, node, arguments)

    # -- choices ------------------------------------------------------------------------------------------------------

    def _joined(self, code: KernelCode, node: Node, index: Index, axis: int) -> str:
        values = [v for v in node.inputs if v is not None]
        at = code.axes(index)
        begins = starts([v.shape[axis] for v in values])
        options = []
        for value, begin in zip(values, begins, strict=True):
            inner = code.let("int", f"{at[axis]} - {begin}") if begin else at[axis]
            options.append((begin + value.shape[axis], Index(value.shape, None, (*at[:axis], inner, *at[axis + 1 :]))))
        return self._chosen(code, node, at[axis], options)

    def _chosen(self, code: KernelCode, node: Node, at: str, options: list[tuple[int, Index]]) -> str:
        """The element of the first input whose bound is above `at`."""
        type, name = code.type(node.outputs[0].dtype), code.fresh()
        code.add(f"{type} {name};")
        values = [v for v in node.inputs if v is not None]
        kept = [(v, *o) for v, o in zip(values, options, strict=True) if v.type.size]
        for i, (value, bound, inner) in enumerate(kept):
            head = "else" if i == len(kept) - 1 and i else f"{'else ' * (i > 0)}if ({at} < {bound})"
            if len(kept) == 1:
                head = ""
            with code.block(head) as block:
                block.add(f"{name} = {self.element(block, value, Index(inner.shape, None, inner.axes))};")
        return name

    def _padded(self, code: KernelCode, node: Node, index: Index) -> str:
        first, params = node.operand(0), node.params
        type, scheme = code.type(first.dtype), params.get("scheme", 0)
        at = list(code.axes(index))
        if node.op.name == "SpaceToBatch":
            (bh, bw), batch = params["block_size"], first.shape[0]
            which = code.let("int", f"{at[0]} / {batch}")
            row, column = f"({at[1]} * {bh} + {which} / {bw})", f"({at[2]} * {bw} + {which} % {bw})"
            at = [f"({at[0]} % {batch})", row, column, at[3]]
            at = [code.let("int", a) for a in at]
            pads = ((0, 0), *params["pad_amount"], (0, 0))
        else:
            pads = params["pad_amount"]
        axes, inside = [], []
        for a, n, (before, after) in zip(at, first.shape, pads, strict=True):
            here = code.let("int", f"{a} - {before}") if before else a
            if not before and not after:
                axes.append(here)
            elif scheme == 0:
                axes.append(here)
                inside.append(f"(uint){here} < {n}u")
            elif scheme == 3:
                axes.append(code.let("int", f"clamp({here}, 0, {n - 1})"))
            else:
                edge = 1 if scheme == 1 else 0
                low = f"({here} < 0 ? -{here} - {edge} : {here})"
                low = code.let("int", low)
                axes.append(code.let("int", f"({low} >= {n} ? {2 * n - 2 + edge} - {low} : {low})"))
        inner = Index(first.shape, None, tuple(axes))
        if not inside:
            return self.element(code, first, inner)
        name = code.fresh()
        code.add(f"{type} {name} = {literal(params.get('pad_constant_value', 0.0), type)};")
        if first.type.size:
            with code.block(f"if ({' && '.join(inside)})") as block:
                block.add(f"{name} = {self.element(block, first, inner)};")
        return name

    def _one_hot(self, code: KernelCode, node: Node, index: Index) -> str:
        first, params, out = node.operand(0), node.params, node.outputs[0]
        axis = params["axis"] % len(index.shape)
        at = code.axes(index)
        hot = self.element(code, first, Index(first.shape, None, (*at[:axis], *at[axis + 1 :])))
        type, depth = code.type(out.dtype), params["depth"]
        on, off = literal(params["on_value"], type), literal(params["off_value"], type)
        return code.let(type, f"(({hot} < 0 ? {hot} + {depth} : {hot}) == {at[axis]} ? {on} : {off})")

    # -- look-ups -----------------------------------------------------------------------------------------------------

    def fault(self, code: KernelCode, node: Node) -> str:
        """The statement that reports an index of a node that is outside its axis."""
        if node not in self.faults:
            self.faults.append(node)
        return f"{code.buffers.write(FAULT, 'int', FAULT)}[0] = {self.faults.index(node) + 1};"

    def bounded(self, code: KernelCode, node: Node, index: str, size: int) -> str:
        """An index counted from the start; one outside is reported, and 0 is read instead."""
        at = code.let("int", f"(int)({index} < 0 ? {index} + {size} : {index})")
        code.add(f"if ({index} >= {size} || {index} < -{size}) {self.fault(code, node)}")
        return code.let("int", f"(uint){at} < {size}u ? {at} : 0")

    def _gathered(self, code: KernelCode, node: Node, index: Index) -> str:
        data, indices = node.operand(0), node.operand(1)
        at, params = code.axes(index), node.params
        if node.op.name == "Gather":
            axis = params["axis"] % len(data.shape)
            rank = len(indices.shape)
            position = self.element(code, indices, Index(indices.shape, None, at[axis : axis + rank]))
            inner = self.bounded(code, node, position, data.shape[axis])
            return self.element(code, data, Index(data.shape, None, (*at[:axis], inner, *at[axis + rank :])))
        if node.op.name == "GatherElements":
            axis = params["axis"] % len(data.shape)
            position = self.element(code, indices, Index(indices.shape, index.flat, at))
            inner = self.bounded(code, node, position, data.shape[axis])
            return self.element(code, data, Index(data.shape, None, (*at[:axis], inner, *at[axis + 1 :])))
        batch, depth = params["batch_dims"], indices.shape[-1]
        lead = at[: len(indices.shape) - 1]
        axes = list(lead[:batch])
        for i in range(depth):
            position = self.element(code, indices, Index(indices.shape, None, (*lead, str(i))))
            axes.append(self.bounded(code, node, position, data.shape[batch + i]))
        return self.element(code, data, Index(data.shape, None, (*axes, *at[len(lead) :])))


def _batchnorm(code: KernelCode, x: str, weight: str, bias: str = "") -> str:
    """A product and, where there is a bias, a sum, in half rounded once."""
    if not bias:
        return f"{x} * {weight}"
    if code.real == "float":
        return f"{x} * {weight} + {bias}"
    return f"fma({', '.join(f'({code.vector})({a})' for a in (x, weight, bias))})"


def _along_a_row(code: KernelCode, index: Index) -> None:
    """Check that neighbours lie along the last axis; behind a reshape they may go on into the next row."""
    if code.width > 1 and (not index.shape or index.shape[-1] % code.width):
        raise NotVectorizedError
