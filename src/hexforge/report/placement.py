# SPDX-License-Identifier: Apache-2.0
"""Placement and chips: which nodes run where, and the same model on other chips, as sections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from hexforge.analysis.estimate import Estimate
from hexforge.report.formatting import npu_part_only
from hexforge.report.section import Bars, Column, Section, Table
from hexforge.rules import counted

QNN = "QNNExecutionProvider"

NODES = (
    Column("node"),
    Column("op", choose=True),
    Column("runs on", choose=True),
    Column("QNN ops"),
    Column("why not; what would work"),
)


def placement_section(checked: Mapping[str, Any]) -> Section:
    """Where each node runs and why not, of what `hexforge check --json` prints: `nodes`, `folded` and `totals`."""
    totals = checked["totals"]
    rows = [
        (
            node["node"],
            node["op"],
            "CPU" if node["runs_on"] != QNN else "QNN, slow path" if node["slow_ops"] else "QNN",
            ", ".join(counted(node["qnn_ops"])),
            node["reason"] or "",
        )
        for node in checked["nodes"]
    ]
    rows += [
        (node["node"], node["op"], "folded", "", "constant: computed once, before the run")
        for node in checked["folded"]
    ]
    rows.sort(key=lambda row: row[2] != "CPU")
    where = Counter(row[2] for row in rows)
    graphs = "1 QNN graph" if totals["qnn_graphs"] == 1 else f"{totals['qnn_graphs']} QNN graphs"
    note = (
        f"{totals['placed']} nodes on QNN, {totals['refused']} on the CPU, {totals['folded']} folded; "
        f"{totals['qnn_ops']} QNN ops in {graphs}."
    )
    columns = NODES if any(row[4] for row in rows) else NODES[:-1]
    nodes = Table(columns, [row[: len(columns)] for row in rows], "Nodes")
    bars = Bars([*where], [*where.values()], "nodes", "Nodes by where they run")
    return Section("Placement", (bars, nodes) if len(where) > 1 else (nodes,), note)


def chips_section(estimate: Estimate, others: Iterable[Estimate | tuple[str, str]]) -> Section:
    """The same model on other chips, fastest first; a chip without an estimate says why."""
    listed = list(others)
    estimates = [e for e in listed if isinstance(e, Estimate)]
    refused = [e for e in listed if not isinstance(e, Estimate)]
    if estimate.soc not in {e.soc for e in estimates}:
        estimates.append(estimate)
    estimates.sort(key=lambda e: e.latency_ms)
    mark = next(i for i, e in enumerate(estimates) if e.soc == estimate.soc)
    bars = Bars(
        [e.soc for e in estimates],
        [e.latency_ms for e in estimates],
        "ms",
        "Latency, and where nine of ten models lie",
        [e.low_ms for e in estimates],
        [e.high_ms for e in estimates],
        mark,
    )
    columns = (Column("chip"), Column("why there is no estimate"))
    tables = (Table(columns, refused, "Not on these chips"),) if refused else ()
    part = f" {npu_part_only(estimate)}." if estimate.left_on_cpu else ""
    return Section(
        "Chips", (bars, *tables), f"{estimate.model}, {estimate.precision}, {estimate.runtime}, on each chip.{part}"
    )
