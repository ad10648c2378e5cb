"""Chips: names, soc_model numbers and Hexagon architectures, each figure with where it comes from."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from hexforge.errors import CallError


@dataclass(frozen=True, slots=True)
class Soc:
    """A Snapdragon chip as the HTP backend sees it."""

    name: str
    soc_model: int
    htp_arch: int
    aliases: tuple[str, ...] = ()

    @property
    def fp16(self) -> bool:
        """True where float graphs run (in float16): Hexagon v69 has no HMX float, v68 no float vectors."""
        return self.htp_arch >= 69


# published: QNN SDK "Supported Snapdragon devices"; measured: soc_model and htp_version of the latency measurements.
SOCS: tuple[Soc, ...] = (
    Soc("SM8350", 30, 68, ("Snapdragon 888",)),  # published
    Soc("SM8450", 36, 69, ("Snapdragon 8 Gen 1", "Samsung Galaxy S22 5G")),  # published, measured
    Soc("SC8280XP", 37, 68, ("Snapdragon 8cx Gen 3",)),  # published
    Soc("SA8295P", 39, 68, ("SA8295P ADP",)),  # measured
    Soc("SM8475", 42, 69, ("Snapdragon 8+ Gen 1",)),  # published
    Soc("SM8550", 43, 73, ("Snapdragon 8 Gen 2", "QCS8550")),  # published, measured
    Soc("SA8775P", 52, 73, ("SA8775P ADP",)),  # measured
    Soc("SM8650", 57, 75, ("Snapdragon 8 Gen 3", "Samsung Galaxy S24")),  # published, measured
    Soc("SC8380XP", 60, 73, ("Snapdragon X Elite", "Snapdragon X Plus")),  # published, measured
    Soc("SA7255P", 67, 75, ("SA7255P ADP",)),  # measured
    Soc("SM8750", 69, 79, ("Snapdragon 8 Elite", "Samsung Galaxy S25")),  # published, measured
    Soc("QCS9075", 77, 73, ("Dragonwing IQ-9075",)),  # measured
    Soc("QCM6690", 78, 73, ("Dragonwing Q-6690",)),  # measured
    Soc("QCS8275", 82, 75, ("Arduino VENTUNO Q",)),  # measured
    Soc("SM7750", 86, 73, ("Snapdragon 7 Gen 4",)),  # measured
    Soc("SM8850", 87, 81, ("Snapdragon 8 Elite Gen 5", "Samsung Galaxy S26")),  # measured
    Soc("SC8480XP", 88, 81, ("Snapdragon X2 Elite",)),  # measured
    Soc("QCS6490", 93, 68, ("Dragonwing RB3 Gen 2",)),  # measured
)


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
