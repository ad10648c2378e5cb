# SPDX-License-Identifier: Apache-2.0
"""What the QNN EP leaves to the CPU counts in a budget."""

from __future__ import annotations

from pathlib import Path

from hexforge.addons.budgets.gate import gate
from tests.cli.test_ep_limits import model

__all__ = ["model"]


def test_the_gate_counts_what_the_ep_leaves_to_the_cpu(model: Path, tmp_path: Path) -> None:
    budget = tmp_path / "budget.yaml"
    budget.write_text("models: [{model: model.onnx, refused_nodes: 0}]")
    found = gate(budget)
    assert not found.passes
    (check,) = [check for check in found.checks if check.what == "refused_nodes"]
    assert (check.value, check.limit) == (1, 0)
    assert "LpNormalization second: QNN EP" in check.fault
    budget.write_text("models: [{model: model.onnx, refused_nodes: 1}]")
    assert gate(budget).passes
