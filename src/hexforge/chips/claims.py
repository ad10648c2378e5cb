# SPDX-License-Identifier: Apache-2.0
"""What public sources say of chips: names, soc_model numbers and Hexagon architectures, each under its source.

Sources are kept apart and are not reconciled, so a reader sees where they disagree. A chip that runs graphs has a row
in `chips.soc`; what is said here of others tells why they have none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from hexforge.chips.names import DEVICES, normalized_name

FIRST_HTP = 68
"""The first Hexagon architecture with a matrix unit, which the HTP backend needs."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What one source says of one name."""

    name: str
    source: str
    soc_model: int = 0
    """0 where the source gives none."""
    htp_arch: int = 0
    """0 where the source gives none."""
    sold_as: str = ""


SOURCES = {
    "LiteRT": "LiteRT's litert/vendors/qualcomm/core/schema/soc_table.h, which names QAIRT 2.47's documentation",
    "LiteRT archs": "LiteRT's litert/vendors/qualcomm/supported_soc.csv",
    "QNN": "QNN_SOC_MODEL_ constants of the public header QnnTypes.h",
    "ExecuTorch": "ExecuTorch's backends/qualcomm/serialization/qc_schema.py",
    "AI Hub models": "chipsets of qai-hub-models (devices_and_chipsets.yaml, 0.57.3), their Hexagon versions",
    "AI Hub": "device attributes of latencies that Qualcomm AI Hub measured",
    "SA8797 guide": "docs.qualcomm.com/doc/80-63442-10/topic/htp_auto_qclinux.html",
    "automotive guide": "docs.qualcomm.com/doc/80-63442-10/topic/auto_overview.html",
    "thread 16465": "github.com/pytorch/executorch/issues/16465, a Qualcomm engineer",
    "thread 21586": "github.com/pytorch/executorch/issues/21586 and onnxruntime-qnn/issues/715",
    "thread 22542": "github.com/pytorch/executorch/pull/22542, merged",
    "draft 19216": "github.com/pytorch/executorch/pull/19216, a draft that nobody reviewed",
    "list of issue 46": "names that hexforge was asked to know; no page with them was found again",
    "press": "the press of a launch, as gathered in gist.github.com/EwoutH/754fa40ad9ddc93d55084fc46569c759",
    "leaks": "gizmochina.com, 2026-03-25: two chips of the 8 Elite Gen 6, of one of which the number was known",
}
"""Name of a source -> where it is found."""

