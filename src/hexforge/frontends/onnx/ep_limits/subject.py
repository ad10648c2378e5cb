# SPDX-License-Identifier: Apache-2.0
"""What a limit looks at: attributes, tensors and numbers of a unit, as the EP sees them; and who refuses it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import onnx_ir

from hexforge.frontends.onnx.unit import Operand, Unit, constant
from hexforge.frontends.onnx.unit_encodings import first_input, is_dequantize
from hexforge.ir import Array
from hexforge.rules import Rule


class Refuser(StrEnum):
    """Who refuses a node."""

    BUILDER = "its op builder"
    """The EP's own code that turns the node into a QNN op."""
    VALIDATION = "the HTP's op validation"
    """The backend, asked by the EP before it takes a node."""
    PREPARATION = "graph preparation, after the EP took it: the session fails"
    """Nothing refuses the node, and then there is no session."""


class Evidence(StrEnum):
    """How a limit is known."""

    DOCUMENTED = "documentation of the EP"
    PUBLIC = "public sources of the EP's builders"
    OBSERVED = "observed through the API of version 2.7"


FLOATS = frozenset({"FLOAT", "FLOAT16", "BFLOAT16"})
NARROW = frozenset({"INT8", "UINT8", "INT16", "UINT16"})


@dataclass(frozen=True, slots=True)
class Subject:
    """A unit under judgement."""

    unit: Unit
    declared_opset: int = 0
    """The opset of ai.onnx that the model's file declares, 0 where that is not known."""

    @property
    def op(self) -> str:
        """Op type of the target, without its domain."""
        return self.unit.target.op_type

    @property
    def opset(self) -> int:
        """Version of the op's domain that the model imports."""
        return self.unit.target.version or 0

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute's value, or the default."""
        attribute = self.unit.target.attributes.get(name)
        return default if attribute is None or attribute.value is None else attribute.value

    @property
    def dilated(self) -> bool:
        """True where the windows of a convolution or a pool have gaps."""
        return any(d != 1 for d in self.attr("dilations", ()))

    # -- tensors ----------------------------------------------------------------------------------------------------

    def operand(self, index: int) -> Operand | None:
        """An input of the unit."""
        return self.unit.inputs[index] if index < len(self.unit.inputs) else None

    def given(self, index: int) -> bool:
        """True where the input is there."""
        return self.operand(index) is not None

    @property
    def inputs(self) -> tuple[Operand, ...]:
        """The inputs that are there."""
        return tuple(o for o in self.unit.inputs if o is not None)

    @property
    def outputs(self) -> tuple[Operand, ...]:
        """The outputs that are there."""
        return tuple(o for o in self.unit.outputs if o is not None)

    def rank(self, index: int = 0) -> int:
        """Dimensions of an input; 0 where it is absent."""
        return len(self.shape(index))

    def shape(self, index: int = 0) -> tuple[int, ...]:
        """Shape of an input; () where it is absent."""
        operand = self.operand(index)
        return () if operand is None else shape_of(operand.value)

    def out_shape(self, index: int = 0) -> tuple[int, ...]:
        """Shape of an output."""
        operand = self.unit.outputs[index] if index < len(self.unit.outputs) else None
        return () if operand is None else shape_of(operand.value)

    def numbers(self, index: int) -> Array | None:
        """The numbers of a constant input, None where it is absent or computed."""
        operand = self.operand(index)
        return None if operand is None else constant(operand.value)

    def computed(self, index: int) -> bool:
        """True where the input is there and not a constant."""
        return self.given(index) and self.numbers(index) is None

    # -- data types -------------------------------------------------------------------------------------------------

    def plain(self, index: int = 0) -> str:
        """Data type of an input that carries no encoding, by ONNX's name; "" for fixed point or an absent one."""
        return plain_type(self.operand(index))

    def plain_out(self, index: int = 0) -> str:
        """Data type of an output that carries no encoding."""
        return plain_type(self.unit.outputs[index] if index < len(self.unit.outputs) else None)

    @property
    def real(self) -> bool:
        """True where input 0 is a float tensor."""
        return self.plain() in FLOATS

    def bits(self, index: int = 0) -> int:
        """Bits of a fixed-point input, 0 where it has no encoding."""
        operand = self.operand(index)
        return 0 if operand is None or operand.encoding is None else _bits(operand.value)

    def fixed(self, index: int = 0) -> str:
        """Integer type of a fixed-point input by ONNX's name, "" where it has no encoding."""
        operand = self.operand(index)
        return (
            ""
            if operand is None or operand.encoding is None or operand.value.dtype is None
            else operand.value.dtype.name
        )

    def dequantized_bits(self, index: int) -> int:
        """Bits of the integers behind an input that a DequantizeLinear outside the unit writes, else 0."""
        operand = self.operand(index)
        node = None if operand is None else operand.value.producer()
        return _bits(first_input(node)) if node is not None and is_dequantize(node) else 0

    def from_graph(self, index: int = 0) -> bool:
        """True where the input is an input of the model."""
        operand = self.operand(index)
        return operand is not None and operand.value.is_graph_input()

    def to_graph(self) -> bool:
        """True where output 0 is an output of the model."""
        return bool(self.unit.outputs) and (o := self.unit.outputs[0]) is not None and o.value.is_graph_output()


EpRule = Rule[Subject]
"""A limit of the EP."""
Broken = Callable[[Subject], bool | str | None]
"""Whether a limit is broken."""


def builder(ops: str, broken: Broken, reason: str, evidence: Evidence = Evidence.PUBLIC) -> EpRule:
    """A limit of the EP's own op builders, most of which are known from their sources."""
    return EpRule.of(ops, broken, reason, evidence, Refuser.BUILDER)


def validation(ops: str, broken: Broken, reason: str) -> EpRule:
    """A limit of the HTP's op validation, which was observed."""
    return EpRule.of(ops, broken, reason, Evidence.OBSERVED, Refuser.VALIDATION)


def preparation(ops: str, broken: Broken, reason: str) -> EpRule:
    """What only fails when the graph is prepared, as was observed."""
    return EpRule.of(ops, broken, reason, Evidence.OBSERVED, Refuser.PREPARATION)


def shape_of(value: onnx_ir.Value) -> tuple[int, ...]:
    """A value's shape as numbers; () where it is not known."""
    if value.shape is None:
        return ()
    return tuple(d if isinstance(d, int) else -1 for d in value.shape)


def plain_type(operand: Operand | None) -> str:
    """The ONNX name of a data type, "" for fixed point, an absent tensor or an unknown type."""
    return (
        ""
        if operand is None or operand.encoding is not None or operand.value.dtype is None
        else operand.value.dtype.name
    )


def _bits(value: onnx_ir.Value) -> int:
    return 0 if value.dtype is None else int(value.dtype.bitwidth)
