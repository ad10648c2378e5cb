# SPDX-License-Identifier: Apache-2.0
"""Fusions: units that become one QNN op together, tried in order at the op they start with."""

from __future__ import annotations

from collections.abc import Sequence

from hexforge.frontends.onnx.fusions import compute, dynamic, linear
from hexforge.frontends.onnx.fusions import moves as movement
from hexforge.frontends.onnx.fusions.net import Fusion, Net
from hexforge.frontends.onnx.translate.builder import Translator
from hexforge.frontends.onnx.unit import Unit

FUSIONS: tuple[Fusion, ...] = (*compute.FUSIONS, *dynamic.FUSIONS, *linear.FUSIONS, *movement.FUSIONS)
"""Every fusion; of those that start at one op, the first that matches is taken."""

FUSED: dict[str, Translator] = {fusion.kind: fusion.write for fusion in FUSIONS}
"""Kind of a fused unit -> the function that writes it."""

_BY_START: dict[str, tuple[Fusion, ...]] = {
    start: tuple(f for f in FUSIONS if start in f.starts) for fusion in FUSIONS for start in fusion.starts
}


def fuse_units(units: Sequence[Unit]) -> list[Unit]:
    """`units`, in topological order, with those a fusion matches joined."""
    net = Net(units)
    for unit in units:
        if unit not in net.units or unit.kind.is_fusion:
            continue
        for fusion in _BY_START.get(unit.op, ()):
            joined = fusion.match(net, unit)
            if joined is not None:
                net.replace_parts(joined)
                break
    return sorted(net.units, key=net.order.__getitem__)
