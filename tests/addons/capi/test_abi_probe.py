# SPDX-License-Identifier: Apache-2.0
"""The program of `hexforge abi-probe` learns what headers say, and what of it is not as in hexforge's."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from hexforge.addons.capi.abi_probe import differences, own_passport, probe, program, read_passport
from hexforge.addons.capi.library import include_path
from hexforge.errors import CallError, FormatError
from hexforge.qnn_api.enumerations import enumerators, value_of
from tests.cli.test_cli import run

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def altered(folder: Path) -> Path:
    """Headers of another SDK: a number, the order of members, a member and an enumerator of ours not there."""
    headers = Path(shutil.copytree(include_path(), folder / "QNN"))
    for name, pattern, text in (
        ("QnnGraph.h", r"QNN_GRAPH_CONFIG_OPTION_PRIORITY = 2", "QNN_GRAPH_CONFIG_OPTION_PRIORITY = 22"),
        ("QnnTypes.h", r"  uint32_t rank;\n  uint32_t\* dimensions;\n", "  uint32_t* dimensions;\n  uint32_t rank;\n"),
        ("HTP/QnnHtpGraph.h", r"    bool weightsPacking;\n", ""),
        ("HTP/QnnHtpContext.h", r"  CONCURRENT_OPTIMIZATION = \w+,\n", ""),
        ("HTP/QnnHtpMem.h", r"  uint64_t size;\n", "  uint64_t flags;\n  uint64_t size;\n"),
    ):
        source = (headers / name).read_text()
        assert re.search(pattern, source), name
        (headers / name).write_text(re.sub(pattern, text, source))
    return headers


def test_hexforges_own_passport_is_its_tables() -> None:
    made = own_passport()
    assert made["values"] == {row.name: row.value for row in enumerators()}
    assert made["structures"]["Qnn_Tensor_t"] == {
        "size": 144,
        "members": {"version": [0, 4], "v1": [8, 112], "v2": [8, 136]},
    }
    assert made["structures"]["QnnInterface_Implementation_t"]["members"]["contextCreateFromBinaryWithSignal"] == [
        440,
        8,
    ]


def test_what_differs_is_said_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    passport = tmp_path / "passport.json"
    assert run("abi-probe", "--include", str(altered(tmp_path)), "-o", str(passport)) == 0
    rows = {row.name: (row.ours, row.theirs) for row in differences(own_passport(), read_passport(passport))}
    assert rows["QNN_GRAPH_CONFIG_OPTION_PRIORITY"] == ("2", "22")
    assert rows["CONCURRENT_OPTIMIZATION"] == (str(value_of("CONCURRENT_OPTIMIZATION")), "not there")
    assert rows["QnnHtpGraph_CustomConfig_t.weightsPacking"] == ("1 bytes at 8", "not there")
    assert rows["Qnn_TensorV1_t.rank"] == ("4 bytes at 72", "4 bytes at 80")
    assert rows["QnnMemHtp_Descriptor_t"] == ("32 bytes", "40 bytes")
    assert "QNN_GRAPH_CONFIG_OPTION_CUSTOM" not in rows
    capsys.readouterr()
    assert run("abi-probe", "--passport", str(passport), "--json") == 0
    assert {row["name"] for row in json.loads(capsys.readouterr().out)} == set(rows)


def test_the_program_is_printed_and_compiles_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("abi-probe") == 0
    assert capsys.readouterr().out == program()
    json.loads(probe(include_path()))


@pytest.mark.parametrize(
    "text", ["", "[]", '{"hexforge_abi": 9}', '{"hexforge_abi": 1, "values": {"a": "b"}, "structures": {}}',
             '{"hexforge_abi": 1, "values": {}, "structures": {"a": {"size": 1, "members": {"b": [-1, 2]}}}}',
             "[" * 100000],
)  # fmt: skip
def test_what_is_no_passport_is_said(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(FormatError, match=r"p\.json"):
        read_passport(tmp_path / "p.json")


def test_folders_without_headers_are_said(tmp_path: Path) -> None:
    with pytest.raises(CallError, match="no such folder"):
        probe(tmp_path / "nothing")
    with pytest.raises(CallError, match="no compiler"):
        probe(tmp_path, "no-such-cc")
