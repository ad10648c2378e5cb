# SPDX-License-Identifier: Apache-2.0
"""Chips: names, soc_model numbers, Hexagon architectures and what they can, each figure with where it comes from."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from hexforge.chips import claims
from hexforge.chips.names import DEVICES, nearest_name, normalized_name
from hexforge.chips.power import Corner
from hexforge.errors import CallError

SESSION_BYTES = 3_840 << 20
"""guide: 3.75 GB of the 32-bit address space of a cDSP session can be used."""
DEFAULT_SOC = "SM8650"
"""The chip that commands and deployments are for where none is named."""
DEFAULT_ARCH = 73
"""The architecture assumed where neither soc_model nor htp_arch is given."""


class Provenance(StrEnum):
    """Where a figure comes from; its first letter is its mark."""

    PUBLISHED = "published"
    """By the vendor or the press, as named beside it."""
    MEASURED = "measured"
    """Read or timed on a device."""
    FITTED = "fitted"
    """Follows from the costs fitted to measured latencies (cost.json)."""
    ASSUMED = "assumed"
    """No source says: the figure of a chip like it."""

    @property
    def mark(self) -> str:
        """Its letter in tables."""
        return self.value[0]


FIGURES = ("htp_arch", "vtcm_mb", "hvx_threads", "hmx_kmacs", "core_mhz", "dram_gbps", "nsp_cores")
"""The columns of the table below, each with a mark."""
A16W16_ARCH = 73
"""From here on 16-bit data is multiplied by 16-bit weights (guide; the EP: from v73)."""
ABILITIES = ("hmx", "float16", "bfloat16", "weight_sharing", "dlbc", "slc")
CLOCK_SHARE: Mapping[Corner, float] = {
    Corner.DISABLE: 0.20,
    Corner.MIN_VOLTAGE_CORNER: 0.25,
    Corner.SVS2: 0.30,
    Corner.SVS: 0.42,
    Corner.SVS_PLUS: 0.53,
    Corner.NOM: 0.66,
    Corner.NOM_PLUS: 0.77,
    Corner.TURBO: 0.90,
    Corner.TURBO_PLUS: 0.93,
    Corner.TURBO_L2: 0.95,
    Corner.TURBO_L3: 0.97,
    Corner.MAX_VOLTAGE_CORNER: 1.00,
}
"""Assumed: the clock at a corner as a share of that at the highest. Only their order is published."""
CORES_SHARE = 0.9
"""Assumed: what a second NSP core adds of what it could."""


@dataclass(frozen=True, slots=True)
class Soc:
    """A Snapdragon chip as the HTP backend sees it."""

    name: str
    soc_model: int
    htp_arch: int
    vtcm_mb: int
    """Vector memory."""
    hvx_threads: int
    """How many threads have vector registers."""
    hmx_kmacs: int
    """8-bit MACs the matrix unit does in a cycle, in 1024s."""
    core_mhz: float
    """The clock at the highest voltage corner."""
    dram_gbps: float
    """Peak of its memory in GB/s; what graphs get of it is fitted (cost.json)."""
    nsp_cores: int
    """How many NSPs (cDSPs) it has, each with units and VTCM of its own."""
    marks: str
    """The marks of FIGURES, in their order."""
    aliases: tuple[str, ...] = ()
    float16: bool = True
    """Whether float graphs run, in float16: what the vendor's library answers for its soc_model."""

    @property
    def hmx(self) -> bool:
        """Whether it has a matrix unit: from v68 on, which is where HTP begins."""
        return self.htp_arch >= 68

    @property
    def weight_sharing(self) -> bool:
        """Whether graphs of one context can share weights: "Hexagon v73 and onward"."""
        return self.htp_arch >= 73

    @property
    def dlbc(self) -> bool:
        """Whether it compresses what goes to DRAM. QNN reports it per device; no source names one without it."""
        return self.hmx

    @property
    def slc(self) -> bool:
        """Whether graphs may allocate in the system level cache: "specific SoCs", the example being soc_model 69."""
        return self.htp_arch >= 79

    def clock_mhz(self, corner: Corner) -> float:
        """The clock of its units at a voltage corner."""
        return self.core_mhz * CLOCK_SHARE[corner]

    def provenance(self, figure: str) -> Provenance:
        """Where one of its figures, by the name it has here, comes from."""
        if figure in FIGURES:
            mark = self.marks[FIGURES.index(figure)]
            return next(p for p in Provenance if p.mark == mark)
        if figure == "float16":
            return Provenance.MEASURED
        if figure in ("clock_mhz", "dlbc") or (figure == "slc" and self.soc_model != 69):
            return Provenance.ASSUMED
        if figure in ABILITIES:
            return Provenance.PUBLISHED
        raise CallError(f"a chip has no figure {figure!r}; it has {', '.join((*FIGURES, 'clock_mhz', *ABILITIES))}")


