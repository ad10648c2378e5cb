# SPDX-License-Identifier: Apache-2.0
"""Tiles: how tensors are padded and cut on the HTP, what a task asks of it, and what does not fit into VTCM."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from hexforge.chips.deployment import known_precision

CHANNELS = 32
"""Channels of a tile: the matrix unit's depth and width, for every data type."""
LANES = 16
"""What the channels of a shallow image are padded to where the vector units pass over it, and depthwise windows."""
PACKED = 4
"""Channels up to which an image is packed, or unpacked, as it comes in or leaves; it takes whole tiles then."""
FLAT = 4
"""Chosen of 1, 2, 4 and no limit by folds of families: how much padding a move of a shallow tensor passes over."""


@dataclass(frozen=True, slots=True)
class Precision:
    """Bytes per element, and the rows and columns of pixels in a tile, which fill 2 KiB."""

    name: str
    activation_bytes: int
    weight_bits: int
    rows: int
    columns: int
    rate: str
    """The matrix rate it runs at."""
    passes: int = 1
    """How often the matrix unit goes over its operands."""

    def weight_bytes(self, elements: int) -> int:
        """Bytes of that many weights."""
        return (elements * self.weight_bits + 7) // 8


PRECISIONS: Mapping[str, Precision] = {
    p.name: p
    for p in (
        Precision("float", 2, 16, 8, 4, "float"),
        Precision("w8a8", 1, 8, 8, 8, "w8a8"),
        Precision("w8a16", 2, 8, 8, 4, "w8a16"),
        Precision("w4a16", 2, 4, 8, 4, "w8a16"),
        # assumed: the unit multiplies 8 bits of a weight at a time. No 16-bit weights were measured
        Precision("w16a16", 2, 16, 8, 4, "w8a16", passes=2),
    )
}


def precision(name: str) -> Precision:
    """The precision of that name; CallError for another."""
    return PRECISIONS[known_precision(name)]


