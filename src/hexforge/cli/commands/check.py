# SPDX-License-Identifier: Apache-2.0
"""`hexforge check`: where each node of a model runs, why not, and what would work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from hexforge.cli.arguments import All, BackendArguments, InputArguments, Json, Model
from hexforge.cli.findings import FileFinding, FindingFiles
from hexforge.cli.fitted_table import WIDE, shorten_middle
from hexforge.cli.runnable import engine_of
from hexforge.cli.screen import TOP, console, print_json, rows_left_out, spinner, table
from hexforge.request_fields import option
from hexforge.rules import NAMED, by_reason, counted

QNN = "QNNExecutionProvider"
MOST_UNSAFE = 5
"""Lines about numbers that float16 cannot hold."""


def check(
    model: Model,
    *,
    target: BackendArguments,
    inputs: InputArguments,
    strict: bool = option(False, "As without CPU fallback: exit code 1 where a node is refused."),
    strict_ep: bool = option(False, "As --strict, with the limits of onnxruntime's QNN EP too."),
    every: All = False,
    refused: bool = option(False, "Only what is refused: every node, with why."),
    files: FindingFiles,
    as_json: Json = False,
) -> None:
    """Say of each node of a model where it runs, how, what QNN ops it becomes, or why not and what would work."""
    from hexforge.formats.file_kinds import open_model

    files.check()
    if (engine := engine_of(target)) is not None:
        engine.print_check(model, inputs.request(model), as_json, strict or strict_ep)
        return
    options = target.provider_options()
    request = inputs.request(model, obey_ep=strict_ep)
    with spinner(f"checking {model.name}"):
        facts = open_model(model).do("check", options, request, strict or strict_ep).to_json()
    if as_json:
        print_json(facts)
    else:
        print_check(console(), facts, every=every, refused=refused)
    files.give(_findings(facts, model))
    if (strict or strict_ep) and facts["totals"]["refused"]:
        raise typer.Exit(1)


def _findings(facts: Mapping[str, Any], model: Path) -> Iterator[FileFinding]:
    """Each node that does not run on the NPU, or would not by onnxruntime's QNN EP."""
    for node in facts["nodes"]:
        if node["reason"]:
            yield FileFinding("node-on-cpu", "warning", f"{node['op']}: {node['reason']}", model, node=node["node"])
        elif node["ep_refuses"]:
            yield FileFinding(
                "ep-refuses-node", "warning", f"{node['op']}: {node['ep_refuses']}", model, node=node["node"]
            )


def print_check(screen: Console, facts: Mapping[str, Any], *, every: bool = False, refused: bool = False) -> None:
    """The verdict, what is refused and why, then the first units; `every` shows all, `refused` nothing else."""
    _print_verdict(screen, facts)
    if facts.get("arithmetic"):
        screen.print(Text(f"computed in {facts['arithmetic']}"))
    units: dict[int, list[dict[str, Any]]] = {}
    for row in facts["nodes"]:
        units.setdefault(row["unit"], []).append(row)
    _print_refused(screen, [group for group in units.values() if group[0]["runs_on"] != QNN], every or refused)
    by_ep = [g for g in units.values() if g[0]["runs_on"] == QNN and g[0]["ep_refuses"]]
    _print_refused(screen, by_ep, every or refused, "EP   ", "ep_refuses")
    if refused:
        return
    taken = [group for group in units.values() if group[0]["runs_on"] == QNN]
    taken.sort(key=lambda group: (not group[0]["ep_refuses"], not group[0]["slow_ops"]))
    rows: list[tuple[str | Text, ...]] = []
    for group in taken if every else taken[:TOP]:
        # a QDQ group or a fusion is one row: the node that is not a conversion names it
        named = _naming(group)
        rows.append(
            (
                named[0]["node"] + (f" (+{len(group) - 1})" if len(group) > 1 else ""),
                " ".join(dict.fromkeys(row["op"] for row in named)),
                _where(group[0]["slow_ops"], group[0]["ep_refuses"]),
                ", ".join(counted(group[0]["qnn_ops"])),
            )
        )
    if rows:
        screen.print(table("", ("node (+ its group)", "op", "runs on", "QNN ops"), rows))
    if len(taken) > len(rows):
        screen.print(rows_left_out(len(rows), len(taken), "groups of nodes on QNN"))
    if facts["folded"]:
        counts = Counter(node["op"] for node in facts["folded"])
        screen.print(Text("folded: " + ", ".join(counted(list(counts.elements())))))
    _print_warnings(screen, facts["nodes"], "unsafe", "unsafe numbers")
    _print_warnings(screen, facts["nodes"], "remarks", "remark")


