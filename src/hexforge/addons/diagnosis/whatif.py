# SPDX-License-Identifier: Apache-2.0
"""What-if: one thing that a chip may compute otherwise is switched, and the input is searched that shows it most.

Inputs are drawn at random first, then changed a few elements at a time, as long as the outputs with and without the
switch move apart. At the input that was found each node is switched alone, and all nodes but it: what the one does and
what the other leaves out is what it is to blame for. Of a model with many such nodes groups are switched first, and the
group that is most to blame is halved until as many nodes as asked for stand alone.
"""

from __future__ import annotations

import heapq
import io
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hexforge.chips.deployment import Deployment
from hexforge.errors import CallError, UnsupportedError
from hexforge.formats.files import write_atomically
from hexforge.ir import Array, Graph, Role, ScaleOffset
from hexforge.ir.fixed_point import dequantize, quantized_range
from hexforge.options import did_you_mean
from hexforge.results import Column, Key, Result, select
from hexforge.runtime.plan import Plan
from hexforge.runtime.prepare import ModelRequest, prepare_model, read_static
from hexforge.runtime.registry import backend_for

if TYPE_CHECKING:
    from hexforge.backend import Backend
    from hexforge.model.source import ModelSource
    from hexforge.runtime.prepare import PreparedParts

TRIES = 200
FLOAT_RANGE = (-1.0, 1.0)
MOST_BLAMED = 32
"""Nodes that are told apart, unless the request says otherwise."""
FEW = 64
"""Elements of an input up to which they are changed one by one."""
Observe = Callable[[str, int, int], None]
"""Told what goes on, how much of it is done, and of how much."""


@dataclass(frozen=True, slots=True)
class WhatIfRequest:
    """How long and where an input is searched."""

    tries: int = TRIES
    """Inputs that are tried, half of them at random."""
    float_range: tuple[float, float] = FLOAT_RANGE
    """Where float inputs lie that the model does not quantize."""
    seed: int = 0
    blamed: int = MOST_BLAMED
    """Nodes that are told apart, those most to blame; 0 for all of them."""

    def __post_init__(self) -> None:
        low, high = self.float_range
        if self.blamed < 0:
            raise CallError(f"blamed {self.blamed}: give the number of nodes to tell apart, or 0 for all of them")
        if self.tries < 1 or not np.isfinite((low, high)).all() or low >= high:
            raise CallError(f"tries {self.tries}, range {low:g}:{high:g}: give 1 or more tries, and LOW below HIGH")


@dataclass(frozen=True, slots=True)
class BlamedNode(Result):
    """A node of the graph and what it has to do with the difference at the input that was found."""

    node: str
    op: str
    source: tuple[str, ...]
    """The model's nodes it came from."""
    alone: float
    """The largest difference of an output with this node alone switched."""
    saves: float
    """How much smaller the difference is with all nodes but this one switched."""
    share: float
    """Of the sum of both over all nodes that are told apart."""

    described = (
        Column("node"),
        Column("op", choose=True),
        "source",
        Column("switched alone", "significant", 6, key="alone"),
        Column("left out: less by", "significant", 6, key="saves"),
        Column("share", "share"),
    )


BLAMED = (
    *select(BlamedNode.described, "node op share alone saves"),
    Column("of the model's nodes", of=lambda blamed: ", ".join(blamed.source)),
)
"""A blamed node as a table has it."""


@dataclass(frozen=True, slots=True, eq=False)
class WhatIf(Result):
    """What a switch does to a model at the input that shows it most of those tried."""

    model: str
    soc: str
    switch: str
    meaning: str
    nodes: int
    """Nodes that the switch changes."""
    difference: float
    """The largest difference of an output with and without the switch, in its own units."""
    relative: float
    """The same relative to the largest number of that output without the switch."""
    output: str
    place: tuple[int, ...]
    """Where in that output."""
    without: float
    with_switch: float
    random_difference: float
    """The most that random inputs showed."""
    tries: int
    blame: tuple[BlamedNode, ...]
    """The worst first; as many as were asked for."""
    worst_input: Mapping[str, Array] = field(repr=False)

    described = (
        "model soc switch meaning nodes difference relative output place without",
        Key("with", of="with_switch"),
        "random_difference tries blame_left_out blame",
    )

    @property
    def blame_left_out(self) -> int:
        """Nodes that the switch changes and that are not told apart."""
        return self.nodes - len(self.blame)

    def save_input(self, path: str | Path) -> Path:
        """Write the input as an .npz file."""
        held = io.BytesIO()
        np.savez(held, **dict(self.worst_input))  # type: ignore[arg-type]
        write_atomically(Path(path), [held.getvalue()])
        return Path(path)


