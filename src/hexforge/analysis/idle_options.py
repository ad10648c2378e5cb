# SPDX-License-Identifier: Apache-2.0
"""Idle options: what a graph was asked for that changes no time, and why; the graph is timed again without each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from hexforge.amounts import size
from hexforge.chips.deployment import AS_IS
from hexforge.chips.graph_config import LEVEL, VTCM, GraphConfig, vtcm_text
from hexforge.errors import HexforgeError
from hexforge.runtime.registry import timed_backend

if TYPE_CHECKING:
    from hexforge.analysis.estimate import Estimate

PLAIN = GraphConfig()
REASONS: Mapping[str, str] = {
    LEVEL: "levels differ in how much of VTCM holds weights fetched ahead, and no wait is shorter or longer for it; "
    "what else QNN does at a level is not published",
    "fold_relu_activation_into_conv_off": "no activation follows a convolution: a quantized model's Relu and Clip are "
    "the range of the convolution's own result",
    "short_depth_conv_on_hmx_off": "no convolution reads less than 32 channels",
    "monolithic_lstm": "there is no Lstm and no Gru",
    "dlbc": "no activation passes through DRAM that anything waits for",
    "dlbc_weights": "nothing waits for weights",
    "slc_alloc_enable": "no activation passes through DRAM that anything waits for",
}
"""Why an option changes no time, where it does not."""


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
        if option.command_line and (reason := _reason_for_no_effect(timed, option.name)) is not None:
            said.append(f"{option.command_line} changes no time: {reason}")
    return said


def _reason_for_no_effect(timed: Estimate, field: str) -> str | None:
    """Why the model takes as long without an option; None where it does not."""
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
    return REASONS.get(field, "nothing in the model asks for it")
