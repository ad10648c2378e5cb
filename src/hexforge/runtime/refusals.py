# SPDX-License-Identifier: Apache-2.0
"""Refusals: nodes that are refused for one reason are told together, the commonest reason first."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

NAMED = 3
"""Nodes that are named where several are refused for one reason."""
_Node = TypeVar("_Node")


def by_reason(refused: Iterable[tuple[_Node, str]]) -> list[tuple[str, list[_Node]]]:
    """Each reason with its nodes; where several have it, it is told without what is one node's own."""
    nodes_by_reason: dict[str, list[tuple[_Node, str]]] = {}
    for node, reason in refused:
        nodes_by_reason.setdefault(_general(reason), []).append((node, reason))
    ranked = sorted(nodes_by_reason.items(), key=lambda item: -len(item[1]))
    return [
        (general if len({reason for _, reason in nodes}) > 1 else nodes[0][1], [node for node, _ in nodes])
        for general, nodes in ranked
    ]


def refusal_lines(refused: Iterable[tuple[str, str]]) -> list[str]:
    """The lines of an error, one for each reason: its nodes, of many the number and the first."""
    return [
        f"  {some_of(nodes) if len(nodes) <= NAMED else f'{len(nodes)} nodes ({some_of(nodes)})'}: {reason}"
        for reason, nodes in by_reason(refused)
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
