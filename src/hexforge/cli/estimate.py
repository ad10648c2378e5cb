"""`hexforge estimate`: how long a model takes on a chip, where the time goes and what bounds each op."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from hexforge.cli.arguments import Dims, Json, Model, Shapes, dims, shapes
from hexforge.cli.screen import console, print_json, table, waiting
from hexforge.errors import CallError, UnsupportedError

if TYPE_CHECKING:
    from hexforge.backends.htp.simulate import Timeline
    from hexforge.backends.htp.soc import Soc
    from hexforge.ir import Graph

ALL = "all"


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a model takes on a chip."""

    model: str
    soc: str
    precision: str
    runtime: str
    latency_ms: float
    band: float
    """Nine of ten held-out models of this precision were off by at most this part."""
    provenance: str
    timeline: Timeline

    def to_json(self) -> dict[str, Any]:
        """What `--json` prints."""
        line = self.timeline
        return {
            "latency_ms": round(self.latency_ms, 4),
            "low_ms": round(self.latency_ms / (1 + self.band), 4),
            "high_ms": round(self.latency_ms * (1 + self.band), 4),
            "model": self.model,
            "soc": self.soc,
            "precision": self.precision,
            "runtime": self.runtime,
            "costs": self.provenance,
            "accelerator_ms": round(line.accelerator_us / 1e3, 4),
            "host_ms": round(line.host_us / 1e3, 4),
            "weight_bytes": line.weight_bytes,
            "spill_bytes": line.spill_bytes,
            "vtcm_peak_bytes": line.vtcm_peak_bytes,
            "ops": [
                {
                    "name": row.name,
                    "op": row.op,
                    "nodes": list(row.ops),
                    "us": round(row.us, 3),
                    "share": round(row.us / line.accelerator_us, 5) if line.accelerator_us else 0.0,
                    "bound": row.bound,
                    "hmx_us": round(row.hmx_us, 3),
                    "hvx_us": round(row.hvx_us, 3),
                    "dma_us": round(row.dma_us, 3),
                    "wait_us": round(row.wait_us, 3),
                    "weight_bytes": row.weight_bytes,
                    "spill_bytes": row.spill_bytes,
                }
                for row in line.rows
            ],
        }


def estimate(
    model: Model,
    soc: Annotated[str, typer.Option("--soc", help="Chip name or number, or all to compare them.")] = "SM8650",
    precision: Annotated[
        str, typer.Option("--precision", help="float, w8a8, w8a16, w4a16, or as-is: by the model's own types.")
    ] = "as-is",
    runtime: Annotated[str, typer.Option("--runtime", help="qnn_dlc, onnx or tflite.")] = "qnn_dlc",
    dim: Dims = None,
    shape: Shapes = None,
    rows: Annotated[int, typer.Option("--rows", help="Rows of the table; 0 for all.")] = 20,
    trace: Annotated[Path | None, typer.Option("--trace", help="Write a Chrome/Perfetto trace.")] = None,
    as_json: Json = False,
) -> None:
    """Say how long a model takes on a chip, where the time goes and what bounds each op."""
    with waiting(f"reading {model.name}"):
        graph = graph_of(model, dims=dims(dim), shapes=shapes(shape))
    if soc.lower() == ALL:
        if trace is not None:
            raise CallError("--trace is of one chip; name it with --soc")
        _compare(graph, model.name, precision, runtime, as_json)
        return
    found = estimated(graph, model.name, soc, precision, runtime)
    if trace is not None:
        trace.write_text(json.dumps(found.timeline.trace()))
    if as_json:
        print_json(found.to_json())
    else:
        _print(console(), found, rows)


