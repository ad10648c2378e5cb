# SPDX-License-Identifier: Apache-2.0
"""Idle options: what a graph was asked for that changes no time, and why; the graph is timed again without each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hexforge.amounts import size
from hexforge.chips.deployment import AS_IS
from hexforge.chips.graph_config import LEVEL, VTCM, GraphConfig, vtcm_text
from hexforge.errors import HexforgeError
from hexforge.options import Option
from hexforge.runtime.registry import timed_backend

if TYPE_CHECKING:
    from hexforge.analysis.estimate import Estimate

PLAIN = GraphConfig()


def idle_options(timed: Estimate) -> list[str]:
    """A sentence for each option of a graph that was asked for and without which it takes as long.

    A context's graphs were prepared before, so they are left out, as estimates are that keep no graphs.
    """
    if not timed.graphs or timed.weights_bytes is not None:
        return []
    config, said = timed.deployment.config, []
    for option in GraphConfig.table():
        asked = getattr(config, option.name)
        if asked == getattr(PLAIN, option.name) or (option.name == LEVEL and config.level == PLAIN.level):
            continue
        if option.command_line and (reason := _reason_for_no_effect(timed, option)) is not None:
            said.append(f"{option.command_line} changes no time: {reason}")
    return said


def _reason_for_no_effect(timed: Estimate, option: Option) -> str | None:
    """Why the model takes as long without an option; None where it does not."""
    field = option.name
    config = replace(timed.deployment.config, **{field: getattr(PLAIN, field)})
    deployment = replace(timed.deployment, config=config)
    backend, line = timed_backend(deployment), timed.timeline
    precision = AS_IS if timed.built else deployment.precision
    try:
        others = [
            backend.timing(graph, precision, deployment.runtime, line.batch, deployment.driven).timeline
            for graph in timed.graphs
        ]
    except HexforgeError:
        return None  # without it the graph does not fit, so it acts
    if abs(sum(other.accelerator_us for other in others) - line.accelerator_us) > 1e-9 * line.accelerator_us:
        return None
    more = line.dram_bytes - sum(other.dram_bytes for other in others)
    if field in (VTCM, "vtcm_size"):
        needs = (
            "nothing moves for want of it" if more <= 0 else f"{size(more)} more pass through DRAM, beside other work"
        )
        return f"{needs}; it is as fast with all {vtcm_text(timed.vtcm_size_bytes)}"
    return option.idle or "nothing in the model asks for it"
