# SPDX-License-Identifier: Apache-2.0
"""Channels: the quality of an output by groups of channels of about one range, and alarms for what is lost."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from hexforge.analysis.quality.decisions.graph_facts import OutputFacts
from hexforge.analysis.quality.decisions.measure import common_part
from hexforge.analysis.quality.decisions.verdict import Alarm, GroupQuality
from hexforge.ir import Array
from hexforge.quant.compare import ErrorSums

APART = 8.0
"""Ranges that differ by this factor are those of two groups: one scale of 8 bits leaves the smaller 5 bits."""
MOST_CHANNELS = 4096
"""An output of more channels is taken as a whole."""
ALIVE = 1 / 16
"""A channel is alive where it moves by this part of its group's range: by 16 steps of 8 bits of its own."""
MOVED = 1 / 64
"""Numbers move where they differ by this part of the largest: by four steps of 8 bits."""
PROBABLE = 0.02
"""Probabilities that stay below it in the float model say nothing of whether they are alive ..."""
COARSE = 0.05
"""... unless the step of the second model's numbers is this coarse, which no probability survives."""
CLIPPED, CLIPPED_SHARE, LEAST_CLIPPED = 0.05, 0.02, 8
"""Numbers are clipped where they miss this part of the range, and an output is saturated where so many are: fewer may
be one sample that reaches further than those of calibration."""


@dataclass(slots=True)
class ChannelSums:
    """What one sample, or several, say of an output's channels; pieces are merged in any order."""

    low: Array
    """[2, channels]: the least number of the float model and of the other."""
    high: Array
    groups: list[ErrorSums]
    clipped: dict[float, int] = field(default_factory=dict)
    """How many elements stay at the second model's least or largest number and are far outside in float."""
    least_step: float = math.inf
    """The least difference that was seen between two numbers of the second model, of samples of few numbers."""
    count: int = 0

    def merge(self, other: ChannelSums) -> None:
        """Add what another has seen."""
        self.low, self.high = np.fmin(self.low, other.low), np.fmax(self.high, other.high)
        for mine, more in zip(self.groups, other.groups, strict=True):
            mine.merge(more)
        ends = _ends(self)  # only what stays at the ends of all samples counts
        self.clipped = {end: count for end in ends if (count := self.clipped.get(end, 0) + other.clipped.get(end, 0))}
        self.least_step = min(self.least_step, other.least_step)
        self.count += other.count


