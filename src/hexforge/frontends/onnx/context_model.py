# SPDX-License-Identifier: Apache-2.0
"""Context models: ONNX models with EPContext nodes, which stand for compiled graphs, read by protobuf alone."""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from hexforge.errors import FormatError, ModelError, UnsupportedError
from hexforge.ir import Array
from hexforge.model.declarations import Declared, Metadata, declare, metadata
from hexforge.model.load_check import MOST_BYTES, Extract
from hexforge.model.source import bodies, captures, label, loadable_opset, locate, nodes_of, open_source
from hexforge.model.wire import detach_contexts, has_contexts

OP_TYPE = "EPContext"
DOMAIN = "com.microsoft"
SOURCE = "QNNExecutionProvider"
COMPATIBILITY = f"ep_compatibility_info.{SOURCE}"
"""The model's metadata entry that says what its context was made for."""

_ATTRIBUTES = onnx.AttributeProto
_KINDS = {
    "main_context": _ATTRIBUTES.INT,
    "embed_mode": _ATTRIBUTES.INT,
    "ep_cache_context": _ATTRIBUTES.STRING,
    "ep_sdk_version": _ATTRIBUTES.STRING,
    "partition_name": _ATTRIBUTES.STRING,
    "source": _ATTRIBUTES.STRING,
    "max_size": _ATTRIBUTES.INT,
    "is_multi_soc_ep_context": _ATTRIBUTES.INT,
    "io_name_overrides": _ATTRIBUTES.STRING,
    "notes": _ATTRIBUTES.STRING,
    "ep_context_type": _ATTRIBUTES.STRING,
}


@dataclass(frozen=True, slots=True)
class EpContext:
    """One EPContext node: a compiled graph, and where the context that has it is."""

    name: str
    """The node's."""
    graph: str
    """The graph's in the context (partition_name)."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    main: bool = True
    """False where another node of the model has the context."""
    embedded: memoryview | None = None
    file: str = ""
    """The context's file, beside the model; "" where it is embedded."""
    sdk_version: str = ""
    max_size: int = 0
    """Bytes of the spill-fill buffer that contexts may share."""
    multi_soc: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    """The graph's names of tensors that the model calls otherwise (io_name_overrides, the other way round)."""
    notes: str = ""

    def to_node(self) -> onnx.NodeProto:
        """The node as a model has it."""
        node = onnx.helper.make_node(OP_TYPE, self.inputs, self.outputs, name=self.name, domain=DOMAIN)
        cache = {"ep_cache_context": bytes(self.embedded) if self.embedded is not None else self.file.encode()}
        overrides = ";".join(f"{inner}={outer}" for outer, inner in self.names.items())
        attributes: dict[str, Any] = {
            "main_context": int(self.main),
            "embed_mode": int(self.embedded is not None if self.main else not self.file),
            **(cache if self.main else {}),
            "ep_sdk_version": self.sdk_version,
            "partition_name": self.graph,
            "source": SOURCE,
            **({"max_size": self.max_size} if self.max_size else {}),
            "is_multi_soc_ep_context": int(self.multi_soc),
            **({"io_name_overrides": overrides} if overrides else {}),
            **({"notes": self.notes} if self.notes else {}),
        }
        node.attribute.extend(onnx.helper.make_attribute(name, value) for name, value in attributes.items())
        return node


def is_ep_context(node: onnx.NodeProto) -> bool:
    """True for a node that stands for a compiled graph."""
    return bool(node.op_type == OP_TYPE)


