# SPDX-License-Identifier: Apache-2.0
"""Tests that ask LiteRT run where it is installed (`make litert`)."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is marked litert where there is none."""
    if find_spec("ai_edge_litert") is not None:
        return
    for item in items:
        if item.get_closest_marker("litert") is not None:
            item.add_marker(pytest.mark.skip(reason="ai-edge-litert is not installed; `make litert` does that"))
