# SPDX-License-Identifier: Apache-2.0
"""`hexforge show`: the QNN graphs of a model as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hexforge.cli.arguments import BackendArguments, InputArguments, Model
from hexforge.cli.say import say
from hexforge.cli.screen import spinner
from hexforge.errors import CallError
from hexforge.request_fields import option

if TYPE_CHECKING:
    from hexforge.ir import Graph

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
