# SPDX-License-Identifier: Apache-2.0
"""Verdict: how often a second model decides as the float model does, by what kind of decision, and what is broken."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from hexforge.ir import Array
from hexforge.results import Column, Key, Result, select

AlarmKind = Literal["not finite", "constant", "saturated", "dead channels"]

LIMITS: Mapping[str, tuple[float, float]] = {"embedding": (0.98, 0.9), "numbers": (0.99, 0.9)}
GOOD, USABLE = 0.95, 0.8
"""The agreement from which on decisions are good, and usable; of some kinds LIMITS has others.

People see one answer in twenty that differs; one in five makes it another model. Faces are told apart by cosines, and
numbers are read as they are, so both need more.
"""


FEW_SAMPLES = 3
"""Fewer samples than these are no evidence; one of five is held out of calibration."""


@dataclass(frozen=True, slots=True)
class Alarm(Result):
    """An output, or channels of one, that the second model has lost whatever the average says."""

    kind: AlarmKind
    output: str
    channels: str
    """The channels as 4-83; empty for the whole output."""
    text: str
    """What is wrong, as a sentence."""

    described = ("kind", "output", Key("channels", of=lambda alarm: alarm.channels or None), "text")


@dataclass(frozen=True, slots=True)
class GroupQuality(Result):
    """Channels of an output that have about one range in the float model, and their SQNR."""

    output: str
    first: int
    last: int
    low: float
    high: float
    """The float model's range."""
    sqnr_db: float
    whole: bool
    """True where the group is all of the output."""

    described = (
        Column("output"),
        "first last",
        Column("least", "number", 4, about="In the float model", key="low", rounded=6),
        Column("largest", "number", 4, key="high", rounded=6),
        Column("SQNR dB", "decibels", 2, about="Of these channels alone", key="sqnr_db", rounded=3),
    )

    @property
    def name(self) -> str:
        """The output with its channels."""
        if self.whole:
            return self.output
        channels = f"channel {self.first}" if self.first == self.last else f"channels {self.first}-{self.last}"
        return f"{self.output}, {channels}"


@dataclass(frozen=True, slots=True)
class OutputDecisions(Result):
    """What is decided by one output, or by several together, and how often both models decide alike."""

    kind: str
    outputs: tuple[str, ...]
    agreement: float
    """0 to 1; NaN where the float model decides nothing on these samples."""
    figures: Mapping[str, float]
    by_sample: tuple[float, ...]
    about: str = ""
    """How the outputs were read, in words."""

    described = ("kind outputs agreement verdict about figures by_sample",)
    decimals = 6

    @property
    def verdict(self) -> str:
        """good, usable or unusable; unknown where nothing is decided."""
        if math.isnan(self.agreement):
            return "unknown"
        good, usable = LIMITS.get(self.kind, (GOOD, USABLE))
        return "good" if self.agreement >= good else "usable" if self.agreement >= usable else "unusable"

    def figures_text(self) -> str:
        """The figures that are known, in words."""
        known = {name: value for name, value in self.figures.items() if not math.isnan(value)}
        return ", ".join(f"{name.replace('_', ' ')} {figure_text(name, value)}" for name, value in known.items())

    def text(self) -> str:
        """The kind and the figures in one line."""
        figures = self.figures_text()
        return f"{self.kind} {figure_text('agreement', self.agreement)}" + (f" ({figures})" if figures else "")


@dataclass(frozen=True, slots=True, eq=False)
class WorstSample(Result):
    """The sample on which both models agree least."""

    number: int
    name: str
    """The sample's file where it has one."""
    agreement: float
    in_float: str
    """What the float model decides, in words."""
    in_other: str
    picture: Array | None = None
    """The input as [height, width, channels], where it is a picture."""
    boxes: tuple[Array, Array] | None = None
    """Boxes of both models in pixels of the input, [n, 4] as left, top, right, bottom."""
    maps: tuple[Array, Array] | None = None
    """Classes of both models' pixels."""

    described = ("number name agreement in_float in_other",)
    decimals = 6