def read_node(node: onnx.NodeProto, embedded: memoryview | None, where: str) -> EpContext:
    """A node of a model; `embedded` is its context where that was taken out of the model."""
    subject = f"{where}: node {label(node)}"
    values: dict[str, Any] = {}
    for attribute in node.attribute:
        if attribute.name in values:
            raise ModelError(f"{subject} has its attribute {attribute.name!r} twice")
        kind = _KINDS.get(attribute.name)
        if kind is not None and attribute.type != kind:
            expected = "an integer" if kind == _ATTRIBUTES.INT else "a text"
            raise ModelError(f"{subject}: attribute {attribute.name!r} is not {expected}")
        values[attribute.name] = attribute.i if kind == _ATTRIBUTES.INT else attribute.s

    def text(name: str) -> str:
        try:
            return str(values.get(name, b"").decode())
        except UnicodeDecodeError:
            raise FormatError(f"{subject}: attribute {name!r} is not valid UTF-8; the file is damaged") from None

    source = text("source")
    if source.lower() not in ("qnn", SOURCE.lower()):
        raise UnsupportedError(
            f"{subject} was compiled for {source or 'an unnamed provider'}; {SOURCE} runs its own only"
        )
    if text("ep_context_type").lower() == "dlc":
        raise UnsupportedError(f"{subject} is a Genie model (DLC), which runs only on Windows on Snapdragon")
    main, embed = values.get("main_context", 1) != 0, values.get("embed_mode", 1) != 0
    if main and "ep_cache_context" not in values:
        raise ModelError(
            f"{subject} is the main context and has no attribute 'ep_cache_context'; compile the model again"
        )
    cache = None
    if main and embed:
        cache = embedded if embedded is not None else memoryview(values["ep_cache_context"])
    elif main and embedded is not None:
        raise ModelError(f"{subject}: embed_mode is 0, and ep_cache_context is no file name; compile the model again")
    return EpContext(
        name=node.name,
        graph=text("partition_name") or node.name,
        inputs=tuple(node.input),
        outputs=tuple(node.output),
        main=main,
        embedded=cache,
        file=text("ep_cache_context") if main and not embed else "",
        sdk_version=text("ep_sdk_version"),
        max_size=int(values.get("max_size", 0)),
        multi_soc=values.get("is_multi_soc_ep_context", 0) != 0,
        names=_overrides(text("io_name_overrides"), subject),
        notes=text("notes"),
    )


def _overrides(pairs: str, subject: str) -> dict[str, str]:
    names = {}
    for pair in filter(None, pairs.split(";")):
        inner, equals, outer = pair.partition("=")
        if not (inner and equals and outer) or outer in names:
            raise ModelError(f"{subject}: io_name_overrides has {pair!r}; it is a list of internal=external;… names")
        names[outer] = inner
    return names


