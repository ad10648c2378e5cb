# SPDX-License-Identifier: Apache-2.0
"""Source: a model's bytes, which nobody vouches for, to a ModelProto whose structure was checked."""

from __future__ import annotations

import functools
import graphlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple, Protocol

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from hexforge.addon import Hook, hook, import_target
from hexforge.errors import CallError, CapacityError, FormatError, ModelError, UnsupportedError
from hexforge.formats.file_kinds import UNKNOWN, file_and_member, kind_of, kind_of_bytes, require_plain
from hexforge.model.load_check import RUNTIME_OPSET
from hexforge.model.wire import detach_tensors

OLDEST_OPSET = 7
NEWEST_OPSET = onnx.defs.onnx_opset_version()


class TorchProgram(Protocol):
    """What torch.export.export gives: a torch.export.ExportedProgram."""

    graph_signature: Any


ModelSource = str | os.PathLike[str] | bytes | onnx.ModelProto | TorchProgram | tuple[Any, tuple[Any, ...]]
"""What a model is read from: a path, its bytes, a ModelProto, an exported program of torch, or a module of torch and
its example inputs."""
NO_GRAPH = "has no graph, so it is not an ONNX model; export it again"
DAMAGED = "is not an ONNX model, or is cut off or damaged; get the file again"
MOST_NODES = 2_000_000  # after inlining functions, which may nest and so grow exponentially


@dataclass(frozen=True, slots=True)
class Source:
    """A parsed model, where it came from (for messages) and the folder its external data lies in."""

    proto: onnx.ModelProto
    where: str
    path: Path | None
    folder: Path | None
    opset: int
    """The opset of ai.onnx that the file declares; models of very old ones are read as of `OLDEST_OPSET`."""
    detached: dict[str, memoryview] = field(default_factory=dict)
    """The bytes of large initializers by name that the proto is without."""

    def attach(self) -> None:
        """Give the proto all its bytes."""
        for tensor in self.proto.graph.initializer if self.detached else ():
            if (data := self.detached.pop(tensor.name, None)) is not None:
                tensor.raw_data = bytes(data)


