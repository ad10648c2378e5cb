# SPDX-License-Identifier: Apache-2.0
"""Context writer: the EPContext model of a model that was placed and compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import onnx
import onnx_ir
from onnx_ir import serde

from hexforge.errors import CapacityError
from hexforge.frontends.onnx.context.node import DOMAIN, EpContext
from hexforge.ir import Array
from hexforge.model.declarations import Declared
from hexforge.model.extraction import OLDEST_IR
from hexforge.model.reader import Model
from hexforge.model.standalone import MOST_BYTES, RUNTIME_IR, Extract

_ALIGN = 64


@dataclass(slots=True)
class Composed:
    """A context model; constants that are too large for its protobuf are beside it, to go into a file."""

    proto: onnx.ModelProto
    beside: dict[str, Array] = field(default_factory=dict)

    def move_out(self, location: str, least_bytes: int = 0) -> list[bytes | memoryview]:
        """Have initializers of more bytes than `least_bytes` lie in a file; what that file holds."""
        parts: list[bytes | memoryview] = []
        end = 0
        for tensor in self.proto.graph.initializer:
            data = self._data(tensor)
            if data is None or len(data) <= least_bytes:
                continue
            padding = -end % _ALIGN
            parts += [bytes(padding), data]
            point_at(tensor, location, end + padding, len(data))
            end += padding + len(data)
        self.beside.clear()
        return parts

    def place(self, choose: Callable[[onnx.TensorProto], tuple[str, int, int] | None]) -> None:
        """Have `choose` say of each initializer in which file it lies, at what offset and size; None: inside."""
        for tensor in self.proto.graph.initializer:
            if self._data(tensor) is not None and (place := choose(tensor)) is not None:
                point_at(tensor, *place)

    def serialized(self) -> bytes:
        """The model's bytes."""
        if self.beside or (size := self.proto.ByteSize()) > MOST_BYTES:
            reason = "the constants of nodes on the CPU" if self.beside else f"it has {size >> 20} MB"
            raise CapacityError(
                f"the context model does not fit into one protobuf ({reason}); keep the context outside "
                "(ep.context_embed_mode=0) and set ep.context_model_external_initializers_file_name"
            )
        return bytes(self.proto.SerializeToString())

    def _data(self, tensor: onnx.TensorProto) -> bytes | memoryview | None:
        """A tensor's bytes as a file has them; None for texts and for what is in a file already."""
        if tensor.name in self.beside:
            return self.beside[tensor.name].reshape(-1).view("u1").data
        if tensor.data_type == onnx.TensorProto.STRING or tensor.data_location == onnx.TensorProto.EXTERNAL:
            return None
        if not tensor.HasField("raw_data"):
            return bytes(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor)).raw_data)
        return bytes(tensor.raw_data)


def point_at(tensor: onnx.TensorProto, location: str, offset: int, size: int) -> None:
    """Make a tensor one whose data lies in a file."""
    name, kind, dims = tensor.name, tensor.data_type, list(tensor.dims)
    tensor.Clear()
    tensor.name, tensor.data_type = name, kind
    tensor.dims.extend(dims)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(size))):
        tensor.external_data.add(key=key, value=value)


def compose(
    model: Model, parts: Sequence[EpContext | Extract], constants: Iterable[str], properties: Mapping[str, str]
) -> Composed:
    """The context model: what the backend took as EPContext nodes, what it left as it is, in the order they run.

    `constants` are outputs that no part writes; `properties` go into the model's metadata.
    """
    values = {v.name: v for v in (*model.ir.graph.inputs, *(v for n in model.ir.graph for v in n.outputs))}
    graph = onnx.GraphProto(name=model.metadata.graph_name, doc_string=model.metadata.graph_description)
    graph.input.extend(_declared(item, values.get(item.name)) for item in model.inputs)
    results = {v.name: v for v in model.ir.graph.outputs}
    graph.output.extend(_declared(item, results.get(item.name)) for item in model.outputs)
    written = {item.name for item in (*model.inputs, *model.outputs)}
    versions = {DOMAIN: 1}
    beside: dict[str, Array] = {}
    known: set[str] = set()
    nodes: set[str] = set()

    def add_info(info: onnx.ValueInfoProto) -> None:
        if info.name not in written:
            written.add(info.name)
            graph.value_info.append(info)

    for part in parts:
        if isinstance(part, EpContext):
            graph.node.append(part.to_node())
            for name in part.outputs:
                if name in values:
                    add_info(serde.serialize_value(values[name]))
            continue
        cut = part.proto.graph
        beside.update(part.constants)
        for tensor in cut.initializer:
            if tensor.name not in known:
                known.add(tensor.name)
                graph.initializer.append(tensor)
        for node in cut.node:  # parts that share a constant may each bring the node that spreads it
            writes = set(filter(None, node.output))
            if not writes & nodes:
                nodes |= writes
                graph.node.append(node)
        for info in (*cut.value_info, *cut.input, *cut.output):
            add_info(info)
        for entry in part.proto.opset_import:
            versions[entry.domain] = max(entry.version, versions.get(entry.domain, 0))
    for name in constants:
        tensor = results[name].const_value
        if name not in known and tensor is not None:
            proto = serde.serialize_tensor(tensor)
            proto.name = name
            graph.initializer.append(proto)
    versions.setdefault("", max(model.opset, 1))
    made = onnx.ModelProto(
        ir_version=min(max(model.ir.ir_version, OLDEST_IR), RUNTIME_IR),
        producer_name=model.metadata.producer_name,
        domain=model.metadata.domain,
        model_version=model.metadata.version,
        doc_string=model.metadata.description,
        graph=graph,
    )
    made.opset_import.extend(onnx.helper.make_opsetid(domain, version) for domain, version in versions.items())
    for key, value in {**model.metadata.custom_metadata_map, **properties}.items():
        made.metadata_props.add(key=key, value=value)
    return Composed(made, beside)


def _declared(item: Declared, value: onnx_ir.Value | None) -> onnx.ValueInfoProto:
    """An input or output, with the shape it has after fixing and inference."""
    if value is None or value.type is None:
        return onnx.ValueInfoProto(name=item.name)
    info: onnx.ValueInfoProto = serde.serialize_value(value)
    if value.shape is None and item.shape is not None and info.type.HasField("tensor_type"):
        info.type.tensor_type.shape.SetInParent()
        for dim in item.shape:
            added = info.type.tensor_type.shape.dim.add()
            if isinstance(dim, int):
                added.dim_value = dim
            elif dim:
                added.dim_param = dim
    return info