def _print_warnings(screen: Console, nodes: Sequence[Mapping[str, Any]], key: str, label: str) -> None:
    """What is said of some nodes, once for each unit."""
    units: dict[int, list[Mapping[str, Any]]] = {}
    for row in nodes:
        if row[key]:
            units.setdefault(row["unit"], []).append(row)
    named = [_naming(group)[0] for group in units.values()]
    for row in named[:MOST_UNSAFE]:
        screen.print(Text(f"{label}: {row['node']}: {row[key][0]}", "yellow"))
    if len(named) > MOST_UNSAFE:
        screen.print(Text(f"{label}: {len(named) - MOST_UNSAFE} more; --json has them all", "yellow"))


def _print_verdict(screen: Console, facts: Mapping[str, Any]) -> None:
    totals, model = facts["totals"], facts["model"]
    verdict = f"{model}: {totals['refused']} of {totals['placed'] + totals['refused']} nodes are left to the CPU"
    if not totals["refused"]:
        named = facts["backend"].get("backend_type") or facts["backend"].get("backend_path")
        unit = "the NPU" if facts["ep_version"] is not None else f"the backend {named}"
        verdict = f"{model}: runs whole on {unit}" if totals["placed"] else f"{model}: has nothing to run"
    by_ep = sum(bool(node["ep_refuses"]) and node["runs_on"] == QNN for node in facts["nodes"])
    if by_ep and not facts["ep_obeyed"]:
        left, whole = totals["refused"] + by_ep, len(facts["nodes"])
        verdict = f"{model}: the QNN EP leaves {left} of {whole} nodes to the CPU, {by_ep} of which the chip takes"
    lost = by_ep or totals["refused"] > totals["offloaded"]
    screen.print(Text(verdict, "bold red" if lost else "bold green"))
    where = ", ".join(facts["backend"].values())
    graphs = "1 QNN graph" if totals["qnn_graphs"] == 1 else f"{totals['qnn_graphs']} QNN graphs"
    added = f" (+{totals['added']} copied or inlined)" if totals["added"] else ""
    slow = ", ".join(counted(list(Counter(totals["slow_ops"]).elements())))
    offloaded = f" ({totals['offloaded']} by offload_graph_io_quantization)" if totals["offloaded"] else ""
    if facts["ep_version"] is not None:
        _print_ep_verdict(screen, facts)
    screen.print(
        Text.assemble(
            f"{totals['nodes']} nodes{added}, {totals['folded']} folded, {totals['placed']} on QNN, "
            f"{totals['refused']} on the CPU{offloaded}; {totals['qnn_ops']} QNN ops in {graphs}",
            (f"; without a native kernel (right, but slow): {slow}" if slow else "", "yellow"),
            (f"; {where}", "dim"),
            "\n",
        )
    )


def _print_ep_verdict(screen: Console, facts: Mapping[str, Any]) -> None:
    """What onnxruntime's QNN EP gives the chip, beside what the chip takes."""
    nodes, by_ep = len(facts["nodes"]), facts["totals"]["refused_by_ep"]
    verdict = ("all nodes", "green") if not by_ep else (f"{nodes - by_ep} of {nodes} nodes", "bold red")
    more = " (--strict-ep places as it does)" if by_ep > facts["totals"]["refused"] else ""
    screen.print(Text.assemble(f"by the QNN EP {facts['ep_version']}: ", verdict, more))


def _where(slow: Sequence[str], ep_refuses: str) -> Text:
    if ep_refuses:
        return Text("not by the EP", "yellow")
    return Text("slow path", "yellow") if slow else Text("QNN", "green")


def _print_refused(
    screen: Console, groups: Sequence[list[dict[str, Any]]], every: bool, mark: str = "CPU  ", key: str = "reason"
) -> None:
    """Refused nodes, those of one reason together: the reason is what is read, and it wraps."""
    ranked = by_reason((named, named[key] or "") for named in (_naming(group)[0] for group in groups))
    for reason, nodes in ranked if every else ranked[:TOP]:
        shown = nodes if every else nodes[:NAMED]
        more = f" and {len(nodes) - len(shown)} more" if len(nodes) > len(shown) else ""
        ops = counted([node["op"] for node in nodes])
        op = ", ".join(ops[:NAMED]) + (" …" if len(ops) > NAMED else "")
        width = max(10, (screen.width - len(op) - len(more) - 12) // min(len(shown), NAMED))
        names = (node["node"] if screen.width >= WIDE else shorten_middle(node["node"], width) for node in shown)
        screen.print(Text.assemble((mark, "bold red"), (op, "bold"), "  ", ", ".join(names), more))
        screen.print(Padding(Text(reason), (0, 0, 1, 5)))
    if not every and len(ranked) > TOP:
        screen.print(rows_left_out(TOP, len(ranked), "reasons", "--refused"))


def _naming(group: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The nodes of a unit that are not conversions, or all where there are none."""
    return [row for row in group if not row["op"].endswith(("QuantizeLinear", "DequantizeLinear"))] or group
