# SPDX-License-Identifier: Apache-2.0
"""Retime: a profile's graphs timed again with other options: another mode, chip, runtime or way to prepare them.

A log has its graphs without their weights and the options they were timed under, so that it needs no model. What would
change the graph itself (its precision, fusions) needs the model: profile that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate

import hexforge.ops  # noqa: F401 - fills the table that graphs are read by
from hexforge.addons.profiler.record import MEASURED, GraphProfile, Profile
from hexforge.addons.profiler.recording.simulated import graph_profile
from hexforge.addons.profiler.recording.timing_options import FIXED, KEYS, deployment_of
from hexforge.analysis.in_turn import with_waits
from hexforge.errors import CallError
from hexforge.ir import Graph, text
from hexforge.options import did_you_mean
from hexforge.runtime.registry import timed_backend

ALIASES = {"htp_performance_mode": "performance_mode", "perf_profile": "performance_mode", "soc_model": "soc"}
"""Other public spellings of a key."""


def retime(profile: Profile, changes: Mapping[str, str]) -> Profile:
    """The profile with its graphs timed again, as many runs as before; CallError for options it cannot change."""
    changed = {ALIASES.get(key, key): value for key, value in changes.items()}
    for key in changed:
        if key in FIXED:
            raise CallError(f"{key} changes the graph itself: profile the model, a log can only be timed again")
        if key not in KEYS:
            raise CallError(
                f"{key} is no option that a log is timed under; it is one of {', '.join(KEYS)}{did_you_mean(key, KEYS)}"
            )
    if profile.source == MEASURED:
        raise CallError("a measured profile has times of this computer: it cannot be timed again, simulate the model")
    graphs = [_graph(graph) for graph in profile.graphs]
    given = [{**_pairs(graph), **changed} for graph in profile.graphs]
    if "performance_mode" in changed:  # a mode brings its own polling and corners, unless those are changed, too
        brought = ("rpc_polling_us", "adaptive_polling_us", "core_corner", "bus_corner", "hmx_corner")
        given = [{k: v for k, v in one.items() if k not in brought or k in changed} for one in given]
    deployments = [deployment_of(one) for one in given]
    if reads := next((chosen.config.reads_weights for chosen in deployments if chosen.config.reads_weights), None):
        raise CallError(f"{reads} looks at weights, which a log does not have: profile the model")
    lines = []
    for graph, chosen, one in zip(graphs, deployments, given, strict=True):
        backend = timed_backend(replace(chosen, precision="as-is"))
        batch = int(one.get("batch", "1"))
        lines.append(backend.timing(graph, chosen.precision, chosen.runtime, batch, chosen.driven).timeline)
    lines = with_waits(lines, deployments[0].driven) if lines else []
    made = []
    for old, graph, line, chosen in zip(profile.graphs, graphs, lines, deployments, strict=True):
        new = graph_profile(graph, line, profile.level, chosen)
        first = new.runs[0]
        start = old.runs[0].timestamp_us if old.runs else 0
        stamps = accumulate([first.netrun_us] * len(old.runs), initial=0.0)
        runs = tuple(replace(first, timestamp_us=start + round(us)) for _, us in zip(old.runs, stamps, strict=False))
        made.append(replace(new, name=old.name, runs=runs))
    return replace(profile, graphs=tuple(made))


def _pairs(graph: GraphProfile) -> dict[str, str]:
    return dict(pair.partition("=")[::2] for pair in graph.options)


def _graph(graph: GraphProfile) -> Graph:
    if not graph.text or not graph.options:
        raise CallError(f"graph {graph.name!r}: the log has no graph in it; profile again")
    return text.loads_without_weights(graph.text)
