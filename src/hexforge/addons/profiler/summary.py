# SPDX-License-Identifier: Apache-2.0
"""Summary: a run as the tables of QNN's HTP Analysis Summary (QHAS), plain data with a schema of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from hexforge.addons.profiler.profile_text import average
from hexforge.addons.profiler.record import (
    DMA,
    FIRST_NODE,
    HMX,
    HVX,
    READ,
    SERVICES,
    WRITE,
    GraphProfile,
    Profile,
    ProfiledRun,
)
from hexforge.addons.profiler.recording.main_thread import covered_us
from hexforge.addons.profiler.verdict import dominant_path

VERSION = 1


def summary(profile: Profile, graph: GraphProfile | None = None) -> dict[str, Any]:
    """The analysis of a graph (by default the first): figures are averages of its runs, activities of one run."""
    chosen = graph if graph is not None else profile.graphs[0]
    run = average(chosen)
    used = _use_by_op(run)
    return {
        "schema_version": VERSION,
        "model": profile.model,
        "graph": chosen.name,
        "source": profile.source,
        "level": profile.level,
        "htp_overall_summary": _overall(chosen, run, used),
        "qnn_op_types": _types(chosen, run, used),
        "qnn_ops": _ops(chosen, run, used),
        "htp_ops": _htp_ops(chosen, run),
        "system_services": _services(run),
        "dominant_path": [
            {
                "start_us": round(p.start_us, 4),
                "us": round(p.us, 4),
                "priority": p.priority,
                "htp_op": run.activities[p.activity].name,
                "qnn_op": _label(chosen, run.activities[p.activity].op),
            }
            for p in dominant_path(run.activities)
        ],
    }


def _use_by_op(run: ProfiledRun) -> dict[int, dict[str, float]]:
    """By op: the time of each unit, and the bytes moved."""
    used: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for a in run.activities:
        used[a.op][a.unit] += a.us
        if a.name in (READ, WRITE):
            used[a.op][a.name] += a.bytes
    return used


def _label(graph: GraphProfile, op: int) -> str:
    return graph.ops[op].label if op >= 0 else ""


def _overall(graph: GraphProfile, run: ProfiledRun, used: dict[int, dict[str, float]]) -> dict[str, Any]:
    moved = {name: int(sum(u[name] for u in used.values())) for name in (READ, WRITE)}
    allocated = next((t.values for t in run.counters if t.name == "VTCM alloc"), ())
    return {
        "backend": graph.backend,
        "chip": graph.chip,
        "runs": len(graph.runs),
        "netrun_us": round(run.netrun_us, 3),
        "rpc_us": round(run.rpc_us, 3),
        "accelerator_us": round(run.accelerator_us, 3),
        "critical_path_cycles": run.critical_cycles,
        "clock_mhz": round(graph.clock_mhz, 3),
        "execute_cycles": sum(c.cycles for c in run.costs),
        "wait_cycles": sum(c.wait for c in run.costs),
        "overlap_cycles": sum(c.overlap for c in run.costs),
        "qnn_ops": sum(op.id >= FIRST_NODE for op in graph.ops),
        "htp_ops": len(run.activities),
        "hmx_us": _busy(run, HMX),
        "hvx_us": _busy(run, HVX),
        "dma_us": _busy(run, DMA),
        "dram_read_bytes": moved[READ],
        "dram_write_bytes": moved[WRITE],
        "vtcm_peak_bytes": int(max(allocated, default=0)),
        "vtcm_bytes": graph.vtcm_bytes,
        "yields": run.yields,
        "vtcm_acquire_us": round(run.vtcm_acquire_us, 3),
        "power_us": round(run.power_us, 3),
        "hvx_threads": run.hvx_threads,
        "macs": sum(op.macs for op in graph.ops),
    }


def _busy(run: ProfiledRun, unit: str) -> float:
    return round(covered_us([(a.start_us, a.end_us) for a in run.activities if a.unit == unit]), 3)


def _figures(graph: GraphProfile, run: ProfiledRun, used: dict[int, dict[str, float]], places: Iterable[int]) -> Any:
    mine = list(places)
    costs = [run.costs[i] for i in mine] if run.costs else []
    cycles, wait = sum(c.cycles for c in costs), sum(c.wait for c in costs)
    units = [used.get(i, {}) for i in mine]

    def total(key: str) -> float:
        return sum(u.get(key, 0.0) for u in units)

    return {
        "cycles": cycles,
        "share": round((cycles + wait) / run.critical_cycles, 6) if run.critical_cycles else 0.0,
        "wait_cycles": wait,
        "overlap_cycles": sum(c.overlap for c in costs),
        "overlap_wait_cycles": sum(c.overlap_wait for c in costs),
        "hmx_us": round(total(HMX), 3),
        "hvx_us": round(total(HVX), 3),
        "dma_us": round(total(DMA), 3),
        "dram_read_bytes": int(total(READ)),
        "dram_write_bytes": int(total(WRITE)),
        "macs": sum(graph.ops[i].macs for i in mine),
        "weight_bytes": sum(graph.ops[i].weight_bytes for i in mine),
    }


def _types(graph: GraphProfile, run: ProfiledRun, used: dict[int, dict[str, float]]) -> list[dict[str, Any]]:
    places: dict[str, list[int]] = defaultdict(list)
    for i, op in enumerate(graph.ops):
        places[op.type].append(i)
    rows = [{"type": kind, "count": len(mine), **_figures(graph, run, used, mine)} for kind, mine in places.items()]
    return sorted(rows, key=lambda row: -row["cycles"])


def _ops(graph: GraphProfile, run: ProfiledRun, used: dict[int, dict[str, float]]) -> list[dict[str, Any]]:
    return [
        {
            "qnn_op": op.label,
            "id": op.id,
            "type": op.type,
            "framework_ops": list(op.sources),
            **_figures(graph, run, used, [i]),
            "resources": list(run.costs[i].resources) if run.costs else [],
            "result": f"{op.result}{list(op.shape)}" if op.result else "",
        }
        for i, op in enumerate(graph.ops)
    ]


def _htp_ops(graph: GraphProfile, run: ProfiledRun) -> list[dict[str, Any]]:
    return [
        {
            "htp_op": a.name,
            "qnn_op": _label(graph, a.op),
            "unit": a.unit,
            "start_us": round(a.start_us, 4),
            "us": round(a.us, 4),
            "cycles": round(a.us * graph.clock_mhz),
            "bytes": a.bytes,
            "core": a.core,
        }
        for a in run.activities
    ]


def _services(run: ProfiledRun) -> list[dict[str, Any]]:
    rows = []
    for name in SERVICES:
        mine = [a for a in run.activities if a.name == name]
        us, size = round(sum(a.us for a in mine), 3), sum(a.bytes for a in mine)
        rows.append({"service": name, "count": len(mine), "us": us, "bytes": size})
    return rows


# -- its schema -------------------------------------------------------------------------------------------------------

_TEXTS = {"type": "string"}
_WHOLE = {"type": "integer", "minimum": 0}
_NUMBER = {"type": "number", "minimum": 0}
_NAMES = {"type": "array", "items": _TEXTS}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _rows(**properties: Any) -> dict[str, Any]:
    return {"type": "array", "items": _object(**properties)}


def schema() -> dict[str, Any]:
    """What `qhas_schema.json` says a summary is."""
    figures = {
        **dict.fromkeys(("cycles",), _WHOLE),
        "share": {"type": "number", "minimum": 0, "maximum": 1},
        **dict.fromkeys(("wait_cycles", "overlap_cycles", "overlap_wait_cycles"), _WHOLE),
        **dict.fromkeys(("hmx_us", "hvx_us", "dma_us"), _NUMBER),
        **dict.fromkeys(("dram_read_bytes", "dram_write_bytes", "macs", "weight_bytes"), _WHOLE),
    }
    overall = {
        **dict.fromkeys(("backend", "chip"), _TEXTS),
        "runs": {"type": "integer", "minimum": 1},
        **dict.fromkeys(("netrun_us", "rpc_us", "accelerator_us"), _NUMBER),
        "critical_path_cycles": _WHOLE,
        "clock_mhz": _NUMBER,
        **dict.fromkeys(("execute_cycles", "wait_cycles", "overlap_cycles", "qnn_ops", "htp_ops"), _WHOLE),
        **dict.fromkeys(("hmx_us", "hvx_us", "dma_us"), _NUMBER),
        **dict.fromkeys(("dram_read_bytes", "dram_write_bytes", "vtcm_peak_bytes", "vtcm_bytes", "yields"), _WHOLE),
        **dict.fromkeys(("vtcm_acquire_us", "power_us"), _NUMBER),
        **dict.fromkeys(("hvx_threads", "macs"), _WHOLE),
    }
    htp_op = {"htp_op": _TEXTS, "qnn_op": _TEXTS, "unit": _TEXTS, "start_us": _NUMBER, "us": _NUMBER}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "QNN HTP Analysis Summary",
        **_object(
            schema_version={"const": VERSION},
            model=_TEXTS,
            graph=_TEXTS,
            source={"enum": ["simulated", "measured"]},
            level=_TEXTS,
            htp_overall_summary=_object(**overall),
            qnn_op_types=_rows(type=_TEXTS, count=_WHOLE, **figures),
            qnn_ops=_rows(
                qnn_op=_TEXTS, id=_WHOLE, type=_TEXTS, framework_ops=_NAMES, **figures, resources=_NAMES, result=_TEXTS
            ),
            htp_ops=_rows(**htp_op, cycles=_WHOLE, bytes=_WHOLE, core=_WHOLE),
            system_services=_rows(service={"enum": list(SERVICES)}, count=_WHOLE, us=_NUMBER, bytes=_WHOLE),
            dominant_path=_rows(start_us=_NUMBER, us=_NUMBER, priority=_TEXTS, htp_op=_TEXTS, qnn_op=_TEXTS),
        ),
    }
