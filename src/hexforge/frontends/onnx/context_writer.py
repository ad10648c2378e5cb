# SPDX-License-Identifier: Apache-2.0
"""Context writer: the EPContext model of a model that was placed and compiled, or of one graph of a context."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import onnx
import onnx_ir
from onnx_ir import serde

from hexforge.errors import CapacityError
from hexforge.formats.context import GraphInfo
from hexforge.frontends.onnx.context_model import DOMAIN, EpContext
from hexforge.ir import Array, DType, ScaleOffset, TensorType
from hexforge.model.declarations import Declared
from hexforge.model.extraction import OLDEST_IR
from hexforge.model.load_check import MOST_BYTES, RUNTIME_IR, Extract
from hexforge.model.reader import Model

_OPSET = 21  # the first whose QuantizeLinear has 16 bits
_QUANTIZED = (DType.UINT8, DType.INT8, DType.UINT16, DType.INT16)


def is_quantized(type: TensorType) -> bool:
    """True where a Quantize or DequantizeLinear can stand before or after a tensor."""
    return isinstance(type.encoding, ScaleOffset) and type.dtype in _QUANTIZED


def wrapper(
    graph: GraphInfo, node: EpContext, properties: Mapping[str, str], *, real_io: bool = True, wide: bool = False
) -> bytes:
    """The model; with `real_io` quantized inputs and outputs are float32 outside, under their names with `_dq`.

    `wide`: the graph computes in bfloat16 behind float32 inputs and outputs.
    """
    nodes, after, constants = [], [], []
    infos: dict[str, list[onnx.ValueInfoProto]] = {"inputs": [], "outputs": []}
    between = []
    for side, tensors in (("inputs", graph.inputs), ("outputs", graph.outputs)):
        for name, type in tensors:
            kind = onnx.helper.np_dtype_to_tensor_dtype(type.dtype.numpy)
            if wide and type.dtype is DType.BFLOAT16:
                kind = onnx.TensorProto.FLOAT
            info = onnx.helper.make_tensor_value_info(name, kind, type.shape)
            if not real_io or not is_quantized(type):
                infos[side].append(info)
                continue
            assert isinstance(type.encoding, ScaleOffset)
            outer, scale, zero = f"{name}_dq", f"{name}_scale", f"{name}_zp"
            constants.append(onnx.helper.make_tensor(scale, onnx.TensorProto.FLOAT, [], [type.encoding.scale]))
            constants.append(onnx.helper.make_tensor(zero, kind, [], [-type.encoding.offset]))
            infos[side].append(onnx.helper.make_tensor_value_info(outer, onnx.TensorProto.FLOAT, type.shape))
            between.append(info)
            if side == "inputs":
                nodes.append(onnx.helper.make_node("QuantizeLinear", [outer, scale, zero], [name], name=f"{name}_q"))
            else:
                after.append(onnx.helper.make_node("DequantizeLinear", [name, scale, zero], [outer], name=outer))
    body = onnx.helper.make_graph(
        [*nodes, node.to_node(), *after], graph.name, infos["inputs"], infos["outputs"], constants, value_info=between
    )
    opsets = [onnx.helper.make_opsetid("", _OPSET), onnx.helper.make_opsetid(DOMAIN, 1)]
    model = onnx.helper.make_model(body, opset_imports=opsets, producer_name="hexforge", ir_version=min(10, RUNTIME_IR))
    for key, value in properties.items():
        model.metadata_props.add(key=key, value=value)
    if node.embedded is not None and model.ByteSize() > MOST_BYTES:
        raise CapacityError(
            f"graph {graph.name!r}: the context has {len(node.embedded) >> 20} MB, too many to embed; "
            "leave it in its file"
        )
    return bytes(model.SerializeToString())


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
    body = _Body(model)
    for part in parts:
        if isinstance(part, EpContext):
            body.add_context(part)
        else:
            body.add_nodes(part)
    body.add_constants(constants)
    proto = onnx.ModelProto(
        ir_version=min(max(model.ir.ir_version, OLDEST_IR), RUNTIME_IR),
        producer_name=model.metadata.producer_name,
        domain=model.metadata.domain,
        model_version=model.metadata.version,
        doc_string=model.metadata.description,
        graph=body.graph,
    )
    body.versions.setdefault("", max(model.opset, 1))
    proto.opset_import.extend(onnx.helper.make_opsetid(domain, version) for domain, version in body.versions.items())
    for key, value in {**model.metadata.custom_metadata_map, **properties}.items():
        proto.metadata_props.add(key=key, value=value)
    return Composed(proto, body.beside)


class _Body:
    """The graph of a context model, part by part; what several parts bring is written once."""

    def __init__(self, model: Model) -> None:
        self.graph = onnx.GraphProto(name=model.metadata.graph_name, doc_string=model.metadata.graph_description)
        self.versions = {DOMAIN: 1}
        """The opset of each domain that the nodes need."""
        self.beside: dict[str, Array] = {}
        """Constants that are too large for the model."""
        graph = model.ir.graph
        self._values = {v.name: v for v in (*graph.inputs, *(v for n in graph for v in n.outputs))}
        self._results = {v.name: v for v in graph.outputs}
        self.graph.input.extend(_declared(item, self._values.get(item.name)) for item in model.inputs)
        self.graph.output.extend(_declared(item, self._results.get(item.name)) for item in model.outputs)
        self._described = {item.name for item in (*model.inputs, *model.outputs)}
        self._constants: set[str] = set()
        self._written: set[str] = set()

    def add_context(self, context: EpContext) -> None:
        """A part that the backend took."""
        self.graph.node.append(context.to_node())
        self._describe(serde.serialize_value(self._values[name]) for name in context.outputs if name in self._values)

    def add_nodes(self, part: Extract) -> None:
        """A part that stays as it is."""
        graph = part.proto.graph
        self.beside.update(part.constants)
        for tensor in graph.initializer:
            if tensor.name not in self._constants:
                self._constants.add(tensor.name)
                self.graph.initializer.append(tensor)
        for node in graph.node:  # parts that share a constant may each bring the node that spreads it
            writes = set(filter(None, node.output))
            if not writes & self._written:
                self._written |= writes
                self.graph.node.append(node)
        self._describe((*graph.value_info, *graph.input, *graph.output))
        for entry in part.proto.opset_import:
            self.versions[entry.domain] = max(entry.version, self.versions.get(entry.domain, 0))

    def add_constants(self, names: Iterable[str]) -> None:
        """Outputs of the model that are constants."""
        for name in names:
            tensor = self._results[name].const_value
            if name not in self._constants and tensor is not None:
                proto = serde.serialize_tensor(tensor)
                proto.name = name
                self.graph.initializer.append(proto)

    def _describe(self, infos: Iterable[onnx.ValueInfoProto]) -> None:
        for info in infos:
            if info.name not in self._described:
                self._described.add(info.name)
                self.graph.value_info.append(info)


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