class ContextModel:
    """A model with EPContext nodes: these, and what onnxruntime runs of it."""

    def __init__(self, proto: onnx.ModelProto, embedded: Mapping[int, memoryview], where: str,
                 path: Path | None, folder: Path | None) -> None:  # fmt: skip
        self.where, self.path, self.folder = where, path, folder
        self._proto = proto
        graph = proto.graph
        self.contexts = {
            i: read_node(node, embedded.get(i), where) for i, node in enumerate(graph.node) if is_ep_context(node)
        }
        """The EPContext nodes, by their number among the nodes."""
        self._initializers = {t.name: t for t in graph.initializer}
        self._sparse = {t.values.name: t for t in graph.sparse_initializer}
        constants = self._initializers.keys() | self._sparse.keys()
        self.constants = frozenset(constants)
        self.inputs: tuple[Declared, ...] = tuple(declare(v) for v in graph.input if v.name not in constants)
        self.outputs: tuple[Declared, ...] = tuple(declare(v) for v in graph.output)
        self.metadata: Metadata = metadata(proto)

    @property
    def nodes(self) -> Sequence[onnx.NodeProto]:
        """Every node, in the model's order."""
        return list(self._proto.graph.node)

    def reads(self, index: int) -> tuple[str, ...]:
        """Tensors a node reads, those its subgraphs take from outside included; constants are none."""
        node = self._proto.graph.node[index]
        inner = (name for body in bodies(node) for name in captures(body))
        return tuple(dict.fromkeys(n for n in (*node.input, *inner) if n and n not in self.constants))

    def context_path(self, context: EpContext) -> Path:
        """The file of a context that is not embedded; FormatError where it is missing or not beside the model."""
        subject = f"{self.where}: Failed to load from EpContext model: the context of node {context.name!r}"
        if self.folder is None:
            raise ModelError(
                f"{subject} lies in {context.file!r}, and the model was given as bytes: "
                "set ep.context_file_path to the path it would have beside that file"
            )
        return locate(context.file, self.folder, self.path, subject)

    def constant(self, name: str) -> Any:
        """An initializer's numbers."""
        tensor = self._initializers.get(name)
        if tensor is None:
            raise ModelError(f"{self.where}: {name!r} is a sparse constant; make it dense")
        try:
            return onnx.numpy_helper.to_array(self._with_data(tensor))
        except (ValueError, TypeError, KeyError, AssertionError) as error:
            raise FormatError(f"{self.where}: initializer {name!r} cannot be read: {error}") from None

    # -- parts for onnxruntime ------------------------------------------------------------------------------------

    def extract(self, indices: Sequence[int], inputs: Sequence[str], outputs: Sequence[str]) -> Extract:
        """A stand-alone model of nodes; large constants are given beside it where they would not fit inside."""
        whole = self._proto.graph
        nodes = [whole.node[i] for i in indices]
        # A body that is never run need not fit these shapes, but onnxruntime would check it against them and refuse.
        shaped = not any(True for node in nodes for _ in bodies(node))
        graph = onnx.GraphProto(name=whole.name or "extract", node=nodes)
        for name in inputs:
            if name not in self._types:
                raise ModelError(f"{self.where}: the type of {name!r}, which a node on the CPU reads, is not declared")
        graph.input.extend(_info(self._types[name], shaped) for name in inputs)
        graph.output.extend(
            _info(self._types[n], shaped) if n in self._types else onnx.helper.make_empty_tensor_value_info(n)
            for n in outputs
        )
        written = [o for node in nodes for o in node.output if o and o not in outputs]
        graph.value_info.extend(_info(self._types[o], shaped) for o in written if o in self._types)
        read = dict.fromkeys(n for node in nodes for n in (*node.input, *_captured(node)))
        graph.sparse_initializer.extend(self._sparse[n] for n in read if n in self._sparse)
        chosen = [self._initializers[n] for n in read if n in self._initializers]
        beside: dict[str, Array] = {}
        too_large = sum(_data_bytes(t) for t in chosen) > MOST_BYTES
        for tensor in chosen:
            if too_large and (array := self._mapped(tensor)) is not None:
                beside[tensor.name] = array
                graph.initializer.append(tensor)
            else:
                graph.initializer.append(self._with_data(tensor))
        model = onnx.ModelProto(ir_version=self._proto.ir_version, producer_name="hexforge", graph=graph)
        model.opset_import.extend(self._opsets(nodes))
        return Extract(model, beside)

    @cached_property
    def _types(self) -> dict[str, onnx.ValueInfoProto]:
        graph = self._proto.graph
        return {v.name: v for v in (*graph.value_info, *graph.output, *graph.input) if v.type.WhichOneof("value")}

    def _opsets(self, nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.OperatorSetIdProto]:
        """The model's opsets, that of ai.onnx as onnxruntime loads it."""
        used = {n.op_type for node in nodes for n in (node, *(i for b in bodies(node) for i in nodes_of(b)))
                if n.domain == ""}  # fmt: skip
        for entry in self._proto.opset_import:
            version = loadable_opset(entry.version, used) if entry.domain == "" else entry.version
            yield onnx.helper.make_opsetid(entry.domain, version)

    def _with_data(self, tensor: onnx.TensorProto) -> onnx.TensorProto:
        """The tensor with its data inside."""
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            return tensor
        embedded = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        embedded.raw_data = self._external(tensor).tobytes()
        return embedded

    def _mapped(self, tensor: onnx.TensorProto) -> Array | None:
        """An external tensor's numbers, mapped; None where they are inside, or of a kind that cannot be handed over."""
        dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
        if tensor.data_location != onnx.TensorProto.EXTERNAL or dtype.kind not in "fiu":
            return None
        return self._external(tensor).view(dtype.newbyteorder("<")).reshape(tuple(tensor.dims))

    def _external(self, tensor: onnx.TensorProto) -> Array:
        subject = f"{self.where}: external data of {tensor.name!r}"
        entries = {e.key: e.value for e in tensor.external_data}
        path = locate(entries.get("location", ""), self.folder, self.path, subject)
        size = _data_bytes(tensor)
        try:
            offset, length = int(entries.get("offset", 0)), int(entries.get("length", size))
            whole = np.memmap(path, np.uint8, mode="r") if path.stat().st_size else np.empty(0, np.uint8)
        except (OSError, ValueError) as error:
            raise FormatError(f"{subject}: {path.name!r} cannot be read: {error}") from None
        if length != size or not 0 <= offset <= whole.size - size:
            raise FormatError(
                f"{subject} has {length} bytes at {offset} of {path.name!r} ({whole.size} bytes); "
                f"its shape and type need {size}"
            )
        return np.asarray(whole[offset : offset + size])


