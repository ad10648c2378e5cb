# SPDX-License-Identifier: Apache-2.0
"""The list of everything that users have: what it holds, and what parts two of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import ROOT
from tools import surface


def test_what_went_came_and_changed_is_told_line_by_line() -> None:
    before = {"names": {"a": "function(x)", "b": "class(y)"}, "backends": ["cpu", "htp"]}
    after = {"names": {"a": "function(x, z)"}, "backends": ["cpu", "gpu", "htp"]}
    assert surface.differences(before, after) == [
        "went:    names > b  (was class(y))",
        "came:    backends > gpu  (there)",
        "changed: names > a\n    was function(x)\n    is  function(x, z)",
    ]
    assert surface.differences(after, after) == []


def test_names_have_their_fields_and_methods() -> None:
    names = surface.public_names(ROOT)
    assert names["check"].startswith("function(model")
    assert names["CheckedNode.reason"].startswith("field")
    assert names["Context.apply"].startswith("method(self")
    assert {"device.Device", "llm.load", "ort.IOBinding", "executorch.enable"} <= set(names)


def test_environment_variables_are_found_in_python_and_c() -> None:
    assert {"HEXFORGE_DEVICE", "ANDROID_SERIAL", "XDG_CACHE_HOME"} <= surface.environment_variables(ROOT)
    assert "HEXFORGE_QNN_LOG" in surface.environment_variables(ROOT)


def test_a_whole_list_is_written_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ("check digits.onnx --json", "info digits.onnx --json")
    monkeypatch.setattr(surface, "surface", lambda root, whole=surface.surface: whole(root, lines))
    monkeypatch.chdir(ROOT)
    one = tmp_path / "one.json"
    assert surface.main([str(one)]) == 0
    assert surface.main(["--compare", str(one), str(one)]) == 0
    assert "nothing parts them" in capsys.readouterr().out
    listed = surface.json.loads(one.read_text("utf-8"))
    assert "--json" in listed["commands"]["check"]["parameters"]
    assert "--retrieve_context" in listed["commands"]["tool qnn-net-run"]["parameters"]
    assert "nodes[].op: str" in listed["json"][lines[0]]
    assert listed["json"][lines[1]][0].startswith("fails: hexforge: ")
    assert {"hexforge", "qnn-net-run"} <= set(listed["scripts"])
    assert {"hexforge", "hexforge.ort"} <= set(listed["python -m"])
    assert {"cpu", "htp"} <= set(listed["backends"])
    assert any(key.startswith("provider options: ") for key in listed["options"])
