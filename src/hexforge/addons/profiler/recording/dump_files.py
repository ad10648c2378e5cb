# SPDX-License-Identifier: Apache-2.0
"""Dumps: a session's QNN graphs as JSON, where their ops come from, and the graph that the provider was asked about."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexforge.addons.profiler.recording.graph_json import graph_json
from hexforge.backend import Backend, ContextBackend
from hexforge.formats.files import file_names, file_stem, write_atomically
from hexforge.ir import Graph, ScaleOffset, text
from hexforge.ort.options.requested_dumps import RequestedDumps
from hexforge.runtime.stages import PlacedNode, Stages

if TYPE_CHECKING:
    from hexforge.model.reader import Model

OP_TRACE = "qnn_op_trace.json"


def write_dumps(wanted: RequestedDumps, plan: Stages, backend: Backend, model: Model | None, name: str) -> None:
    """Write what is wanted; a context model has no graph that the provider was asked about."""
    stems = file_names((graph.name for graph in plan.graphs), (".json", "_tensor_log.json", ".qnn"))
    if wanted.graphs is not None:
        for graph in plan.graphs:
            stem = stems[graph.name]
            _write(wanted.graphs / f"{stem}.json", graph_json(graph))
            _write(wanted.graphs / f"{stem}_tensor_log.json", tensor_log(graph))
    if wanted.texts is not None:
        for graph in plan.graphs:
            write_atomically(wanted.texts / f"{stems[graph.name]}.qnn", text.dumps(graph).encode())
    if wanted.op_trace is not None:
        _write(wanted.op_trace / OP_TRACE, op_trace(plan.graphs, plan.rows, backend, name))
    if wanted.input_graph is not None and model is not None:
        _write(wanted.input_graph / f"{file_stem(name)}.1_qnn_ep_input_graph.json", input_graph(model))


def tensor_log(graph: Graph) -> dict[str, Any]:
    """Every tensor of a graph: its type, and the tensor of the model that it is, if any."""
    tensors = {}
    for value in graph.values.values():
        entry: dict[str, Any] = {
            "tensor_type": value.role.name,
            "data_type": value.dtype.qnn_name(value.encoding is not None),
            "dims": list(value.shape),
            "bytes": value.type.nbytes,
            "producer": value.producer.name if value.producer is not None else None,
            "consumers": sorted(node.name for node in value.users),
        }
        if value.encoding is not None:
            entry["encoding"] = value.encoding.qnn_name
            if isinstance(value.encoding, ScaleOffset):
                entry |= {"scale": value.encoding.scale, "offset": value.encoding.offset}
        tensors[value.name] = entry
    return {"graph": graph.name, "tensors": tensors}


def op_trace(graphs: Sequence[Graph], rows: Sequence[PlacedNode], backend: Backend, name: str) -> dict[str, Any]:
    """Which of the model's nodes each QNN op came from, and which nodes are none's (schema version 2)."""
    units: dict[str, list[PlacedNode]] = {}
    for row in rows:
        units.setdefault(row.node, []).append(row)
    sizes: dict[int, int] = {}
    for row in rows:
        sizes[row.unit] = sizes.get(row.unit, 0) + 1

    def group(sources: Sequence[str]) -> str:
        mine = [row for source in sources for row in units.get(source, ())]
        return "QDQGroup" if any(sizes[row.unit] > 1 for row in mine) else "SingleNode"

    subgraphs = [
        {
            "subgraph_name": graph.name,
            "op_mappings": [
                {
                    "dst_name": node.name,
                    "dst_qnn_op_type": node.op.name,
                    "node_group_type": group(node.source),
                    "sources": [{"name": s, "type": "OP"} for s in node.source]
                    or [{"name": v.name, "type": "TENSOR"} for v in node.outputs],
                }
                for node in graph
            ],
        }
        for graph in graphs
    ]
    refused = [row for row in rows if row.reason is not None]
    targets = backend.targets if isinstance(backend, ContextBackend) else ()
    chips = [
        {"htp_arch": f"V{t.facts.get('htp_arch', 0)}", "soc_model": t.facts.get("soc_model", 0), "device_id": 0}
        for t in targets
    ] or [{"htp_arch": "", "soc_model": 0, "device_id": 0}]
    whole = {
        "subgraph_traces": subgraphs,
        "unsupported_nodes": [{"name": row.node, "op_type": row.op_type, "reason": row.reason} for row in refused],
        "summary": {
            "total_onnx_nodes": len(rows),
            "supported_nodes": len(rows) - len(refused),
            "unsupported_nodes": len(refused),
            "qnn_subgraphs": len(graphs),
            "total_qnn_ops": sum(len(graph) for graph in graphs),
        },
    }
    return {
        "schema_version": 2,
        "backend_type": backend.name,
        "model_name": name,
        "soc_traces": [{"compilation_target": chip, **whole} for chip in chips],
    }


def input_graph(model: Model) -> dict[str, Any]:
    """The model's graph as the provider sees it: nodes, edges, what is constant; no weights."""
    graph = model.ir.graph
    constants = {value.name for value in graph.initializers.values()}

    def value(v: Any) -> dict[str, Any]:
        shape = [d if isinstance(d, int) else str(d) for d in v.shape] if v.shape is not None else None
        return {"name": v.name, "data_type": v.dtype.name if v.dtype is not None else None, "shape": shape}

    return {
        "graph_name": graph.name or model.name,
        "inputs": [value(v) for v in graph.inputs if v.name not in constants],
        "outputs": [value(v) for v in graph.outputs],
        "initializers": [value(v) for v in graph.initializers.values()],
        "nodes": [
            {
                "name": node.name,
                "op_type": node.op_type,
                "domain": node.domain,
                "since_version": node.version,
                "inputs": [v.name if v is not None else "" for v in node.inputs],
                "outputs": [v.name for v in node.outputs],
                "attributes": sorted(node.attributes),
            }
            for node in graph
        ],
    }


def _write(path: Path, content: Any) -> None:
    write_atomically(path, json.dumps(content, indent=1).encode())
