# SPDX-License-Identifier: Apache-2.0
"""The chips: every one of the references and of the measured latencies, with figures that agree with each other."""

from __future__ import annotations

import csv
from itertools import pairwise

import pytest

from hexforge.backends.htp.time import cost
from hexforge.chips.names import normalized_name
from hexforge.chips.power import Corner
from hexforge.chips.soc import ABILITIES, CLOCK_SHARE, FIGURES, SOCS, ChipTarget, Provenance, Soc, find_chip, names_of
from hexforge.errors import CallError
from tests import ROOT

MEASURED = ROOT / "src" / "hexforge" / "addons" / "latency" / "measured" / "measured.csv"
# ExecuTorch's table: name, number, architecture, VTCM in MB
EXECUTORCH = """
SM8350 30 68 4, SA8295 39 68 8, QCM6490 93 68 2, SM8450 36 69 8, SM8475 42 69 8, SM8550 43 73 8, SC8380XP 60 73 8,
SM8650 57 75 8, SM8750 69 79 8, SM8850 87 81 8, SA8797 72 81 16, SA8255 52 73 8, SXR2230P 53 69 8, SXR1230P 45 73 2,
SSG2115P 46 73 2, SSG2125P 58 73 2, QCS9100 77 73 8, SXR2330P 75 79 8, SM8845 97 81 8, SAR2230P 95 81 4, SW6100 96 81 4
"""


def chip(key: str) -> Soc:
    found = find_chip(key)
    assert found is not None
    return found


def measured() -> set[tuple[str, int]]:
    with MEASURED.open() as file:
        return {(row["soc_model"], int(row["htp_version"])) for row in csv.DictReader(file)}


@pytest.mark.parametrize("row", EXECUTORCH.split(","), ids=str.strip)
def test_published_rows(row: str) -> None:
    name, *figures = row.split()
    soc = chip(name)
    assert [soc.soc_model, soc.htp_arch, soc.vtcm_mb] == [int(f) for f in figures]
    assert soc.provenance("vtcm_mb") is Provenance.PUBLISHED


def test_measured_chips() -> None:
    rows = measured()
    assert rows
    for soc_model, arch in rows:
        soc = chip(soc_model)
        assert soc.htp_arch == arch
        assert soc.name in cost.fitted()["chips"]
    for key in ("SC8280", "SM8350", "Snapdragon X Elite", "Snapdragon 8 Elite"):
        assert chip(key)


@pytest.mark.parametrize("soc", SOCS, ids=lambda s: s.name)
def test_figures_agree(soc: Soc) -> None:
    assert len(soc.marks) == len(FIGURES)
    assert soc.vtcm_mb in (2, 4, 8, 16)
    assert soc.hvx_threads in (4, 6, 8)
    assert soc.hmx
    clocks = [soc.clock_mhz(corner) for corner in Corner]
    assert all(slower < faster for slower, faster in pairwise(clocks))
    assert clocks[-1] == soc.core_mhz
    assert {soc.provenance(figure) for figure in (*FIGURES, *ABILITIES, "clock_mhz")} <= set(Provenance)
    with pytest.raises(CallError, match="no figure 'price'"):
        soc.provenance("price")


@pytest.mark.parametrize("name", cost.fitted()["chips"])
def test_clock_and_memory_are_those_the_costs_were_fitted_with(name: str) -> None:
    """Fitted clocks are derived from the costs: a refit that moves them far must move the table too."""
    soc, costs = chip(name), cost.costs(chip(name))
    macs_per_us = 1e9 / costs.values["hmx.w8a8"]
    assert macs_per_us / (soc.hmx_kmacs * 1024) == pytest.approx(soc.core_mhz, rel=0.05)
    assert 1e3 / costs.values["dram"] < soc.dram_gbps
    assert soc.provenance("core_mhz") is Provenance.FITTED
    assert soc.provenance("hmx_kmacs") is Provenance.ASSUMED


def test_a_chip_without_latencies_has_no_fitted_figure() -> None:
    others = [soc for soc in SOCS if soc.name not in cost.fitted()["chips"]]
    assert others
    assert not any(soc.provenance(figure) is Provenance.FITTED for soc in others for figure in FIGURES)
    for soc in others:  # its matrix unit is that of the chip its costs stand on
        like = chip(cost.costs(soc).provenance.removeprefix("assumed as "))
        assert (soc.hmx_kmacs, soc.core_mhz) == (like.hmx_kmacs, like.core_mhz)
        assert 1e3 / cost.costs(soc).values["dram"] < soc.dram_gbps


def test_abilities() -> None:
    assert [chip(s).weight_sharing for s in ("SM8350", "SM8450", "SM8550", "SM8850")] == [False, False, True, True]
    assert chip("69").slc
    assert chip("69").provenance("slc") is Provenance.PUBLISHED
    assert chip("SM8850").provenance("slc") is Provenance.ASSUMED
    assert chip("SA8295P").provenance("float16") is Provenance.MEASURED
    assert ChipTarget(68, chip("SA8295P")).float16
    assert ChipTarget(68, chip("SM8350")).float16
    assert not ChipTarget(68, chip("QCS6490")).float16


@pytest.mark.feature("Voltage corners", guide="1394")
def test_every_corner_has_a_clock() -> None:
    assert set(CLOCK_SHARE) == set(Corner)
    assert len({p.mark for p in Provenance}) == len(Provenance)


@pytest.mark.parametrize(
    ("spoken", "name"),
    [
        ("Galaxy S24", "SM8650"), ("galaxy s24 ultra", "SM8650"), ("X Elite", "SC8380XP"), ("8gen3", "SM8650"),
        ("8 Gen 3", "SM8650"), ("SD8G3", "SM8650"), ("Snapdragon® 8 Gen 3", "SM8650"), ("sm-8650", "SM8650"),
        ("8+ Gen 1", "SM8475"), ("8 Elite Gen 5", "SM8850"), ("888", "SM8350"), ("X1E-80-100", "SC8380XP"),
        ("Quest 3", "SXR2230P"), ("s25", "SM8750"),
    ],
)  # fmt: skip
def test_names_people_use(spoken: str, name: str) -> None:
    assert chip(spoken).name == name


def test_no_name_means_two_chips() -> None:
    names = [(normalized_name(name), soc.name) for soc in SOCS for name in names_of(soc)]
    assert len(dict(names)) == len({*names})
    assert all(chip(name) is soc for soc in SOCS for name in names_of(soc))


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("SM8651", r"did you mean SM8650\? \(Snapdragon 8 Gen 3\)"),
        ("Snapdragon 8 Elit", r"did you mean Snapdragon 8 Elite\? \(SM8750\)"),
        ("toaster", r"known: SM8350, .*hexforge socs NAME"),
    ],
)
def test_the_nearest_name_is_offered(wrong: str, hint: str) -> None:
    with pytest.raises(CallError, match=hint):
        find_chip(wrong)
