"""`hexforge check`: where each node of a model runs, why not, and what would work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from hexforge.cli.arguments import BackendName, Dims, Json, Model, Options, Shapes, Soc, dims, provider_options, shapes
from hexforge.cli.loading import loaded
from hexforge.cli.screen import console, print_json, table

QNN = "QNNExecutionProvider"


def check(
    model: Model,
    backend: BackendName = "",
    soc: Soc = "",
    option: Options = None,
    dim: Dims = None,
    shape: Shapes = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="As without CPU fallback: exit code 1 where a node is refused.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Say of each node of a model where it runs, how, what QNN ops it becomes, or why not and what would work."""
    options = provider_options(backend, soc, option)
    found = checked(model, options, dims=dims(dim), shapes=shapes(shape), strict=strict)
    if as_json:
        print_json(found)
    else:
        print_checked(console(), found)
    if strict and found["totals"]["refused"]:
        raise typer.Exit(1)


def checked(
    path: Path,
    options: Mapping[str, str],
    *,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    strict: bool = False,
) -> dict[str, Any]:
    """What `--json` prints: nodes, folded nodes and totals."""
    from hexforge.backend import TellsReferences

    read = loaded(path, options, dims=dims, shapes=shapes, strict=strict)
    model, plan = read.model, read.plan
    executed: dict[str, list[str]] = {}
    for graph in plan.graphs:
        for qnn in graph:
            for name in qnn.source:
                executed.setdefault(name, []).append(qnn.op.name)
    nodes = [
        {
            "node": row.node,
            "op": f"{row.domain}:{row.op_type}" if row.domain not in ("", "ai.onnx") else row.op_type,
            "runs_on": row.where,
            "qnn_ops": executed.get(row.node, []) if row.where == QNN else [],
            "slow_ops": list(row.slow),
            "reason": row.reason,
            "unit": row.unit,
        }
        for row in plan.rows
    ]
    placed = [row for row in nodes if row["runs_on"] == QNN]
    qnn_ops = {row.unit: row.qnn_ops for row in plan.rows if row.where == QNN}
    graphs = plan.graphs
    programs = [s.runner for s in plan.stages if isinstance(s.runner, TellsReferences)]
    slow = Counter(node.op.name for program in programs for node in program.references)
    totals = {
        "nodes": model.node_count,
        # a shared DequantizeLinear becomes one for each reader, a function the nodes of its body
        "added": max(0, len(nodes) + len(model.folded) - model.node_count),
        "folded": len(model.folded),
        "placed": len(placed),
        "refused": len(nodes) - len(placed),
        # of these, what the NPU takes and the session option gives to the CPU: --strict and quantize count it as placed
        "offloaded": sum("offload_graph_io_quantization=1" in (row.reason or "") for row in plan.rows),
        "units": len({row["unit"] for row in nodes}),
        "qnn_graphs": len(graphs),
        "qnn_ops_before_passes": sum(map(len, qnn_ops.values())),
        "qnn_ops": sum(map(len, graphs)),
        "slow_ops": dict(slow),
    }
    return {
        "model": model.name,
        "opset": model.opset,
        "backend": dict(options),
        "nodes": nodes,
        "folded": [{"node": node.name, "op": node.op_type} for node in model.folded],
        "totals": totals,
    }


def print_checked(screen: Console, found: Mapping[str, Any]) -> None:
    """The table, refused nodes first, one row for each unit."""
    units: dict[int, list[dict[str, Any]]] = {}
    for row in found["nodes"]:
        units.setdefault(row["unit"], []).append(row)
    rows: list[tuple[str | Text, ...]] = []
    for group in sorted(units.values(), key=lambda group: group[0]["runs_on"] == QNN):
        taken = group[0]["runs_on"] == QNN
        # a QDQ group or a fusion is one row: the node that is not a conversion names it
        names = [r for r in group if not r["op"].endswith(("QuantizeLinear", "DequantizeLinear"))] or group
        rows.append(
            (
                names[0]["node"] + (f" (+{len(group) - 1})" if len(group) > 1 else ""),
                " ".join(dict.fromkeys(r["op"] for r in names)),
                _where(taken, group[0]["slow_ops"]),
                ", ".join(_counted(group[0]["qnn_ops"])),
                group[0]["reason"] or "",
            )
        )
    columns: tuple[str, ...] = ("node (+ others of its group)", "op", "runs on", "QNN ops", "why not; what would work")
    if not found["totals"]["refused"]:
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    if rows:
        screen.print(table("", columns, rows))
    if found["folded"]:
        counts = Counter(node["op"] for node in found["folded"])
        screen.print(Text("folded: " + ", ".join(_counted(list(counts.elements())))))
    t = found["totals"]
    graphs = "1 QNN graph" if t["qnn_graphs"] == 1 else f"{t['qnn_graphs']} QNN graphs"
    added = f" (+{t['added']} copied or inlined)" if t["added"] else ""
    slow = ", ".join(_counted(list(Counter(t["slow_ops"]).elements())))
    screen.print(
        Text.assemble(
            f"{found['model']}: {t['nodes']} nodes{added}, {t['folded']} folded, ",
            (f"{t['placed']} on QNN", "green"),
            ", ",
            (f"{t['refused']} on the CPU", "bold red" if t["refused"] > t["offloaded"] else "green"),
            f" ({t['offloaded']} by offload_graph_io_quantization)" if t["offloaded"] else "",
            f"; {t['qnn_ops']} QNN ops in {graphs}",
            (f"; without a native kernel (right, but slow): {slow}" if slow else "", "yellow"),
        )
    )


def _where(taken: bool, slow: Sequence[str]) -> Text:
    if not taken:
        return Text("CPU", "bold red")
    return Text("QNN, slow path", "yellow") if slow else Text("QNN", "green")


def _counted(names: Sequence[str]) -> list[str]:
    """Names with how often they come, in order of first appearance."""
    return [name if n == 1 else f"{name} x{n}" for name, n in Counter(names).items()]
