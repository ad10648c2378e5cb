# SPDX-License-Identifier: Apache-2.0
"""Timing options: what a profile's graph was timed under, as the KEY=VALUE pairs and the text that a log has of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from hexforge.chips.deployment import Deployment
from hexforge.chips.graph_config import TIME_ALONE, GraphConfig
from hexforge.chips.power import Corner, Power
from hexforge.errors import CallError, FormatError

PLACE = ("soc", "runtime", "cost_file")
"""Options of a deployment itself."""
FIXED = ("precision", "backend", "batch")
"""Options that are kept and cannot be changed without the model."""
GRAPH = tuple(option.key for option in GraphConfig.table() if option.name in TIME_ALONE)
"""Options of a graph that change its time alone."""
POWER = {field.name: str(field.type) for field in fields(Power)}
KEYS = (*PLACE, *POWER, *GRAPH)
"""What can be changed."""


def options_of(deployment: Deployment, batch: int = 1) -> tuple[str, ...]:
    """What a graph is timed under, as KEY=VALUE."""
    plain, power, config = Power(), deployment.power, deployment.config.pairs()
    made = {"soc": deployment.soc, "precision": deployment.precision, "runtime": deployment.runtime}
    made |= {"backend": deployment.backend, "batch": str(batch), "performance_mode": power.performance_mode}
    if deployment.cost_file:
        made["cost_file"] = deployment.cost_file
    for name in POWER:
        if (value := getattr(power, name)) != getattr(plain, name):
            made[name] = value.name if isinstance(value, Corner) else str(value)
    return tuple(f"{key}={value}" for key, value in {**made, **config}.items())


def deployment_of(options: Mapping[str, str]) -> Deployment:
    """The deployment that options describe; FormatError for what is none."""
    rest = {key: value for key, value in options.items() if key not in (*PLACE, *FIXED, *POWER)}
    power = {name: _power_value(name, options[name]) for name in POWER if name in options}
    try:
        return Deployment(
            options["soc"], options["precision"], options["runtime"], GraphConfig.parse(rest), Power(**power),
            options["backend"], cost_file=options.get("cost_file", ""),
        )  # fmt: skip
    except KeyError as error:
        raise FormatError(f"the log does not say what its graph was timed under: {error} is missing") from None


def _power_value(name: str, given: str) -> Any:
    kind = POWER[name]
    if given == "None":
        return None
    if kind == "str":
        return given
    if "Corner" in kind:
        if given not in Corner.__members__:
            raise CallError(f"{name}={given}: expected a corner: {', '.join(Corner.__members__)}")
        return Corner[given]
    try:
        return float(given) if kind == "float" else int(given)
    except ValueError:
        raise CallError(f"{name}={given}: expected a number") from None