DETACHED_TYPES = frozenset(
    onnx.TensorProto.DataType.Value(name)
    for name in ("FLOAT", "FLOAT16", "DOUBLE", "INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "INT64", "UINT64")
)
"""The usual types of constants, whose bytes in a file are those of an array."""


def open_source(
    source: ModelSource, folder: Path | None = None, name: str = "", schemas: bool = True, detach: bool = False
) -> Source:
    """Parse and check a model given by path, as bytes or as a ModelProto (which is copied, as reading edits it).

    Without `schemas` nodes are not held against those of their ops, which takes onnx a while to load. With `detach` the
    bytes of large initializers are left where they are, beside the proto.
    """
    path: Path | None = None
    data: bytes | None = None
    detached: dict[str, memoryview] = {}
    if isinstance(source, onnx.ModelProto):
        proto, where = onnx.ModelProto(), "model"
        proto.CopyFrom(source)
    elif isinstance(source, (bytes, bytearray, memoryview)):
        where = name or "model bytes"
        data = bytes(source)
        data, detached = _detached(data) if detach else (data, {})
        proto = _parse(data, where)
    elif isinstance(source, (str, os.PathLike)):
        path = Path(source)
        file, member = file_and_member(path)
        where, folder = path.name if not member else file.name, folder or file.parent
        data = _read(file)
        data, detached = _detached(data) if detach else (data, {})
        proto = _parse(data, where, file, member)
    elif (made := _of_program(source)) is not None:
        proto, where = made, name or "program"
    else:
        raise CallError(
            "a model is a path, bytes, an onnx.ModelProto, an exported program of torch or (module, example inputs), "
            f"not {type(source).__name__}"
        )
    if not proto.graph.node and not proto.graph.output:
        raise FormatError(f"{where}: {(data is not None and _another_kind(data, path)) or NO_GRAPH}")
    if not _texts_are_valid(proto):
        _check_text(proto, where)
    _one_name_per_domain(proto)
    declared = next((entry.version for entry in proto.opset_import if entry.domain == ""), 0)
    _check_opsets(proto, where)
    _check_functions(proto, where)
    _check_graph(proto.graph, frozenset(), where)
    if schemas:
        _check_nodes(proto, where)
    return Source(proto, where, path, folder, declared, detached)


def nodes_of(graph: Any) -> Iterator[onnx.NodeProto]:
    """Every node of a graph or function, those of its subgraphs included."""
    for node in graph.node:
        yield node
        if node.attribute:
            for body in bodies(node):
                yield from nodes_of(body)


def graphs_of(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A graph and its subgraphs."""
    yield graph
    for node in nodes_of(graph):
        yield from bodies(node)


def bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The subgraphs of a node."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def label(node: onnx.NodeProto) -> str:
    """A node in words, by its name or what it writes."""
    name = node.name or next((o for o in node.output if o), "") or "unnamed"
    return f"{name!r} ({node.op_type})"


# -- bytes ------------------------------------------------------------------------------------------------------


def _read(path: Path) -> bytes:
    require_plain(path)
    if path.is_dir():
        kind = kind_of(path)
        raise FormatError(f"{path}: is {kind.name}; {kind.advice}")
    try:
        return path.read_bytes()
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror or error}") from None
    except MemoryError:
        raise CapacityError(f"{path}: does not fit in memory; save its weights as external data") from None


def _of_program(source: Any) -> onnx.ModelProto | None:
    """The ONNX model of a program that an add-on knows, such as one exported by torch."""
    try:
        made: onnx.ModelProto | None = hook(Hook.ONNX_OF_PROGRAM)(source)
    except UnsupportedError:
        if type(source).__module__.startswith("torch."):
            raise
        return None
    return made


def _detached(data: bytes) -> tuple[bytes, dict[str, memoryview]]:
    try:
        return detach_tensors(data, DETACHED_TYPES)
    except FormatError:
        return data, {}  # parsing says what is wrong with it


def _parse(data: bytes, where: str, path: Path | None = None, member: str = "") -> onnx.ModelProto:
    try:
        proto = onnx.ModelProto()
        proto.ParseFromString(data)
        return proto
    except DecodeError:
        kind = kind_of_bytes(data, path)
        if kind.as_onnx:
            made: onnx.ModelProto = import_target(kind.as_onnx)(data, where, member)
            return made
        if len(data) >= 1 << 31:
            raise FormatError(f"{where}: protobuf stops at 2 GB; save the weights as external data") from None
        raise FormatError(f"{where}: {_another_kind(data, path) or DAMAGED}") from None


def _another_kind(data: bytes, path: Path | None) -> str:
    """What the bytes of a file are that are no ONNX model, and what to do with it; empty where that is not known."""
    kind = kind_of_bytes(data, path)
    return "" if kind is UNKNOWN or "check" in kind.does else f"is {kind.name}, not an ONNX model; {kind.advice}"


_KINDS = onnx.AttributeProto
_PLAIN_ATTRIBUTES = frozenset((_KINDS.FLOAT, _KINDS.INT, _KINDS.STRING, _KINDS.FLOATS, _KINDS.INTS, _KINDS.STRINGS))


# -- structure --------------------------------------------------------------------------------------------------


def _texts_are_valid(proto: onnx.ModelProto) -> bool:
    """True where what `_check_text` looks for is surely not there: nodes and declared values, which are most of a
    model, are looked at by their known fields."""
    graph = proto.graph
    try:
        for node in graph.node:
            _joined(node.name, node.op_type, node.domain, node.doc_string, node.overload, *node.input, *node.output)
            for attribute in node.attribute:
                plain = attribute.type in _PLAIN_ATTRIBUTES and not attribute.HasField("g") and not attribute.graphs
                if not plain:
                    _check_text(attribute, "")
                _joined(attribute.name, attribute.doc_string, attribute.ref_attr_name)
            if node.metadata_props or node.device_configurations:
                return False
        for info in (*graph.input, *graph.output, *graph.value_info):
            kind = info.type
            _joined(info.name, info.doc_string, kind.denotation)
            if not kind.HasField("tensor_type") or info.metadata_props:
                _check_text(info, "")
            for dim in kind.tensor_type.shape.dim:
                _joined(dim.dim_param, dim.denotation)
        _joined(*(tensor.name for tensor in graph.initializer))
    except (FormatError, TypeError):
        return False
    rest = ("node", "input", "output", "value_info", "initializer")
    others = [item for item in proto.ListFields() if item[0].name != "graph"]
    others += [item for item in graph.ListFields() if item[0].name not in rest]
    return all(_is_text(descriptor, value) for descriptor, value in others)


def _joined(*texts: str) -> None:
    """TypeError where one is bytes."""
    "".join(texts)


def _is_text(descriptor: Any, value: Any) -> bool:
    if descriptor.type == descriptor.TYPE_STRING:
        return isinstance(value, str)
    if descriptor.type != descriptor.TYPE_MESSAGE:
        return True
    try:
        for message in [value] if hasattr(value, "ListFields") else value:
            _check_text(message, "")
    except FormatError:
        return False
    return True


def _check_text(proto: Any, where: str) -> None:
    """Every text is one: protobuf hands out bytes where a file has no valid UTF-8. Tensors' data is not looked at."""
    for descriptor, value in proto.ListFields():
        if descriptor.type == descriptor.TYPE_STRING:
            texts = [value] if isinstance(value, (str, bytes)) else value
            if any(isinstance(text, bytes) for text in texts):
                raise FormatError(f"{where}: a text ({descriptor.name}) is not valid UTF-8; the file is damaged")
        elif descriptor.type == descriptor.TYPE_MESSAGE:
            for message in [value] if hasattr(value, "ListFields") else value:
                if isinstance(message, onnx.TensorProto):
                    if isinstance(message.name, bytes):
                        raise FormatError(f"{where}: the name of a tensor is not valid UTF-8; the file is damaged")
                else:
                    _check_text(message, where)


def _one_name_per_domain(proto: onnx.ModelProto) -> None:
    """`ai.onnx` and the empty domain are the same; only the empty one is used from here on."""
    for graph in (proto.graph, *proto.functions):
        for node in nodes_of(graph):
            if node.domain == "ai.onnx":
                node.domain = ""
    for imports in (proto.opset_import, *(f.opset_import for f in proto.functions)):
        for entry in imports:
            if entry.domain == "ai.onnx":
                entry.domain = ""


def _check_opsets(proto: onnx.ModelProto, where: str) -> None:
    versions: dict[str, int] = {}
    for entry in proto.opset_import:
        if versions.setdefault(entry.domain, entry.version) != entry.version:
            raise ModelError(f"{where}: imports two opsets of domain {entry.domain or 'ai.onnx'!r}; export it again")
    if "" not in versions:
        if any(node.domain == "" for node in nodes_of(proto.graph)):
            raise ModelError(f"{where}: imports no opset of ai.onnx, whose ops it uses; export it again")
        return
    if versions[""] < OLDEST_OPSET and not _raise_opset(proto, versions[""]):
        raise ModelError(
            f"{where}: opset {versions['']} is older than {OLDEST_OPSET}, the oldest that is read; "
            "convert it (onnx.version_converter) or export it again"
        )
    if versions[""] > NEWEST_OPSET:
        raise ModelError(
            f"{where}: opset {versions['']} is newer than {NEWEST_OPSET}, the newest that onnx {onnx.__version__} "
            "knows; export it with an older opset"
        )


def _raise_opset(proto: onnx.ModelProto, version: int) -> bool:
    """Call a model of an older opset one of the oldest that is read, where none of its ops has changed in between."""
    used = {n.op_type for graph in (proto.graph, *proto.functions) for n in nodes_of(graph) if n.domain == ""}
    schemas = [schema_of("", op_type, OLDEST_OPSET) for op_type in used]
    if not all(s is not None and s.since_version <= version for s in schemas):
        return False
    for imports in (proto.opset_import, *(f.opset_import for f in proto.functions)):
        for entry in imports:
            if entry.domain == "":
                entry.version = OLDEST_OPSET
    return True


def _check_functions(proto: onnx.ModelProto, where: str) -> None:
    """Function bodies are sound, do not call each other in a circle, and do not blow up when inlined."""
    functions = {(f.domain, f.name, f.overload): f for f in proto.functions}
    calls = {
        key: [k for n in nodes_of(f) if (k := (n.domain, n.op_type, n.overload)) in functions]
        for key, f in functions.items()
    }
    try:
        order = list(graphlib.TopologicalSorter(calls).static_order())
    except graphlib.CycleError as error:
        circle = " -> ".join(name for _, name, _ in error.args[1])
        raise ModelError(f"{where}: functions call each other in a circle: {circle}") from None
    sizes: dict[tuple[str, str, str], int] = {}
    for key in order:
        function = functions[key]
        _check_graph(function, frozenset(), f"{where}, function {function.name!r}")
        sizes[key] = len(function.node) + sum(sizes[k] for k in calls[key])
    total = sum(sizes.get((n.domain, n.op_type, n.overload), 1) for n in nodes_of(proto.graph))
    if total > MOST_NODES:
        raise CapacityError(f"{where}: has {total} nodes once its functions are inlined; at most {MOST_NODES} are read")


def _check_graph(graph: Any, outer: frozenset[str], where: str) -> None:
    """Names are unique, every read value is written, and there is no cycle. Recurses into subgraphs.

    A graph may name an output twice, as onnxruntime lets it.
    """
    is_function = isinstance(graph, onnx.FunctionProto)
    inputs = list(graph.input) if is_function else [v.name for v in graph.input]
    outputs = list(graph.output) if is_function else [v.name for v in graph.output]
    constants = (
        []
        if is_function
        else [*(t.name for t in graph.initializer), *(t.values.name for t in graph.sparse_initializer)]
    )
    named = outputs if is_function or outer else list(dict.fromkeys(outputs))
    for names, kind in ((inputs, "input"), (named, "output"), (constants, "initializer")):
        if "" in names:
            raise ModelError(f"{where}: an {kind} has no name")
        twice = sorted({n for n in names if names.count(n) > 1}) if len(set(names)) < len(names) else []
        if twice:
            raise ModelError(f"{where}: {kind} {', '.join(map(repr, twice))} is there twice; rename one")
    writers: dict[str, int] = {}
    sources = {*inputs, *constants}
    for index, node in enumerate(graph.node):
        for name in filter(None, node.output):
            if name in sources:
                raise ModelError(f"{where}: node {label(node)} writes {name!r}, which is an input or initializer")
            if name in writers:
                first = label(graph.node[writers[name]])
                raise ModelError(f"{where}: value {name!r} is written twice, by {first} and by {label(node)}")
            writers[name] = index
    known = outer | sources | writers.keys()
    edges: dict[int, list[int]] = {}
    for index, node in enumerate(graph.node):
        inner = list(bodies(node)) if node.attribute else []
        for body in inner:
            _check_graph(body, known, f"{where}, body {body.name!r} of {label(node)}")
        reads = [*filter(None, node.input), *(name for body in inner for name in captures(body))]
        for name in reads:
            if name not in known:
                raise ModelError(f"{where}: node {label(node)} reads {name!r}, which nothing writes")
        edges[index] = [writers[name] for name in reads if name in writers]
    try:
        if any(writer >= reader for reader, writers_read in edges.items() for writer in writers_read):
            graphlib.TopologicalSorter(edges).prepare()  # nodes in order form no cycle
    except graphlib.CycleError as error:
        circle = " -> ".join(label(graph.node[i]) for i in reversed(error.args[1]))
        raise ModelError(f"{where}: the graph has a cycle: {circle}") from None
    for name in outputs:
        if name not in sources and name not in writers:
            if name in outer:
                raise ModelError(f"{where}: output {name!r} belongs to the graph outside; put an Identity node between")
            raise ModelError(f"{where}: output {name!r} is written by no node")


def captures(body: onnx.GraphProto) -> Iterable[str]:
    """Names a subgraph reads from the graph outside."""
    own = {v.name for v in body.input} | {t.name for t in body.initializer}
    own |= {t.values.name for t in body.sparse_initializer} | {o for n in body.node for o in n.output}
    captured = dict.fromkeys(name for n in body.node for name in n.input if name and name not in own)
    for node in body.node:
        for inner in bodies(node):
            captured.update(dict.fromkeys(name for name in captures(inner) if name not in own))
    return captured


# -- nodes against their schemas --------------------------------------------------------------------------------


@functools.cache
def schema_of(domain: str, op_type: str, version: int) -> onnx.defs.OpSchema | None:
    """The schema an op has at an opset, None where onnx knows no such op."""
    try:
        return onnx.defs.get_schema(op_type, version, domain)
    except (onnx.defs.SchemaError, TypeError):  # TypeError: a version beyond any
        return None


def loadable_opset(version: int, op_types: Iterable[str]) -> int:
    """An opset of ai.onnx that onnxruntime loads, lowered to its newest where none of these ops has changed since."""
    if version <= RUNTIME_OPSET:
        return version
    schemas = [schema_of("", op_type, version) for op_type in op_types]
    unchanged = all(s is not None and s.since_version <= RUNTIME_OPSET for s in schemas)
    return RUNTIME_OPSET if unchanged else version


def _check_nodes(proto: onnx.ModelProto, where: str) -> None:
    """Numbers of inputs and outputs, and attributes, are what the op's schema says, where there is one."""
    graphs: list[tuple[Any, Any]] = [(proto.graph, proto.opset_import), *((f, f.opset_import) for f in proto.functions)]
    for graph, imports in graphs:
        versions = {entry.domain: entry.version for entry in imports}
        for node in nodes_of(graph):
            form = _form_of(node.domain, node.op_type, versions.get(node.domain, 1))
            if form is not None:
                _check_node(node, form, where)


class _Form(NamedTuple):
    """What nodes are checked against, read out of a schema once."""

    inputs: tuple[int, int]
    outputs: tuple[int, int]
    required: tuple[str, ...]
    types: Mapping[str, Any]
    """Of each attribute; an enum, though onnx's stubs do not say so."""


@functools.cache
def _form_of(domain: str, op_type: str, version: int) -> _Form | None:
    schema = schema_of(domain, op_type, version)
    if schema is None:
        return None
    attributes = schema.attributes
    return _Form(
        (schema.min_input, schema.max_input),
        (schema.min_output, schema.max_output),
        tuple(name for name, attribute in attributes.items() if attribute.required),
        {name: attribute.type for name, attribute in attributes.items()},
    )


def _check_node(node: onnx.NodeProto, form: _Form, where: str) -> None:
    for kind, names, (low, high) in (("inputs", node.input, form.inputs), ("outputs", node.output, form.outputs)):
        if not low <= len(names) <= high:
            allowed = str(low) if low == high else f"{low} or more" if high > 1 << 30 else f"{low} to {high}"
            raise ModelError(f"{where}: node {label(node)} has {len(names)} {kind}; the op takes {allowed}")
    attributes = {a.name for a in node.attribute}
    if len(attributes) < len(node.attribute):
        raise ModelError(f"{where}: node {label(node)} has an attribute twice")
    for name in form.required:
        if name not in attributes:
            raise ModelError(f"{where}: node {label(node)} lacks its attribute {name!r}")
    for attribute in node.attribute:
        wanted_type = form.types.get(attribute.name)
        if wanted_type is None and not attribute.name.startswith("__"):
            raise ModelError(f"{where}: node {label(node)} has an attribute {attribute.name!r}, which the op has not")
        if wanted_type is None or attribute.ref_attr_name:
            continue
        if attribute.type != wanted_type.value:
            raise ModelError(f"{where}: node {label(node)}: attribute {attribute.name!r} is not {wanted_type.name}")


# -- files that a model names -------------------------------------------------------------------------------------


def locate(location: str, folder: Path | None, model: Path | None, subject: str) -> Path:
    """The file a model names, which lies in its folder; `subject` begins the error where it does not."""
    if folder is None:
        raise CallError(f"{subject} lies in {location!r}; give the model by path, or the folder that holds it")
    posix, windows = PurePosixPath(location), PureWindowsPath(location)
    if not location or posix.is_absolute() or windows.drive or windows.root or ".." in windows.parts:
        raise FormatError(f"{subject}: {location!r} leaves the model's folder, which is not allowed")
    try:
        real = (folder / posix).resolve(strict=True)
        # A model file that is itself a link (as in download caches) may have its data beside what it links to.
        allowed = {folder.resolve()}
        if model is not None:
            allowed.add(model.resolve().parent)
    except FileNotFoundError:
        raise FormatError(f"{subject}: {location!r} is missing; put it beside the model") from None
    except (OSError, ValueError, RuntimeError) as error:
        raise FormatError(f"{subject}: {location!r} cannot be read: {error}") from None
    if not any(real.is_relative_to(a) for a in allowed):
        raise FormatError(f"{subject}: {location!r} links to a file outside the model's folder")
    if not real.is_file():
        raise FormatError(f"{subject}: {location!r} is not a file")
    return real
