# SPDX-License-Identifier: Apache-2.0
"""Files of a profile: trace, analysis summary, schema, Netron's graph, log and text, by the names of QNN's tools."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hexforge.addons.profiler import log
from hexforge.addons.profiler.chrometrace import ViewerFeatures, chrometrace
from hexforge.addons.profiler.profile_text import average, average_reports
from hexforge.addons.profiler.qhas import qhas_page
from hexforge.addons.profiler.record import LEVELS, GraphProfile, Profile, ProfiledRun
from hexforge.addons.profiler.summary import schema, summary
from hexforge.addons.tuning.advice.result import Advice
from hexforge.formats.files import file_names, file_stem

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


SUMMARY = "qnn_htp_analysis_summary"
SCHEMA = "qhas_schema.json"
LOG, TRACE, TEXT = "qnn-profiling-data_0.log", "chrometrace.json", "profile.txt"


def viewer_files(
    profile: Profile,
    output: Path,
    features: ViewerFeatures,
    *,
    advice: Sequence[Advice] = (),
    advised: bool = False,
    before: Profile | None = None,
    summary_by_output: bool = False,
) -> list[tuple[Path, bytes]]:
    """What is written for a trace that goes to `output`, beside it; a name that ends in .gz compresses it.

    The summary as JSON is called as the model; with `summary_by_output` there is one called as the trace, too.
    """
    packed = features.gzip or output.suffix == ".gz"
    plain = output.with_suffix("") if output.suffix == ".gz" else output
    stem, folder = plain.with_suffix("").name, output.parent
    trace = _json(chrometrace(profile, features))
    files = [(plain.with_name(f"{plain.name}.gz"), gzip.compress(trace, mtime=0)) if packed else (plain, trace)]
    several, stems = len(profile.graphs) > 1, file_names(graph.name for graph in profile.graphs)
    for graph in profile.graphs:
        mark = f"_{stems[graph.name]}" if several else ""
        page = qhas_page(profile, graph=graph, advice=advice, advised=advised, before=before)
        files.append((folder / f"{stem}{mark}_{SUMMARY}.html", page.encode("utf-8", "replace")))
        if features.qhas_json:
            data = _json(summary(profile, graph))
            called = dict.fromkeys([file_stem(profile.model), *[stem] * summary_by_output])
            files += [(folder / f"{name}{mark}_{SUMMARY}.json", data) for name in called]
        if features.htp_json and graph.ops:
            files.append((folder / f"{stem}{mark}_htp.json", _json(topology(graph, average(graph)))))
    if features.qhas_schema:
        files.append((folder / SCHEMA, _json(schema())))
    return files


def profile_files(
    profile: Profile,
    folder: Path,
    features: ViewerFeatures,
    *,
    advice: Sequence[Advice] = (),
    advised: bool = False,
    before: Profile | None = None,
) -> list[tuple[Path, bytes]]:
    """All files of a profile in one folder: those of the viewer, the log, the report as text, schematics."""
    text = "\n".join(map(str, average_reports(profile)))
    files: list[tuple[Path, bytes]] = [(folder / LOG, log.to_bytes(profile)), (folder / TEXT, text.encode())]
    if profile.level == LEVELS[-1]:
        stems = file_names(graph.name for graph in profile.graphs)
        for graph in profile.graphs:
            schematic = Profile(profile.model, profile.level, profile.source, (log.without_runs(graph),))
            files.append((folder / f"{stems[graph.name]}_schematic.bin", log.to_bytes(schematic)))
    trace = folder / TRACE
    return files + viewer_files(profile, trace, features, advice=advice, advised=advised, before=before)


def _json(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
