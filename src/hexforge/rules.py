# SPDX-License-Identifier: Apache-2.0
"""Rules: what is refused of which ops, when, why, and how that is known; and refusals told, each reason once.

Everything that is refused is a row of a table: `backends/htp/support.py`, `addons/gpu/support.py`,
`frontends/onnx/ep_limits` and `addons/qnn_graphs/library_limits.py`. Each table judges something of its own: a node, a
node on a chip, a unit of a model.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from hexforge.errors import UnsupportedError
from hexforge.ir import Graph, Node

T = TypeVar("T")
NAMED = 3
"""Nodes that are named where several are refused for one reason."""


@dataclass(frozen=True, slots=True)
class Rule(Generic[T]):
    """Something that is refused."""

    ops: frozenset[str]
    """Ops that it is about; empty for all."""
    applies: Callable[[T], bool | str | None]
    """Whether it is broken; where that needs names or numbers, the reason with them."""
    reason: str
    """What is refused; what would work."""
    evidence: str
    """How that is known."""
    refuser: str = ""
    """Who refuses it."""

    @classmethod
    def of(
        cls, ops: str, applies: Callable[[T], bool | str | None], reason: str, evidence: str, refuser: str = ""
    ) -> Rule[T]:
        """A row of a table; `ops` are separated by blanks, `*` is all of them."""
        if not ops.split():
            raise ValueError(f"{reason}: a rule names its ops, or * for all")
        return cls(frozenset() if ops == "*" else frozenset(ops.split()), applies, reason, evidence, refuser)

    def refusal(self, subject: T) -> str | None:
        """Why it refuses something, and what would work; None where it does not."""
        said = self.applies(subject)
        return said if isinstance(said, str) else self.reason if said else None


class RuleTable(Generic[T]):
    """Rules that are tried in order: the first that is broken is the reason."""

    def __init__(self, rows: Iterable[Rule[T]]) -> None:
        self._rows = tuple(rows)
        self._by_op: dict[str, tuple[Rule[T], ...]] = {}

    def __iter__(self) -> Iterator[Rule[T]]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def of(self, op: str) -> tuple[Rule[T], ...]:
        """The rules that an op can break."""
        if op not in self._by_op:
            self._by_op[op] = tuple(row for row in self._rows if not row.ops or op in row.ops)
        return self._by_op[op]

    def refusal(self, op: str, subject: T) -> tuple[Rule[T], str] | None:
        """The first rule that something of an op breaks, and why it is refused; None where it breaks none."""
        for row in self.of(op):
            if (reason := row.refusal(subject)) is not None:
                return row, reason
        return None


# -- refusals told ----------------------------------------------------------------------------------------------------

_Node = TypeVar("_Node")


def require_taken(graph: Graph, unsupported: Callable[[Node], str | None], taker: str) -> None:
    """UnsupportedError that names every node of a graph that is refused, each reason once."""
    refused = [(f"{node.name!r} ({node.op.name})", why) for node in graph.nodes if (why := unsupported(node))]
    if refused:
        lines = "\n".join(refusal_lines(refused))
        raise UnsupportedError(f"{taker} refuses {len(refused)} of {len(graph.nodes)} nodes:\n{lines}")


def refusal_lines(refused: Iterable[tuple[str, str]]) -> list[str]:
    """The lines of an error, one for each reason: its nodes, of many the number and the first."""
    return [
        f"  {some_of(nodes) if len(nodes) <= NAMED else f'{len(nodes)} nodes ({some_of(nodes)})'}: {reason}"
        for reason, nodes in by_reason(refused)
    ]


def by_reason(refused: Iterable[tuple[_Node, str]]) -> list[tuple[str, list[_Node]]]:
    """Each reason with its nodes, the commonest first; where several have it, without what is one node's own."""
    grouped: dict[str, list[tuple[_Node, str]]] = {}
    for node, reason in refused:
        grouped.setdefault(_general(reason), []).append((node, reason))
    ranked = sorted(grouped.items(), key=lambda item: -len(item[1]))
    return [
        (general if len({reason for _, reason in nodes}) > 1 else nodes[0][1], [node for node, _ in nodes])
        for general, nodes in ranked
    ]


def some_of(names: list[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def counted(names: Iterable[str]) -> list[str]:
    """Names with how often they come, in order of first appearance."""
    return [name if n == 1 else f"{name} x{n}" for name, n in Counter(names).items()]


def _general(reason: str) -> str:
    """A reason without the tensors it names and the QNN ops it is of."""
    unnamed = re.sub(r"'[^']*'", "…", reason)
    parts = re.split(r"(?:^|; )[A-Z]\w+: ", unnamed)
    return "; ".join(dict.fromkeys(part for part in parts if part)) or reason