def _chip(name: str, soc_model: int, figures: str, *aliases: str, float16: bool = True) -> Soc:
    """A row of the table: figures are values with their marks, in the order of FIGURES."""
    cells = figures.split()
    arch, vtcm, threads, macs, clock, dram, cores = (float(cell[:-1]) for cell in cells)
    marks = "".join(cell[-1] for cell in cells)
    counts = int(arch), int(vtcm), int(threads), int(macs)
    return Soc(name, soc_model, *counts, clock, dram, int(cores), marks, aliases, float16)


# arch       p: ExecuTorch's SoC table or the QNN SDK's "Supported Snapdragon devices", with soc_model. m: htp_version
#            and soc_model of the measured latencies. a: SM8735, of which only a draft says v79. chips/claims.py has
#            every source with what it says of a name, number and architecture, also where they disagree.
# VTCM       p: ExecuTorch's table; else 8, as its costs were fitted, and 2 on chips of the 6 and 7 series, as QCM6490.
# HVX        p: X Elite 4, X2 Elite 8 (press on Qualcomm's X2 architecture talk, 2025-11). m: SM8750 6
#            (hvx_support_128b in a log in llama.cpp pull request 26373). Else 4, what QNN writes into binaries that
#            do not say; v79 as SM8750, v81 and newer as the X2 Elite, but half of it where VTCM is half.
# HMX        All assumed, no source has it per chip: the count that makes the clock below plausible (0.9 to 2.1 GHz).
# core MHz   f: 1e9 MACs / (hmx.w8a8 x the chip's hmx_fixed) us / MACs per cycle, SM8650: 1e9 / 34.29 / 16384 = 1780.
#            So it is no better than that count. Else, as HMX, of the chip its costs stand on. Clocks seen elsewhere,
#            on chips not named for sure: 1437 on a v68 of 12 TOPS (QCS6490? fitted 1006) and 1397 on a v73 of 45
#            TOPS (X Elite? 1258), both from cdsp_peak's notes; 2112 in llama.cpp issue 18139, whose phone and chip
#            do not match (SM8650: 1780, SM8750: 2025).
# DRAM GB/s  p: 8s Gen 3, 7+ Gen 3 and 7+ Gen 2 (claims.py), 888 51.2 (nanoreview), X Elite 136 (tweaktown),
#            X2 Elite 152 (open-source-ai.tech), IQ-9075 6400 x 96
#            bit (dragonwingdocs.qualcomm.com). Else assumed: where the press gives a memory clock (4200 MHz 8 Gen 2
#            and 7 Gen 4, 4800 8 Gen 3, 5300 8 Elite and its Gen 5) that with a 64 bit bus, else as a chip like it;
#            raised above the fitted rate where it would be below (SM7750 with 32 bits, v85).
# NSP cores  p: cDSPs of the chip in the Linux kernel (qcom_q6v5_pas and the device trees: nsp0 and nsp1 of SC8280XP and
#            its SA8295P, cdsp0 and cdsp1 of SA8775P and its QCS9075, cdsp0 to cdsp3 of Nord, which is SA8797P). Else 1.
# float16    measured: each soc_model asked of the vendor's libraries (onnxruntime-qnn 2.7.0 and 2.5.0 on x86), which
#            say "The SocModel doesn't support FP16"; where models were measured on a chip, they say the same.
SOCS: tuple[Soc, ...] = (
    # name, soc_model, "arch VTCM HVX HMX core-MHz DRAM-GB/s NSPs", aliases
    _chip("SM8350", 30, "68p  4p 4a  8a 1349a  51.2p 1p", "Snapdragon 888", "SM8350P"),
    _chip("SM7350", 32, "68p  2a 4a  4a 1006a  25.6a 1a", "Snapdragon 780G", float16=False),
    _chip("SM7325", 35, "68p  2a 4a  4a 1006a  25.6a 1a", "Snapdragon 778G", float16=False),
    _chip("SM8450", 36, "69p  8p 4a 16a 874f  51.2a 1p", "Snapdragon 8 Gen 1", "Samsung Galaxy S22 5G"),
    _chip("SM7315", 38, "68p  2a 4a  4a 1006a  25.6a 1a", float16=False),
    _chip("SC8280XP", 37, "68p  8a 4a  8a 1349a  68.3a 2p", "Snapdragon 8cx Gen 3", "SC8280", float16=False),
    _chip("SA8295P", 39, "68p  8p 4a  8a 1349f  68.3a 2p", "SA8295P ADP", "SA8295"),
    _chip("SM7450", 41, "69p  2a 4a 16a 874a  25.6a 1a", "Snapdragon 7 Gen 1"),
    _chip("SM8475", 42, "69p  8p 4a 16a 874a  51.2a 1a", "Snapdragon 8+ Gen 1"),
    _chip("SM8550", 43, "73p  8p 4a 16a 1205f  67.2a 1p", "Snapdragon 8 Gen 2"),
    _chip("SXR1230P", 45, "73p  2p 4a  1a 855a  25.6a 1a", float16=False),
    _chip("SSG2115P", 46, "73p  2p 4a  1a 855a  25.6a 1a", float16=False),
    _chip("SM6450", 50, "73p  2a 4a  1a 855a  25.6a 1a", "Snapdragon 6 Gen 1", float16=False),
    _chip("SA8775P", 52, "73p  8p 4a 16a 1283f  76.8a 2p", "SA8775P ADP", "SA8255", "SA8255P", "SA8650P"),
    _chip("SXR2230P", 53, "69p  8p 4a 16a 874a  51.2a 1a"),
    _chip("SM7475", 54, "69p  2a 4a 16a 874a  25.6p 1a", "Snapdragon 7+ Gen 2", float16=False),
    _chip("SM8650", 57, "75p  8p 4a 16a 1636f  76.8a 1p", "Snapdragon 8 Gen 3", "Samsung Galaxy S24"),
    _chip("SSG2125P", 58, "73p  2p 4a  1a 855a  25.6a 1a", float16=False),
    _chip("SC8380XP", 60, "73p  8p 4p 16a 1167f 136.0p 1p", "Snapdragon X Elite", "Snapdragon X Plus"),
    _chip("SM7435", 61, "73p  2a 4a  1a 855a  25.6a 1a", "Snapdragon 7s Gen 2", float16=False),
    _chip("SA8540P", 62, "68p  8a 4a  8a 1349a  68.3a 1a", "SA8540"),
    _chip("SM7550", 64, "73p  2a 4a  1a 855a  25.6a 1a", "Snapdragon 7 Gen 3", float16=False),
    _chip("QCS8550", 66, "73p  8a 4a 16a 1205a  67.2a 1a", "QCM8550"),
    _chip("SA7255P", 67, "75m  8a 4a  4a 1362f  51.2a 1a", "SA7255P ADP", "SA8620P"),
    _chip("SM8635", 68, "73p  8a 4a  8a 1247a  67.2p 1a", "Snapdragon 8s Gen 3", float16=False),
    _chip("SM8750", 69, "79p  8p 6m 16a 2025f  84.8a 1p", "Snapdragon 8 Elite", "Samsung Galaxy S25", "SM8750P"),
    _chip("SM7675", 70, "73p  8a 4a  8a 1247a  67.2p 1a", "Snapdragon 7+ Gen 3", float16=False),
    _chip("SA8797", 72, "81p 16p 8a 24a 1547a 152.0a 4p", "SA8797P", "SA8397"),
    _chip("SXR2330P", 75, "79p  8p 6a 16a 2025a  76.8a 1a"),
    _chip("QCS9075", 77, "73p  8p 4a 16a 1296f  76.8p 2p", "Dragonwing IQ-9075", "QCS9100"),
    _chip("QCM6690", 78, "73m  8a 4a  1a 855f  25.6a 1a", "Dragonwing Q-6690", float16=False),
    _chip("QCS8275", 82, "75m  8a 4a 16a 1125f  51.2a 1p", "Arduino VENTUNO Q", "QCS8300"),
    _chip("SM8735", 85, "79a  8a 6a 16a 2025a  76.8a 1a", "Snapdragon 8s Gen 4", float16=False),
    _chip("SM7750", 86, "73m  8a 4a  8a 1247f  67.2a 1a", "Snapdragon 7 Gen 4", float16=False),
    _chip("SM8850", 87, "81p  8p 8a 24a 1917f  84.8a 1p", "Snapdragon 8 Elite Gen 5", "Samsung Galaxy S26"),
    _chip("SC8480XP", 88, "81p  8a 8p 24a 1547f 152.0p 1p", "Snapdragon X2 Elite", "Snapdragon X2 Plus"),
    _chip("QCS8625", 90, "75p  8a 4a 16a 1125a  51.2a 1a"),
    _chip("QCS6490", 93, "68p  2p 4a  4a 1006f  25.6a 1p", "Dragonwing RB3 Gen 2", "QCM6490", float16=False),
    _chip("SAR2230P", 95, "81p  4p 4a 24a 1917a  51.2a 1a", float16=False),
    _chip("SW6100", 96, "81p  4p 4a 24a 1917a  25.6a 1a", float16=False),
    _chip("SM8845", 97, "81p  8p 8a 24a 1917a  76.8a 1a", "SM8845P"),
    _chip(
        "SM8975",
        103,
        "85m  8a 8a 32a 919f 128.0a 1a",
        "Snapdragon 8 Elite Extreme Gen 6",
        "8 Elite Gen 6 Pro",
        "SOC103",
    ),
    _chip("SM8950", 113, "85m  8a 8a 32a 1091f 128.0a 1a", "Snapdragon 8 Elite Gen 6", "SOC113"),
)


