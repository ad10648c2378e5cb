# SPDX-License-Identifier: Apache-2.0
"""Op and the op table: each QNN op declared once, everything else derives from the declaration."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from hexforge.errors import ModelError
from hexforge.ir.layout import BOUND, Layout
from hexforge.ir.types import Array, DType, ScaleOffset, TensorType
from hexforge.ir.work import Amounts, Work

ParamValue = Any  # bool | int | float | nested tuples of them; frozen, hashable
_REQUIRED: Any = object()


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of an op: scalar (rank 0) or tensor (nested tuples), with QNN's spelling."""

    name: str
    type: Literal["bool", "int32", "uint32", "float32", "uint8"]
    rank: int = 0
    default: ParamValue = _REQUIRED
    choices: Mapping[str, int] = field(default_factory=dict)  # names of enum values, as in QnnOpDef

    @property
    def required(self) -> bool:
        """True where the node must give the parameter."""
        return self.default is _REQUIRED


@dataclass(frozen=True, slots=True)
class QuantRule:
    """How an op may be quantized and how its integer result relates to the exact one."""

    output: Literal["own", "input", "fixed", "never"] = "own"
    """Where the outputs' encodings come from: chosen freely, the first data input's, fixed, or never quantized."""
    fixed: Mapping[DType, ScaleOffset] = field(default_factory=dict)
    """The fixed output encoding per data type."""
    data: tuple[int, ...] | None = None
    """Inputs that carry real numbers (and so may be quantized); None: all. Others are indices, shapes, masks."""
    weight: int | None = None
    """Input that is a weight: may be per-axis along `weight_axis`, symmetric where signed."""
    weight_axis: int | None = None
    """Axis of the weight that its scales run along: the output channel."""
    bias: int | None = None
    """Input that is a bias: int32, scale = input scale * weight scale."""
    bilinear: bool = False
    """Output is linear in inputs 0 and 1 (plus bias): computed with exact integer accumulators."""
    rounding: str = "nearest, ties to even, of the exact real result"


@dataclass(frozen=True, slots=True)
class Call:
    """An op asked about: types of its inputs and declared outputs (empty while inferring), parameters."""

    op: Op
    ins: tuple[TensorType | None, ...]
    outs: tuple[TensorType, ...]
    params: Mapping[str, ParamValue]

    def __getitem__(self, name: str) -> ParamValue:
        return self.params[name]

    def input(self, index: int) -> TensorType:
        """Type of an input that must be there."""
        type = self.ins[index] if index < len(self.ins) else None
        if type is None:
            names = self.op.inputs
            raise ModelError(f"{self.op.name}: input {names[min(index, len(names) - 1)]} is missing")
        return type

    def has(self, index: int) -> bool:
        """True where an optional input is given."""
        return index < len(self.ins) and self.ins[index] is not None

    def out(self, index: int = 0) -> TensorType:
        """Type of a declared output; ModelError while inferring an op whose output must be declared."""
        if index >= len(self.outs):
            raise ModelError(f"{self.op.name}: the type of output {index} must be declared")
        return self.outs[index]

    def axis(self, value: int, rank: int | None = None, name: str = "axis") -> int:
        """`value` checked against the rank of input 0, negative counted from the end."""
        rank = len(self.input(0).shape) if rank is None else rank
        if not -rank <= value < rank:
            raise ModelError(f"{self.op.name}: {name} {value} is outside a tensor of {rank} dimensions")
        return value % rank

    def fail(self, message: str) -> ModelError:
        """A ModelError naming the op, to raise."""
        return ModelError(f"{self.op.name}: {message}")


Infer = Callable[[Call], tuple[TensorType, ...]]
Reference = Callable[..., Array | tuple[Array, ...]]
Count = Callable[[Call], int]


@dataclass(frozen=True, slots=True)
class Measure:
    """How an op's work is counted: a function for each unit that it has any work in. Called, it gives the amounts."""

    macs: Count | None = None
    lanes: Count | None = None
    lookups: Count | None = None
    moved_bytes: Count | None = None

    @property
    def units(self) -> tuple[str, ...]:
        """The units it counts in, by their names in Amounts."""
        return tuple(f.name for f in fields(self) if getattr(self, f.name) is not None)

    def __call__(self, call: Call) -> Amounts:
        """The work of a node."""
        return Amounts(**{unit: getattr(self, unit)(call) for unit in self.units})


