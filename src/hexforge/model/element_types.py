# SPDX-License-Identifier: Apache-2.0
"""Element types: what each node reads, held against what its op takes, as onnx's checker and onnxruntime hold it."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, NamedTuple

import onnx

from hexforge.errors import ModelError
from hexforge.model.source import Source, label, schema_of

_TENSOR = "tensor("
_CODES = {name.lower(): code for name, code in onnx.TensorProto.DataType.items()}
_GIVEN_BY = {"Cast": "to", "RandomNormal": "dtype", "RandomUniform": "dtype", "EyeLike": "dtype"}
"""Ops whose outputs have the type that an attribute says."""


class _OperandTypes(NamedTuple):
    """What a schema says of an input or output: a type variable, and the element types that it may be."""

    variable: str
    allowed: frozenset[int]
    repeats: bool
    """Whether all operands from here on are like it, each of a type of its own."""


class _OpTypes(NamedTuple):
    inputs: tuple[_OperandTypes, ...]
    outputs: tuple[_OperandTypes, ...]


def check_element_types(source: Source) -> None:
    """ModelError for the first node of a model's main graph that reads a type which its op does not take.

    A type is known where the graph declares it or where it follows from a schema; the others are not looked at.
    """
    graph, versions = source.proto.graph, {entry.domain: entry.version for entry in source.proto.opset_import}
    known = {tensor.name: tensor.data_type for tensor in graph.initializer}
    for info in graph.input:
        if info.type.HasField("tensor_type") and info.type.tensor_type.elem_type:
            known.setdefault(info.name, info.type.tensor_type.elem_type)
    for node in graph.node:
        signature = _signature(node.domain, node.op_type, versions.get(node.domain, 1))
        if signature is not None:
            _check_node(node, signature, known, source.where)


def _check_node(node: onnx.NodeProto, signature: _OpTypes, known: dict[str, int], where: str) -> None:
    """Hold one node's inputs against its op, and note what its outputs are then."""
    bound: dict[str, tuple[str, int]] = {}
    for name, operand in _paired(node.input, signature.inputs):
        code = known.get(name)
        if code is None:
            continue
        reads = f"{where}: is not valid ONNX: node {label(node)} reads {name!r}, which is {_name(code)}"
        if operand.allowed and code not in operand.allowed:
            raise ModelError(f"{reads}; the op takes {', '.join(map(_name, sorted(operand.allowed)))}")
        first, first_code = bound.setdefault(operand.variable, (name, code))
        if first_code != code and not operand.repeats:
            raise ModelError(f"{reads}, with {first!r}, which is {_name(first_code)}; the op takes two of one type")
    given = next((a.i for a in node.attribute if a.name == _GIVEN_BY.get(node.op_type)), None)
    for name, operand in _paired(node.output, signature.outputs):
        if given is not None:
            known[name] = given
        elif operand.variable in bound and not operand.repeats:
            known[name] = bound[operand.variable][1]
        elif len(operand.allowed) == 1:
            (known[name],) = operand.allowed


def _paired(names: Iterable[str], operands: tuple[_OperandTypes, ...]) -> Iterable[tuple[str, _OperandTypes]]:
    for index, name in enumerate(names):
        if name and operands:
            yield name, operands[min(index, len(operands) - 1)]


@functools.cache
def _signature(domain: str, op_type: str, version: int) -> _OpTypes | None:
    schema = schema_of(domain, op_type, version)
    if schema is None:
        return None
    variables = {constraint.type_param_str for constraint in schema.type_constraints}

    def operand(formal: Any) -> _OperandTypes:
        types = list(formal.types)
        tensors = all(text.startswith(_TENSOR) for text in types)
        codes = (_CODES.get(text[len(_TENSOR) : -1]) for text in types) if tensors else ()
        variadic = formal.option == onnx.defs.OpSchema.FormalParameterOption.Variadic
        apart = (variadic and not formal.is_homogeneous) or not tensors
        return _OperandTypes(
            formal.type_str if formal.type_str in variables else f"{formal.type_str} alone",
            frozenset(code for code in codes if code is not None),
            apart,
        )

    return _OpTypes(tuple(map(operand, schema.inputs)), tuple(map(operand, schema.outputs)))


def _name(code: int) -> str:
    return onnx.TensorProto.DataType.Name(code).lower() if code in onnx.TensorProto.DataType.values() else str(code)
