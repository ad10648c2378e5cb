# SPDX-License-Identifier: Apache-2.0
"""Slot classes: tensors that must share an encoding."""

from __future__ import annotations

from dataclasses import dataclass, field

from hexforge.ir import DType

Slot = tuple[str, DType]
"""A tensor in a type: its own, or one it is converted to."""


@dataclass(slots=True)
class SlotClass:
    """Slots that share one encoding."""

    slots: list[Slot] = field(default_factory=list)
    heads: list[Slot] = field(default_factory=list)
    """The slots whose ranges make up the range of the class."""


class SlotClasses:
    """The class of each slot; a slot is a class by itself until it is joined with another."""

    def __init__(self) -> None:
        self._classes: dict[Slot, SlotClass] = {}

    def of(self, slot: Slot) -> SlotClass:
        """The class of a slot."""
        if slot not in self._classes:
            self._classes[slot] = SlotClass([slot], [slot])
        return self._classes[slot]

    def join(self, first: Slot, second: Slot, *, follows: bool) -> None:
        """Make one class of two; with `follows` the range of the second slot no longer counts."""
        kept, joined = self.of(first), self.of(second)
        if follows:
            joined.heads = [slot for slot in joined.heads if slot != second]
        if kept is not joined:
            kept.slots += joined.slots
            kept.heads += joined.heads
            self._classes.update((slot, kept) for slot in joined.slots)
