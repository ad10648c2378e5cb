# SPDX-License-Identifier: Apache-2.0
"""Describe: what a context, or a model that holds one, says of itself: as qnn-context-binary-utility does, and ours."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hexforge.backend import Backend, Compatibility, ContextBackend
from hexforge.errors import FormatError
from hexforge.formats.container import PAGE, VERSION
from hexforge.formats.context import GraphInfo
from hexforge.formats.hmx_layout import FLAT, HMX
from hexforge.ir import AxisScaleOffset, ScaleOffset, TensorType
from hexforge.runtime import registry
from hexforge.runtime.contexts.compatibility import chip_backend, compare
from hexforge.runtime.contexts.context import Context
from hexforge.runtime.contexts.native_kv import recorded_format

if TYPE_CHECKING:
    from hexforge.frontends.onnx.context_model import ContextModel

_BACKEND_IDS = {"cpu": 3, "gpu": 4, "htp": 6, "saver": 2}
"""QNN_BACKEND_ID_…"""
HW_INFO_VERSION = {"major": 0, "minor": 0, "patch": 1}
"""The first version of what QnnHtpSystemContext.h calls the hardware info of a binary."""


def describe(path: str | os.PathLike[str], soc: str = "") -> dict[str, Any]:
    """What `hexforge info --json` prints of a context or an EPContext model; FormatError for any other file."""
    from hexforge.frontends.onnx.context_model import read_context_model

    model = read_context_model(path)
    if model is None:
        return describe_context(Context(path), soc)
    contexts = _contexts_of_model(model, path)
    description = describe_context(contexts[0], soc)
    description["hexforge"]["model"] = {
        "file": os.fspath(path),
        "nodes": len(model.nodes),
        "ep_context_nodes": [
            {
                "name": node.name,
                "graph": node.graph,
                "main_context": node.main,
                "embed_mode": int(node.embedded is not None if node.main else not node.file),
                "file": node.file,
                "max_size": node.max_size,
                "ep_sdk_version": node.sdk_version,
                "is_multi_soc_ep_context": node.multi_soc,
                "inputs": list(node.inputs),
                "outputs": list(node.outputs),
            }
            for node in model.contexts.values()
        ],
        "contexts": [c.where for c in contexts],
    }
    return description


def contexts_of(path: str | os.PathLike[str]) -> list[Context]:
    """The context in a file, or those that an EPContext model names."""
    from hexforge.frontends.onnx.context_model import read_context_model

    model = read_context_model(path)
    return [Context(path)] if model is None else _contexts_of_model(model, path)


def _contexts_of_model(model: ContextModel, path: str | os.PathLike[str]) -> list[Context]:
    contexts = [
        Context(node.embedded, f"{path}: the context in node {node.name!r}")
        if node.embedded is not None
        else Context(model.context_path(node))
        for node in model.contexts.values()
        if node.main
    ]
    if not contexts:
        raise FormatError(f"{path}: none of its EPContext nodes has the context (main_context=1); compile it again")
    return contexts


def describe_context(context: Context, soc: str = "") -> dict[str, Any]:
    """What there is to say of an opened context; `soc` asks how well it suits a chip."""
    info, container = context.info, context.container
    container.verify()
    weights = weights_of(context)
    used = {row.name: weights.used_bytes(row.name) for row in context.graphs}
    sections = [
        {"kind": s.kind, "name": s.name, "offset": s.offset, "bytes": s.bytes, "crc32c": f"{s.crc32c:08x}"}
        for s in container.sections
    ]
    sizes: Counter[str] = Counter()
    for section in container.sections:
        sizes[section.kind] += section.bytes
    sizes["table and padding"] = len(container) - sum(sizes.values())
    ours = {
        "file": context.where,
        "bytes": len(container),
        "format_version": VERSION,
        "page_bytes": PAGE,
        "producer": info.producer,
        "backend": info.backend,
        "targets": [{"soc": t.name, **t.facts} for t in info.targets],
        "options": dict(info.options),
        "metadata": dict(info.metadata),
        "weight_sharing": info.weight_sharing,
        "weights": {
            "stored_bytes": weights.stored_bytes,
            "used_bytes": sum(used.values()),
            "shared_bytes": sum(used.values()) - weights.stored_bytes,
            "by_graph": used,
        },
        "bytes_by_kind": dict(sizes),
        "sections": sections,
        "checksums": "verified",
        "graphs": [_graph(context, g) for g in info.graphs],
    }
    if soc:
        ours["compatibility"] = _verdict(soc, compare(info, chip_backend(info.backend, soc)))
    first = info.targets[0] if info.targets else None
    backend = registry.backend(info.backend, info.options)
    return {
        "info": {
            "backendId": _BACKEND_IDS.get(info.backend, 0),
            "buildId": info.producer,
            "contextBlobVersion": {"major": VERSION, "minor": 0, "patch": 0},
            "contextBlobSize": len(container),
            "hwInfoBlobVersion": HW_INFO_VERSION,
            "hwInfoBlob": _hw_info(info.graphs),
            "socModel": first.facts.get("soc_model", 0) if first else 0,
            "socVersion": first.name if first else "",
            "numContextTensors": 0,
            "contextTensors": [],
            "numGraphs": len(info.graphs),
            "graphs": [
                {"version": 1, "info": _graph_info(g, backend, form.tiles if form else ())}
                for g in info.graphs
                for form in [recorded_format(info.metadata, g.name, context.where)]
            ],
        },
        "hexforge": ours,
    }


def _verdict(soc: str, compatibility: Compatibility) -> dict[str, Any]:
    target = compatibility.target.name if compatibility.target is not None else ""
    return {
        "soc": soc,
        "verdict": str(compatibility.verdict),
        "reasons": list(compatibility.reasons),
        "compared_with": target,
    }


Place = tuple[int, int]
"""Where in the section of weights an array begins, and how many bytes it has."""


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """The arrays of a context's weights that each of its graphs uses, of which memory holds each once."""

    by_graph: Mapping[str, Collection[Place]]

    @property
    def graphs_of_place(self) -> Counter[Place]:
        """How many graphs use each array."""
        return Counter(place for places in self.by_graph.values() for place in places)

    @property
    def stored_bytes(self) -> int:
        """Of all arrays, each once."""
        return sum(size for _, size in self.graphs_of_place)

    @property
    def shared(self) -> tuple[Place, ...]:
        """The arrays that more than one graph uses."""
        return tuple(place for place, count in self.graphs_of_place.items() if count > 1)

    def used_bytes(self, graph: str) -> int:
        """Of the arrays that a graph uses."""
        return sum(size for _, size in self.by_graph[graph])

    def own_bytes(self, graph: str) -> int:
        """Of the arrays that no other graph uses."""
        shared = set(self.shared)
        return sum(size for offset, size in self.by_graph[graph] if (offset, size) not in shared)


