# SPDX-License-Identifier: Apache-2.0
"""`hexforge show`: the QNN graphs of a model as text."""

from __future__ import annotations

from typing import Annotated

import typer

from hexforge.cli.arguments import BackendArguments, InputArguments, Model
from hexforge.cli.option_groups import with_option_groups
from hexforge.cli.say import say
from hexforge.cli.screen import spinner
from hexforge.errors import CallError

ELIDED = 8
"""Constants with more elements are left out unless --weights asks for them."""


@with_option_groups
def show(
    model: Model,
    *,
    target: BackendArguments,
    inputs: InputArguments,
    onnx_units: Annotated[bool, typer.Option("--onnx-units", help="The model's units instead of QNN graphs.")] = False,
    passes: Annotated[bool, typer.Option(help="Run the passes first.")] = True,
    weights: Annotated[bool, typer.Option("--weights", help="All constants in full: text that reads back.")] = False,
) -> None:
    """Print the QNN graphs that a model becomes, as text."""
    from hexforge.addons.executorch.formats.pte import is_pte
    from hexforge.ir import text
    from hexforge.ort.check import load_model

    if is_pte(model):
        from hexforge.addons.executorch.pte_commands import print_pte_graphs

        if onnx_units or not passes or inputs.fix_inputs:
            raise CallError(f"{model}: is compiled already; only --weights can be given with it")
        print_pte_graphs(model, None if weights else ELIDED)
        return
    read = load_model(model, target.provider_options(), inputs.request(model), waiting=spinner)
    parts, plan = read.parts, read.plan
    if onnx_units:
        rows: dict[int, list[str]] = {}
        for row in plan.rows:
            rows.setdefault(row.unit, [f"{row.where}:"]).append(f"{row.op_type} {row.node!r}")
        for unit in rows.values():
            say("  ".join(unit))
        return
    graphs = plan.graphs
    if not passes:
        graphs = tuple(
            parts.placed.graph_before_passes(stage.name, [parts.placements[i] for i in part.steps], part.outputs)
            for stage, part in zip(plan.stages, parts.parts, strict=True)
            if part.taken
        )
    for graph in graphs:
        say(text.dumps(graph, elide=None if weights else ELIDED), nl=False)
    refused = sum(row.reason is not None for row in plan.rows)
    if refused:
        say(f"{refused} nodes are not in these graphs: see `hexforge check {model}`", colour="yellow", err=True)
