# SPDX-License-Identifier: Apache-2.0
"""Changes: what two sides differ in, figure by figure and layer by layer, and why the second takes longer."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from hexforge.addons.diagnosis.sides import CPU, Fact, LayerFigures, Side
from hexforge.amounts import size, time
from hexforge.chips.graph_config import TIME_ALONE
from hexforge.results import Column, Key, Result

SAME = 0.005
"""A part of a figure below which two are taken for the same."""
EXPLAINED = 0.9
"""The part of a change of time that sentences account for, layer by layer."""
MOST_SENTENCES = 6
_SETTINGS = re.compile(
    r"(?:^|: )(?:soc|chips?|precision|runtime|performance_mode|batch|threads|backend|option .*|weight_sharing|"
    rf"vtcm_bytes|core_mhz|clock_mhz|level|source|producer|{'|'.join(TIME_ALONE)})$"
)
"""Facts that somebody chose; the others follow from them and from the layers."""

_SIZES = {
    "file_bytes": "The file",
    "stored_weight_bytes": "Stored weights",
    "shared_weight_bytes": "Weights that graphs share",
    "constant_bytes": "Weights",
}


@dataclass(frozen=True, slots=True)
class FactChange(Result):
    """A figure of both sides; None where a side has none."""

    name: str
    before: Fact | None
    after: Fact | None

    @property
    def differs(self) -> bool:
        """Whether the two are not the same, beyond rounding."""
        if isinstance(self.before, int | float) and isinstance(self.after, int | float):
            return abs(self.after - self.before) > 1e-9 * max(abs(self.before), abs(self.after))
        return self.before != self.after

    @property
    def chosen(self) -> bool:
        """Whether it is a setting, such as the chip, and no result."""
        return _SETTINGS.search(self.name) is not None


@dataclass(frozen=True, slots=True)
class LayerChange(Result):
    """A layer of both sides, or of one of them."""

    name: str
    before: LayerFigures | None
    after: LayerFigures | None

    described = ("name before after", Key("us", rounded=4), "cycles weight_bytes why")

    @property
    def op(self) -> str:
        """Its op on the second side, else on the first."""
        side = self.after or self.before
        return "" if side is None else side.op

    @property
    def us(self) -> float:
        """By how much longer it takes; all of it where it is new."""
        return (_us(self.after) or 0.0) - (_us(self.before) or 0.0)

    @property
    def cycles(self) -> int:
        """The same in cycles."""
        return _count(self.after, "cycles") - _count(self.before, "cycles")

    @property
    def weight_bytes(self) -> int:
        """By how much more its weights are."""
        return _count(self.after, "weight_bytes") - _count(self.before, "weight_bytes")

    @property
    def why(self) -> str:
        """What of it is another."""
        return "; ".join(_reasons(self.before, self.after))

    @property
    def differs(self) -> bool:
        """Whether anything of it is another."""
        if self.why or abs(self.us) > SAME * max(_us(self.before) or 0.0, _us(self.after) or 0.0, 1e-9):
            return True
        return abs(self.cycles) > SAME * max(_count(self.before, "cycles"), _count(self.after, "cycles"))


@dataclass(frozen=True, slots=True)
class Difference(Result):
    """What changed from one context, model, profile or estimate to another, and why it is slower or faster."""

    before: Side
    after: Side
    facts: tuple[FactChange, ...]
    layers: tuple[LayerChange, ...]
    """Those that changed most first, in time, then in bytes."""
    slots_added: tuple[str, ...]
    """Tensors that adapters may change in the second context only, as graph: tensor."""
    slots_gone: tuple[str, ...]

    described = (
        "kind",
        Key("before", of="before.name"),
        Key("after", of="after.name"),
        "same",
        Key("why", of=lambda changed: changed.why()),
        Key("latency_us", of=lambda changed: _pair(changed.before.latency_us, changed.after.latency_us)),
        Key("facts", of=lambda changed: [fact for fact in changed.facts if fact.differs]),
        Key("layers", of="changed_layers"),
        Key("unchanged_layers", of=lambda changed: len(changed.layers) - len(changed.changed_layers)),
        Key("adapter_slots", of=lambda changed: {"added": changed.slots_added, "gone": changed.slots_gone}),
        Key("by_type", of=lambda changed: {op: _pair(*both) for op, both in changed.by_type().items()}),
    )

    @property
    def kind(self) -> str:
        """What both are: context, model, profile or estimate."""
        return self.before.kind

    @property
    def changed_layers(self) -> tuple[LayerChange, ...]:
        """Layers that are not the same on both sides."""
        return tuple(layer for layer in self.layers if layer.differs)

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not any(fact.differs for fact in self.facts) and not self.changed_layers and not self.slots

    @property
    def slots(self) -> tuple[str, ...]:
        """Adapter slots of one side only."""
        return (*self.slots_added, *self.slots_gone)

    def why(self) -> tuple[str, ...]:
        """What changed and why it takes longer, or less long, the largest cause first."""
        return tuple(_sentences(self))

    def by_type(self) -> dict[str, tuple[float, float]]:
        """Time by op type of both sides, in microseconds; in cycles where no clock is known."""
        sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        for change in self.layers:
            for side, layer in enumerate((change.before, change.after)):
                if layer is not None:
                    sums[layer.op or layer.name][side] += _us(layer) or layer.cycles or 0.0
        return {op: (one, two) for op, (one, two) in sums.items()}


FACTS = (
    Column("figure", of="name"),
    Column("before", of=lambda fact: fact_text(fact.name, fact.before)),
    Column("after", of=lambda fact: fact_text(fact.name, fact.after)),
)
"""A figure that differs, as a table has it."""


def layer_columns(figure: str, unit: str) -> tuple[Column, ...]:
    """A layer of both sides as a table has it, by its microseconds or its cycles."""
    return (
        Column("layer", of="name"),
        Column("op", choose=True, leaves=3),
        Column(f"before {unit}", "number", 2, "sum", of=f"before.{figure}"),
        Column(f"after {unit}", "number", 2, "sum", of=f"after.{figure}"),
        Column("difference", "number", 2, "sum", of=figure),
        Column("weights before", "bytes", total="sum", of="before.weight_bytes", leaves=2),
        Column("weights after", "bytes", total="sum", of="after.weight_bytes", leaves=1),
        Column("what changed", of="why"),
    )


def _pair(before: float | None, after: float | None) -> dict[str, float | None]:
    return {"before": before, "after": after}


def compare_sides(before: Side, after: Side) -> Difference:
    """What two sides of one kind differ in."""
    if len(before.graphs) == len(after.graphs) == 1:
        before, after = before.of_one_graph(), after.of_one_graph()
    names = [*before.facts, *(name for name in after.facts if name not in before.facts)]
    facts = tuple(FactChange(name, before.facts.get(name), after.facts.get(name)) for name in names)
    first, second = ({layer.name: layer for layer in side.layers} for side in (before, after))
    layers = [LayerChange(name, first.get(name), second.get(name)) for name in dict.fromkeys([*first, *second])]
    layers.sort(key=lambda layer: (-abs(layer.us), -abs(layer.cycles), -abs(layer.weight_bytes), not layer.why))
    slots = [{f"{graph}: {name}" for graph, names in side.slots.items() for name in names} for side in (before, after)]
    added, gone = sorted(slots[1] - slots[0]), sorted(slots[0] - slots[1])
    return Difference(before, after, facts, tuple(layers), tuple(added), tuple(gone))


# -- sentences --------------------------------------------------------------------------------------------------------


def _sentences(difference: Difference) -> Iterator[str]:
    if difference.same:
        yield f"Both are the same: {len(difference.layers)} layers, no figure differs."
        return
    one, two = difference.before.latency_us, difference.after.latency_us
    change = (two or 0.0) - (one or 0.0)
    if one is not None and two is not None:
        yield _verdict(difference, one, two)
    chosen = [fact for fact in difference.facts if fact.chosen and fact.differs]
    if chosen:
        told = ", ".join(
            f"{fact.name} {fact_text(fact.name, fact.before)} → {fact_text(fact.name, fact.after)}"
            for fact in chosen[:MOST_SENTENCES]
        )
        yield f"Set otherwise: {told}."
    in_us = any(_us(layer.before) or _us(layer.after) for layer in difference.layers)
    if not in_us or one is None or two is None or abs(change) > SAME * one:
        yield from _slower_layers(difference, change, in_us)
        yield from _host(difference, change)
    yield from _moved(difference)
    yield from _bytes(difference)


def _verdict(difference: Difference, one: float, two: float) -> str:
    names = difference.before.name, difference.after.name
    if one and abs(two - one) <= SAME * one:
        return f"{names[1]} takes as long as {names[0]}: {time(two)}."
    word = "longer" if two > one else "less"
    part = f" ({abs(two - one) / one:.0%})" if one else ""
    return f"{names[1]} takes {time(two)}, {time(abs(two - one))}{part} {word} than {names[0]}."


def _slower_layers(difference: Difference, change: float, in_us: bool) -> Iterator[str]:
    """Layers that account for the change of time, the largest first, and the one that acts most against it."""
    amounts = [(layer.us if in_us else float(layer.cycles), layer) for layer in difference.layers]
    whole = change if in_us and change else sum(amount for amount, _ in amounts)
    way = 1.0 if whole >= 0 else -1.0
    causes = [(amount, layer) for amount, layer in amounts if amount * way > 0]
    told = 0.0
    count = 0
    while count < min(len(causes), MOST_SENTENCES) and told * way < EXPLAINED * abs(whole):
        yield _layer_sentence(*causes[count], in_us)
        told += causes[count][0]
        count += 1
    rest = sum(amount for amount, _ in causes[count:])
    if abs(rest) > SAME * max(abs(whole), 1e-9):
        left = len(causes) - count
        words = "One more layer changes" if left == 1 else f"{left} more layers change"
        yield f"{words} it by {_amount(rest, in_us)}{'' if left == 1 else ' together'}."
    against = next(((amount, layer) for amount, layer in amounts if amount * way < 0), None)
    if against is not None and abs(against[0]) > (1 - EXPLAINED) * abs(whole):
        yield f"Against that, {_layer_sentence(*against, in_us)}"


def _layer_sentence(amount: float, layer: LayerChange, in_us: bool) -> str:
    why = f": {layer.why}" if layer.why else ""
    return f"{layer.name} takes {_amount(abs(amount), in_us)} {'longer' if amount > 0 else 'less'}{why}."


def _host(difference: Difference, change: float) -> Iterator[str]:
    """What calls and copies add, where that is a part of the change."""
    facts = {fact.name: fact for fact in difference.facts}
    for name, words in (("rpc_us", "Calls to the accelerator"), ("io_us", "Copies of inputs and outputs")):
        fact = facts.get(name)
        if fact is None or not isinstance(fact.before, int | float) or not isinstance(fact.after, int | float):
            continue
        if difference.kind == "profile":
            continue  # there the call has the accelerator's time in it
        if (fact.after - fact.before) * change > 0 and abs(fact.after - fact.before) > (1 - EXPLAINED) * abs(change):
            yield f"{words}: {time(fact.before)} → {time(fact.after)}."


def _amount(value: float, in_us: bool) -> str:
    sign = "-" if value < 0 else ""
    return f"{sign}{time(abs(value))}" if in_us else f"{value:,.0f} cycles"


def _moved(difference: Difference) -> Iterator[str]:
    """Nodes that changed between NPU and CPU."""
    to_cpu = [c for c in difference.layers if _where(c.after) == CPU and _where(c.before) != CPU]
    from_cpu = [c for c in difference.layers if _where(c.before) == CPU and _where(c.after) != CPU]
    if to_cpu:
        first = to_cpu[0].after
        reason = f" ({first.reason})" if first is not None and first.reason else ""
        yield f"{_nodes(len(to_cpu))} more on the CPU, such as {to_cpu[0].name}{reason}."
    if from_cpu:
        yield f"{_nodes(len(from_cpu))} less on the CPU, such as {from_cpu[0].name}."


def _bytes(difference: Difference) -> Iterator[str]:
    """Files, weights, sharing and adapters."""
    facts = {fact.name: fact for fact in difference.facts}
    for name, words in _SIZES.items():
        fact = facts.get(name)
        if fact is not None and fact.differs:
            yield f"{words}: {fact_text(name, fact.before)} → {fact_text(name, fact.after)}."
    for slots, word in ((difference.slots_added, "new"), (difference.slots_gone, "gone")):
        if slots:
            yield f"{len(slots)} adapter slots are {word}, such as {slots[0]}."


def _nodes(count: int) -> str:
    return "One node is" if count == 1 else f"{count} nodes are"


def _reasons(before: LayerFigures | None, after: LayerFigures | None) -> Iterator[str]:
    if before is None or after is None:
        where = after if after is not None else before
        assert where is not None
        yield ("new" if before is None else "gone") + (f", on the {CPU}" if where.where == CPU else "")
        return
    if before.where != after.where:
        yield f"runs on the {after.where} instead of the {before.where}" + (f": {after.reason}" if after.reason else "")
    if before.op != after.op:
        yield f"{before.op} became {after.op}"
    if before.types != after.types:
        yield f"{before.types or 'unknown types'} became {after.types or 'unknown types'}"
    for name, words in (("weight_bytes", "weights"), ("spill_bytes", "activations to and from DRAM")):
        one, two = _count(before, name), _count(after, name)
        if abs(two - one) > SAME * max(one, two):
            yield f"{words} {size(one)} → {size(two)}"
    if before.bound != after.bound and before.bound and after.bound:
        yield f"bound by {after.bound} instead of {before.bound}"


def fact_text(name: str, value: Fact | None) -> str:
    """A figure with its unit, by the end of its name."""
    if value is None:
        return "none"
    if isinstance(value, str):
        return value
    if name.endswith("_us"):
        return time(value)
    if name.endswith("_bytes"):
        return size(value)
    return f"{value:,g}" if isinstance(value, float) else f"{value:,}"


def _us(layer: LayerFigures | None) -> float | None:
    return None if layer is None else layer.us


def _where(layer: LayerFigures | None) -> str:
    return "" if layer is None else layer.where


def _count(layer: LayerFigures | None, name: str) -> int:
    return 0 if layer is None else getattr(layer, name) or 0