def weights_of(context: Context) -> StoredWeights:
    """The weights that the graphs of a context use; a graph without a program is loaded for that."""
    for row in context.graphs:
        if row.name not in context.weights_used:
            len(context.program(row.name).graph)  # constants that only references use are read with the graph
    return StoredWeights({row.name: context.weights_used[row.name] for row in context.graphs})


def memory_bytes(context: Context) -> int:
    """What a context takes of the device's memory: its weights, spill-fill of its graphs, and inputs and outputs."""
    spill_fill = sum(row.spill_fill_bytes for row in context.graphs)
    largest = max(sum(type.nbytes for _, type in (*row.inputs, *row.outputs)) for row in context.graphs)
    return weights_of(context).stored_bytes + spill_fill + largest


def _graph(context: Context, row: GraphInfo) -> dict[str, Any]:
    schematics = {}
    for target in context.info.targets:
        if (summary := context.schematic(row.name, target.name)) is not None:
            schematics[target.name] = _summary(summary)
    return {
        "name": row.name,
        "program": row.program,
        "arena_bytes": row.arena_bytes,
        "spill_fill_bytes": row.spill_fill_bytes,
        **row.settings,
        "updatable": list(row.updatable),
        "schematic": schematics,
    }


def _summary(schematic: dict[str, Any]) -> dict[str, Any]:
    """A schematic's totals, and its cycles by op type, most first."""
    try:
        columns = schematic["columns"]
        op, cycles = columns.index("op"), columns.index("cycles")
        by_op: Counter[str] = Counter()
        for row in schematic["rows"]:
            by_op[str(row[op])] += int(row[cycles])
        keys = ("accelerator_us", "latency_us", "core_mhz", "dram_bytes", "vtcm_peak_bytes")
        return {
            **{key: schematic[key] for key in keys},
            "tasks": len(schematic["rows"]),
            "cycles": sum(by_op.values()),
            "cycles_by_op": dict(by_op.most_common()),
        }
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise FormatError(f"a schematic is malformed: {error!r}") from None


def _graph_info(row: GraphInfo, backend: Backend, native: Collection[str]) -> dict[str, Any]:
    blob = backend.blob_info(row.settings, row.spill_fill_bytes) if isinstance(backend, ContextBackend) else {}
    return {
        "graphName": row.name,
        "numGraphInputs": len(row.inputs),
        "graphInputs": _tensors(row.inputs, "QNN_TENSOR_TYPE_APP_WRITE", 1, native),
        "numGraphOutputs": len(row.outputs),
        "graphOutputs": _tensors(row.outputs, "QNN_TENSOR_TYPE_APP_READ", 1 + len(row.inputs), native),
        "graphBlobInfo": blob,
    }


def _hw_info(graphs: Sequence[GraphInfo]) -> list[dict[str, int]]:
    """The spill-fill buffer of each graph, by the graph's index in the binary."""
    return [{"graphIndex": i, "spillFillBufferSize": graph.spill_fill_bytes} for i, graph in enumerate(graphs)]


def _tensors(
    tensors: Sequence[tuple[str, TensorType]], kind: str, first: int, native: Collection[str]
) -> list[dict[str, Any]]:
    return [
        {
            "version": 1,
            "info": {
                "id": first + i,
                "name": name,
                "type": kind,
                "dataFormat": HMX if name in native else FLAT,
                "dataType": type.qnn_dtype,
                "rank": len(type.shape),
                "dimensions": list(type.shape),
                "quantizeParams": _encoding(type),
            },
        }
        for i, (name, type) in enumerate(tensors)
    ]


def _encoding(type: TensorType) -> dict[str, Any]:
    encoding = type.encoding
    if encoding is None:
        undefined = "QNN_QUANTIZATION_ENCODING_UNDEFINED"
        return {"definition": "QNN_DEFINITION_UNDEFINED", "quantizationEncoding": undefined}
    encoding_json: dict[str, Any] = {"definition": "QNN_DEFINITION_DEFINED", "quantizationEncoding": encoding.qnn_name}
    if isinstance(encoding, ScaleOffset):
        encoding_json["scaleOffset"] = {"scale": encoding.scale, "offset": encoding.offset}
    elif isinstance(encoding, AxisScaleOffset):
        pairs = zip(encoding.scales, encoding.offsets, strict=True)
        encoding_json["axisScaleOffset"] = {
            "axis": encoding.axis,
            "numScaleOffsets": len(encoding.scales),
            "scaleOffset": [{"scale": s, "offset": o} for s, o in pairs],
        }
    return encoding_json