def graph_of(
    path: Path, *, dims: Mapping[str, int] | None = None, shapes: Mapping[str, Sequence[int]] | None = None
) -> Graph:
    """A whole model as one QNN graph; UnsupportedError naming the nodes there is no QNN op for."""
    from hexforge.frontends.onnx import read
    from hexforge.frontends.onnx.node_units import units
    from hexforge.frontends.onnx.place import build, place
    from hexforge.passes import NEUTRAL, run

    model = read(path, dims=dims, shapes=shapes)
    model.require_static()
    placements = place(units(model.ir), lambda node: None)
    refused = [f"{p.unit.op} ({p.reason})" for p in placements if not p.taken]
    if refused:
        raise UnsupportedError(f"{model.name}: cannot be timed on the HTP: {'; '.join(dict.fromkeys(refused))}")
    graph = build((p.unit for p in placements), path.stem, [v.name for v in model.outputs])
    run(graph, NEUTRAL)
    return graph


def estimated(graph: Graph, name: str, soc: str, precision: str, runtime: str) -> Estimate:
    """A graph on the chip of that name."""
    from hexforge.backends.htp import soc as chips

    chip = chips.find(soc)
    if chip is None:
        raise CallError("name a chip with --soc; known: " + ", ".join(s.name for s in chips.SOCS))
    return _on(graph, name, chip, precision, runtime)


def _on(graph: Graph, name: str, chip: Soc, precision: str, runtime: str) -> Estimate:
    from hexforge.backends.htp import cost, schedule, simulate, tile
    from hexforge.backends.htp.soc import Target

    wanted = None if precision == "as-is" else tile.precision(precision)
    kinds = {wanted.name} if wanted else {schedule.precision_of(node).name for node in graph}
    if "float" in kinds and not Target(chip.htp_arch, chip).float16:
        raise CallError(f"{chip.name} has no float16; choose --precision w8a8 or w8a16, or another chip")
    costs = cost.costs(chip)
    timeline = simulate.simulate(graph, costs, wanted, runtime)
    error = cost.fitted()["error"]
    band = max(error[tile.PRECISIONS[kind].rate]["p90"] for kind in kinds)
    return Estimate(name, chip.name, precision, runtime, timeline.latency_us / 1e3, band, costs.provenance, timeline)


def _compare(graph: Graph, name: str, precision: str, runtime: str, as_json: bool) -> None:
    from hexforge.backends.htp.soc import SOCS

    found: list[Estimate] = []
    for chip in SOCS:
        try:
            found.append(_on(graph, name, chip, precision, runtime))
        except CallError as error:
            if "float16" not in str(error):
                raise
    found.sort(key=lambda e: e.latency_ms)
    if as_json:
        print_json({"latency_ms": {e.soc: round(e.latency_ms, 4) for e in found}})
        return
    lines = [(e.soc, f"{e.latency_ms:.3f}", e.provenance) for e in found]
    console().print(table(f"{name}, {precision}, {runtime}", ("chip", "ms", "costs"), lines))


def _print(screen: Console, found: Estimate, count: int) -> None:
    line = found.timeline
    rows = sorted(line.rows, key=lambda row: -row.us)
    cells = [
        (
            row.name,
            row.op + (f" (+{len(row.ops) - 1})" if len(row.ops) > 1 else ""),
            f"{row.us:.1f}",
            f"{100 * row.us / max(line.accelerator_us, 1e-9):.1f} %",
            row.bound,
            f"{row.hmx_us:.1f}",
            f"{row.hvx_us:.1f}",
            f"{row.dma_us:.1f}",
        )
        for row in (rows[:count] if count else rows)
    ]
    columns = ("task", "op (+ fused)", "us", "share", "bound by", "HMX us", "HVX us", "DMA us")
    screen.print(table("", columns, cells))
    low, high = found.latency_ms / (1 + found.band), found.latency_ms * (1 + found.band)
    screen.print(
        f"{found.model} on {found.soc}, {found.precision}, {found.runtime}: {found.latency_ms:.3f} ms "
        f"({low:.3f} to {high:.3f}); accelerator {line.accelerator_us / 1e3:.3f}, host {line.host_us / 1e3:.3f}; "
        f"weights {line.weight_bytes / 1e6:.1f} MB, spilled {line.spill_bytes / 1e6:.1f} MB; costs {found.provenance}"
    )
