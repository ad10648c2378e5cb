# SPDX-License-Identifier: Apache-2.0
"""Ops in the order they were handed over become a graph: the one way from QNN's calls to the IR."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from hexforge.addons.qnn_graphs.declarations import (
    QTI_PACKAGE,
    QnnOp,
    QnnTensor,
    QuantizeParams,
    data_of,
    fit_int16_weights,
    role_of,
    type_of,
)
from hexforge.addons.qnn_graphs.table_forms import from_0_to_1, merge_groups, resolve_op, rotary_embedding, table_form
from hexforge.errors import ModelError
from hexforge.ir import Call, Graph, Node, Role, TensorType, Value
from hexforge.ir.op import Op, ParamValue
from hexforge.ir.verify import verify
from hexforge.ops.packages import custom_named

_ABSENT = "QNN_TENSOR_TYPE_NULL"
"""The type of a tensor that stands for an optional input that is not given."""


def build_graph(name: str, ops: Sequence[QnnOp], packages: Collection[str] = (QTI_PACKAGE,)) -> Graph:
    """The graph of some ops. Tensors keep their names, and graph inputs and outputs the order of their first use.

    ModelError names every op and tensor that is wrong.
    """
    builder = _Builder(name, packages)
    faults: list[str] = []
    for op in ops:
        try:
            builder.add(op)
        except ModelError as error:
            faults.append(str(error))
    if faults:
        raise ModelError(f"graph {name!r}: " + "; ".join(faults))
    builder.graph.sort()
    verify(builder.graph)
    return builder.graph


def build_fragment(ops: Sequence[QnnOp], packages: Collection[str] = (QTI_PACKAGE,)) -> tuple[Node, ...]:
    """The nodes of ops that are looked at before their graph, and maybe the data of its constants, is known."""
    builder = _Builder("fragment", packages, is_fragment=True)
    for op in ops:
        builder.add(op)
    return builder.graph.nodes


def _is_registered(op: QnnOp) -> bool:
    """True for an op of a package that the user registered."""
    custom = custom_named(op.type)
    return custom is not None and custom.package == op.package


class _Builder:
    """A graph on its way, and which tensor each of its values was."""

    def __init__(self, name: str, packages: Collection[str], is_fragment: bool = False) -> None:
        self.graph = Graph(name)
        self._packages = packages
        self._is_fragment = is_fragment
        self._values: dict[int, tuple[QnnTensor, Value]] = {}
        self._encodings: dict[str, QuantizeParams] = {}
        """Those of tensors that were handed over without one, by what writes them."""

    def add(self, op: QnnOp) -> None:
        """Append the node of an op."""
        if op.package not in self._packages and not _is_registered(op):
            raise ModelError(f"op {op.name!r} ({op.type}): no op package {op.package!r} is registered")
        try:
            op = self._in_table_form(merge_groups(op))
            inputs = [None if t.tensor_type == _ABSENT else self._value(t) for t in op.inputs]
            outputs = [self._value(t) for t in op.outputs]
            if op.type == "RotaryEmbedding":
                rotary_embedding(self.graph, op, inputs, outputs)
                return
            kind, params = resolve_op(op)
            if kind.name == "Lstm" and inputs[0] is not None and len(inputs[0].shape) == 2:
                inputs[0], params = self._one_step(inputs[0], op.name), {**params, "time_major": True}
            self._node(op.name, kind, inputs, outputs, params)
        except ModelError as error:
            text = str(error)
            raise ModelError(text if op.name in text else f"op {op.name!r} ({op.type}): {text}") from None

    def _in_table_form(self, op: QnnOp) -> QnnOp:
        """The op as the table has it; encodings that this gives to its outputs hold for whoever reads them."""
        if self._is_fragment:  # what writes an input is not known yet, and may give it its encoding
            op = replace(op, inputs=tuple(from_0_to_1(tensor) for tensor in op.inputs))
        made = table_form(op)
        for given, tensor in zip(op.outputs, made.outputs, strict=True):
            if given.quantization is None and tensor.quantization is not None:
                self._encodings[tensor.name] = tensor.quantization
        return made

    def _node(
        self, name: str, kind: Op, inputs: list[Value | None], outputs: list[Value], params: Mapping[str, ParamValue]
    ) -> None:
        """A node; where the op gives rank 0, which QNN declares as [1], or another plain type, that is converted."""
        types = (tuple(None if v is None else v.type for v in inputs), tuple(v.type for v in outputs))
        inferred = kind.infer(Call(kind, *types, kind.complete(params)))
        written = [
            self._written(value, type, any(v is not None and v.encoding is not None for v in inputs))
            for value, type in zip(outputs, inferred, strict=False)
        ]
        written += outputs[len(written) :]
        self.graph.node(kind, inputs, written, name=name, source=(name,), **params)
        for made, value in zip(written, outputs, strict=True):
            if made.shape != value.shape:
                same = made.dtype is value.dtype
                shaped = value if same else self._like(value, TensorType(made.dtype, value.shape))
                self.graph.node("Reshape", [made], [shaped], source=(name,))
                made = shaped
            if made is not value:
                self.graph.node("Cast", [made], [value], source=(name,))

    def _one_step(self, value: Value, name: str) -> Value:
        """What a cell reads, [batch, features], as a sequence of one step, time first."""
        type = TensorType(value.dtype, (1, *value.shape), value.encoding)
        step = self.graph.value(self.graph.unique(f"{value.name}_step"), type)
        self.graph.node("Reshape", [value], [step], source=(name,))
        return step

    def _like(self, value: Value, type: TensorType) -> Value:
        return self.graph.value(self.graph.unique(f"{value.name}_given"), type)

    def _written(self, value: Value, inferred: TensorType, reads_fixed_point: bool) -> Value:
        """What the node itself writes: the declared value, or one that is converted to it."""
        one = value.shape == (1, *inferred.shape) or inferred.shape == (1, *value.shape)  # a layer, a step
        shape = inferred.shape if one else value.shape
        plain = value.encoding is None and inferred.encoding is None and not reads_fixed_point
        dtype = inferred.dtype if plain else value.dtype
        if (shape, dtype) == (value.shape, value.dtype):
            return value
        return self._like(value, TensorType(dtype, shape, value.encoding))

    def _value(self, tensor: QnnTensor) -> Value:
        known = self._values.get(id(tensor))
        if known is not None:
            return known[1]
        role = role_of(tensor)
        given = tensor
        if tensor.quantization is None and tensor.name in self._encodings:
            tensor = replace(tensor, quantization=self._encodings[tensor.name])
        tensor = fit_int16_weights(tensor) if role is Role.STATIC else tensor
        type = type_of(tensor)
        data = None
        if role is Role.STATIC:
            unknown = self._is_fragment and (tensor.data is None or np.asarray(tensor.data).size == 0)
            data = np.broadcast_to(type.dtype.numpy.type(0), type.shape) if unknown else data_of(tensor, type)
        value = self.graph.values.get(tensor.name)
        if value is None:
            value = self.graph.value(tensor.name, type, role, data)
        elif data is not None and value.data is not None:
            if value.type != type or not np.array_equal(value.data, data):
                value = self.graph.value(self.graph.unique(tensor.name), type, role, data)
        elif (value.type, value.role) != (type, role) and not self._is_fragment:
            raise ModelError(
                f"tensor {tensor.name!r}: is {value.type} {value.role.value} in one op, {type} {role.value} in another"
            )
        self._values[id(given)] = (given, value)
        return value