def whatif(
    model: ModelSource,
    switch: str,
    deployment: Deployment | str = Deployment(),  # noqa: B008 - it is frozen
    request: WhatIfRequest = WhatIfRequest(),  # noqa: B008 - it is frozen
    *,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Mapping[str, Any] | None = None,
    observe: Observe | None = None,
) -> WhatIf:
    """Switch one thing that a chip may compute otherwise, and search the input that shows it most.

    `switch` is fold_relu, short_depth, float_order or encodings. UnsupportedError where no node of the model has it.
    """
    chosen = Deployment.of(deployment)
    backend = backend_for(chosen, threads=1)
    if switch not in backend.numeric_switches:
        near = did_you_mean(switch, backend.numeric_switches)
        every = ", ".join(backend.numeric_switches) or f"none with the {backend.name} backend"
        raise CallError(f"switch {switch!r} is not known{near}; there is {every}")
    asked = ModelRequest(dims=dims, shapes=shapes, constants=constants)
    loaded = read_static(model, asked)
    parts = prepare_model(loaded, backend, asked)
    variants = _Variants(parts, backend, switch)
    if not variants.names:
        raise UnsupportedError(f"{loaded.name}: {switch} changes no node of it: {backend.numeric_switches[switch]}")
    search = _Search(variants, variants.plan(variants.names), request, observe or (lambda what, done, of: None))
    search.run()
    worst = search.best
    blame = _blame(variants, worst, request.blamed, search.observe)
    return WhatIf(
        loaded.name, chosen.soc, switch, backend.numeric_switches[switch], len(variants.names), worst.difference,
        worst.relative, worst.output, worst.place, worst.without, worst.with_switch, search.random_difference,
        search.tried, blame, worst.feeds,
    )  # fmt: skip


