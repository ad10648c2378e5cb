# SPDX-License-Identifier: Apache-2.0
"""JSON and YAML files of others: every one that is none says so, in a message."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hexforge.errors import CallError, FormatError
from hexforge.formats.json_text import read_json, read_yaml


@pytest.mark.parametrize("name", ["a.json", "a.yaml"])
def test_a_pipe_is_not_waited_for(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(CallError, match="is no file that can be read whole"):
        (read_json if name.endswith("json") else read_yaml)(tmp_path / name)


@pytest.mark.parametrize(
    "text", ["a: !!timestamp now", "!!bool perhaps", "!!int ''", "!!float ''", "a\0b", "!!binary é", "!!set [1]", "{"]
)
def test_what_no_yaml_says_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(FormatError, match="is no YAML"):
        read_yaml(tmp_path / "a.yaml")
