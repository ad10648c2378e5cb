# SPDX-License-Identifier: Apache-2.0
"""Topology: a profiled graph with what each op took, as JSON that Netron opens (`[NAME]_htp.json`)."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from hexforge.addons.profiler.record import GraphProfile, ProfiledRun

_TYPES = {"int": 0x0000, "uint": 0x0100, "float": 0x0200, "bfloat": 0x0200}
_UINT32, _FLOAT32, _STRING = 0x0132, 0x0232, 0x0608


def topology(graph: GraphProfile, run: ProfiledRun) -> dict[str, Any]:
    """The graph's ops as nodes, each with its figures as attributes."""
    outputs = {i: f"{op.name or 'start'}_out" for i, op in enumerate(graph.ops)}
    used: dict[int, float] = defaultdict(float)
    for a in run.activities:
        used[a.op] += a.us
    readers: dict[int, list[int]] = defaultdict(list)
    for i, op in enumerate(graph.ops):
        for source in op.reads:
            readers[source].append(i)
    tensors: dict[str, Any] = {}
    nodes: dict[str, Any] = {}
    for i, op in enumerate(graph.ops):
        if op.type == "Start":
            continue
        kind = 0 if op.type == "Input" else 1 if all(graph.ops[r].type == "Output" for r in readers[i]) else 3
        if op.type != "Output":
            tensors[outputs[i]] = {
                "id": op.id, "type": kind, "dataFormat": 0, "data_type": _code(op.result), "dims": list(op.shape),
                "quant_params": {"definition": 0x7FFFFFFF, "encoding": 0x7FFFFFFF},
            }  # fmt: skip
        if op.type in ("Input", "Output"):
            continue
        figures: dict[str, tuple[int, Any]] = {"op_id": (_UINT32, op.id), "macs": (_UINT32, op.macs)}
        if run.costs:
            cost = run.costs[i]
            figures |= {
                "cycles": (_UINT32, cost.cycles),
                "wait_cycles": (_UINT32, cost.wait),
                "overlap_cycles": (_UINT32, cost.overlap),
                "resources": (_STRING, ", ".join(cost.resources)),
            }
        figures |= {
            "activity_us": (_FLOAT32, round(used[i], 3)),
            "weight_bytes": (_UINT32, op.weight_bytes),
            "framework_ops": (_STRING, ", ".join(op.sources)),
        }
        nodes[op.name] = {
            "package": "qti.aisw",
            "type": op.type,
            "tensor_params": {},
            "scalar_params": {name: {str(code): value} for name, (code, value) in figures.items()},
            "input_names": [outputs[r] for r in op.reads],
            "output_names": [outputs[i]],
            "macs_per_inference": str(op.macs) if op.macs else "",
        }
    return {
        "model.cpp": "N/A",
        "model.bin": "N/A",
        "converter_command": "hexforge profile",
        "copyright_str": "N/A",
        "op_types": sorted({op.type for op in graph.ops if op.name in nodes}),
        "Total parameters": f"{sum(op.weight_bytes for op in graph.ops)} bytes",
        "graph": {"tensors": tensors, "nodes": nodes},
    }


def _code(result: str) -> int:
    """Qnn_DataType_t of a data type's name."""
    if result == "bool":
        return 0x0508
    kind = result.rstrip("0123456789")
    bits = result[len(kind) :]
    return _TYPES[kind] | int(bits, 16) if kind in _TYPES and bits else 0x7FFFFFFF