@dataclass(frozen=True, slots=True)
class ChipTarget:
    """What graphs are prepared for: an architecture, and the chip where it is known."""

    arch: int = DEFAULT_ARCH
    soc: Soc | None = None
    bfloat16_math: bool = False
    """True where float32 graphs are computed in bfloat16."""

    @property
    def name(self) -> str:
        """The chip and its architecture, or the architecture, for messages."""
        return f"v{self.arch}" if self.soc is None else f"{self.soc.name} (v{self.arch})"

    @property
    def float16(self) -> bool:
        """True where float graphs run; an architecture of no named chip has chips where they do."""
        return self.soc is None or self.soc.float16

    @property
    def bfloat16(self) -> bool:
        """True where bfloat16 graphs run: soc_model 88 was the first, which is v81."""
        return self.arch >= 81 and (self.soc is None or self.soc.soc_model >= 88)


def target(soc_model: str = "0", htp_arch: int = 0) -> ChipTarget:
    """What the options name. The chip's architecture wins over htp_arch, which stands in for an unknown chip."""
    try:
        soc = find_chip(soc_model)
    except CallError as error:
        if htp_arch:
            return ChipTarget(htp_arch)
        raise CallError(f"{error}; or give htp_arch") from None
    return ChipTarget(htp_arch or DEFAULT_ARCH) if soc is None else ChipTarget(soc.htp_arch, soc)


