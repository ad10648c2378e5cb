# SPDX-License-Identifier: Apache-2.0
"""The guide and the README: every command in them is one that parses, every picture is there and small."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import ROOT
from tests.cli.commands_typed import parse

GUIDE = ROOT / "docs" / "guide.md"
README = ROOT / "README.md"
TOOLS = ROOT / "docs" / "tools.md"
PICTURE = re.compile(r"!\[[^\]]+\]\(([^)]+)\)")


def commands(text: str) -> list[str]:
    """Lines of a page that somebody would type; what follows two spaces and # is a comment."""
    lines = re.findall(r"^(?:\$ |    )(hexforge .*)$", text, re.MULTILINE)
    return [re.sub(r"\s+#.*", "", line) for line in lines]


@pytest.mark.parametrize("line", [c for page in (GUIDE, README, TOOLS) for c in commands(page.read_text("utf-8"))])
def test_commands_parse(line: str, tmp_path: Path) -> None:
    words = line.replace("MODEL", "model.onnx").replace("OUT.bin", "out.bin")
    for word in words.split():  # files in folders, too, must be there
        if re.fullmatch(r"[\w./-]+\.(onnx|bin|txt|csv|json|yaml|cpp)", word):
            (tmp_path / word).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / word).touch()
    assert parse(words, tmp_path) == line.split()[1]


def test_the_guide_goes_the_whole_way() -> None:
    names = [line.split()[1] for line in commands(GUIDE.read_text("utf-8"))]
    assert {"optimize", "check", "estimate", "advise", "quantize", "compare", "compile", "run", "bench"} <= {*names}


def test_what_the_guide_shows_fits_a_terminal() -> None:
    blocks = re.findall(r"```console\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    printed = [line for block in blocks for line in block.splitlines() if not line.startswith("$ ")]
    assert printed
    assert max(map(len, printed)) <= 80


def test_pictures_are_there_and_small() -> None:
    for page in (GUIDE, README):
        pictures = PICTURE.findall(page.read_text("utf-8"))
        assert pictures
        for name in pictures:
            assert (page.parent / name).stat().st_size < 300_000