_NUMBERS = {
    "LiteRT": """
        AIC100 63, IPQ5404 80, IPQ5424 81, IPQ6018 23, IPQ6028 24, IPQ9574 79, QCM2290 83, QCM4290 28, QCM4325 56,
        QCM4490 59, QCM6125 19, QCM6490 93, QCM6690 78, QCS2290 83, QCS403 20, QCS405 18, QCS410 33, QCS610 16,
        QCS6125 48, QCS7230 51, QCS8275 82, QCS8300 82, QCS8550 66, QCS8625 90, QCS9075 77, QCS9100 77, QRB4210 49,
        QRB5165 21, SA525M 84, SA7255 67, SA8195 26, SA8255 52, SA8295 39, SA8540 62, SA8610 67, SA8620 67,
        SA8620P 67, SA8630 52, SA8650 52, SA8775 52, SA8797 72, SAR1130P 58, SAR2130P 46, SAR2230P 95, SC7280X 44,
        SC8280X 37, SC8380XP 60, SC8480XP 88, SDM625 11, SDM630 10, SDM632 15, SDM636 9, SDM652 8, SDM660 7,
        SDM670 6, SDM710 13, SDM820 4, SDM821 3, SDM835 2, SDM845 1, SDM855 12, SDM865 21, SM4250 28, SM4350 31,
        SM4375 55, SM4450 59, SM4635 71, SM6115 28, SM6125 19, SM6150 16, SM6225 40, SM6250 27, SM6350 29,
        SM6375 31, SM6450 50, SM6450Q 65, SM6475 76, SM6650 74, SM7150 17, SM7225 29, SM7250 25, SM7315 38,
        SM7325 35, SM7350 32, SM7435 61, SM7450 41, SM7475 54, SM7550 64, SM7635 73, SM7675 70, SM7750 86,
        SM8325 34, SM8350 30, SM8350P 30, SM8450 36, SM8475 42, SM8550 43, SM8635 68, SM8650 57, SM8735 85,
        SM8750 69, SM8845 97, SM8845P 97, SM8850 87, SSG2115P 46, SSG2125P 58, STP6225P 47, SW6100 96, SXR1230P 45,
        SXR2230P 53, SXR2330P 75""",
    "LiteRT archs": """
        SW6100 96 v81, SM8850 87 v81, SM8750 69 v79, QCS8625 90 v75, SM8650 57 v75, QCS8300 82 v75, QCS8275 82 v75,
        QCM6690 78 v73, QCS6690 78 v73, QCS9100 77 v73, QCS9075 77 v73, SSG2125P 58 v73, SSG2115P 46 v73,
        SAR2130P 46 v73, SM8635 68 v73, SM8550 43 v73, SM7675 70 v73, SM7550 0 v73, SM7435 0 v73, SM6450 50 v73,
        QCM8550LA 66 v73, QCM8550LE 66 v73, SC8380XP 60 v73, SC8480XP 88 v81, SM8475 42 v69, SM8450 36 v69,
        SM7475 54 v69, SM7450 41 v69, SM7425 0 v69, SXR2230P 53 v69, SXR2250P 0 v69, SM8350 30 v68, SM8350P 30 v68,
        SM7350 32 v68, SM7325 35 v68, SM7315 38 v68, QCM6490 35 v68, SDM865 21 v66, SM8250 21 v66, SM8150 0 v66,
        SM7250 25 v66, SM7225 29 v66, SM7125 0 v66, SM6350 29 v66, SM6225 40 v66, SM6150 0 v66, SM6125 0 v66,
        SM4350 31 v66, QRB5165U 21 v66, QRB5165LE 21 v66, QCS7230LA 51 v66, QCS7230LE 51 v66, SM6375 31 v66,
        SM7150 0 v65, SDM845 0 v65, SA8295 39 v68, SXR1230P 45 v73, SA8255 52 v73, SAR2230P 95 v81, SXR2330P 75 v79,
        QCS2290 83, QCM2290 83, SM8845 97 v81, SM8845P 97 v81""",
    "QNN": "SDM801 5",
    "ExecuTorch": """
        SA8295 39 v68, SA8797 72 v81, SM8350 30 v68, SM8450 36 v69, SM8475 42 v69, SM8550 43 v73, SM8650 57 v75,
        SM8750 69 v79, SM8850 87 v81, SSG2115P 46 v73, SSG2125P 58 v73, SXR1230P 45 v73, SXR2230P 53 v69,
        SXR2330P 75 v79, QCS9100 77 v73, SAR2230P 95 v81, SA8255 52 v73, SW6100 96 v81, QCM6490 93 v68,
        SM8845 97 v81""",
    "AI Hub models": """
        SDM845 0 v65 Snapdragon 845, SDM670 0 v65 Snapdragon 670, SM8150 0 v66 Snapdragon 855,
        SM7150-AB 0 v65 Snapdragon 730G, SM7250 0 v66 Snapdragon 765G, SM8250-AB 0 v66 Snapdragon 865+,
        SDM429 0 v0 Snapdragon 429, SM8350 0 v68 Snapdragon 888, SM6150-AC 0 v66 Snapdragon 678,
        SM7325 0 v68 Snapdragon 778G, SM8450 0 v69 Snapdragon 8 Gen 1, SM8550 0 v73 Snapdragon 8 Gen 2,
        SM8650 0 v75 Snapdragon 8 Gen 3, SM8750-AC 0 v79 Snapdragon 8 Elite for Galaxy,
        SM8850-AD 0 v81 Snapdragon 8 Elite Gen 5 for Galaxy, SC8380XP 0 v73 Snapdragon X Elite,
        SC8340XP 0 v73 Snapdragon X Plus 8-Core, SC8480XP 0 v81 Snapdragon X2 Elite, SM8750 0 v79 Snapdragon 8 Elite,
        SM8850 0 v81 Snapdragon 8 Elite Gen 5, SM7750 0 v73 Snapdragon 7 Gen 4, SA8295P 0 v68, SA8775P 0 v73,
        SA7255P 0 v75, QCM6690 0 v73 Dragonwing Q-6690, QCS8275 0 v75 Dragonwing IQ-8275, QCS6490 0 v68,
        QCS9075 0 v73 Dragonwing IQ-9075, SA8255P 0 v73, SA8650P 0 v73, QCS7790 0 v73 Dragonwing Q-7790,
        QCS8750 0 v79 Dragonwing Q-8750, QCS5121 0 v73 Dragonwing IQ-X5121, QCS7181 0 v73 Dragonwing IQ-X7181,
        QCS8450 0 v69 XR2 Gen 2, QCS8550 0 v73""",
    "AI Hub": """
        QCS8550 43 v73, SM8975 103 v85 Snapdragon 8 Elite Extreme Gen 6, SM8950 113 v85 Snapdragon 8 Elite Gen 6,
        QCM6690 78 v73, SM7750 86 v73 Snapdragon 7 Gen 4, SA7255P 67 v75, SC8480XP 88 v81 Snapdragon X2 Elite""",
    "SA8797 guide": "SA8797 72 v81, SA8397 72 v81",
    "automotive guide": "SA8540 0 v68, SA8620 0 v75, SA7255 0 v75, SA8650 0 v73, SA8775 0 v73, SA8255 0 v73",
    "thread 16465": "CQ8750S 105",
    "thread 21586": "SM8750P 69 v79 Snapdragon 8 Elite",
    "thread 22542": "SM8635 68 v73 Snapdragon 8s Gen 3, SM7675 70 v73 Snapdragon 7+ Gen 3",
    "draft 19216": "SM8635 68 v73 Snapdragon 8s Gen 3, SM8735 85 v79 Snapdragon 8s Gen 4",
    "list of issue 46": """
        SM8950 113, SM8975 103, QCS8750 69, QCS5121 60, SA8650P 52, SA8620P 67, SA8397 72, QCM8550 66,
        SM8750P 69, SC8480XP 88 v0 Snapdragon X2 Plus""",
    "press": """
        SM8635 0 v0 Snapdragon 8s Gen 3, SM7675 0 v0 Snapdragon 7+ Gen 3, SM7475 0 v0 Snapdragon 7+ Gen 2,
        SM7550 0 v0 Snapdragon 7 Gen 3""",
    "leaks": "SM8950 0 v0 Snapdragon 8 Elite Gen 6, SM8975 0 v0 Snapdragon 8 Elite Gen 6 Pro",
}
"""Source -> what it says, as "name, soc_model, architecture, sold as"; a 0 stands for what it leaves out.

AI Hub's latencies give numbers and devices; that SM8975 and SM8950 are those chips, in this order, is the list's.
"""