_BIN = re.compile(r"(?<=\d)P?-[A-Z0-9-]*[A-Z]{2}$", re.IGNORECASE)
"""What devices put behind a chip's name for the bin that it was sold as: SM8550-AB, SM8850-1-AD."""


@functools.lru_cache(256)
def find_chip(key: str) -> Soc | None:
    """The chip of a soc_model number or of any name people use; None for 0 or nothing; CallError with the nearest."""
    wanted = key.strip()
    if wanted in ("", "0"):
        return None
    for soc in SOCS:
        names = {soc.name.lower(), *(a.lower() for a in soc.aliases), str(soc.soc_model)}
        if wanted.lower() in names:
            return soc
    spoken = {normalized_name(name): soc for soc in SOCS for name in names_of(soc)}
    if (known := spoken.get(normalized_name(wanted))) is not None:
        return known
    by_number = {soc.soc_model: soc for soc in SOCS}
    for number in claims.numbers_named(wanted):
        if number in by_number:
            return by_number[number]
    if (reason := claims.why_no_chip(wanted)) is not None and not claims.numbers_named(_BIN.sub("", wanted)):
        raise CallError(f"soc_model {key!r} is no chip of HTP here: {reason}")
    if _BIN.search(wanted):
        return find_chip(_BIN.sub("", wanted))
    if reason is not None:
        raise CallError(f"soc_model {key!r} is no chip of HTP here: {reason}")
    near = nearest_name(wanted, (name for soc in SOCS for name in names_of(soc)))
    hint = "known: " + ", ".join(s.name for s in SOCS) + "; `hexforge socs NAME` lists the other names of one"
    if near is not None:
        soc = spoken[normalized_name(near)]
        other = soc.name if near != soc.name else next(iter(soc.aliases), "")
        hint = f"did you mean {near}?" + (f" ({other})" if other else "")
    raise CallError(f"soc_model {key!r} is not a known chip; {hint}")


