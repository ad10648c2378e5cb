# SPDX-License-Identifier: Apache-2.0
"""Every name of the public tables of chips is a chip here, or it is said why not."""

from __future__ import annotations

import pytest

from hexforge.backends.htp.time import band, cost
from hexforge.chips import claims
from hexforge.chips.soc import SOCS, Provenance, Soc, claims_of_chip, find_chip
from hexforge.errors import CallError

# LiteRT, litert/vendors/qualcomm/core/schema/soc_table.h: 111 names and numbers
LITERT = """
AIC100 63, IPQ5404 80, IPQ5424 81, IPQ6018 23, IPQ6028 24, IPQ9574 79, QCM2290 83, QCM4290 28, QCM4325 56, QCM4490 59,
QCM6125 19, QCM6490 93, QCM6690 78, QCS2290 83, QCS403 20, QCS405 18, QCS410 33, QCS610 16, QCS6125 48, QCS7230 51,
QCS8275 82, QCS8300 82, QCS8550 66, QCS8625 90, QCS9075 77, QCS9100 77, QRB4210 49, QRB5165 21, SA525M 84, SA7255 67,
SA8195 26, SA8255 52, SA8295 39, SA8540 62, SA8610 67, SA8620 67, SA8620P 67, SA8630 52, SA8650 52, SA8775 52,
SA8797 72, SAR1130P 58, SAR2130P 46, SAR2230P 95, SC7280X 44, SC8280X 37, SC8380XP 60, SC8480XP 88, SDM625 11,
SDM630 10, SDM632 15, SDM636 9, SDM652 8, SDM660 7, SDM670 6, SDM710 13, SDM820 4, SDM821 3, SDM835 2, SDM845 1,
SDM855 12, SDM865 21, SM4250 28, SM4350 31, SM4375 55, SM4450 59, SM4635 71, SM6115 28, SM6125 19, SM6150 16,
SM6225 40, SM6250 27, SM6350 29, SM6375 31, SM6450 50, SM6450Q 65, SM6475 76, SM6650 74, SM7150 17, SM7225 29,
SM7250 25, SM7315 38, SM7325 35, SM7350 32, SM7435 61, SM7450 41, SM7475 54, SM7550 64, SM7635 73, SM7675 70,
SM7750 86, SM8325 34, SM8350 30, SM8350P 30, SM8450 36, SM8475 42, SM8550 43, SM8635 68, SM8650 57, SM8735 85,
SM8750 69, SM8845 97, SM8845P 97, SM8850 87, SSG2115P 46, SSG2125P 58, STP6225P 47, SW6100 96, SXR1230P 45,
SXR2230P 53, SXR2330P 75
"""
# qai-hub-models: chipsets of devices_and_chipsets.yaml with the Hexagon that 0.57.3 gives them
AI_HUB = """
SDM845 65, SDM670 65, SM8150 66, SM7150-AB 65, SM7250 66, SM8250-AB 66, SM8350 68, SM6150-AC 66, SM7325 68, QCS8550 73,
SM8450 69, SM8550 73, SM8650 75, SM8750-AC 79, SM8850-AD 81, SC8380XP 73, SC8340XP 73, SC8480XP 81, SM8750 79,
SM8850 81, SM7750 73, SA8295P 68, SA8775P 73, SA7255P 75, QCM6690 73, QCS8275 75, QCS6490 68, QCS9075 73, SA8255P 73,
SA8650P 73, QCS7790 73, QCS8750 79, QCS5121 73, QCS7181 73, QCS8450 69, SDM429 0
"""
# qai-hub-models: devices of devices_and_chipsets.yaml (2026-11) and its marketing names, as they stand there
AI_HUB_DEVICES = """
Google Pixel 3 0, Google Pixel 3a 0, Google Pixel 3 XL 0, Google Pixel 4 0, Google Pixel 4a 0, Google Pixel 5 0,
Samsung Galaxy Tab S7 0, Samsung Galaxy Tab A8 (2021) 0, Samsung Galaxy S21 30, Samsung Galaxy S21+ 30,
Samsung Galaxy S21 Ultra 30, Xiaomi Redmi Note 10 5G 0, Google Pixel 3a XL 0, Google Pixel 5a 5G 0,
Samsung Galaxy A73 5G 35, QCS8550 (Proxy) 66, Samsung Galaxy S22 Ultra 5G 36, Samsung Galaxy S22 5G 36,
Samsung Galaxy S22+ 5G 36, Samsung Galaxy Tab S8 36, Xiaomi 12 36, Xiaomi 12 Pro 36, QCS8450 (Proxy) 0,
XR2 Gen 2 (Proxy) 53, Samsung Galaxy S23 43, Samsung Galaxy S23+ 43, Samsung Galaxy S23 Ultra 43, Samsung Galaxy S24 57,
Samsung Galaxy S24 Ultra 57, Samsung Galaxy S24+ 57, Samsung Galaxy S25 69, Samsung Galaxy S25 Ultra 69,
Samsung Galaxy S25+ 69, Snapdragon X Elite CRD 60, Snapdragon X Plus 8-Core CRD 0, Snapdragon X2 Elite CRD 88,
Snapdragon 8 Elite QRD 69, Snapdragon 8 Elite Gen 5 QRD 87, Snapdragon 7 Gen 4 QRD 86, SA8295P ADP 39, SA8775P ADP 52,
SA7255P ADP 67, Dragonwing Q-6690 MTP 78, QCS9075 (Proxy) 77, QCS8275 (Proxy) 82, Dragonwing RB3 Gen 2 Vision Kit 93,
Dragonwing IQ-9075 EVK 77, Snapdragon® 845 Mobile 0, Snapdragon® 730g Mobile 0, Snapdragon® 865+ Mobile 0,
Snapdragon® 888 Mobile 30, Snapdragon® 778g Mobile 35, Snapdragon® 8 Gen 1 Mobile 36, qualcomm-qcs8550-proxy 66,
Snapdragon® 8 Elite For Galaxy Mobile 69, Snapdragon® X Elite 60, qualcomm-snapdragon-x-plus-8-core 0,
Snapdragon® 8 Elite Gen 5 Mobile 87, Snapdragon® 7 Gen 4 Mobile 86, Qualcomm® SA8775P 52, sc8380xp 60, sm8750-ac 69
"""
# the names of issue 46, with the number each must have; 0 where the issue gives none
ASKED = """
SM8950 113, SM8975 103, SM8635 68, SM7675 70, SM7550 64, SM7475 54, SM7450 41, SM7435 61, SM7325 35, SM7315 38,
SM7350 32, SM6450 50, SM8735 85, QCS8625 90, QCS8300 82, SA8650P 52, SA8620P 67, SA8397 72, QCS8750 69, QCS5121 60,
QCM8550 66, X2 Plus 88, 8s Gen 3 68, 8s Gen 4 85, 778G 35, SM8750P 69
"""


