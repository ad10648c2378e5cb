# SPDX-License-Identifier: Apache-2.0
"""`benchmarks.llm` and `benchmarks.llm_latency`: turns of a bundle; rows of other models by the shipped costs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np

from benchmarks.llm import HexforgeBundle
from benchmarks.llm_latency import baseline, held_out_costs, predict, read_configs
from benchmarks.models.language import SHAPES
from hexforge.addons.llm.time.costs import read_costs
from hexforge.addons.llm.time.measurements import MEASURED, read_llm_measurements
from tests.addons.llm.conftest import Bundled
from tests.addons.llm.test_shape import LLAMA


def test_a_family_that_no_fit_saw_is_predicted_by_the_shipped_costs(tmp_path: Path) -> None:
    (tmp_path / "novel_3b.json").write_text(json.dumps(LLAMA))
    lines = MEASURED.read_text().splitlines()
    mine = [
        line.replace("llama_v3_2_3b_instruct,w4a16", "novel_3b,w4a16") for line in lines if "3b_instruct,w4a16" in line
    ]
    (tmp_path / "rows.csv").write_text("\n".join([lines[0], *mine]))
    shapes = read_configs(tmp_path)
    rows, unknown = read_llm_measurements(tmp_path / "rows.csv", shapes)
    assert (len(rows), unknown) == (12, [])
    costs = held_out_costs(rows, read_llm_measurements()[0])
    assert costs == {"novel": read_costs()}
    ratio = [predict(row, costs["novel"]).token_ms / row.token_ms for row in rows]
    assert 0.9 < np.median(ratio) < 1.1


def test_the_baseline_finds_a_bandwidth_and_a_cost_a_layer() -> None:
    rows = [r for r in read_llm_measurements()[0] if r.judged and r.chip == "SM8750"]
    first, token = baseline(rows)
    error = np.abs(token / [r.token_ms for r in rows] - 1)
    assert np.isfinite(first).all()
    assert np.nanmedian(error) < 0.3


def test_a_turn_of_a_bundle_reads_from_a_position_on(bundled: Bundled, tmp_path: Path) -> None:
    """A prompt from the start, and tokens behind one that may not have been read."""
    (tmp_path / "bundle").symlink_to(bundled("w8a16"))
    engine = HexforgeBundle(tmp_path, SHAPES["tiny"], 20, 512, len(os.sched_getaffinity(0)))
    engine.step(np.array([7]), 20)
    assert len(engine._session.tokens) == 21
    engine.step(np.arange(20), 0)
    engine.step(np.array([8]), 20)
    assert engine._session.tokens == [*range(20), 8]
