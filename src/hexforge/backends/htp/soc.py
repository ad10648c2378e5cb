"""Chips: names, soc_model numbers, Hexagon architectures and what they can, each figure with where it comes from."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from hexforge.errors import CallError

DEFAULT_ARCH = 73
"""The architecture assumed where neither soc_model nor htp_arch is given."""


@dataclass(frozen=True, slots=True)
class Soc:
    """A Snapdragon chip as the HTP backend sees it."""

    name: str
    soc_model: int
    htp_arch: int
    vtcm_mb: int = 0
    """Vector memory; 0 where no source says."""
    aliases: tuple[str, ...] = ()
    float16: bool | None = None
    """Whether float graphs run, where that is known of the chip; None: as its architecture."""


# published: the SoC table of ExecuTorch's Qualcomm backend (number, architecture, VTCM), or where there is no VTCM the
# QNN SDK's "Supported Snapdragon devices". measured: soc_model and htp_version of the latency measurements; float16
# where every layer of float models ran on the NPU (SA8295P), or where that is so for quantized models only.
SOCS: tuple[Soc, ...] = (
    Soc("SM8350", 30, 68, 4, ("Snapdragon 888",)),  # published
    Soc("SM8450", 36, 69, 8, ("Snapdragon 8 Gen 1", "Samsung Galaxy S22 5G")),  # published, measured
    Soc("SC8280XP", 37, 68, 0, ("Snapdragon 8cx Gen 3", "SC8280")),  # published
    Soc("SA8295P", 39, 68, 8, ("SA8295P ADP", "SA8295"), float16=True),  # published, measured
    Soc("SM8475", 42, 69, 8, ("Snapdragon 8+ Gen 1",)),  # published
    Soc("SM8550", 43, 73, 8, ("Snapdragon 8 Gen 2", "QCS8550")),  # published, measured
    Soc("SXR1230P", 45, 73, 2),  # published
    Soc("SSG2115P", 46, 73, 2),  # published
    Soc("SA8775P", 52, 73, 8, ("SA8775P ADP", "SA8255", "SA8255P")),  # published, measured
    Soc("SXR2230P", 53, 69, 8),  # published
    Soc("SM8650", 57, 75, 8, ("Snapdragon 8 Gen 3", "Samsung Galaxy S24")),  # published, measured
    Soc("SSG2125P", 58, 73, 2),  # published
    Soc("SC8380XP", 60, 73, 8, ("Snapdragon X Elite", "Snapdragon X Plus")),  # published, measured
    Soc("SA7255P", 67, 75, 0, ("SA7255P ADP",)),  # measured
    Soc("SM8750", 69, 79, 8, ("Snapdragon 8 Elite", "Samsung Galaxy S25")),  # published, measured
    Soc("SA8797", 72, 81, 16, ("SA8797P",)),  # published
    Soc("SXR2330P", 75, 79, 8),  # published
    Soc("QCS9075", 77, 73, 8, ("Dragonwing IQ-9075", "QCS9100")),  # published, measured
    Soc("QCM6690", 78, 73, 0, ("Dragonwing Q-6690",), float16=False),  # measured
    Soc("QCS8275", 82, 75, 0, ("Arduino VENTUNO Q",)),  # measured
    Soc("SM7750", 86, 73, 0, ("Snapdragon 7 Gen 4",), float16=False),  # measured
    Soc("SM8850", 87, 81, 8, ("Snapdragon 8 Elite Gen 5", "Samsung Galaxy S26")),  # published, measured
    Soc("SC8480XP", 88, 81, 0, ("Snapdragon X2 Elite",)),  # measured
    Soc("QCS6490", 93, 68, 2, ("Dragonwing RB3 Gen 2", "QCM6490"), float16=False),  # published, measured
    Soc("SAR2230P", 95, 81, 4),  # published
    Soc("SW6100", 96, 81, 4),  # published
    Soc("SM8845", 97, 81, 8),  # published
    Soc("SOC103", 103, 85, 0, ("Snapdragon 8 Elite Extreme Gen 6",)),  # measured; its chip name is in no source
    Soc("SOC113", 113, 85, 0, ("Snapdragon 8 Elite Gen 6",)),  # measured; its chip name is in no source
)


@dataclass(frozen=True, slots=True)
class Target:
    """What graphs are prepared for: an architecture, and the chip where it is known."""

    arch: int = DEFAULT_ARCH
    soc: Soc | None = None
    bfloat16_math: bool = False
    """True where float32 graphs are computed in bfloat16 (htp_bf16_enable)."""

    @property
    def name(self) -> str:
        """The chip and its architecture, or the architecture, for messages."""
        return f"v{self.arch}" if self.soc is None else f"{self.soc.name} (v{self.arch})"

    @property
    def float16(self) -> bool:
        """True where float graphs run, in float16: "8 Gen 1 or newer" (v69), and by what is known of the chip."""
        known = None if self.soc is None else self.soc.float16
        return self.arch >= 69 if known is None else known

    @property
    def bfloat16(self) -> bool:
        """True where bfloat16 graphs run: soc_model 88 was the first, which is v81."""
        return self.arch >= 81 and (self.soc is None or self.soc.soc_model >= 88)


def target(soc_model: str = "0", htp_arch: int = 0) -> Target:
    """What the options name. The chip's architecture wins over htp_arch, which stands in for an unknown chip."""
    try:
        soc = find(soc_model)
    except CallError as error:
        if htp_arch:
            return Target(htp_arch)
        raise CallError(f"{error}; or give htp_arch") from None
    return Target(htp_arch or DEFAULT_ARCH) if soc is None else Target(soc.htp_arch, soc)


def find(key: str) -> Soc | None:
    """The chip of a soc_model number or a name; None for 0 or nothing; CallError with a hint for an unknown one."""
    wanted = key.strip()
    if wanted in ("", "0"):
        return None
    for soc in SOCS:
        names = {soc.name.lower(), *(a.lower() for a in soc.aliases), str(soc.soc_model)}
        if wanted.lower() in names:
            return soc
    close = difflib.get_close_matches(wanted.upper(), [s.name for s in SOCS], 1)
    hint = f"did you mean {close[0]}?" if close else "known: " + ", ".join(s.name for s in SOCS)
    raise CallError(f"soc_model {key!r} is not a known chip; {hint}")
