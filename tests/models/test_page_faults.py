# SPDX-License-Identifier: Apache-2.0
"""Runs of real models after the first ones take no memory from the system: no page faults."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.models.test_models import MODELS, QDQ, fixed, ours, quantized_model, sample  # noqa: F401 - two fixtures

pytestmark = [pytest.mark.models, pytest.mark.skipif(sys.platform != "linux", reason="Linux counts page faults")]
_RUNS = 20


def _faults(path: Path, feeds: dict[str, Any]) -> int:
    import resource

    session = ours(path)
    for _ in range(8):
        session.run(None, feeds)
    counts = []
    for _ in range(3):  # what else the process does may touch new pages once
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(_RUNS):
            session.run(None, feeds)
        counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    return min(counts)


@pytest.mark.parametrize("name", MODELS)
def test_float(name: str, fixed: Any) -> None:  # noqa: F811
    path = fixed(name)
    assert _faults(path, sample(name, path, seed=1)) == 0


@pytest.mark.parametrize(("name", "types"), QDQ)
def test_qdq(name: str, types: str, fixed: Any, quantized_model: Any) -> None:  # noqa: F811
    path = quantized_model(name, types)
    assert _faults(path, sample(name, fixed(name), seed=1)) == 0
