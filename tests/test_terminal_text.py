# SPDX-License-Identifier: Apache-2.0
"""What files say is shown by a terminal, never obeyed."""

from __future__ import annotations

import io
import json
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from hexforge.cli.say import say
from hexforge.cli.screen import Screen, print_json, table
from hexforge.errors import CallError, FormatError
from hexforge.terminal_text import visible, visible_json
from tests import ROOT

HOSTILE = "\x1b[2J\x1b]0;t\x07\x9b1m\u202ex[bold]\x00"
SHOWN = r"\x1b[2J\x1b]0;t\x07\x9b1m\u202ex[bold]\x00"
TURNS = frozenset(("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"))
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


@given(st.text(st.characters(exclude_categories=())))
def test_no_control_is_left(text: str) -> None:
    for character in visible(text):
        assert character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cs", "Zl", "Zp")
        assert unicodedata.bidirectional(character) not in TURNS
    assert visible(visible(text)) == visible(text)
    visible(text).encode()


def test_what_can_be_seen_stays() -> None:
    text = "conv/é 漢字\tµs ≤ 3\n─━…\xa0%"
    assert visible(text) == text
    assert visible(HOSTILE) == SHOWN


@given(st.text(st.characters(exclude_categories=())))
def test_json_says_the_same(text: str) -> None:
    written = visible_json(json.dumps([text], ensure_ascii=False))
    assert json.loads(written) == [text]
    assert visible(written) == written


def test_errors_are_visible() -> None:
    assert str(CallError(f"node {HOSTILE} is refused")) == f"node {SHOWN} is refused"
    assert str(FormatError(HOSTILE, 3)) == f"{SHOWN} (at byte 3)"


def test_a_screen_obeys_its_own_styles_only(capsys: pytest.CaptureFixture[str]) -> None:
    written = io.StringIO()
    screen = Screen(file=written, force_terminal=True, width=80, color_system="truecolor")
    screen.print(HOSTILE, style="red")
    screen.print(Text(HOSTILE, "bold"))
    screen.print(table(HOSTILE, (HOSTILE, "b"), [(HOSTILE, Text(HOSTILE, "red"))]))
    with screen.status(Text(HOSTILE)):
        pass
    shown = written.getvalue()
    assert "\x1b[31m" in shown
    plain = re.sub(r"\x1b\[[0-9;?]*[mlhAK]|\r", "", shown)
    assert plain.count(r"\x9b1m\u202ex[bold]\x00") == 7  # rich itself leaves out the bell
    assert visible(plain) == plain
    say(HOSTILE, colour="red")
    print_json({HOSTILE: HOSTILE})
    out = capsys.readouterr().out
    assert visible(ESCAPE.sub("", out)) == ESCAPE.sub("", out)


def test_commands_print_by_screen_and_say_only() -> None:
    """Nothing in the command line writes to a terminal by another way."""
    other = re.compile(
        r"typer\.s?echo\(|(?<![\w.])print\(|rich\.print|(?<!Screen\()\bConsole\(|sys\.std(?:out|err)\.write"
    )
    streams = {"sys.stdout.write"}
    runners = {"executor_runner.py": streams, "llama_runner.py": streams | {"sys.stderr.write"}}  # as ExecuTorch's do
    allowed = {"say.py": {"typer.secho("}, "screen.py": streams, **runners}
    for path in sorted((ROOT / "src/hexforge/cli").rglob("*.py")):
        assert set(other.findall(path.read_text("utf-8"))) <= allowed.get(path.name, set()), path.name
