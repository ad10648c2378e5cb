# SPDX-License-Identifier: Apache-2.0
"""`hexforge socs`: every chip in a table and as JSON, one in full, and no unknown one."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from hexforge.chips.soc import ABILITIES, FIGURES, SOCS
from hexforge.cli import main
from hexforge.cli.commands.listings import socs
from hexforge.cli.request_options import CommandGroup

app = CommandGroup()
app.command()(socs)


def printed(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "240"})
    assert done.exit_code == 0, done.output
    return done.stdout


def test_table_has_every_chip_and_a_legend() -> None:
    text = printed()
    for soc in SOCS:
        assert soc.name in text
    assert "p: published; m: measured; f: fitted; a: assumed" in text
    row = next(line for line in text.splitlines() if "SM8750" in line)
    assert row.split()[:6] == ["SM8750", "69", "v79p", "8p", "6m", "2025f"]
    assert "Samsung Galaxy S25" in row


def test_one_chip_in_full() -> None:
    text = printed("Snapdragon 8 Gen 3")
    assert "SM8650 (soc_model 57)" in text
    assert "clock at svs_plus" in text
    assert "latencies measured: yes; costs fitted" in text
    assert "latencies measured: no" in printed("SW6100")


def test_json_marks_every_figure() -> None:
    found = json.loads(printed("--json"))
    assert [row["name"] for row in found] == [soc.name for soc in SOCS]
    for row in found:
        assert set(row["provenance"]) == {*FIGURES, *ABILITIES, "clock_mhz", "dram_fitted_gbps"}
        assert row["measured"] == (row["costs"] == "fitted") == (row["provenance"]["dram_fitted_gbps"] == "fitted")
    one = json.loads(printed("sm8650", "--json"))
    assert one in found
    assert list(one["clock_mhz"].values()) == sorted(one["clock_mhz"].values())


@pytest.mark.parametrize("name", ["SM8651", "0"])
def test_unknown_chip(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["socs", name])
    assert stopped.value.code == 2
    assert "SM8650" in capsys.readouterr().err