class _Variants:
    """A model as programs in which some nodes are switched."""

    def __init__(self, parts: PreparedParts, backend: Backend, switch: str) -> None:
        self.parts, self._backend, self._switch = parts, backend, switch
        self.outputs = [str(value.name) for value in parts.model.ir.graph.outputs]
        self.nodes: dict[str, tuple[str, tuple[str, ...]]] = {}
        """By name, the op and the model's nodes of those that can be switched."""
        self.base = Plan(parts, backend, before_compiling=self._note)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.nodes)

    def plan(self, names: Collection[str]) -> Plan:
        """The model with some nodes switched."""

        def switched(graph: Graph, part: object) -> None:
            present = [node.name for node in graph if node.name in names]
            if present:
                self._backend.switch_nodes(graph, self._switch, present)

        return Plan(self.parts, self._backend, before_compiling=switched)

    def _note(self, graph: Graph, part: object) -> None:
        for node in self._backend.switchable_nodes(graph, self._switch):
            self.nodes[node.name] = (node.op.name, node.source)

    def results(self, plan: Plan, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs as real numbers."""
        types = {value.name: value.type for graph in plan.graphs for value in graph.outputs}
        given = plan.run(feeds, self.outputs)
        return {
            name: dequantize(array, types[name])
            if name in types and types[name].encoding is not None
            else np.asarray(array, np.float64)
            for name, array in given.items()
        }


@dataclass(frozen=True, slots=True)
class _Box:
    """Where the elements of an input lie."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    low: float
    high: float

    def cast(self, values: Array) -> Array:
        """Numbers as the input has them."""
        whole = np.rint(values) if self.dtype.kind != "f" else values
        return np.clip(whole, self.low, self.high).astype(self.dtype)


def _boxes(variants: _Variants, float_range: tuple[float, float]) -> dict[str, _Box]:
    """By input, the range of its encoding, or of the encoding that the model quantizes it to."""
    known = {value.name: value for graph in variants.base.graphs for value in graph.inputs}
    boxes = {}
    for value in variants.parts.model.ir.graph.inputs:
        name, dtype = str(value.name), np.dtype(value.dtype.numpy())  # type: ignore[union-attr]
        shape = tuple(size for size in value.shape or () if isinstance(size, int))
        low, high = float_range if dtype.kind == "f" else (0.0, 1.0)
        inner = known.get(name)
        if inner is not None and inner.encoding is not None:
            low, high = map(float, quantized_range(inner.dtype, inner.encoding))
        elif inner is not None and inner.role is Role.APP_WRITE and dtype.kind == "f":
            encoded = [u.outputs[0] for u in inner.users if u.op.name == "Quantize"]
            encoding = encoded[0].encoding if encoded and len(encoded) == len(inner.users) else None
            if isinstance(encoding, ScaleOffset):
                first, last = quantized_range(encoded[0].dtype, encoding)
                low, high = ((code + encoding.offset) * encoding.scale for code in (first, last))
        boxes[name] = _Box(shape, dtype, low, high)
    return boxes


@dataclass(frozen=True, slots=True, eq=False)
class _Shown:
    """What the outputs of an input show of the switch."""

    feeds: dict[str, Array]
    difference: float
    total: float
    relative: float
    output: str
    place: tuple[int, ...]
    without: float
    with_switch: float

    def exceeds(self, other: _Shown) -> bool:
        """True where it shows more: the largest difference counts, then the sum of all."""
        return (self.difference, self.total) > (other.difference, other.total)


class _Search:
    """Random inputs, then changes to the best of them."""

    def __init__(self, variants: _Variants, switched: Plan, request: WhatIfRequest, observe: Observe) -> None:
        self._variants, self._switched, self._request, self.observe = variants, switched, request, observe
        self._random = np.random.default_rng(request.seed)
        self._boxes = _boxes(variants, request.float_range)
        self.tried = 0
        self.random_difference = 0.0
        self.best: _Shown = self._try({name: box.cast(np.zeros(box.shape)) for name, box in self._boxes.items()})

    def run(self) -> None:
        """Search."""
        half = (self._request.tries + 1) // 2
        while self.tried < half:
            self._keep(self._try(self._drawn(self.tried % 3)))
        self.random_difference = self.best.difference
        while self.tried < self._request.tries:
            self._keep(self._try(self._changed(self.best.feeds)))

    def _keep(self, shown: _Shown) -> None:
        if shown.exceeds(self.best):
            self.best = shown

    def _drawn(self, how: int) -> dict[str, Array]:
        """An input at random: anywhere, at the ends of its range, or small but for some elements."""
        feeds = {}
        for name, box in self._boxes.items():
            values = self._random.uniform(box.low, box.high, box.shape)
            if how == 1:
                values = np.where(self._random.random(box.shape) < 0.5, box.low, box.high)
            if how == 2:
                values = np.where(self._random.random(box.shape) < 0.2, values, values * 0.01)
            feeds[name] = box.cast(values)
        return feeds

    def _changed(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """One input with one element changed, or some where it has many: to an end, to the middle, to anything."""
        sizes = np.array([box.low < box.high and np.prod(box.shape) for box in self._boxes.values()], np.float64)
        name = list(self._boxes)[int(self._random.choice(len(sizes), p=sizes / sizes.sum()))] if sizes.sum() else ""
        if not name:
            return dict(feeds)
        box, values = self._boxes[name], feeds[name].astype(np.float64).ravel()
        count = 1 if values.size <= FEW else max(1, values.size >> int(self._random.integers(1, 12)))
        at = self._random.choice(values.size, count, replace=False)
        to = (box.low, box.high, (box.low + box.high) / 2, self._random.uniform(box.low, box.high, count))
        values[at] = to[int(self._random.integers(len(to)))]
        return {**feeds, name: box.cast(values.reshape(box.shape))}

    def _try(self, feeds: dict[str, Array]) -> _Shown:
        base = self._variants.results(self._variants.base, feeds)
        changed = self._variants.results(self._switched, feeds)
        self.tried += 1
        self.observe("searching", self.tried, self._request.tries)
        return _shown(feeds, base, changed)


def _shown(feeds: dict[str, Array], base: Mapping[str, Array], changed: Mapping[str, Array]) -> _Shown:
    worst: tuple[float, str, tuple[int, ...]] = (-1.0, "", ())
    total = 0.0
    for name, array in base.items():
        apart = np.abs(array - changed[name])
        apart = np.where(np.isfinite(apart), apart, 0.0)
        total += float(apart.sum())
        if apart.size and float(apart.max()) > worst[0]:
            worst = float(apart.max()), name, tuple(map(int, np.unravel_index(int(apart.argmax()), apart.shape)))
    if not worst[1]:
        raise UnsupportedError("the model has no output to compare")
    difference, name, place = worst
    largest = float(np.abs(base[name]).max())
    relative = difference / largest if largest else 0.0
    return _Shown(
        feeds, difference, total, relative, name, place, float(base[name][place]), float(changed[name][place])
    )


def _blame(variants: _Variants, worst: _Shown, most: int, observe: Observe) -> tuple[BlamedNode, ...]:
    """What each node does, the worst first; of more nodes than `most` those of the groups that do most."""
    base = variants.results(variants.base, worst.feeds)
    count = min(most or len(variants.names), len(variants.names))

    def difference(names: Collection[str]) -> float:
        return _shown(worst.feeds, base, variants.results(variants.plan(names), worst.feeds)).difference

    def judged(group: tuple[str, ...]) -> tuple[float, float]:
        """What a group does alone, and what leaving it out saves."""
        inside = set(group)
        rest = [other for other in variants.names if other not in inside]
        if not rest:
            return worst.difference, worst.difference
        return difference(group), max(0.0, worst.difference - difference(rest))

    waiting: list[tuple[float, int, tuple[str, ...], tuple[float, float]]] = []

    def wait(place: int, group: tuple[str, ...]) -> None:
        both = judged(group)
        heapq.heappush(waiting, (-sum(both), place, group, both))

    if count == len(variants.names):
        for place, name in enumerate(variants.names):
            observe("blaming", place, count)
            wait(place, (name,))
    else:
        wait(0, variants.names)
    rows: list[tuple[str, float, float]] = []
    while len(rows) < count:
        _, place, group, (alone, saves) = heapq.heappop(waiting)
        if len(group) == 1:
            observe("blaming", len(rows), count)
            rows.append((group[0], alone, saves))
            continue
        half = len(group) // 2
        wait(place, group[:half])
        wait(place + half, group[half:])
    total = sum(alone + saves for _, alone, saves in rows)
    blamed = [
        BlamedNode(name, *variants.nodes[name], alone, saves, (alone + saves) / total if total else 0.0)
        for name, alone, saves in rows
    ]
    return tuple(sorted(blamed, key=lambda row: (-row.share, row.node)))
