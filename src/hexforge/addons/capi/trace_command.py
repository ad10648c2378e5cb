# SPDX-License-Identifier: Apache-2.0
"""`hexforge trace`: a program over QNN's C API, run under the sanitizer."""

from __future__ import annotations

from pathlib import Path

import typer

from hexforge.cli.arguments import Json
from hexforge.cli.say import say
from hexforge.cli.screen import print_json
from hexforge.errors import CallError
from hexforge.request_fields import argument, option


def trace(
    program: list[str] = argument("The program and its arguments.", show_default=False),
    output: Path | None = option(None, "A new folder for a recording; hexforge replay runs it.", "-o", "--output"),
    chaos: bool = option(
        False, "Run it again and again, each time with one call failing; name calls whose failure it does not bear."
    ),
    as_json: Json = False,
) -> None:
    """Run any program on hexforge's QNN libraries, and report every misuse of their API."""
    from hexforge.addons.capi.trace import trace as traced

    if chaos:
        if output is not None:
            raise CallError("--chaos makes calls fail, so there is nothing to record; leave --output out")
        _chaos(program, as_json)
        return
    done = traced(program, output, quiet=as_json)
    if as_json:
        print_json({"exit_code": done.exit_code, "findings": [finding.as_json() for finding in done.findings]})
    else:
        for finding in done.findings:
            say(f"{finding.rule}: {finding.message}", colour="red", err=True)
            ended = f", which ended with {finding.code}" if finding.code else ""
            say(f"  in {finding.call}({finding.arguments}){ended}", err=True)
            say(f"  {finding.advice}", err=True)
        count = len(done.findings)
        say(f"{program[0]} ended with {done.exit_code}; {count} finding{'' if count == 1 else 's'}", err=True)
        if output is not None:
            say(f"recorded in {output}; `hexforge replay {output}` with --soc, --backend or --option runs it", err=True)
    if done.exit_code or done.findings:
        raise typer.Exit(done.exit_code or 1)


def _chaos(program: list[str], as_json: bool) -> None:
    """Every failure of a call, and what the program makes of it."""
    from hexforge.addons.capi.chaos import chaos

    found, count = [], 0
    for call, number, code, finding in chaos(program):
        count += 1
        if finding is not None:
            found.append(finding)
            if not as_json:
                said = f"{finding.verdict}: {call}, call {number}, failing with {code}: {finding.detail}"
                say(said, colour="red", err=True)
    if as_json:
        print_json({"failures": count, "findings": [finding.as_json() for finding in found]})
    else:
        say(f"{count} failures of calls were tried; {program[0]} does not bear {len(found)}", err=True)
    if found:
        raise typer.Exit(1)