@dataclass(frozen=True, slots=True, eq=False)
class Decisions(Result):
    """How far a second model decides as the float model does."""

    parts: tuple[OutputDecisions, ...]
    groups: tuple[GroupQuality, ...]
    """Channel groups of all outputs that are numbers."""
    alarms: tuple[Alarm, ...]
    samples: int
    sqnr_db: float
    """The SQNR of the whole output that lost most, which sees only its largest part."""
    worst_sample: WorstSample | None = field(default=None)

    described = (
        "kind",
        Key("agreement", rounded=6),
        "verdict samples",
        Key("caution", omit_empty=True),
        Key("sqnr_db", rounded=3),
        "alarms",
        Key("outputs", of="parts"),
        "groups worst_group worst_sample",
    )

    @property
    def decisive(self) -> OutputDecisions | None:
        """What counts: of the decisions, the one that is furthest from good."""
        known = [part for part in self.parts if not math.isnan(part.agreement)]
        return min(known, key=_margin, default=self.parts[0] if self.parts else None)

    @property
    def kind(self) -> str:
        """The kind of the decisions that count."""
        return "none" if self.decisive is None else self.decisive.kind

    @property
    def agreement(self) -> float:
        """How often both models decide alike, 0 to 1; NaN where nothing is decided."""
        return math.nan if self.decisive is None else self.decisive.agreement

    @property
    def worst_group(self) -> GroupQuality | None:
        """The group of channels that lost most."""
        return min(self.groups, key=lambda group: group.sqnr_db, default=None)

    @property
    def verdict(self) -> str:
        """good, usable or unusable: by decisions; unusable with any alarm, unknown where nothing is decided."""
        if self.alarms:
            return "unusable"
        return "unknown" if self.decisive is None else self.decisive.verdict

    @property
    def usable(self) -> bool:
        """True unless decisions are lost or an alarm rings."""
        return self.verdict != "unusable"

    @property
    def caution(self) -> str:
        """What makes the verdict weak; empty where enough samples were judged."""
        if self.samples >= FEW_SAMPLES:
            return ""
        judged = "one sample" if self.samples == 1 else f"{self.samples} samples"
        return f"judged by {judged} alone: give {5 * FEW_SAMPLES} or more"

    def text(self) -> str:
        """The verdict with the decisions that count, in one line."""
        figures = "nothing to decide by" if self.decisive is None else self.decisive.text()
        return f"{self.verdict}{f' ({self.caution})' if self.caution else ''}: {figures}"


def figure_text(name: str, value: float) -> str:
    """A figure with its unit."""
    if math.isnan(value):
        return "not known"
    if name.endswith("psnr"):
        return "exact" if math.isinf(value) else f"{value:.1f} dB"
    return (
        f"{value:g}" if name in ("boxes", "labels") else f"{100 * value:.1f} %" if value < 1 else f"{100 * value:.0f} %"
    )


def _margin(part: OutputDecisions) -> float:
    """How far decisions are above what is usable, as a part of what is left to lose."""
    _, usable = LIMITS.get(part.kind, (GOOD, USABLE))
    return (part.agreement - usable) / (1 - usable)


DECIDED = (
    Column("decided by", of=lambda part: ", ".join(part.outputs)),
    Column("kind", choose=True),
    Column("agreement", of=lambda part: figure_text("agreement", part.agreement)),
    Column("verdict", choose=True),
    Column("figures", of=lambda part: part.figures_text()),
    Column("how", about="How the outputs were read", of="about"),
)
"""What is decided by outputs, as a table has it."""
GROUPS = (
    Column("output"),
    Column("channels", of=lambda group: "all" if group.whole else f"{group.first}-{group.last}"),
    *select(GroupQuality.described, "low high sqnr_db"),
)
"""Channels of about one range, as a table has them."""
