# SPDX-License-Identifier: Apache-2.0
"""`hexforge explain`: what a code or a log of QNN means, why, what would work, and the proof."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from hexforge.chips.soc import DEFAULT_SOC
from hexforge.cli.arguments import InputArguments, Json
from hexforge.cli.screen import console, print_json, spinner
from hexforge.errors import CallError
from hexforge.request_fields import argument, option

if TYPE_CHECKING:
    from hexforge.addons.diagnosis.reading import ExplainedLine, Explanation

LARGEST_LOG = 64 << 20
"""Bytes of a log that are read."""
_COLOURS = {"cause": "bold red", "code": "bold red", "unknown": "bold yellow", "consequence": "bold", "notice": "dim"}


def explain(
    log: list[str] = argument("Codes, lines, files of them, or - for standard input.", metavar="CODE|LOG…"),
    model: Path | None = option(None, "The ONNX model that it is about.", exists=True, dir_okay=False),
    context: Path | None = option(None, "The context that it is about.", exists=True, dir_okay=False),
    soc: str = option(DEFAULT_SOC, "The chip that it ran on, or was to run on."),
    *,
    inputs: InputArguments,
    every: bool = option(False, "Consequences and notices in full, too.", "--all"),
    as_json: Json = False,
) -> None:
    """Say what a code or a log of QNN means, why, what would work, and what the model or context shows of it.

    A file that is named is read; any other text is a code or a line. Exit code 1: nothing of it is known.
    """
    from hexforge.addons.diagnosis.explain import explain as explained
    from hexforge.runtime.prepare import ModelRequest

    log = [given.strip() for given in log]
    texts = [_text(given) for given in log]
    with spinner("looking it up"):
        sizes = inputs.request(model) if model is not None else ModelRequest()
        explanations = [
            explained(text, model=model, context=context, soc=soc, dims=sizes.dims, shapes=sizes.shapes)
            for text in texts
        ]
    if as_json:
        told = [{"given": given, **explanation.to_json()} for given, explanation in zip(log, explanations, strict=True)]
        print_json(told[0] if len(told) == 1 else told)
    else:
        for given, explanation in zip(log, explanations, strict=True):
            _print(console(), given, explanation, every)
    if not any(finding.kind != "unknown" for explanation in explanations for finding in explanation.findings):
        raise typer.Exit(1)


def _text(given: str) -> str:
    """What is to be explained: standard input, the text of a file, or the argument itself."""
    if given == "-":
        data = sys.stdin.buffer.read(LARGEST_LOG + 1)
    elif _names_file(given):
        path = Path(given)
        if not path.is_file():
            raise CallError(f"{given}: there is no such file; a code or a line of a log is given as it is")
        with path.open("rb") as file:
            data = file.read(LARGEST_LOG + 1)
    else:
        return given
    if len(data) > LARGEST_LOG:
        raise CallError(f"{given}: is longer than {LARGEST_LOG >> 20} MiB; cut out the part around the first error")
    return data.decode("utf-8", errors="replace")


def _names_file(given: str) -> bool:
    """Whether an argument is the name of a file, be it there or not; a line of a log has spaces in it."""
    if not given or "\x00" in given or len(given) > 4096 or "\n" in given:
        return False
    try:
        if Path(given).is_file():
            return True
    except OSError:
        return False
    return " " not in given and (given.endswith((".log", ".txt")) or "/" in given)


def _print(screen: Console, given: str, explanation: Explanation, every: bool) -> None:
    if not explanation.findings:
        screen.print(
            f"{_short(given)}: nothing in it is known: no code of QNN, Genie or FastRPC, and no line of theirs"
        )
        return
    first = explanation.first_cause
    if first is not None:
        _print_finding(screen, first, whole=True)
    rest = [finding for finding in explanation.findings if finding is not first]
    for title, kinds in (("More causes", ("cause", "code")), ("Not known", ("unknown",))):
        of_kind = [finding for finding in rest if finding.kind in kinds]
        if of_kind and first is not None:
            screen.print(Text(f"\n{title}", "bold"))
        for finding in of_kind:
            _print_finding(screen, finding, whole=finding.kind != "unknown")
    for title, kind in (("Follows from it", "consequence"), ("Harmless", "notice")):
        of_kind = [finding for finding in rest if finding.kind == kind]
        if of_kind:
            screen.print(Text(f"\n{title}", "bold"))
        for finding in of_kind:
            _print_finding(screen, finding, whole=every)
    if explanation.left_out:
        screen.print(f"{explanation.left_out} more findings are not shown")


def _print_finding(screen: Console, finding: ExplainedLine, whole: bool) -> None:
    place = f"line {finding.line}: " if finding.line else ""
    times = f" ({finding.times} times)" if finding.times > 1 else ""
    screen.print(Text.assemble(place, (finding.text, _COLOURS[finding.kind]), times))
    names = ", ".join(f"{code.name} ({code.number})" for code in finding.codes[: None if whole else 1])
    facts = [finding.happened]
    if whole:
        facts += [f"Why: {finding.why}"] if finding.why else []
        facts += [f"Code: {names}{'; ' + finding.reading if finding.reading else ''}"] if names else []
        facts += [f"Try: {one}" for one in finding.would_work]
        facts += [f"Proof: {one}" for one in finding.proof]
        facts += [f"See: {' '.join(finding.sources)}"] if finding.sources else []
    for fact in facts:
        screen.print(Padding(Text(fact), (0, 0, 0, 2)))


def _short(text: str) -> str:
    first = text.strip().partition("\n")[0]
    return first if len(first) <= 80 else f"{first[:79]}…"
