# SPDX-License-Identifier: Apache-2.0
"""If: both branches are computed and the condition selects, as in the QNN EP."""

from __future__ import annotations

import numpy as np
import onnx_ir

from hexforge.frontends.onnx.translate.builder import TRANSLATORS, Builder, translates
from hexforge.frontends.onnx.unit import Operand, Refusal, Unit, single
from hexforge.ir import Value


class _Branch(Builder):
    """Writes a branch's nodes into the graph around it; names of the branch's own values are made unique there."""

    def __init__(self, outer: Builder, branch: onnx_ir.Graph) -> None:
        super().__init__(outer.graph)
        self._outer = outer
        self._own = {v for node in branch for v in node.outputs} | set(branch.initializers.values())

    def bind(self, operand: Operand) -> Value:
        """The branch's own value, or the outer one of that name."""
        if operand.value not in self._own:
            return self._outer.bind(operand)
        if operand.value.const_value is None:
            return self._values[(operand.value.name or "", operand.encoding)]
        return super().bind(operand)

    def output(self, unit: Unit, index: int = 0) -> Value:
        """The value to write, under a name that is new in the graph."""
        operand = unit.outputs[index]
        if operand is None:
            raise Refusal(f"output {index} is missing")
        key = (operand.value.name or "", operand.encoding)
        if key not in self._values:
            self._values[key] = self.temp(self.type_of(operand), operand.value.name)
        return self._values[key]


def _set_constant(node: onnx_ir.Node) -> None:
    """Give a Constant's output its value, which the model's own constants have already."""
    for name, dtype in (("value", None), ("value_float", "float32"), ("value_floats", "float32"),
                        ("value_int", "int64"), ("value_ints", "int64")):  # fmt: skip
        if (attribute := node.attributes.get(name)) is not None:
            value = attribute.value if dtype is None else onnx_ir.tensor(np.asarray(attribute.value, dtype))
            node.outputs[0].const_value = value
            return
    raise Refusal("a branch has a constant that is no plain tensor")


def _results(b: Builder, branch: onnx_ir.Graph) -> list[Value]:
    """Write a branch's nodes and give its outputs."""
    inner = _Branch(b, branch)
    for node in branch:
        if node.op_type == "Constant":
            _set_constant(node)
            continue
        unit = single(node)
        translator = TRANSLATORS.get(unit.op)
        if translator is None:
            raise Refusal(f"a branch has {unit.op}, which QNN EP has no op builder for")
        inner.translate(unit, translator)
    return [inner.bind(Operand(v)) for v in branch.outputs]


@translates("If", writes=("ElementWiseSelect",))
def if_(b: Builder, u: Unit) -> None:
    """ElementWiseSelect between the outputs of the two branches, which must have the same shapes."""
    condition = b.input(u, 0)
    if condition.type.size != 1:
        raise Refusal(f"the condition has shape {list(condition.shape)}; it must be one boolean")
    for operand in u.outputs:
        if operand is not None and not isinstance(operand.value.type, onnx_ir.TensorType):
            raise Refusal(f"output {operand.value.name!r} is no tensor; QNN has no sequences or optionals")
    then, other = (b.attr(u, name) for name in ("then_branch", "else_branch"))
    if not isinstance(then, onnx_ir.Graph) or not isinstance(other, onnx_ir.Graph):
        raise Refusal("a branch is missing")
    results = list(zip(_results(b, then), _results(b, other), strict=True))
    for index, (yes, no) in enumerate(results):
        if not b.wants(u, index):
            continue
        if yes.shape != no.shape or yes.dtype is not no.dtype:
            raise Refusal(f"the branches give {yes.type} and {no.type}; both must have one type and shape")
        flat = b.reshape(condition, (1,) * max(len(yes.shape), 1))
        b.finish(u, b.emit("ElementWiseSelect", [flat, yes, no]), index)
