# SPDX-License-Identifier: Apache-2.0
"""A limit of the EP: the units it is about, when it bites, who refuses, and how that is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from hexforge.frontends.onnx.ep_limits.subject import Subject


class Refuser(Enum):
    """Who refuses a node."""

    BUILDER = "its op builder"
    """The EP's own code that turns the node into a QNN op."""
    VALIDATION = "the HTP's op validation"
    """The backend, asked by the EP before it takes a node."""
    PREPARATION = "graph preparation, after the EP took it: the session fails"
    """Nothing refuses the node, and then there is no session."""


class Evidence(Enum):
    """How a limit is known."""

    DOCUMENTED = "documentation of the EP"
    PUBLIC = "public sources of the EP's builders"
    OBSERVED = "observed through the API of version 2.7"


@dataclass(frozen=True, slots=True)
class EpLimit:
    """One limit."""

    ops: frozenset[str]
    """Op types it is about; empty for all."""
    bites: Callable[[Subject], bool]
    reason: str
    """What is refused; what would work."""
    refuser: Refuser
    source: Evidence


def limit(ops: str, bites: Callable[[Subject], bool], reason: str, refuser: Refuser, source: Evidence) -> EpLimit:
    """A row of a table of limits; `ops` are separated by blanks."""
    return EpLimit(frozenset(ops.split()), bites, reason, refuser, source)
