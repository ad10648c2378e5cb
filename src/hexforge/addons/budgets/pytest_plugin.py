# SPDX-License-Identifier: Apache-2.0
"""For pytest: a test holds a model to a budget, `@pytest.mark.hexforge(soc="SM8650", latency_ms=2.0)`.

pytest finds this module by an entry point. It imports the rest of hexforge where a test asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from hexforge.addons.budgets.gate import GateResult

MARKER = (
    "hexforge(**limits): what the models of the fixture hexforge_gate may cost, as `hexforge gate` has it in a budget"
)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line("markers", MARKER)


@pytest.fixture
def hexforge_gate(request: pytest.FixtureRequest) -> Callable[..., GateResult]:
    """A function that holds a model to limits: those of the test's marks, the nearest first, and its own.

    `hexforge_gate(model, **limits)` takes the path of a model and gives every check; the test fails where one fails.
    Limits are the fields of a model in a budget; files that they name are relative to the test's folder.
    """
    marked: dict[str, Any] = {}
    for mark in request.node.iter_markers("hexforge"):
        marked = dict(mark.kwargs) | marked

    def gate(model: str | Path, **limits: Any) -> GateResult:
        from hexforge.addons.budgets.gate import gate_model

        result = gate_model(Path(model), marked | limits, request.path.parent)
        failed = [f"{check.key}: {check.fault}" for check in result.checks if check.fault]
        if failed:
            pytest.fail("\n".join(failed), pytrace=False)
        return result

    return gate
