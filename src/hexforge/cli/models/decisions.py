# SPDX-License-Identifier: Apache-2.0
"""Decisions on the screen: the verdict, what it is by, alarms, and the sample on which two models differ most."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from hexforge.amounts import with_decibels

if TYPE_CHECKING:
    from hexforge.analysis.quality.decisions.verdict import Decisions

_COLOURS = {"good": "bold green", "usable": "bold yellow", "unusable": "bold red", "unknown": "bold"}


def print_decisions(screen: Console, decisions: Decisions | None, where: str) -> None:
    """The verdict with its figures; where they are from; groups of channels and alarms that SQNR does not show."""
    if decisions is None:
        return
    verdict = decisions.verdict
    figures = decisions.text().removeprefix(verdict)
    screen.print(Text.assemble("decisions ", (verdict, _COLOURS[verdict]), f"{figures} on {where}"))
    for part in decisions.parts if len(decisions.parts) > 1 else ():
        screen.print(Text(f"  {', '.join(part.outputs)}: {part.text()}"))
    if decisions.decisive is not None:
        screen.print(Text(f"  judged by {decisions.decisive.about} (--metric says another kind)", "dim"))
    apart = [group for group in decisions.groups if not group.whole]
    for group in apart:
        worst = ", the worst" if group is decisions.worst_group else ""
        text = f"  {group.name} ({group.low:.4g} to {group.high:.4g}): SQNR {with_decibels(group.sqnr_db)}{worst}"
        screen.print(Text(text))
    for alarm in decisions.alarms:
        screen.print(Text(f"ALARM: {alarm.text}", "bold red"))
    worst_sample = decisions.worst_sample
    if worst_sample is not None and worst_sample.agreement < 1:
        named = f" ({worst_sample.name})" if worst_sample.name else ""
        screen.print(
            Text(
                f"  worst sample {worst_sample.number + 1}{named}: {worst_sample.in_float} in float, "
                f"{worst_sample.in_other} quantized"
            )
        )
