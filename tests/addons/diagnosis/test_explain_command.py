# SPDX-License-Identifier: Apache-2.0
"""`hexforge explain`: codes, lines, files and standard input; JSON; hostile text; what is not known."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from hexforge.cli import main
from tests.digits import MODEL

LOG = (
    "graph requires estimated allocation of 40 KB, limit is 30 KB\n<E> Failed to finalize graph (id: 1) with err 1002\n"
)


def explained(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    with pytest.raises(SystemExit) as stopped:
        main(["explain", *arguments])
    assert stopped.value.code == code
    return capsys.readouterr().out


def test_a_code_a_line_and_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "device.log").write_text(LOG)
    text = explained(capsys, "5005", "err 1007", str(tmp_path / "device.log"), "--model", str(MODEL))
    parts = ("QNN_CONTEXT_ERROR_CREATE_FROM_BINARY (5005)", "QNN_COMMON_ERROR_SYSTEM_COMMUNICATION (1007)")
    proved = ("The prepared graph needs 40.0 KiB", "Proof: Cut after ", "Follows from it", "line 2: <E> Failed")
    for part in (*parts, *proved):
        assert part in text


def test_a_negative_number_is_a_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert "AEE_EUNABLETOLOAD" in explained(capsys, "--", "-2147482618")
    assert json.loads(explained(capsys, "-2147482618", "--json"))["given"] == "-2147482618"
    assert "QNN_COMMON_ERROR_MEM_ALLOC" in explained(capsys, "-0x3ea")


def test_standard_input_as_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(LOG.encode() + b"\xff\xfe err 5005\n")))
    told = json.loads(explained(capsys, "-", "--json"))
    assert told["given"] == "-"
    assert [finding["id"] for finding in told["findings"]] == ["graph-memory", "finalize-memory", ""]
    assert told["first_cause"] == 0
    several = json.loads(explained(capsys, "5005", "0x3ea", "--json"))
    assert [one["given"] for one in several] == ["5005", "0x3ea"]


def test_what_is_not_known_ends_with_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert "5999 is not known" in explained(capsys, "5999", code=1)
    assert "nothing of it" not in explained(capsys, "all is well", code=1)
    assert json.loads(explained(capsys, "all is well", "--json", code=1))["findings"] == []


def test_hostile_text_is_shown_and_not_obeyed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "hostile.log").write_bytes(b"\x1b]0;title\x07 {0.__class__} %s failed with error 5005 \xe2\x80\xae\n")
    text = explained(capsys, str(tmp_path / "hostile.log"))
    assert "\\x1b]0;title {0.__class__} %s failed with error 5005 \\u202e" in text
    assert "\x1b]0" not in text


@pytest.mark.parametrize("name", ["missing.log", "no/such/file"])
def test_a_missing_file_is_told(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["explain", name])
    assert stopped.value.code == 2
    assert f"{name}: there is no such file" in capsys.readouterr().err