def _captured(node: onnx.NodeProto) -> Iterator[str]:
    return (name for body in bodies(node) for name in captures(body))


def _info(info: onnx.ValueInfoProto, shaped: bool) -> onnx.ValueInfoProto:
    if shaped or not info.type.HasField("tensor_type"):
        return info
    named = onnx.ValueInfoProto()
    named.CopyFrom(info)
    for dim in named.type.tensor_type.shape.dim:
        dim.Clear()
    return named


def _data_bytes(tensor: onnx.TensorProto) -> int:
    """Bytes of a tensor's numbers; 0 for texts."""
    if tensor.data_type not in onnx.TensorProto.DataType.values():
        raise FormatError(f"tensor {tensor.name!r} has the unknown data type {tensor.data_type}")
    if tensor.data_type in (onnx.TensorProto.STRING, onnx.TensorProto.UNDEFINED):
        return 0
    if any(d < 0 for d in tensor.dims):
        raise FormatError(f"tensor {tensor.name!r} has the impossible shape {list(tensor.dims)}")
    name = onnx.TensorProto.DataType.Name(tensor.data_type)
    bits = 2 if name in ("INT2", "UINT2") else 4 if name in ("INT4", "UINT4", "FLOAT4E2M1") else 0
    bits = bits or np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)).itemsize * 8
    return -(-math.prod(int(d) for d in tensor.dims) * int(bits) // 8)


# -- reading ----------------------------------------------------------------------------------------------------------


def read_context_model(
    source: str | os.PathLike[str] | bytes, folder: str | os.PathLike[str] | None = None
) -> ContextModel | None:
    """A model with EPContext nodes; None for any other, which this takes no time for. `folder` holds its context."""
    path = None if isinstance(source, bytes) else Path(source)
    data = memoryview(source) if isinstance(source, bytes) else _mapped_file(Path(source))
    if data is None or not has_contexts(data):
        return None
    where = path.name if path is not None else "model bytes"
    model, detached = detach_contexts(data)
    chosen = Path(folder) if folder is not None else path.parent if path is not None else None
    opened = open_source(model, chosen, where, schemas=False)  # onnxruntime checks the nodes it is left
    embedded = {i: _aligned(view) for i, view in detached.items()}
    return ContextModel(opened.proto, embedded, where, path, chosen)


def _mapped_file(path: Path) -> memoryview | None:
    """The bytes of a file; None for one that cannot be mapped, which the reader of ordinary models explains."""
    try:
        with path.open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError):
        return None


def _aligned(view: memoryview) -> memoryview:
    """A copy that begins a page, as what lies in it must: inside a model it begins anywhere."""
    buffer = mmap.mmap(-1, max(len(view), 1))
    buffer[: len(view)] = view
    return memoryview(buffer).toreadonly()[: len(view)]