@dataclass(frozen=True, slots=True)
class OutputChannels:
    """An output as channels in groups."""

    name: str
    axis: int | None
    """Where the channels lie; None where the output is taken as a whole."""
    bounds: tuple[int, ...]
    """Where the groups begin and the last one ends."""
    integers: bool = False

    @classmethod
    def of(cls, name: str, array: Array, facts: OutputFacts) -> OutputChannels:
        """The channels of an output, by the graph where it tells them, else by their ranges in one sample."""
        if array.dtype.kind != "f" or array.ndim < 2:
            return cls(name, None, (0, 1), array.dtype.kind != "f")
        axis = channel_axis(array.shape) if facts.axis is None else facts.axis
        if axis >= array.ndim or array.shape[axis] > MOST_CHANNELS:
            return cls(name, None, (0, 1))
        by_channel = _by_channel(array, axis)
        if by_channel.shape[1] < 2:  # a single number says nothing of a channel's range
            return cls(name, axis, (0, array.shape[axis]))
        return cls(name, axis, _split(np.nan_to_num(np.abs(by_channel)).max(1)))

    def measure(self, reference: Array, other: Array) -> ChannelSums:
        """What one sample says of both models' channels."""
        reference, other = common_part(reference, other)
        groups = [ErrorSums() for _ in range(len(self.bounds) - 1)]
        one, two = (_by_channel(part, self.axis) for part in (reference, other))
        if self.integers:
            one, two = one.astype(np.float64), two.astype(np.float64)
        if not one.size:
            nothing = np.full((2, len(one)), np.nan)
            return ChannelSums(nothing, nothing, groups)
        for own, (first, end) in zip(groups, pairwise(self.bounds), strict=True):
            if not self.integers:
                own.update(one[first:end], two[first:end])
        low = np.stack([_least(one), _least(two)])
        high = np.stack([-_least(-one), -_least(-two)])
        sums = ChannelSums(low, high, groups, count=one.size)
        if not self.integers:
            sums.clipped = _clipped(one, two, low, high)
            sums.least_step = _least_step(two)
        return sums

    def qualities(self, sums: ChannelSums) -> list[GroupQuality]:
        """The quality of each group; neighbours whose ranges are not far apart are one."""
        joined: list[tuple[int, int, ErrorSums]] = []
        for own, (first, end) in zip(sums.groups, pairwise(self.bounds), strict=True):
            more = ErrorSums()
            more.merge(own)
            if joined and not _apart(_width(sums, joined[-1][0], joined[-1][1]), _width(sums, first, end)):
                before = joined.pop()
                more.merge(before[2])
                first = before[0]
            joined.append((first, end, more))
        whole = len(joined) == 1
        return [
            GroupQuality(
                self.name, first, end - 1, float(np.nanmin(sums.low[0, first:end], initial=math.inf)),
                float(np.nanmax(sums.high[0, first:end], initial=-math.inf)), own.sqnr_db, whole,
            )
            for first, end, own in joined
        ]  # fmt: skip

    def alarms(
        self, sums: ChannelSums, groups: Sequence[GroupQuality], samples: int,
        can_change: Callable[[float], bool] = lambda highest: True,
    ) -> list[Alarm]:  # fmt: skip
        """What is lost of this output whatever its average says; channels count by whose highest a decision changes."""
        lost = sum(own.not_finite for own in sums.groups)
        if lost:
            text = f"output {self.name!r} has {lost} elements that are no finite numbers and are ones in float"
            return [Alarm("not finite", self.name, "", text)]
        moves = sums.high - sums.low  # [2, channels]
        whole = [
            float(np.nanmax(h, initial=-math.inf) - np.nanmin(lo, initial=math.inf))
            for h, lo in zip(sums.high, sums.low, strict=True)
        ]
        if whole[1] == 0 and self._moved(whole[0], sums, samples):
            value = float(sums.low[1][np.isfinite(sums.low[1])][0])
            text = f"output {self.name!r} is {value:g} everywhere; in float it goes {_range(sums, 0, None)}"
            return [Alarm("constant", self.name, "", text)]
        clipped = sum(sums.clipped.get(end, 0) for end in _ends(sums))
        saturated = clipped >= CLIPPED_SHARE * sums.count and clipped >= LEAST_CLIPPED
        alarms = [] if self.integers else self._dead(sums, groups, moves, can_change, saturated=saturated)
        if saturated:
            text = (
                f"output {self.name!r} is saturated: {100 * clipped / sums.count:.1f} % of its numbers stay at an end "
                f"of {_range(sums, 0, None, 1)}; in float they go {_range(sums, 0, None)}"
            )
            alarms.append(Alarm("saturated", self.name, "", text))
        return alarms

    def _moved(self, width: float, sums: ChannelSums, samples: int) -> bool:
        """Whether the float model's numbers differ by more than roundings."""
        if not width > 0 or sums.count < 2:
            return False
        if self.integers:
            return sums.count > samples or samples > 2
        largest = max(abs(float(np.nanmin(sums.low[0]))), abs(float(np.nanmax(sums.high[0]))))
        return width > MOVED * largest and _told(largest, width, sums, probable=_probable(sums, 0, None))

    def _dead(
        self, sums: ChannelSums, groups: Sequence[GroupQuality], moves: Array, can_change: Callable[[float], bool],
        *, saturated: bool,
    ) -> list[Alarm]:  # fmt: skip
        """Channels that move in float and stand still in the other model; whole groups of them if it is saturated."""
        alarms = []
        for group in groups:
            rows = slice(group.first, group.last + 1)
            in_float, in_other = np.nan_to_num(moves[0, rows]), moves[1, rows]
            width = float(group.high - group.low)
            if not np.isfinite(width) or width <= 0:
                continue
            still = in_other == 0
            probable = _probable(sums, group.first, group.last + 1)
            largest = max(abs(group.low), abs(group.high))
            moved = float(in_float.max(initial=0.0))
            if still.all() and moved > 0 and _told(largest, moved, sums, probable=probable):
                dead = np.flatnonzero(still)
            elif saturated:
                continue
            else:
                least = 0.1 if probable else ALIVE * width
                able = [can_change(float(high)) for high in np.nan_to_num(sums.high[0, rows])]
                dead = np.flatnonzero(still & (in_float >= least) & able)
            if dead.size:
                named = channel_text(dead + group.first)
                value = sums.low[1, group.first + int(dead[0])]
                constant = "0" if (sums.low[1, group.first + dead] == 0).all() else f"constant ({value:g})"
                plural = "s" if dead.size > 1 else ""
                text = (
                    f"channel{plural} {named} of output {self.name!r} {'are' if plural else 'is'} {constant} in all "
                    f"samples; in float they go {_range(sums, group.first, group.last + 1)}"
                )
                alarms.append(Alarm("dead channels", self.name, named, text))
        return alarms


def channel_axis(shape: Sequence[int]) -> int:
    """Where channels lie, by an output's shape alone: pictures have theirs first, of two lengths the shorter counts."""
    if len(shape) == 4:
        return 3 if shape[3] < shape[1] and shape[1] == shape[2] else 1
    if len(shape) == 3:
        return 1 if shape[1] < shape[2] else 2
    return len(shape) - 1