def names_of(soc: Soc) -> tuple[str, ...]:
    """All names of a chip: its own, what it is sold as, and devices known for it."""
    return (soc.name, *soc.aliases, *DEVICES.get(soc.name, ()))


def claims_of_chip(soc: Soc) -> tuple[claims.Claim, ...]:
    """What public sources say under any name of a chip, or of its number: agreed or not."""
    named = claims.claims_of(*names_of(soc))
    return (*named, *(c for c in claims.claims() if c.soc_model == soc.soc_model and c not in named))


def known_for(name: str, most: int = 3) -> str:
    """What people know a chip by, for a table: what it is sold as, then devices that have it; empty where unknown."""
    soc = find_chip(name)
    if soc is None:
        return ""
    sold = [alias.removeprefix("Samsung ") for alias in soc.aliases]
    names = dict.fromkeys((*sold[:1], *DEVICES.get(soc.name, ()), *sold[1:]))
    return ", ".join(list(names)[:most])


def known_chip(name: str) -> Soc | None:
    """The chip of a name or number that a file or a device gives; None where no such chip is known."""
    try:
        return find_chip(name)
    except CallError:
        return None


def require_cores(soc: Soc, count: int, what: str) -> None:
    """CallError where a chip has fewer NSP cores."""
    if count > soc.nsp_cores:
        more = ", ".join(chip.name for chip in SOCS if chip.nsp_cores >= count)
        has = f"{soc.nsp_cores} NSP core{'s' if soc.nsp_cores > 1 else ''}"
        other = f"; {more} {'have' if ',' in more else 'has'} as many" if more else "; no known chip has as many"
        raise CallError(f"{what} {count}: {soc.name} has {has}{other}")


def require_chip(key: str) -> Soc:
    """The chip of a soc_model number or a name, where one is needed."""
    soc = find_chip(key)
    if soc is None:
        raise CallError("name a chip; known: " + ", ".join(s.name for s in SOCS))
    return soc