def round_up(size: int, step: int) -> int:
    """`size` rounded up to a multiple of `step`."""
    return -(-size // step) * step


def image(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """A shape as batch, height, width, depth: the last axis is the depth, missing ones are 1."""
    full = (1, 1, 1, *shape)
    return math.prod(full[:-3]), full[-3], full[-2], full[-1]


def lanes(channels: int) -> int:
    """Channels of an image as the vector units see them: whole tiles, or a half of one for a shallow image."""
    return round_up(channels, LANES if PACKED < channels < CHANNELS else CHANNELS)


def padded_elements(shape: Sequence[int]) -> int:
    """Elements of a tensor as the vector units see it: depth to 32 and, where there is an image, 8 x 4 pixels.

    An image less than a tile deep has half a tile where that is enough.
    """
    rank = len(shape)
    while rank != 4 and len(shape) > 1 and (shape[-1] == 1 or (rank > 4 and shape[-1] < CHANNELS)):
        shape = (
            *shape[:-2],
            shape[-2] * shape[-1],
        )  # no image: what is less than a tile deep is one with the axis before
    n, h, w, c = image(shape)
    if len(shape) >= 4 and h * w > 1:  # what is one pixel high is a line, folded into whole tiles
        h, w = (1, round_up(w, 32)) if h == 1 else (round_up(h, 8), round_up(w, 4))
    return n * h * w * (lanes(c) if rank == 4 else round_up(c, CHANNELS))


def flat_elements(shape: Sequence[int]) -> int:
    """Elements of a tensor as a move sees it: a shallow one lies flat, with at most `FLAT` times what it holds."""
    return min(padded_elements(shape), FLAT * math.prod(shape))


def pixel_rows(shape: Sequence[int], p: Precision, folded: bool = False) -> int:
    """Rows of the matrix a tensor is, padded: an image to 8 x 4 pixels, a line or what is `folded` to whole tiles."""
    n, h, w, _ = image(shape)
    whole, plane = n * round_up(h * w, p.rows * p.columns), n * round_up(h, 8) * round_up(w, 4)
    return whole if h == 1 else min(whole, plane) if folded else plane


def window_depth(height: int, width: int, channels: int) -> int:
    """Multiply-accumulates per output element of a window; a shallow input packs its columns into the depth."""
    if channels >= CHANNELS:
        return height * width * round_up(channels, CHANNELS)
    return height * min(round_up(width * round_up(channels, 4), CHANNELS), width * CHANNELS)


@dataclass(slots=True, eq=False)
class Task:
    """Ops that run as one, and what they ask of each unit."""

    name: str
    op: str
    precision: Precision
    ops: list[str] = field(default_factory=list)
    """Names of the QNN nodes in it."""
    kinds: list[str] = field(default_factory=list)
    """Their ops."""
    members: list[dict[str, float]] = field(default_factory=list)
    """The vector work each of them asks for, before what fusing saves."""
    hmx: dict[str, float] = field(default_factory=dict)
    """Work of the matrix unit by kind: 1e9 multiply-accumulates, padding included."""
    hvx: dict[str, float] = field(default_factory=dict)
    """Work of the vector units by kind: 1e6 padded bytes, or a count."""
    weight_bytes: int = 0
    spill_bytes: int = 0
    """Activations that pass through DRAM, and weights read again."""
    written_bytes: int = 0
    """Of these, what goes to DRAM."""
    spilled: bool = False
    """True where another task's result passes through DRAM: what is fetched then cannot come ahead of the task."""
    reads: list[tuple[int, int]] = field(default_factory=list)
    """Bytes read of each task's result (-1: the graph's input)."""
    out_bytes: int = 0
    local: bool = False
    """True where an output tile needs only a neighbourhood of the input: such tasks are tiled together."""
    own_types: bool = False
    """True where it runs at the model's own types, not at a precision that was asked for."""
    packed: float = 1.0
    """Part of its weights' bytes that is left where 4-bit values of 8-bit weights lie packed."""
    halo: float = 0.0
    """Rows of that neighbourhood beyond the tile, as a part of the height."""

    def add(self, kind: str, amount: float) -> None:
        """More vector work."""
        self.hvx[kind] = self.hvx.get(kind, 0.0) + amount


Tensor: TypeAlias = tuple[int, int, list[int]]
"""What tasks pass on: the task that makes it (-1: the graph's input), its bytes, and the tasks that read it."""


@dataclass(frozen=True, slots=True)
class Spills:
    """What of each task passes through DRAM for want of VTCM."""

    moved_bytes: list[int]
    """Activations that pass through DRAM, and weights read again."""
    written_bytes: list[int]
    """Of these, what goes to DRAM."""
    waits: list[bool]
    """Whether a result of another task is among them: what is fetched then cannot come ahead of the task."""


def spills(tasks: Sequence[Task], vtcm_bytes: int, tensors: Iterable[Tensor]) -> Spills:
    """The spill of each task: what neither stays in VTCM nor is consumed tile by tile where it is made.

    What tasks tiled together read arrives tile by tile while they work: it is the last of them that waits for its end.
    """
    group = tiled_together(tasks, vtcm_bytes)
    last = _last(group)
    half = vtcm_bytes // 2
    spill, written, waits = [0] * len(tasks), [0] * len(tasks), [False] * len(tasks)
    for source, size, readers in tensors:
        if source < 0:
            spill[last[readers[0]]] += size  # an input comes from DRAM once
            continue
        if size <= half:
            continue
        outside = sorted({group[r]: r for r in reversed(readers) if group[r] != group[source]}.values())
        if not outside:
            continue
        spill[source] += size
        written[source] += size
        waits[source] = True
        for reader in outside:
            spill[last[reader]] += size
            waits[last[reader]] = True
    for i, task in enumerate(tasks):
        if not task.hmx or task.weight_bytes <= half:
            continue
        read = max((size for _, size in task.reads), default=0)
        if read > half:
            # neither operand stays: the one that is cheaper to read again for each part of the other
            again_weights = (-(-read // half) - 1) * task.weight_bytes
            spill[i] += min(again_weights, (-(-task.weight_bytes // half) - 1) * read)
    return Spills(spill, written, waits)


def place_in_vtcm(tasks: Sequence[Task], vtcm_bytes: int) -> None:
    """Set the spill of each task."""
    moved = spills(tasks, vtcm_bytes, tensors_between(tasks))
    for i, task in enumerate(tasks):
        task.spill_bytes, task.written_bytes, task.spilled = (
            moved.moved_bytes[i],
            moved.written_bytes[i],
            moved.waits[i],
        )


def tiled_together(tasks: Sequence[Task], vtcm_bytes: int) -> list[int]:
    """For each task the number of its group: runs of local tasks whose weights and halo are small enough."""
    groups: list[int] = []
    group, weights, halo = 0, 0, 0.0
    for task in tasks:
        if not task.local:
            groups.append(group + 1)
            group, weights, halo = group + 2, 0, 0.0
            continue
        if weights + task.weight_bytes > vtcm_bytes // 4 or halo + task.halo > 0.25:
            group, weights, halo = group + 1, 0, 0.0
        weights, halo = weights + task.weight_bytes, halo + task.halo
        groups.append(group)
    return groups


def _last(group: Sequence[int]) -> list[int]:
    """For each task the last of those it is tiled together with."""
    last = {number: index for index, number in enumerate(group)}
    return [last[number] for number in group]


def tensors_between(tasks: Sequence[Task]) -> list[Tensor]:
    """Source, bytes and readers of each tensor between tasks."""
    readers_of: dict[tuple[int, int], list[int]] = {}
    for index, task in enumerate(tasks):
        for source, size in dict.fromkeys(task.reads):
            readers_of.setdefault((source, size), []).append(index)
    return [(source, size, readers) for (source, size), readers in readers_of.items()]
