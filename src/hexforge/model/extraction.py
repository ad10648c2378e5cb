# SPDX-License-Identifier: Apache-2.0
"""Extraction: a stand-alone ONNX model of some nodes, for running those a backend refused in onnxruntime."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import onnx
import onnx_ir
from onnx_ir import serde

from hexforge.errors import CallError, CapacityError
from hexforge.ir import Array
from hexforge.model.load_check import MOST_BYTES, RUNTIME_IR, Extract
from hexforge.model.reader import Model
from hexforge.model.source import loadable_opset
from hexforge.model.tensors import stored_bytes, unrepeated

OLDEST_IR = 10  # from 4 on initializers need not be inputs; 10 has every data type that onnxruntime takes
LEAST_SEPARATE_BYTES = 1 << 16
LEAST_SPREAD_BYTES = 1 << 16


def extract(
    model: Model, nodes: Sequence[onnx_ir.Node], inputs: Sequence[str], outputs: Sequence[str]
) -> onnx.ModelProto:
    """A stand-alone model of nodes, constants inside; CapacityError if they are too large for that."""
    extract = extract_parts(model, nodes, inputs, outputs)
    if extract.constants:
        raise CapacityError(f"{model.name}: the constants of these nodes do not fit into one protobuf (extract_parts)")
    return extract.proto


def extract_parts(
    model: Model, nodes: Sequence[onnx_ir.Node], inputs: Sequence[str], outputs: Sequence[str]
) -> Extract:
    """A stand-alone model of nodes; large constants are given beside it where they would not fit inside."""
    values = _values(nodes)
    written = {v.name for n in nodes for v in n.outputs if v.name}
    for name in outputs:
        if name not in written:
            raise CallError(f"{model.name}: none of the nodes to extract writes {name!r}")
    graph = onnx.GraphProto(name=model.metadata.graph_name or "extract")
    constants: list[onnx_ir.Value] = []
    for name, value in values.items():
        if name in inputs or name in written:
            continue
        if value.const_value is None:
            raise CallError(f"{model.name}: {name!r} is read by the nodes to extract; give it as an input")
        constants.append(value)
    # A body that is never run need not fit these shapes, but onnxruntime would check it against them and refuse.
    shaped = not any(True for node in nodes for _ in _bodies(node))
    known = {v.name: v for v in model.ir.graph.inputs} | values
    for name in inputs:
        if name not in known:
            raise CallError(f"{model.name}: {name!r} is not read by the nodes to extract")
        graph.input.append(_info(known[name], shaped))
    separate = _write_constants(graph, constants)
    for node in _in_order(model, nodes):
        graph.node.append(serde.serialize_node(node))
        graph.value_info.extend(
            _info(v, shaped) for v in node.outputs if v.name and v.type is not None and v.name not in outputs
        )
    produced = {v.name: v for n in nodes for v in n.outputs if v.name}
    graph.output.extend(_info(produced[name], shaped) for name in outputs)
    proto = onnx.ModelProto(
        ir_version=min(max(model.ir.ir_version, OLDEST_IR), RUNTIME_IR), producer_name="hexforge", graph=graph
    )
    for domain, version in _opsets(model, nodes).items():
        proto.opset_import.append(onnx.helper.make_opsetid(domain, version))
    return Extract(proto, separate)


def _info(value: onnx_ir.Value, shaped: bool) -> onnx.ValueInfoProto:
    info = serde.serialize_value(value)
    if not shaped and info.type.HasField("tensor_type"):
        for dim in info.type.tensor_type.shape.dim:
            dim.Clear()
    return info


def _bodies(node: onnx_ir.Node) -> Iterator[onnx_ir.Graph]:
    for attribute in node.attributes.values():
        if attribute.type == onnx_ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == onnx_ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


def _values(nodes: Iterable[onnx_ir.Node]) -> dict[str, onnx_ir.Value]:
    """Values that nodes read, those their subgraphs take from outside included."""
    values: dict[str, onnx_ir.Value] = {}
    for node in nodes:
        values.update((v.name or "", v) for v in node.inputs if v is not None)
        for body in _bodies(node):
            own = {*body.inputs, *body.initializers.values(), *(v for n in body for v in n.outputs)}
            values.update((name, v) for name, v in _values(body).items() if v not in own)
    return values


def _in_order(model: Model, nodes: Sequence[onnx_ir.Node]) -> Iterator[onnx_ir.Node]:
    chosen = set(nodes)
    return (node for node in model.ir.graph if node in chosen)


def _opsets(model: Model, nodes: Sequence[onnx_ir.Node]) -> dict[str, int]:
    """The opsets that are used, that of ai.onnx as onnxruntime loads it."""
    used = [n for node in nodes for n in (node, *(i for b in _bodies(node) for i in b.all_nodes()))]
    versions = {d: v for d, v in model.ir.opset_imports.items() if d == "" or any(n.domain == d for n in used)}
    for node in used:
        versions.setdefault(node.domain, node.version or 1)  # onnxruntime knows its own domains without an import
    if "" in versions:
        versions[""] = loadable_opset(versions[""], (n.op_type for n in used if n.domain == ""))
    return versions


# -- constants --------------------------------------------------------------------------------------------------


def _write_constants(graph: onnx.GraphProto, values: Sequence[onnx_ir.Value]) -> dict[str, Array]:
    stored = [(v, t) for v in values if (t := v.const_value) is not None]
    spread = [v for v, t in stored if t.nbytes > LEAST_SPREAD_BYTES and stored_bytes(t) < t.nbytes]
    for value in spread:
        _write_spread(graph, value)
    plain = [(v, t) for v, t in stored if v not in spread]
    too_large = sum(t.nbytes for _, t in plain) > MOST_BYTES
    separate: dict[str, Array] = {}
    for value, tensor in plain:
        name = value.name or ""
        native = isinstance(tensor, onnx_ir.Tensor) and tensor.dtype.numpy().kind in "fiub"
        if too_large and native and tensor.nbytes > LEAST_SEPARATE_BYTES:
            graph.initializer.append(_external(tensor, name))
            separate[name] = np.ascontiguousarray(tensor.numpy())
        else:
            proto = serde.serialize_tensor(tensor)
            proto.name = name
            graph.initializer.append(proto)
    return separate


def _external(tensor: onnx_ir.TensorProtocol, name: str) -> onnx.TensorProto:
    """A tensor whose data is handed over beside the model; the file it names is never opened."""
    proto = onnx.TensorProto(name=name, data_type=int(tensor.dtype), dims=tensor.shape.numpy())
    proto.data_location = onnx.TensorProto.EXTERNAL
    for key, text in (("location", "constants"), ("offset", "0"), ("length", str(tensor.nbytes))):
        proto.external_data.add(key=key, value=text)
    return proto


def _write_spread(graph: onnx.GraphProto, value: onnx_ir.Value) -> None:
    """A constant that repeats its elements becomes the small one and an Expand, as it was before folding."""
    assert value.const_value is not None
    array, name = value.const_value.numpy(), value.name or ""
    small = serde.serialize_tensor(onnx_ir.Tensor(np.ascontiguousarray(unrepeated(array)), value.const_value.dtype))
    small.name = f"{name}_element"
    shape = onnx.numpy_helper.from_array(np.array(array.shape, np.int64), f"{name}_shape")
    graph.initializer.extend([small, shape])
    graph.node.append(onnx.helper.make_node("Expand", [small.name, shape.name], [name], name=f"{name}_expand"))


def model_bytes(model: Model) -> bytes:
    """A whole model as bytes; inputs, outputs, opset and metadata are the original's, shapes are static."""
    extracted = extract_parts(
        model,
        list(model.ir.graph),
        [v.name or "" for v in model.ir.graph.inputs],
        [v.name or "" for v in model.ir.graph.outputs],
    )
    if extracted.constants:
        size = sum(array.nbytes for array in extracted.constants.values())
        raise CapacityError(f"{model.name}: {size >> 20} MB of weights do not fit into one protobuf of 2 GB")
    proto, about = extracted.proto, model.metadata
    del proto.graph.input[:]  # an extract of nodes with bodies leaves shapes out; a whole model's inputs have theirs
    proto.graph.input.extend(map(serde.serialize_value, model.ir.graph.inputs))
    proto.ir_version = max(proto.ir_version, model.ir.ir_version)
    proto.producer_name, proto.domain, proto.doc_string = about.producer_name, about.domain, about.description
    proto.model_version = about.version
    proto.graph.name, proto.graph.doc_string = about.graph_name or "graph", about.graph_description
    proto.metadata_props.extend(
        onnx.StringStringEntryProto(key=key, value=value) for key, value in about.custom_metadata_map.items()
    )
    return bytes(proto.SerializeToString())
