# SPDX-License-Identifier: Apache-2.0
"""Numbers of budgets, baselines and scenarios that are no limits: refused in a sentence, never passed."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from hexforge.addons.budgets.gate import GateCheck, read_baseline
from hexforge.addons.budgets.limits import load
from hexforge.addons.device.scenario.script import parse_script, read_script
from hexforge.errors import CallError, FormatError

DIGITS = "9" * 5000


@pytest.mark.parametrize("number", [".nan", ".inf", "-.inf", "1e999"])
@pytest.mark.parametrize("key", ["latency_ms", "context_mb", "spill_fill_mb"])
def test_a_limit_is_a_finite_number(tmp_path: Path, key: str, number: str) -> None:
    file = tmp_path / "budget.yaml"
    file.write_text(f"models:\n- model: m.onnx\n  {key}: {number}\n")
    with pytest.raises(CallError, match=key):
        load(file)


def test_a_number_of_thousands_of_digits_is_an_error_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "budget.yaml"
    for text in (f"models:\n- model: m.onnx\n  latency_ms: {DIGITS}\n", f"models: [{DIGITS}]"):
        file.write_text(text)
        with pytest.raises((CallError, FormatError), match=r"budget\.yaml"):
            load(file)
    file.write_text(json.dumps({"figures": {"a": 1}}).replace("1", DIGITS))
    with pytest.raises((CallError, FormatError), match=r"budget\.yaml"):
        read_baseline(file)
    file.write_text('{"processes": [{"steps": [{"do": "sleep", "us": ' + DIGITS + "}]}]}")
    with pytest.raises((CallError, FormatError), match=r"budget\.yaml"):
        read_script(file)


@pytest.mark.parametrize("figure", ["NaN", "Infinity", "1e999", "1" + "0" * 400, "true"])
def test_a_baseline_has_finite_figures(tmp_path: Path, figure: str) -> None:
    file = tmp_path / "main.json"
    file.write_text(f'{{"figures": {{"a": {figure}}}}}')
    with pytest.raises(CallError, match="finite numbers"):
        read_baseline(file)


@pytest.mark.parametrize("better", [False, True])
def test_what_cannot_be_compared_does_not_pass(better: bool) -> None:
    assert GateCheck("m", "sqnr_db", math.nan, 30.0, better).fault == "nan cannot be held against the limit 30"
    assert GateCheck("m", "sqnr_db", 31.0, math.nan, better).fault
    assert GateCheck("m", "sqnr_db", math.nan, None, better, baseline=3.0, regression_percent=1.0).fault
    assert not GateCheck("m", "sqnr_db", 30.0, 30.0, better).fault


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("tasks", 10**9, "tasks is 1000000000: expected a whole number of at least 1 and at most 1,000,000"),
        ("us", 10**400, "expected a number of at least 0 and at most"),
        ("us", math.nan, "us is nan"),
        ("weights_mb", 1e300, "weights_mb is 1e\\+300: expected a number"),
    ],
)
def test_a_scenario_has_an_end(field: str, value: float, message: str) -> None:
    graph = {"name": "g", field: value}
    with pytest.raises(CallError, match=message):
        parse_script({"binaries": {"b": {"graphs": [graph]}}, "processes": [{"name": "app", "threads": []}]})
