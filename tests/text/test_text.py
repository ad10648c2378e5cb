# SPDX-License-Identifier: Apache-2.0
"""IR in, IR out: NAME.in.ir names a pass in its first line, NAME.out.ir is what the pass must make of it."""

from __future__ import annotations

from pathlib import Path

import pytest

import hexforge.ops  # noqa: F401 - fills the table
from hexforge.ir.text import dumps, loads
from hexforge.ir.verify import verify
from hexforge.passes import Pass
from hexforge.passes.channel_last import channel_last
from hexforge.passes.clean import clean
from hexforge.passes.fold import fold

PASSES: dict[str, Pass] = {"clean": clean, "fold": fold, "channel_last": channel_last}
CASES = sorted(Path(__file__).parent.glob("*.in.ir"))


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.name.removesuffix(".in.ir"))
def test_pass(path: Path) -> None:
    text = path.read_text()
    graph = loads(text)
    verify(graph)
    changes = PASSES[text.split("\n")[0].removeprefix("# pass: ")](graph)
    verify(graph)
    expected = path.with_name(path.name.replace(".in.", ".out.")).read_text()
    assert dumps(graph) == expected
    assert bool(changes) == (dumps(loads(text)) != expected)
