# SPDX-License-Identifier: Apache-2.0
"""Flat graph: a checked ModelProto without bodies and functions becomes an onnx_ir.Model in one walk.

The result is what `onnx_ir.serde` makes of it, with two differences that save most of the time: tensors are owned at
once (see `tensors`), and shapes that the model declares for what its nodes write are read only if they are asked for.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir
from onnx_ir import serde

from hexforge.ir import Array
from hexforge.model.source import DETACHED_TYPES, Source, schema_of
from hexforge.model.tensors import TYPED_FIELDS, Files, check_place, owned

_KINDS = onnx.AttributeProto
_BODIES = frozenset((_KINDS.GRAPH, _KINDS.GRAPHS))
_TENSORS = frozenset((_KINDS.TENSOR, _KINDS.TENSORS))
_NUMBERS: dict[int, tuple[str, onnx_ir.AttributeType]] = {
    _KINDS.INT: ("i", onnx_ir.AttributeType.INT),
    _KINDS.FLOAT: ("f", onnx_ir.AttributeType.FLOAT),
    _KINDS.INTS: ("ints", onnx_ir.AttributeType.INTS),
    _KINDS.FLOATS: ("floats", onnx_ir.AttributeType.FLOATS),
}
_LISTS: dict[int, str] = {
    onnx.TensorProto.FLOAT: "float_data",
    onnx.TensorProto.INT64: "int64_data",
    onnx.TensorProto.DOUBLE: "double_data",
}
"""Types whose numbers a proto may list in a field of their own."""
_PASSES_ON = frozenset(("Identity", "Dropout"))
"""Ops whose shapes go over to what they read before any is inferred."""

LateShapes = dict[onnx_ir.Value, Callable[[], onnx_ir.Shape | None]]
"""Shapes that a model declares for what its nodes write, read when they are asked for."""


def is_flat_proto(proto: onnx.ModelProto) -> bool:
    """True for a model of one graph whose nodes have no bodies, with nothing of what few models have."""
    graph = proto.graph
    if proto.functions or proto.configuration or graph.quantization_annotation or graph.sparse_initializer:
        return False
    for node in graph.node:
        if node.device_configurations or node.metadata_props:
            return False
        for attribute in node.attribute:
            if attribute.type in _BODIES or attribute.HasField("g") or attribute.graphs:
                return False
    return True


def flat_model(source: Source) -> tuple[onnx_ir.Model, LateShapes]:
    """The model of a flat proto, its tensors owned; and the shapes it declares for what known ops write."""
    proto, graph, where = source.proto, source.proto.graph, source.where
    files = Files(source)
    inputs = [serde.deserialize_value_info_proto(info, onnx_ir.Value(name=info.name)) for info in graph.input]
    values: dict[str, onnx_ir.Value] = {str(value.name): value for value in inputs}
    infos = {info.name: info for info in graph.value_info}
    initializers = []
    for tensor_proto in graph.initializer:
        name = tensor_proto.name
        tensor = _tensor(tensor_proto, name, source.detached.get(name), files, where)
        shape = onnx_ir.Shape(tensor.shape.numpy())
        value = values.get(name)
        if value is None:
            type = onnx_ir.TensorType(tensor.dtype)
            value = values[name] = onnx_ir.Value(name=name, type=type, shape=shape, const_value=tensor)
            if name in infos and _says_more(infos[name]):
                serde.deserialize_value_info_proto(infos[name], value)
        else:
            value.const_value = tensor
        value.shape, value.dtype = shape, tensor.dtype
        initializers.append(value)
    nodes, late = _nodes(proto, values, infos, files, where)
    outputs = [serde.deserialize_value_info_proto(info, values[info.name]) for info in graph.output]
    for value in outputs:
        late.pop(value, None)  # as an output it is declared once more, which counts
    made = onnx_ir.Graph(
        inputs,
        outputs,
        nodes=nodes,
        initializers=initializers,
        doc_string=_field(graph, "doc_string"),
        name=_field(graph, "name"),
        metadata_props=serde.deserialize_metadata_props(graph.metadata_props),
    )
    made.opset_imports.update(serde.deserialize_opset_import(proto.opset_import))
    model = onnx_ir.Model(
        made,
        ir_version=proto.ir_version,
        producer_name=_field(proto, "producer_name"),
        producer_version=_field(proto, "producer_version"),
        domain=_field(proto, "domain"),
        model_version=_field(proto, "model_version"),
        doc_string=_field(proto, "doc_string"),
        functions=(),
        metadata_props=serde.deserialize_metadata_props(proto.metadata_props),
    )
    return model, late


def _nodes(
    proto: onnx.ModelProto,
    values: dict[str, onnx_ir.Value],
    infos: Mapping[str, onnx.ValueInfoProto],
    files: Files,
    where: str,
) -> tuple[list[onnx_ir.Node], LateShapes]:
    graph, late, nodes = proto.graph, LateShapes(), []
    versions = {entry.domain: entry.version for entry in proto.opset_import}
    at_once = any(node.op_type in _PASSES_ON for node in graph.node)
    for node in graph.node:  # nodes may be in any order
        domain = node.domain
        known = schema_of(domain, node.op_type, versions.get(domain, 1)) is not None
        for name in node.output:
            if not name:
                continue
            value = values[name] = onnx_ir.Value(name=name)
            info = infos.get(name)
            if info is None:
                continue
            kind = info.type
            if at_once or not known or _says_more(info) or not kind.HasField("tensor_type"):
                serde.deserialize_value_info_proto(info, value)
                continue
            value.type = serde.deserialize_type_proto_for_type(kind)
            if kind.tensor_type.HasField("shape"):
                late[value] = functools.partial(serde.deserialize_tensor_shape, kind.tensor_type.shape)
    for node in graph.node:
        ins = [values[name] if name else None for name in node.input]
        outs = [values[name] if name else onnx_ir.Value(name="") for name in node.output]
        attributes = [_attribute(a, node.name, files, where) for a in node.attribute]
        nodes.append(
            onnx_ir.Node(
                node.domain,
                node.op_type,
                ins,
                attributes,
                overload=node.overload,
                outputs=outs,
                name=node.name,
                doc_string=_field(node, "doc_string"),
            )
        )
    return nodes, late


def _attribute(proto: onnx.AttributeProto, node: str, files: Files, where: str) -> onnx_ir.Attr:
    kind = proto.type
    plain = _NUMBERS.get(kind)
    if plain is not None and not proto.HasField("ref_attr_name"):
        field, type = plain
        return onnx_ir.Attr(proto.name, type, getattr(proto, field), doc_string=_field(proto, "doc_string"))
    if kind not in _TENSORS or proto.HasField("ref_attr_name"):
        return serde.deserialize_attribute(proto)
    subject = f"{node}.{proto.name}"
    if kind == _KINDS.TENSOR:
        return onnx_ir.AttrTensor(proto.name, _tensor(proto.t, subject, None, files, where))
    return onnx_ir.AttrTensors(proto.name, [_tensor(t, subject, None, files, where) for t in proto.tensors])


def _tensor(
    proto: onnx.TensorProto, name: str, detached: memoryview | None, files: Files, where: str
) -> onnx_ir.TensorProtocol:
    external = proto.data_location == onnx.TensorProto.EXTERNAL
    if external:
        check_place(proto, where)
    array = None if external else _array(proto, detached)
    if array is not None:
        return onnx_ir.Tensor(array, _numpy_types()[proto.data_type][0], name=proto.name)
    if detached is not None:
        proto.raw_data = bytes(detached)
    return owned(serde.deserialize_tensor(proto), name, files, where)


def _array(proto: onnx.TensorProto, detached: memoryview | None) -> Array | None:
    """The numbers of a usual tensor; None for one that is not, or that is wrong."""
    kind, dims = _numpy_types().get(proto.data_type), tuple(proto.dims)
    if kind is None or any(d < 0 for d in dims):
        return None
    dtype, size = kind[1], math.prod(dims)
    if detached is not None or proto.HasField("raw_data"):
        data = proto.raw_data if detached is None else bytes(detached)  # which begins aligned in memory
        return np.frombuffer(data, dtype).reshape(dims) if len(data) == size * dtype.itemsize else None
    field = _LISTS.get(proto.data_type)
    if field is None or any(other != field and len(getattr(proto, other)) for other in TYPED_FIELDS):
        return None
    numbers = getattr(proto, field)
    return np.array(numbers, dtype).reshape(dims) if len(numbers) == size else None


@functools.cache
def _numpy_types() -> dict[int, tuple[onnx_ir.DataType, np.dtype[Any]]]:
    types = [onnx_ir.DataType(number) for number in DETACHED_TYPES]
    return {int(type): (type, type.numpy().newbyteorder("<")) for type in types}


def _says_more(info: onnx.ValueInfoProto) -> bool:
    """True where more is declared of a value than its type and shape."""
    return bool(info.metadata_props) or info.HasField("doc_string") or info.type.HasField("denotation")


def _field(proto: Any, name: str) -> Any:
    return getattr(proto, name) if proto.HasField(name) else None
