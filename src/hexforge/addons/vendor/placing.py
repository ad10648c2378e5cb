# SPDX-License-Identifier: Apache-2.0
"""Placing: which nodes Qualcomm's package places where, and what hexforge says of them by the provider's rules."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hexforge.addons.vendor.session import VendorPlacement
from hexforge.frontends.onnx.placing import CONVERTS
from hexforge.results import Key, Result, rows
from hexforge.runtime.cpu_part import QNN
from hexforge.runtime.prepare import PreparedParts

NPU, CPU = "NPU", "CPU"


@dataclass(frozen=True, slots=True)
class PlacedOtherwise(Result):
    """A node that the two place otherwise."""

    node: str
    op: str
    vendor: str
    """NPU or CPU."""
    hexforge: str
    reason: str
    """Why hexforge leaves it to the CPU, or that it knows of no reason."""


@dataclass(frozen=True, slots=True)
class PlacementComparison(Result):
    """How two placements of one model compare; nodes that onnxruntime's own rewriting changed are left out."""

    compared: int
    on_npu: int
    left_on_cpu: tuple[tuple[str, str, str], ...]
    """Op, name and hexforge's reason of each node that both leave to the CPU."""
    differences: tuple[PlacedOtherwise, ...]

    described = (
        "alike",
        Key("nodes_compared", of="compared"),
        "on_npu",
        Key("left_on_cpu", of=rows("left_on_cpu", "op node reason")),
        "differences",
    )

    @property
    def alike(self) -> bool:
        """True where every node is placed alike."""
        return not self.differences


def compare_placement(parts: PreparedParts, theirs: VendorPlacement) -> PlacementComparison:
    """The package's placement compared with that of `parts`, which obey the provider's rules."""
    ours = {row.node: row for row in parts.rows}
    sides = {name: (op, NPU) for op, name in theirs.taken} | {name: (op, CPU) for op, name in theirs.left}
    left: list[tuple[str, str, str]] = []
    differences: list[PlacedOtherwise] = []
    unknown: Counter[tuple[str, str]] = Counter()
    compared = on_npu = 0
    for name, (op, side) in sides.items():
        row = ours.get(name)
        if row is None:
            unknown[op, side] += 1
            continue
        compared += 1
        on_npu += side == NPU
        here = NPU if row.where == QNN else CPU
        if here != side:
            reason = row.reason or "hexforge knows of no reason to leave it to the CPU"
            differences.append(PlacedOtherwise(name, op, side, here, reason))
        elif side == CPU:
            left.append((op, name, row.reason or ""))
    # onnxruntime copies conversions and gives them other names; a copy on the other side stands for the original
    kept = []
    for difference in differences:
        copies = (difference.op, difference.hexforge)
        if difference.op in CONVERTS and unknown[copies]:
            unknown[copies] -= 1
        else:
            kept.append(difference)
    for (op, side), count in unknown.items():
        if side == CPU and op not in CONVERTS:
            kept += [PlacedOtherwise(f"one more {op}", op, CPU, NPU, "onnxruntime's own rewriting made it")] * count
    return PlacementComparison(compared, on_npu, tuple(left), tuple(kept))