def pairs(text: str) -> list[tuple[str, int]]:
    rows = [entry.rsplit(None, 1) for entry in text.split(",")]
    return [(name.strip(), int(number)) for name, number in rows]


def chip_or_reason(name: str) -> tuple[int, int, str]:
    """Number and architecture of a chip, or why there is none."""
    try:
        soc = find_chip(name)
    except CallError as error:
        return 0, 0, str(error)
    assert soc is not None
    return soc.soc_model, soc.htp_arch, ""


@pytest.mark.parametrize(("name", "number"), pairs(AI_HUB_DEVICES))
def test_every_device_of_qai_hub_models_resolves_or_says_why_not(name: str, number: int) -> None:
    soc_model, _, reason = chip_or_reason(name)
    assert soc_model == number
    assert bool(number) or "no chip of HTP here" in reason


@pytest.mark.parametrize(("name", "number"), pairs(LITERT))
def test_every_name_of_litert_resolves_or_says_why_not(name: str, number: int) -> None:
    soc_model, _, reason = chip_or_reason(name)
    if reason:
        assert "too old for HTP" in reason or "no public source says which Hexagon" in reason
        assert f"(soc_model {number}" in reason
        assert "did you mean" not in reason
    else:
        assert soc_model == number


def test_there_are_111_of_them() -> None:
    assert len(dict(pairs(LITERT))) == 111


@pytest.mark.parametrize(("name", "arch"), pairs(AI_HUB))
def test_every_chipset_of_ai_hub_resolves_or_says_why_not(name: str, arch: int) -> None:
    _, htp_arch, reason = chip_or_reason(name)
    if not reason:
        assert htp_arch == arch
    elif arch:
        assert f"v{arch}" in reason or "v66" in reason
    else:
        assert "no public source says which Hexagon" in reason


@pytest.mark.parametrize(("name", "number"), pairs(ASKED))
def test_the_names_that_people_asked_for(name: str, number: int) -> None:
    assert chip_or_reason(name)[0] == number


def test_sm8250_is_too_old() -> None:
    with pytest.raises(CallError, match=r"SM8250 \(soc_model 21\) is too old for HTP: its Hexagon is v66 .* HVX"):
        find_chip("SM8250")


def test_bins_of_a_chip() -> None:
    assert chip_or_reason("SM8550-AB")[0] == 43
    assert chip_or_reason("SM8850-1-AD")[0] == 87


def test_sources_are_named_and_disagreements_stay() -> None:
    assert {claim.source for claim in claims.claims()} == set(claims.SOURCES)
    assert set(claims.numbers_named("QCM6490")) == {93, 35}
    assert set(claims.numbers_named("QCS8550")) == {66, 43}
    assert {claim.sold_as for claim in claims.claims_of("SM8975")} >= {
        "Snapdragon 8 Elite Extreme Gen 6",
        "Snapdragon 8 Elite Gen 6 Pro",
    }


@pytest.mark.parametrize("soc", SOCS, ids=lambda soc: soc.name)
def test_a_chip_is_what_sources_say_of_it(soc: Soc) -> None:
    said = claims_of_chip(soc)
    assert said, f"no source names {soc.name}"
    assert soc.soc_model in {claim.soc_model for claim in said}
    archs = {claim.htp_arch for claim in said if claim.htp_arch}
    assert not archs or soc.htp_arch in archs


def test_a_chip_that_nobody_measured_has_a_wider_band() -> None:
    known = band.Certainty(0.05, (), 0.0, 0.1)
    measured, assumed = (band.band_width(known, ["w8a8"], "qnn_dlc", was) for was in (True, False))
    assert assumed > 1.2 * measured
    new = next(soc for soc in SOCS if soc.name == "SM7435")
    assert cost.costs(new).provenance.startswith("assumed")
    assert all(
        new.provenance(figure) is Provenance.ASSUMED for figure in ("vtcm_mb", "hmx_kmacs", "core_mhz", "dram_gbps")
    )
