# SPDX-License-Identifier: Apache-2.0
"""Who refuses a node on the EP's way to the HTP, and how that is known."""

from __future__ import annotations

from enum import StrEnum


class Refuser(StrEnum):
    """Who refuses a node."""

    BUILDER = "its op builder"
    """The EP's own code that turns the node into a QNN op."""
    VALIDATION = "the HTP's op validation"
    """The backend, asked by the EP before it takes a node."""
    PREPARATION = "graph preparation, after the EP took it: the session fails"
    """Nothing refuses the node, and then there is no session."""


class Evidence(StrEnum):
    """How a limit is known."""

    DOCUMENTED = "documentation of the EP"
    PUBLIC = "public sources of the EP's builders"
    OBSERVED = "observed through the API of version 2.7"
