# SPDX-License-Identifier: Apache-2.0
"""`hexforge gate`: models against a budget, as a table, as JUnit XML, or as Markdown for a comment on a change."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from hexforge.addons.budgets.gate import GateCheck, GateResult
from hexforge.analysis.requests import JUDGED_BY
from hexforge.cli.arguments import ClusterArguments, Jobs, Json
from hexforge.cli.findings import FileFinding, FindingFiles
from hexforge.cli.request_options import typed
from hexforge.cli.screen import console, print_json, result_table, spinner
from hexforge.request_fields import argument, option
from hexforge.results import Column, select


def junit_xml(result: GateResult) -> bytes:
    """One test case for each check."""
    failed = sum(bool(check.fault) for check in result.checks)
    root = ET.Element("testsuites")
    suite = ET.SubElement(root, "testsuite", name="hexforge gate", tests=str(len(result.checks)), failures=str(failed))
    for check in result.checks:
        case = ET.SubElement(suite, "testcase", classname=_plain(check.model), name=_plain(check.what))
        if check.fault:
            ET.SubElement(case, "failure", message=_plain(check.fault)).text = _plain(check.fault)
    return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True))


def markdown_comment(result: GateResult) -> str:
    """A table for a comment, with what changed since the baseline; what fails first."""
    failed = [check for check in result.checks if check.fault]
    verdict = (
        f"**{len(failed)} of {len(result.checks)} checks fail**" if failed else f"all {len(result.checks)} checks pass"
    )
    lines = [
        f"### hexforge gate: {verdict}",
        "",
        "| | " + " | ".join(column.name for column in select(GateCheck.described)) + " |",
        "|---|---|---|---|---|---|---|",
    ]
    for check in [*failed, *(check for check in result.checks if not check.fault)]:
        cells = ("fails" if check.fault else "ok", *(str(column.cell(check)) for column in select(GateCheck.described)))
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    lines += ["", *(f"- {check.key}: {check.fault}" for check in failed), *(f"- {note}" for note in result.notes)]
    return "\n".join(lines) + "\n"


def _findings(result: GateResult, budget: Path) -> Iterator[FileFinding]:
    """Each check that fails, at the line of the budget that names its model."""
    from hexforge.addons.budgets.limits import lines_of

    lines = lines_of(budget)
    for check in result.checks:
        if check.fault:
            rule = check.what.split(" ")[0]
            yield FileFinding(rule, "error", f"{check.key}: {check.fault}", budget, lines.get(check.model, 1))


def _plain(text: str) -> str:
    """Text that XML can hold."""
    return "".join(c for c in text if c in "\t\n\r" or ord(c) >= 0x20)


_VERDICT = Column("", text=lambda check: Text("fails", "bold red") if check.fault else Text("ok", "green"))


def gate(
    budget: Path = argument("The budget file.", exists=True, dir_okay=False, show_default=False),
    baseline: Path | None = option(None, "Figures of an earlier run.", exists=True, dir_okay=False),
    save_baseline: Path | None = option(None, "Write the figures of this run.", dir_okay=False),
    junit: Path | None = option(None, "Write JUnit XML.", dir_okay=False),
    markdown: Path | None = option(None, "Write a comment with what changed.", dir_okay=False),
    metric: Annotated[str, typed(JUDGED_BY)] = "",
    jobs: Jobs = 1,
    store: str = option("", "Add the figures to this folder, or URL, for `hexforge history`.", show_default=False),
    key: bool = option(False, "Print what the figures depend on as one word, for a cache in CI, and measure nothing."),
    *,
    cluster: ClusterArguments,
    files: FindingFiles,
    as_json: Json = False,
) -> None:
    """Check models against a budget of latency, placement, quality and size; exit code 1 where one is over it.

    A model that is not there is exit code 2; one that only the baseline or only the budget names is said.
    """
    from hexforge.addons.budgets.gate import GateCheck, content_key
    from hexforge.addons.budgets.gate import gate as checked
    from hexforge.analysis.workers import Workers
    from hexforge.formats.files import require_writable, write_atomically

    if key:
        console().print(content_key(budget))
        return
    files.check()
    require_writable(save_baseline, junit, markdown)
    with spinner("measuring") as status:
        workers = Workers(jobs, cluster.address)
        result = checked(budget, baseline, lambda model: status.update(f"measuring {model}"), metric, workers)
    if save_baseline is not None:
        write_atomically(save_baseline, json.dumps({"figures": result.figures()}, indent=2).encode() + b"\n")
    if store:
        from hexforge.analysis.figure_store import new_figures, store_figures

        figures = [(c.model, c.what, c.value) for c in result.checks if c.key in result.figures()]
        store_figures(store, new_figures(figures, "gate", budget.parent))
    if junit is not None:
        write_atomically(junit, junit_xml(result))
    if markdown is not None:
        write_atomically(markdown, markdown_comment(result).encode())
    if as_json:
        checks = [check.to_json() for check in result.checks]
        print_json({"passes": result.passes, "checks": checks, "notes": list(result.notes)})
    else:
        screen, failing_first = console(), sorted(result.checks, key=lambda check: not check.fault)
        screen.print(result_table("", (_VERDICT, *select(GateCheck.described)), failing_first))
        for check in result.checks:
            if check.fault:
                screen.print(Text(f"{check.key}: {check.fault}", "red"))
        for note in result.notes:
            screen.print(Text(note, "yellow"))
    files.give(_findings(result, budget))
    if not result.passes:
        raise typer.Exit(1)
