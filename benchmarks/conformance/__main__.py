# SPDX-License-Identifier: Apache-2.0
"""Print the conformance table: `python -m benchmarks.conformance [--backend htp] [--op Conv] [--json]`."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import track

from benchmarks.conformance.cases import collect
from benchmarks.conformance.judge import CRASHED, REFUSED, RIGHT, WRONG, Verdict, judge, rows

FIGURES = Path(__file__).parents[2] / "docs" / "figures.md"
HEAD = ("node cases", "cases", "fully placed and right", "refused", "wrong", "crashed")


def markdown(verdicts: list[Verdict]) -> str:
    """The table as docs/figures.md carries it."""
    lines = ["| " + " | ".join(HEAD) + " |", "|---|" + "---:|" * (len(HEAD) - 1)]
    for name, total, right, *rest in rows(verdicts):
        share = f" ({right / total:.1%})" if total else ""
        lines.append(f"| {name} | {total} | {right}{share} | " + " | ".join(map(str, rest)) + " |")
    return "\n".join(lines)


def write(table: str, backend: str, chosen: dict[str, str]) -> None:
    """Put the table between the markers of the page for the backend and the options that are not its defaults."""
    text = FIGURES.read_text(encoding="utf-8")
    mark = "conformance" if backend == "cpu" else f"conformance {backend}"
    mark += "".join(f" {key}={value}" for key, value in chosen.items())
    pattern = rf"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)"
    FIGURES.write_text(re.sub(pattern, lambda m: f"{m[1]}{table}\n{m[2]}", text, flags=re.DOTALL), encoding="utf-8")


def main() -> int:
    """Run the cases asked for; exit code 1 where one is wrong or crashed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--soc", default="", help="chip name or number, as in the option soc_model")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="a provider option")
    parser.add_argument("--op", action="append", help="only cases with this op type")
    parser.add_argument("--case", action="append", help="only the case of this name")
    parser.add_argument("--json", action="store_true", help="one object for each case")
    parser.add_argument("--write", action="store_true", help="put the table into docs/figures.md")
    arguments = parser.parse_args()
    chosen = dict(pair.split("=", 1) for pair in arguments.option)
    wanted = [
        c
        for c in collect()
        if (not arguments.op or c.ops & set(arguments.op)) and (not arguments.case or c.name in arguments.case)
    ]
    progress = track(wanted, "running cases", console=Console(stderr=True), disable=not sys.stderr.isatty())
    verdicts = [judge(case, arguments.backend, arguments.soc, **chosen) for case in progress]
    if arguments.json:
        print(json.dumps([{"case": v.case.name, "outcome": v.outcome, "reason": v.reason} for v in verdicts], indent=1))
    else:
        for outcome in (CRASHED, WRONG, REFUSED):
            for v in verdicts:
                if v.outcome == outcome and (outcome != REFUSED or v.case.qnn_types):
                    print(f"{outcome}: {v.case.name}: {' '.join(v.reason.split())[-400:]}")
        foreign = sorted({v.case.foreign_types for v in verdicts if v.outcome == REFUSED and not v.case.qnn_types})
        if foreign:
            print(f"refused for tensor types QNN does not have: {', '.join(foreign)}")
        rounded = [v.case.name for v in verdicts if v.rounded]
        if rounded:
            print(f"right for their inputs as float16 holds them ({len(rounded)}): {', '.join(rounded)}")
        print(f"\n{markdown(verdicts)}")
    if arguments.write:
        write(markdown(verdicts), arguments.backend, chosen)
    return int(any(v.outcome in (WRONG, CRASHED) for v in verdicts) or not any(v.outcome == RIGHT for v in verdicts))


if __name__ == "__main__":
    sys.exit(main())
