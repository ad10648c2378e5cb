# SPDX-License-Identifier: Apache-2.0
"""Limits of control flow: what branches read of the graph around them."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir

from hexforge.frontends.onnx.ep_limits.subject import EpRule, Evidence, Subject, builder, preparation
from hexforge.model.simplifying.tidying import OF_A_BRANCH


def _branches(node: onnx_ir.Node) -> Iterator[onnx_ir.Graph]:
    """The graphs that a node has, and those inside them."""
    for attribute in node.attributes.values():
        if isinstance(attribute.value, onnx_ir.Graph):
            yield attribute.value
            for inner in attribute.value:
                yield from _branches(inner)


def _outer_values(subject: Subject) -> list[onnx_ir.Value]:
    """What the branches read of the graph around the node."""
    branches = [*_branches(subject.unit.target)]
    own = {value for branch in branches for node in branch for value in node.outputs}
    own |= {value for branch in branches for value in (*branch.inputs, *branch.initializers.values())}
    read = (value for branch in branches for node in branch for value in node.inputs if value is not None)
    return [value for value in read if value not in own]


def _is_constant(value: onnx_ir.Value) -> bool:
    return value.const_value is not None and not value.meta.get(OF_A_BRANCH)


def _outer_constant(subject: Subject) -> bool:
    return any(map(_is_constant, _outer_values(subject)))


def _outer_constant_and_result(subject: Subject) -> bool:
    values = _outer_values(subject)
    return any(map(_is_constant, values)) and any(value.producer() is not None for value in values)


LIMITS: tuple[EpRule, ...] = (
    builder(
        "If",
        _outer_constant_and_result,
        "branches that read a constant and a result of the graph around; put the constant into the branch",
        Evidence.OBSERVED,
    ),
    preparation(
        "If", _outer_constant, "a branch that reads a constant of the graph around; put the constant into the branch"
    ),
)
