# SPDX-License-Identifier: Apache-2.0
"""Binaries in messages: what a context asks of a device; its numbers and weights stay in the program that has them.

A graph that exists travels as text without weights, from which the device times it to the last digit as the program
would; figures travel as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

import hexforge.ops  # noqa: F401 - fills the table that graphs are read by
from hexforge.addons.device.contexts.binary import Binary, GraphSpec
from hexforge.addons.device.contexts.configs import CreationConfig, FirstHandle, GroupRegistration
from hexforge.addons.device.graph_time import Clocks, DeclaredTime, GraphTime, SimulatedTime
from hexforge.addons.device.shared.messages import Message, to_json
from hexforge.chips.deployment import AS_IS
from hexforge.chips.graph_config import GraphConfig
from hexforge.chips.soc import Soc
from hexforge.errors import CallError
from hexforge.formats.validated import Count, Within, arguments
from hexforge.ir import text

_BINARY_STAYS, _GRAPH_STAYS = ("graphs", "source", "_first"), ("time", "inputs", "outputs")
"""Fields of a binary and of its graphs that stay in the program, or are written in another way."""
GROUPS = ("register_multi_contexts", "register_concurrent_resource_sharing")
MOST_GRAPHS = 10_000


def binary_to_json(binary: Binary) -> Message:
    """What a device must know of a binary."""
    graphs = [{**to_json(spec, without=_GRAPH_STAYS), "time": _time_to_json(spec.time)} for spec in binary.graphs]
    return {**to_json(binary, without=_BINARY_STAYS), "graphs": graphs}


@dataclass(frozen=True, slots=True)
class _TimeMessage:
    """The time of a graph that exists, or declared figures."""

    declared: DeclaredTime | None = None
    graph: str = ""
    config: dict[str, str] = field(default_factory=dict)
    runtime: str = "qnn_dlc"
    precision: str = AS_IS


def binary_from_json(data: Message, soc: Soc, where: str) -> Binary:
    """A binary of figures, whose graphs are timed on a chip; CallError or FormatError for what is none."""
    rows = Annotated[list[dict[str, Any]], Within(0, MOST_GRAPHS)]
    given = arguments(Binary, data, where, without=("source", "_first"), graphs=rows)
    specs = []
    for i, row in enumerate(given.pop("graphs")):
        spec = arguments(GraphSpec, row, f"{where}: graphs[{i}]", without=("inputs", "outputs"), time=_TimeMessage)
        specs.append(GraphSpec(**{**spec, "time": _time(spec.get("time", _TimeMessage()), soc)}))
    return Binary(graphs=tuple(specs), **given)


def _time(given: _TimeMessage, soc: Soc) -> GraphTime:
    if given.declared is not None:
        return given.declared
    config, graph = GraphConfig.parse(given.config), text.loads_without_weights(given.graph)
    made = SimulatedTime(graph, soc, config, given.runtime, given.precision)
    made.inference(Clocks())  # what cannot be timed is refused here, and not while it runs
    return made


def _time_to_json(time: GraphTime) -> Message:
    if isinstance(time, SimulatedTime):
        graph, config = text.dumps_without_weights(time.graph), time.config.pairs()
        return {"graph": graph, "config": config, "runtime": time.runtime, "precision": time.precision}
    if isinstance(time, DeclaredTime):
        return {"declared": to_json(time)}
    raise CallError(f"a graph whose time is a {type(time).__name__} runs on a device of its own program alone")


def config_to_json(config: CreationConfig) -> Message:
    """What a context is created with; a group by the number of its first context."""
    made: Message = to_json(config, without=GROUPS)
    for name in GROUPS:
        group = getattr(config, name)
        if group is not None:
            first = group.first_group_handle
            made[name] = {"first": None if first is None else first.number, "bytes": group.max_spill_fill_buffer}
    return made


@dataclass(frozen=True, slots=True)
class _Group:
    """The group of a context, by the number of its first one."""

    first: Count | None
    bytes: Count


def config_from_json(data: Message, context_of: Callable[[int], FirstHandle]) -> CreationConfig:
    """What a context is created with; `context_of` is the context of a number."""
    given = arguments(CreationConfig, data, "config", without=(), **dict.fromkeys(GROUPS, _Group | None))
    for name in GROUPS:
        if (group := given.get(name)) is not None:
            first = None if group.first is None else context_of(group.first)
            given[name] = GroupRegistration(first, group.bytes)
    return CreationConfig(**given)
