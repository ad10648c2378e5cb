# SPDX-License-Identifier: Apache-2.0
"""Layout: how an op depends on the order of its axes, declared with the op and read by whoever moves axes."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class Follows(enum.Enum):
    """How the value of a parameter follows a permutation of the input's axes."""

    AXIS = "axis"
    """It is the number of an axis."""
    AXES = "axes"
    """It is the numbers of several axes, whose order means nothing."""
    ENTRIES = "entries"
    """It has an entry for each axis, in their order."""
    BITS = "bits"
    """It is a mask with a bit for each axis."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How an op depends on the order of its axes.

    A `free` op computes the same whatever order they are in, once the parameters that speak of axes follow; its other
    parameters stay. An op that is not free is bound to the order it is declared for, which is channel-last.
    """

    free: bool = False
    pointwise: bool = False
    """Each output element is computed from the elements at its place alone; inputs may broadcast."""
    params: Mapping[str, Follows] = field(default_factory=dict)
    """Parameters that speak of axes."""
    together: bool = False
    """All inputs have the axes, not only the first: they move together."""
    keeps: str = ""
    """A boolean parameter; where it is false, the output loses the axes that the parameters name."""
    loses: str = ""
    """A mask of axes that the output loses."""
    adds: str = ""
    """A mask of axes that the output has besides; where there are any, the op is bound."""
    merges: bool = False
    """The output's shape says which axes become one, which are lost and which come in, in row-major order."""
    flat: int | None = None
    """An input that must have one axis; where it has more, the op is bound."""

    def permuted(self, params: Mapping[str, Any], perm: tuple[int, ...]) -> dict[str, Any]:
        """The parameters of an op whose input is transposed by `perm`."""
        moved = {name: _moved(params[name], follows, perm) for name, follows in self.params.items()}
        return {**params, **moved}

    def named(self, params: Mapping[str, Any], rank: int) -> tuple[int, ...]:
        """The axes that the parameters name."""
        axes = [params[name] for name, follows in self.params.items() if follows is Follows.AXIS]
        for name, follows in self.params.items():
            if follows is Follows.AXES:
                axes += params[name]
        return tuple(a % rank for a in axes)

    def lost(self, params: Mapping[str, Any], rank: int) -> tuple[int, ...]:
        """The axes of the input that the output does not have."""
        if self.loses:
            return tuple(a for a in range(rank) if params[self.loses] >> a & 1)
        return self.named(params, rank) if self.keeps and not params[self.keeps] else ()


def _moved(value: Any, follows: Follows, perm: tuple[int, ...]) -> Any:
    match follows:
        case Follows.AXIS:
            return perm.index(value % len(perm))
        case Follows.AXES:
            return tuple(sorted(perm.index(a % len(perm)) for a in value))
        case Follows.ENTRIES:
            return tuple(value[a] for a in perm)
        case Follows.BITS:
            return sum((value >> a & 1) << i for i, a in enumerate(perm))


BOUND = Layout()
"""The order of the axes is part of what the op means."""
POINTWISE = Layout(free=True, pointwise=True, together=True)
"""Axes mean nothing to the op."""
ALONG_AXIS = Layout(free=True, params={"axis": Follows.AXIS})
"""The op works along `axis` and does the same wherever that is."""