def channel_text(channels: Array) -> str:
    """Channels as 0-3, 7."""
    runs = np.split(channels, np.flatnonzero(np.diff(channels) > 1) + 1)
    texts = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return ", ".join(texts[:6]) + (" …" if len(texts) > 6 else "")


def _by_channel(array: Array, axis: int | None) -> Array:
    """An array as [channels, elements]."""
    if axis is None:
        return np.reshape(array, (1, -1))
    return np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)


def _least(channels: Array) -> Array:
    """The least finite number of each channel; NaN where there is none."""
    if channels.dtype.kind != "f":
        return np.asarray(channels.min(1), np.float64)
    least = channels.min(1)
    if not np.isfinite(least).all():
        least = np.where(np.isfinite(channels), channels, np.inf).min(1)
        least = np.where(np.isfinite(least), least, np.nan)
    return np.asarray(least, np.float64)


def _split(ranges: Array) -> tuple[int, ...]:
    """Where the ranges of channels fall apart, so that all at one side are far above all at the other."""
    bounds = [0, len(ranges)]
    waiting = [(0, len(ranges))]
    while waiting and len(bounds) < 9:
        first, end = waiting.pop()
        part = np.maximum(ranges[first:end], 1e-30)
        up = np.minimum.accumulate(part)[:-1] / np.maximum.accumulate(part[::-1])[::-1][1:]
        down = np.minimum.accumulate(part[::-1])[::-1][1:] / np.maximum.accumulate(part)[:-1]
        gaps = np.maximum(up, down)
        if not gaps.size or gaps.max() < APART:
            continue
        cut = first + int(gaps.argmax()) + 1
        bounds.append(cut)
        waiting += [(first, cut), (cut, end)]
    return tuple(sorted(bounds))


def _width(sums: ChannelSums, first: int, end: int) -> float:
    """The largest number of some channels in float, whatever its sign."""
    ends = np.abs(np.concatenate([sums.low[0, first:end], sums.high[0, first:end]]))
    return float(np.nanmax(ends, initial=0.0))


def _apart(one: float, two: float) -> bool:
    return max(one, two) > APART * min(one, two)


def _probable(sums: ChannelSums, first: int, end: int | None) -> bool:
    """Whether channels are probabilities in float: none below 0 or above 1, and some near 0."""
    low, high = sums.low[0, first:end], sums.high[0, first:end]
    return bool(np.nanmin(low, initial=0) >= -1e-6 and np.nanmax(high, initial=0) <= 1 + 1e-6)


def _told(largest: float, width: float, sums: ChannelSums, *, probable: bool) -> bool:
    """Whether the samples tell that numbers are alive in float: tiny probabilities may be 0 in 8 bits of their own."""
    if not probable:
        return width > MOVED * largest
    step = sums.least_step if math.isfinite(sums.least_step) else 0.0
    return largest >= PROBABLE or step >= COARSE


def _clipped(one: Array, two: Array, low: Array, high: Array) -> dict[float, int]:
    """By either end of the second model's numbers in this sample, how many stay there and are far outside in float."""
    ends = float(np.nanmin(low[1], initial=math.inf)), float(np.nanmax(high[1], initial=-math.inf))
    beyond = CLIPPED * (float(np.nanmax(high[0], initial=-math.inf)) - float(np.nanmin(low[0], initial=math.inf)))
    if not ends[1] > ends[0] or not beyond > 0:
        return {}
    clipped = {}
    if float(np.nanmin(low[0])) < ends[0] - beyond:
        clipped[ends[0]] = int(((two == ends[0]) & (one < ends[0] - beyond)).sum())
    if float(np.nanmax(high[0])) > ends[1] + beyond:
        clipped[ends[1]] = int(((two == ends[1]) & (one > ends[1] + beyond)).sum())
    return clipped


def _ends(sums: ChannelSums) -> tuple[float, float]:
    """The least and the largest number of the second model."""
    return float(np.nanmin(sums.low[1], initial=math.inf)), float(np.nanmax(sums.high[1], initial=-math.inf))


def _least_step(numbers: Array) -> float:
    """The least difference between two numbers, by some of them: enough to tell a coarse encoding from a fine one."""
    some = np.unique(numbers.reshape(-1)[:: max(1, numbers.size // 4096)])
    return float(np.diff(some).min(initial=math.inf))


def _range(sums: ChannelSums, first: int, end: int | None, model: int = 0) -> str:
    low = float(np.nanmin(sums.low[model, first:end], initial=math.inf))
    high = float(np.nanmax(sums.high[model, first:end], initial=-math.inf))
    return f"from {low:.4g} to {high:.4g}"
