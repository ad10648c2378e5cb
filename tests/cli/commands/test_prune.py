# SPDX-License-Identifier: Apache-2.0
"""`hexforge prune`: one chip of several, the rest as it was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hexforge.cli import app
from hexforge.errors import CallError
from hexforge.runtime.contexts.compile import compile
from hexforge.runtime.contexts.context import Context
from hexforge.runtime.contexts.request import ContextRequest
from hexforge.runtime.contexts.wrap import prune
from tests.ort.models import quantized


def test_one_chip_is_kept(tmp_path: Path) -> None:
    path, out = tmp_path / "all.bin", tmp_path / "one.bin"
    compile(quantized(), path, "SM8550,SM8650,SM8750", ContextRequest(graph_names=("q",)))
    done = CliRunner().invoke(app, ["prune", str(path), "--soc", "Snapdragon 8 Gen 3", "-o", str(out)])
    assert done.exit_code == 0, done.output
    before, after = Context(path), Context(out)
    assert [t.name for t in after.info.targets] == ["SM8650"]
    assert after.info.options["soc_model"] == "SM8650"
    assert after.container.names("schematic") == ["SM8650/q"]
    assert after.schematic("q") == before.schematic("q", "SM8650")
    assert len(after.container) < len(before.container)
    x = {"x": np.linspace(-3, 3, 8, dtype=np.float32).reshape(1, 8)}
    np.testing.assert_array_equal(after.program("q").run(x)["y"], before.program("q").run(x)["y"])
    with pytest.raises(CallError, match="was not made for SM8850; it has SM8550, SM8650, SM8750"):
        prune(path, "SM8850", out)
    assert [t.name for t in Context(out).info.targets] == ["SM8650"]
    prune(path, "SM8750", path)  # over itself
    assert [t.name for t in Context(path).info.targets] == ["SM8750"]
