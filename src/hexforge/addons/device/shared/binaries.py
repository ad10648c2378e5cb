# SPDX-License-Identifier: Apache-2.0
"""Binaries in messages: what a context asks of a device; its numbers and weights stay in the program that has them.

A graph that exists travels as text without weights, from which the device times it to the last digit as the program
would; figures travel as they are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import hexforge.ops  # noqa: F401 - fills the table that graphs are read by
from hexforge.addons.device.contexts.binary import Binary, GraphSpec
from hexforge.addons.device.contexts.configs import CreationConfig
from hexforge.addons.device.graph_time import Clocks, DeclaredTime, GraphTime, SimulatedTime
from hexforge.addons.device.scenario.fields import MOST_STEPS, Fields
from hexforge.addons.device.shared.messages import Message, from_json, to_json
from hexforge.chips.graph_config import GraphConfig
from hexforge.chips.soc import Soc
from hexforge.errors import CallError
from hexforge.ir import text

FIGURES = ("weights_bytes", "spill_fill_bytes", "io_bytes", "vtcm_bytes", "num_cores", "adapter_bytes")
FLAGS = ("embedded", "udma64", "secure", "lora_weight_sharing", "dlbc")
GROUPS = ("register_multi_contexts", "register_concurrent_resource_sharing")
MOST_GRAPHS = 10_000


def binary_to_json(binary: Binary) -> Message:
    """What a device must know of a binary."""
    graphs = [
        {"name": spec.name, **{key: getattr(spec, key) for key in FIGURES}, "time": _time_to_json(spec.time)}
        for spec in binary.graphs
    ]
    sizes = {"shared_bytes": binary.shared_bytes, "shared_end": binary.shared_end}
    return {"name": binary.name, **sizes, **{key: getattr(binary, key) for key in FLAGS}, "graphs": graphs}


def binary_from_json(data: Any, soc: Soc, where: str) -> Binary:
    """A binary of figures, whose graphs are timed on a chip; CallError or FormatError for what is none."""
    given = Fields(data, where)
    rows = given.list("graphs")
    if len(rows) > MOST_GRAPHS:
        raise CallError(f"{where}: {len(rows):,} graphs; a context has at most {MOST_GRAPHS:,}")
    graphs = tuple(_spec_from_json(Fields(row, f"{where}: graphs[{i}]"), soc) for i, row in enumerate(rows))
    made = Binary(
        given.text("name"), graphs, given.count("shared_bytes"), given.count("shared_end"),
        *(given.flag(key) for key in FLAGS),  # type: ignore[arg-type]
    )  # fmt: skip
    given.done()
    return made


def _spec_from_json(given: Fields, soc: Soc) -> GraphSpec:
    time = _time_from_json(Fields(given.any("time"), f"{given.where}: time"), soc)
    sizes = {key: given.count(key, low=int(key == "num_cores")) for key in FIGURES}
    made = replace(GraphSpec(given.text("name"), time=time), **sizes)  # type: ignore[arg-type]
    given.done()
    return made


def _time_to_json(time: GraphTime) -> Message:
    if isinstance(time, SimulatedTime):
        graph, config = text.dumps_without_weights(time.graph), time.config.pairs()
        return {"graph": graph, "config": config, "runtime": time.runtime, "precision": time.precision}
    if isinstance(time, DeclaredTime):
        return {"declared": to_json(time)}
    raise CallError(f"a graph whose time is a {type(time).__name__} runs on a device of its own program alone")


def _time_from_json(given: Fields, soc: Soc) -> GraphTime:
    made: GraphTime
    if given.has("declared"):
        made = from_json(DeclaredTime, Fields(given.any("declared"), f"{given.where}: declared"))
        if not 1 <= made.tasks <= MOST_STEPS or min(made.accelerator_us, made.rpc_us, made.io_us, made.energy_uj) < 0:
            raise CallError(f"{given.where}: times are 0 or more, tasks 1 to {MOST_STEPS:,}")
    else:
        pairs = Fields(given.any("config"), f"{given.where}: config")
        config = GraphConfig.parse({key: pairs.text(key) for key in given.any("config")})
        graph = text.loads_without_weights(given.text("graph"))
        made = SimulatedTime(graph, soc, config, given.text("runtime"), given.text("precision"))
        made.inference(Clocks())  # what cannot be timed is refused here, and not while it runs
    given.done()
    return made


def config_to_json(config: CreationConfig) -> Message:
    """What a context is created with; a group by the number of its first context."""
    made: Message = to_json(config, without=GROUPS)
    for name in GROUPS:
        group = getattr(config, name)
        if group is not None:
            first = group.first_group_handle
            made[name] = {"first": None if first is None else first.number, "bytes": group.max_spill_fill_buffer}
    return made
