# SPDX-License-Identifier: Apache-2.0
"""Shared placing: a model is placed once for all backends that take the same of it, as chips of one kind do.

Placing asks a backend about nodes and nothing else. So another backend that gives the same answers would place the
model the same; it is shown the nodes that were shown before, which takes far less time than placing.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace

from hexforge.backend import Backend, PlacingTraits
from hexforge.model.reader import Model
from hexforge.runtime.prepare import DEFAULT_REQUEST, ModelRequest, PreparedParts, prepare_model


@dataclass(slots=True, eq=False)
class _Placed:
    """A model placed on a backend."""

    model: Model
    backend: Backend
    request: ModelRequest
    parts: PreparedParts
    relabelled: dict[str, PreparedParts] = field(default_factory=dict)
    """The same in the words of another chip."""
    answers: dict[Hashable, bool] = field(default_factory=dict)
    """Whether backends of some traits answer alike."""

    def is_of(self, model: Model, backend: Backend, request: ModelRequest) -> bool:
        """Whether placing the model on the backend would give the same parts, but for the chip's name in reasons."""
        mine, other = self.backend, backend
        if self.model is not model or self.request != request or type(mine) is not type(other):
            return False
        if mine.ep_limited != other.ep_limited or mine.name != other.name:
            return False
        traits = other.placing_traits
        if traits is None:
            return self._answers_alike(other)
        own = mine.placing_traits
        if own is not None and own.refusals == traits.refusals:
            return True
        if traits.refusals not in self.answers:
            self.answers[traits.refusals] = self._answers_alike(other)
        return self.answers[traits.refusals]

    def _answers_alike(self, other: Backend) -> bool:
        own, its = _label(self.backend.placing_traits), _label(other.placing_traits)
        return all(
            other.unsupported(node) == (None if answer is None else _in_words(answer, own, its))
            for node, answer in self.parts.placed.shown
        )

    def parts_for(self, backend: Backend) -> PreparedParts:
        """The parts, with reasons in the words of a backend that takes the same of the model."""
        own, its = _label(self.backend.placing_traits), _label(backend.placing_traits)
        if own == its or not any(own in (row.reason or "") for row in self.parts.rows):
            return self.parts
        if its not in self.relabelled:
            rows = tuple(
                tuple(
                    row
                    if row.reason is None
                    else replace(
                        row, reason=_in_words(row.reason, own, its), ep_refuses=_in_words(row.ep_refuses, own, its)
                    )
                    for row in unit
                )
                for unit in self.parts.rows_by_unit
            )
            self.relabelled[its] = replace(self.parts, rows_by_unit=rows)
        return self.relabelled[its]


class SharedPlacing:
    """What placing models on one backend leaves for the next."""

    def __init__(self) -> None:
        self._placed: list[_Placed] = []

    def prepare_model(self, model: Model, backend: Backend, request: ModelRequest = DEFAULT_REQUEST) -> PreparedParts:
        """A model placed on a backend; the model must not change from then on."""
        for placed in self._placed:
            if placed.is_of(model, backend, request):
                return placed.parts_for(backend)
        placed = _Placed(model, backend, request, prepare_model(model, backend, request))
        self._placed.append(placed)
        return placed.parts


def _label(traits: PlacingTraits | None) -> str:
    return "" if traits is None else traits.label


def _in_words(text: str, own: str, other: str) -> str:
    """A text about one chip as a text about another."""
    return text.replace(own, other) if own else text