@cache
def claims() -> tuple[Claim, ...]:
    """Everything that is said, in the order of the sources."""
    return tuple(claim for source, text in _NUMBERS.items() for claim in _read(source, text))


def _read(source: str, text: str) -> Iterator[Claim]:
    for entry in text.split(","):
        name, number, *rest = entry.split()
        arch = int(rest[0].removeprefix("v")) if rest else 0
        yield Claim(name, source, int(number), arch, " ".join(rest[1:]))


def claims_of(*names: str) -> tuple[Claim, ...]:
    """What is said under any of some names, however they are spelled."""
    wanted = {normalized_name(name) for name in names}
    wanted |= {normalized_name(chip) for chip, devices in DEVICES.items() for name in devices
               if normalized_name(name) in wanted}  # fmt: skip
    return tuple(c for c in claims() if wanted & {normalized_name(c.name), normalized_name(c.sold_as or c.name)})


def numbers_named(name: str) -> tuple[int, ...]:
    """The soc_model numbers that sources give a name, in the order of the sources."""
    return tuple(dict.fromkeys(claim.soc_model for claim in claims_of(name) if claim.soc_model))


def why_no_chip(name: str) -> str | None:
    """Why a name that sources know has no chip here; None where none knows it."""
    said = claims_of(name) or tuple(c for c in claims() if str(c.soc_model) == name.strip() != "0")
    if not said:
        return None
    who = ", ".join(dict.fromkeys(claim.name for claim in said))
    numbers = sorted({claim.soc_model for claim in said if claim.soc_model})
    number = f" (soc_model {' or '.join(map(str, numbers))})" if numbers else ""
    alike = [c for c in claims() if c.htp_arch and (c in said or c.soc_model in numbers)]
    archs = {claim.htp_arch: claim.source for claim in alike}
    if not archs:
        return f"{who}{number} is known, but no public source says which Hexagon it has"
    arch, source = max(archs.items())
    if arch < FIRST_HTP:
        old = f"its Hexagon is v{arch} ({SOURCES[source]}), which has HVX and no matrix unit"
        return f"{who}{number} is too old for HTP: {old}; HTP begins with v{FIRST_HTP}"
    return f"{who}{number} has a Hexagon v{arch} ({SOURCES[source]}), and no public source gives the figures of a chip"