def _written_bytes(call: Call) -> int:
    return sum(t.nbytes for t in call.outs)


moves = Measure(moved_bytes=_written_bytes)
"""Work of an op that only moves bytes."""


def per_element(lanes: int = 1, lookups: int = 0) -> Measure:
    """Work of an op that does a fixed amount per output element."""
    return Measure(lanes=_per_element(lanes), lookups=_per_element(lookups))


def _per_element(amount: int) -> Count | None:
    return (lambda call: amount * math.prod(call.out().shape)) if amount else None


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """A QNN op: names, parameters, shape inference, reference semantics, work, quantization rule, layout.

    `inputs` are names; a trailing "?" marks an optional one, a trailing "*" the last as any number of them.
    `infer` checks the inputs and gives the output types (no encodings: those are the graph's choice).
    `reference(call, *arrays)` computes on real numbers (float32 or float64) or integers and returns arrays of the
    outputs' shapes; the caller converts them to the outputs' types.
    `kind` is the kind of work, `work(call)` how much of it a node is; `layout` says how axes may be permuted.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    params: tuple[Param, ...]
    infer: Infer
    reference: Reference
    kind: Work
    work: Measure
    quant: QuantRule
    layout: Layout
    doc: str

    @property
    def pointwise(self) -> bool:
        """True where each output element is computed from the elements at its place alone."""
        return self.layout.pointwise

    @property
    def gives_reals(self) -> bool:
        """True where the output is real numbers, which may be fixed point; else it is indices, booleans or shapes."""
        return self.quant.output != "never"

    @property
    def converts(self) -> bool:
        """True where the output is the input's real numbers in another type or encoding (a Cast truncates them)."""
        return self.kind is Work.CONVERT and self.gives_reals

    @property
    def variadic(self) -> bool:
        """True where the last input may be repeated."""
        return bool(self.inputs) and self.inputs[-1].endswith("*")

    def complete(self, params: Mapping[str, ParamValue]) -> dict[str, ParamValue]:
        """`params` checked for names, with defaults filled in, in the declared order."""
        full = {p.name: _frozen(params.get(p.name, p.default)) for p in self.params}
        if not params.keys() <= full.keys():
            unknown, has = ", ".join(name for name in params if name not in full), ", ".join(full) or "none"
            raise ModelError(f"{self.name}: no parameter named {unknown}; it has {has}")
        missing = [p.name for p in self.params if p.required and p.name not in params]
        if missing:
            raise ModelError(f"{self.name}: parameter {', '.join(missing)} is missing")
        return full


def _frozen(value: Any) -> ParamValue:
    if hasattr(value, "tolist"):
        value = value.tolist()
    return tuple(_frozen(v) for v in value) if isinstance(value, (list, tuple)) else value


_TABLE: dict[str, Op] = {}


def define(
    name: str,
    inputs: str,
    outputs: str = "out",
    params: tuple[Param, ...] = (),
    *,
    infer: Infer,
    reference: Reference,
    kind: Work,
    work: Measure,
    quant: QuantRule = QuantRule(),  # noqa: B008 - frozen
    layout: Layout = BOUND,
    doc: str,
) -> Op:
    """Add an op to the table. `inputs` and `outputs` are space-separated names."""
    if name in _TABLE:
        raise ValueError(f"op {name} is defined twice")
    ins, outs = tuple(inputs.split()), tuple(outputs.split())
    op = Op(name, ins, outs, params, infer, reference, kind, work, quant, layout, doc)
    _TABLE[name] = op
    return op


def declare(op: Op) -> None:
    """Add an op of a package to the table."""
    if op.name in _TABLE:
        raise ValueError(f"op {op.name} is defined twice")
    _TABLE[op.name] = op


def withdraw(op: Op) -> None:
    """Take an op of a package out of the table."""
    if _TABLE.get(op.name) is op:
        del _TABLE[op.name]


def known_names() -> frozenset[str]:
    """The names of all ops."""
    return frozenset(_TABLE)


def lookup(name: str) -> Op:
    """The op of that QNN name."""
    op = _TABLE.get(name)
    if op is None:
        raise ModelError(f"no QNN op is named {name!r}; one of an op package is registered first (op_packages)")
    return op


def table() -> Iterator[Op]:
    """Every op, by name."""
    return iter(sorted(_TABLE.values(), key=lambda op: op.name))
