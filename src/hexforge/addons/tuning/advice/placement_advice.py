# SPDX-License-Identifier: Apache-2.0
"""Placement advice: which inputs to pin and which ops to replace, so that what is on the CPU comes onto the NPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hexforge.addons.tuning.advice.result import SLOWER, Advice
from hexforge.addons.tuning.advice.whole_cost import WholeCost, whole_cost
from hexforge.analysis.estimate import Estimate
from hexforge.chips.deployment import Deployment
from hexforge.errors import HexforgeError
from hexforge.model.reader import Model
from hexforge.patterns.input_numbers import setting_values

MOST_TRIED = 6
"""Inputs that are pinned, to see what it brings."""
ReadPinned = Callable[[Mapping[str, Any]], Model]


@dataclass(frozen=True, slots=True)
class PlacementTrial:
    """What is tried: a model, how it is read with inputs pinned, and what it costs as it is."""

    model: Model
    read_pinned: ReadPinned
    deployment: Deployment
    timed: Estimate
    before: WholeCost
    cpu_part: bool


def pin_advice(trial: PlacementTrial) -> list[Advice]:
    """Inputs whose pinning brings nodes onto the NPU: each alone, or all together where only that helps."""
    settings = setting_values(trial.model.ir, {row.node for row in trial.timed.left_on_cpu})
    candidates = dict(list(settings.items())[:MOST_TRIED])
    advice = [a for name, value in candidates.items() if (a := _pinned(trial, {name: value})) is not None]
    if not advice and len(candidates) > 1:
        together = _pinned(trial, candidates)
        advice = [together] if together is not None else []
    return advice


def _pinned(trial: PlacementTrial, values: Mapping[str, int | float | bool]) -> Advice | None:
    try:
        pinned = trial.read_pinned(values)
        pinned.require_static()
    except HexforgeError:
        return None
    after = whole_cost(pinned, trial.deployment, trial.cpu_part, trial.before)
    brings = trial.before.cpu_nodes - after.cpu_nodes
    if brings <= 0:
        return None
    slower = SLOWER if after >= trial.before else ""
    names = f"input{'s' if len(values) > 1 else ''} {' and '.join(values)}"
    come = f"{brings} node{' comes' if brings == 1 else 's come'} onto the NPU"
    flags = " ".join(f"--pin {name}={str(value).lower()}" for name, value in values.items())
    return Advice(
        "pin-input",
        f"Pin the {names}: {come}{slower}",
        tuple(row.node for row in trial.timed.left_on_cpu),
        tuple(f"{name} is given with every inference" for name in values),
        "The NPU's graphs are fixed when they are prepared: what an op needs to know beforehand cannot be an input.",
        f"the model with {flags.replace('--pin ', '')}, placed and timed",
        f"{flags}, with the value that the application always gives; every command that reads a model takes it.",
        False,
        trial.before.us,
        after.us,
        brings=brings,
    )


def refused_advice(timed: Estimate, before: WholeCost, solved: Sequence[Advice]) -> list[Advice]:
    """Ops that no rewrite or pin brings onto the NPU, by the reason, with what they cost at most."""
    if solved and max(advice.brings for advice in solved) >= before.cpu_nodes:
        return []
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in timed.left_on_cpu:
        reasons.setdefault((row.op_type, row.reason or ""), []).append(row.node)
    done = {node for advice in solved for node in advice.nodes}
    result = []
    for (op, reason), nodes in reasons.items():
        if done.issuperset(nodes):
            continue
        gain = _most_gained(timed, nodes)
        what, _, works = reason.partition("; ")
        count = f"{len(nodes)} {op}"
        result.append(
            Advice(
                "refused-op",
                f"Bring {count} onto the NPU, which refuses {'it' if len(nodes) == 1 else 'them'}",
                tuple(nodes),
                (f"{op}: {what}",),
                "Nodes on the CPU take its time, and cut the NPU's graph: each part is a call, with copies around it.",
                "what these nodes take on the CPU, and the calls and copies around them: the most that can be gained",
                f"{(works or reason)[:1].upper()}{(works or reason)[1:]}.",
                False,
                before.us,
                before.us - gain,
                brings=len(nodes),
            )
        )
    return result


def _most_gained(timed: Estimate, nodes: Sequence[str]) -> float:
    """The share of nodes in the time of the CPU's parts, and in the calls and copies around them."""
    wanted = set(nodes)
    gain = timed.transfers_us * len(wanted) / max(len(timed.left_on_cpu), 1)
    for part in timed.cpu.parts if timed.cpu is not None else ():
        gain += part.us * len(wanted.intersection(part.nodes)) / len(part.nodes)
    return gain
