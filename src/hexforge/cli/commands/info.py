# SPDX-License-Identifier: Apache-2.0
"""`hexforge info` and `hexforge show`: what a context, or a model that holds one, says of itself; graphs as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from hexforge.chips.graph_config import LEVEL, THREADS, vtcm_text
from hexforge.cli.arguments import BackendArguments, InputArguments, Json, Model
from hexforge.cli.say import say
from hexforge.cli.screen import console, print_json, spinner, table
from hexforge.errors import CallError
from hexforge.request_fields import argument, option

if TYPE_CHECKING:
    from hexforge.ir import Graph

_COLOURS = {"optimal": "green", "sub-optimal": "yellow", "unsupported": "bold red"}


def info(
    file: Path = argument("A context, an EPContext model, a .tflite or a .pte.", show_default=False),
    soc: str = option("", "Say how well it suits this chip."),
    as_json: Json = False,
) -> None:
    """Say what a context is: producer, chips, options, graphs, tensors, sizes, shared weights; checksums verified."""
    from hexforge.formats.file_kinds import open_model

    open_model(file).do("info", soc, as_json)


def print_context(file: Path, soc: str, as_json: bool) -> None:
    """Print what there is to say of a context, or of the one that an EPContext model names."""
    from hexforge.runtime.contexts.describe import describe

    with spinner(f"reading {file.name}"):
        facts = describe(file, soc)
    if as_json:
        print_json(facts)
        return
    _print(console(), facts)


def _print(screen: Console, description: dict[str, Any]) -> None:
    ours = description["hexforge"]
    chips = ", ".join(f"{t['soc']} (v{t['htp_arch']}, VTCM size {t['vtcm_mb']} MB)" for t in ours["targets"])
    facts = [
        ("file", ours["file"]),
        ("made by", f"{ours['producer']}, format {ours['format_version']}"),
        ("backend", ours["backend"]),
        ("chips", chips or "none"),
        ("options", ", ".join(f"{k}={v}" for k, v in ours["options"].items()) or "defaults"),
        ("size", f"{ours['bytes']:,} bytes: " + ", ".join(f"{k} {v:,}" for k, v in ours["bytes_by_kind"].items())),
        ("weights", _weights(ours["weights"])),
        ("checksums", f"{ours['checksums']} ({len(ours['sections'])} sections)"),
    ]
    if "model" in ours:
        nodes = ours["model"]["ep_context_nodes"]
        facts.insert(0, ("model", f"{ours['model']['file']}: {ours['model']['nodes']} nodes, {len(nodes)} EPContext"))
    screen.print(table("", ("", ""), facts))
    rows = [
        (
            graph["graphName"] if not i and side == "in" else "",
            side,
            tensor["info"]["name"],
            tensor["info"]["dataType"].removeprefix("QNN_DATATYPE_"),
            str(tensor["info"]["dimensions"]),
            _encoding(tensor["info"]["quantizeParams"]),
        )
        for graph in (g["info"] for g in description["info"]["graphs"])
        for side, tensors in (("in", graph["graphInputs"]), ("out", graph["graphOutputs"]))
        for i, tensor in enumerate(tensors)
    ]
    screen.print(table("", ("graph", "", "tensor", "QNN_DATATYPE_", "dimensions", "encoding"), rows))
    columns = ("graph", "level", "HVX threads", "VTCM budget", "arena bytes", "spill-fill bytes", "weight bytes")
    by_graph = ours["weights"]["by_graph"]
    blobs = {g["info"]["graphName"]: g["info"]["graphBlobInfo"] for g in description["info"]["graphs"]}
    vtcm = {name: blob.get("vtcmSizeInBytes", 0) for name, blob in blobs.items()}
    lines = [
        (
            g["name"],
            str(g[LEVEL]),
            str(g[THREADS]),
            vtcm_text(vtcm[g["name"]]),
            *(f"{size:,}" for size in (g["arena_bytes"], g["spill_fill_bytes"], by_graph[g["name"]])),
        )
        for g in ours["graphs"]
    ]
    screen.print(table("", columns, lines))
    cycles = [
        (g["name"], soc, f"{s['latency_us'] / 1e3:.3f}", f"{s['cycles']:,}", str(s["tasks"]), _most(s))
        for g in ours["graphs"]
        for soc, s in g["schematic"].items()
    ]
    if cycles:
        title = "schematic: as simulated when it was prepared"
        screen.print(table(title, ("graph", "chip", "ms", "cycles", "tasks", "cycles by op type"), cycles))
    if "compatibility" in ours:
        verdict = ours["compatibility"]
        reasons = f": {'; '.join(verdict['reasons'])}" if verdict["reasons"] else ""
        colour = _COLOURS[verdict["verdict"]]
        screen.print(Text.assemble(f"on {verdict['soc']}: ", (verdict["verdict"], colour), reasons))


def _weights(weights: dict[str, Any]) -> str:
    shared = f", {weights['shared_bytes']:,} shared" if weights["shared_bytes"] else ""
    return f"{weights['stored_bytes']:,} bytes stored, {weights['used_bytes']:,} used by the graphs{shared}"


def _encoding(encoding: dict[str, Any]) -> str:
    if "scaleOffset" in encoding:
        return f"scale {encoding['scaleOffset']['scale']:g}, offset {encoding['scaleOffset']['offset']}"
    return "" if encoding["definition"].endswith("UNDEFINED") else encoding["quantizationEncoding"].lower()


def _most(summary: dict[str, Any]) -> str:
    whole = summary["cycles"] or 1
    return ", ".join(f"{op} {100 * n / whole:.0f}%" for op, n in list(summary["cycles_by_op"].items())[:5])


ELIDED = 8
"""Constants with more elements are left out unless --weights asks for them."""


@dataclass(frozen=True, slots=True)
class ShowRequest:
    """What is shown of a file, and how it is read."""

    options: Mapping[str, str]
    inputs: InputArguments
    onnx_units: bool
    passes: bool
    weights: bool

    def texts(self, graphs: Iterable[Graph]) -> list[str]:
        """Graphs as text."""
        from hexforge.ir import text

        return [text.dumps(graph, elide=None if self.weights else ELIDED) for graph in graphs]

    def require_as_compiled(self, path: Path) -> None:
        """CallError where more is asked than there is in a file that is compiled already."""
        if self.onnx_units or not self.passes or self.inputs.fix_inputs:
            raise CallError(f"{path}: is compiled already; only --weights can be given with it")


def show(
    model: Model,
    *,
    target: BackendArguments,
    inputs: InputArguments,
    onnx_units: bool = option(False, "The model's units instead of QNN graphs."),
    passes: bool = option(True, "Run the passes first.", "--passes/--no-passes"),
    weights: bool = option(False, "All constants in full: text that reads back."),
) -> None:
    """Print the QNN graphs that a model becomes, as text."""
    from hexforge.formats.file_kinds import open_model

    asked = ShowRequest(target.provider_options(), inputs, onnx_units, passes, weights)
    texts, left = open_model(model).do("show", asked)
    for shown in texts:
        say(shown, nl=False)
    if left:
        say(f"{left} are not in these graphs: see `hexforge check {model}`", colour="yellow", err=True)


def show_model(path: Path, asked: ShowRequest) -> tuple[Sequence[str], str]:
    """The graphs that an ONNX model becomes, or its units, and how many nodes are in no graph."""
    from hexforge.ort.check import compiled_plan

    plan = compiled_plan(path, asked.options, asked.inputs.request(path), waiting=spinner)
    parts = plan.parts
    if asked.onnx_units:
        rows: dict[int, list[str]] = {}
        for row in plan.rows:
            rows.setdefault(row.unit, [f"{row.where}:"]).append(f"{row.op_type} {row.node!r}")
        return [f"{'  '.join(unit)}\n" for unit in rows.values()], ""
    graphs = plan.graphs
    if not asked.passes:
        graphs = tuple(
            parts.placed.graph_before_passes(stage.name, [parts.placements[i] for i in part.steps], part.outputs)
            for stage, part in zip(plan.stages, parts.parts, strict=True)
            if part.taken
        )
    refused = sum(row.reason is not None for row in plan.rows)
    return asked.texts(graphs), f"{refused} nodes" if refused else ""


def show_context(path: Path, asked: ShowRequest) -> tuple[Sequence[str], str]:
    """The graphs of a context."""
    from hexforge.runtime.contexts.context import Context

    asked.require_as_compiled(path)
    context = Context(path)
    return asked.texts(context.program(row.name).graph for row in context.graphs), ""
