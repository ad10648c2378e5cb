# SPDX-License-Identifier: Apache-2.0
"""hexforge's word on a model: what its htp backend takes, and what it says that the EP takes."""

from __future__ import annotations

from dataclasses import dataclass

from hexforge.backend import Backend
from hexforge.errors import HexforgeError
from hexforge.model.reader import read
from hexforge.runtime.prepare import prepare_model
from hexforge.runtime.registry import backend

SOC_MODEL = "60"
_ALONE = "a graph of a single QuantizeLinear or DequantizeLinear is not worth making"
_CONVERTS = ("QuantizeLinear", "DequantizeLinear")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What hexforge says of a model."""

    refused: str
    """Why htp does not take all of it, or nothing."""
    ep_refuses: str
    """Why the EP does not take all of it, or nothing."""
    nodes: int
    """How many nodes there were to place; 0 where all were folded."""


def htp() -> Backend:
    """The backend of the chip that the EP is asked for."""
    return backend("htp", {"soc_model": SOC_MODEL})


def judge(model: bytes, on: Backend) -> Verdict:
    """Place a model, and judge every unit that htp takes by the EP's limits."""
    try:
        source = read(model)
        placements = prepare_model(source, on).placed.placements
    except HexforgeError as error:
        return Verdict(f"{type(error).__name__}: {error}", f"{type(error).__name__}: {error}", 1)
    refused = [f"{p.unit.op}: {p.reason}" for p in placements if not p.taken]
    limits = [f"{p.unit.op}: {p.ep_refuses}" for p in placements if p.taken and p.ep_refuses]
    if len(placements) == 1 and placements[0].unit.target.op_type in _CONVERTS:
        limits.append(f"{placements[0].unit.op}: {_ALONE}")
    # without inputs there is nothing to compute, and the EP makes no graph of it
    nodes = len(placements) if source.ir.graph.inputs else 0
    return Verdict("; ".join(refused), "; ".join([*refused, *limits]), nodes)
