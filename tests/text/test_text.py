# SPDX-License-Identifier: Apache-2.0
"""IR in, IR out: a file names a pass in its first line and has cases, each a graph and what the pass makes of it.

# case: NAME
# Why the pass does that.
graph "g" { … }
# becomes                   or: # stays as it is
graph "g" { … }
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

import hexforge.ops  # noqa: F401 - fills the table
from hexforge.backends.htp import pipeline as htp
from hexforge.backends.htp.activations import fold_activations
from hexforge.ir.text import dumps, loads
from hexforge.ir.verify import verify
from hexforge.passes import NEUTRAL, Pass

PASSES: dict[str, Pass] = {p.__name__: p for p in (*NEUTRAL, fold_activations, *htp.PASSES)}
STAYS = "# stays as it is\n"


@dataclass(frozen=True, slots=True)
class Case:
    """A graph before a pass and after it."""

    name: str
    pass_name: str
    before: str
    after: str | None

    def __str__(self) -> str:
        return f"{self.pass_name}-{self.name}"


def read_cases(path: Path) -> list[Case]:
    head, *parts = path.read_text(encoding="utf-8").split("# case: ")
    pass_name = head.strip().removeprefix("# pass: ")
    cases = []
    for part in parts:
        name, _, text = part.partition("\n")
        before, becomes, after = text.partition("# becomes\n")
        assert bool(becomes) != (STAYS in text), f"{path.name}, {name}: says neither or both"
        cases.append(Case(name, pass_name, before, after.rstrip("\n") + "\n" if becomes else None))
    return cases


CASES = [case for path in sorted(Path(__file__).parent.rglob("*.ir")) for case in read_cases(path)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pass(case: Case) -> None:
    graph = loads(case.before)
    verify(graph)
    written = dumps(graph)
    changes = PASSES[case.pass_name](graph)
    verify(graph)
    assert dumps(graph) == (written if case.after is None else case.after)
    assert bool(changes) == (case.after is not None)
    assert PASSES[case.pass_name](graph) == 0, "a second run finds nothing left to do"


def test_every_pass_has_cases_of_both_kinds() -> None:
    for name in PASSES:
        kinds = {case.after is None for case in CASES if case.pass_name == name}
        assert kinds == {True, False}, f"{name} needs a graph that it changes and one that it leaves"
