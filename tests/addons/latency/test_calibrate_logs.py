# SPDX-License-Identifier: Apache-2.0
"""Times for `hexforge calibrate` out of what tools write: AI Hub, qnn-profile-viewer, onnxruntime_perf_test."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hexforge.addons.latency.calibrate_command import read_rows, time_in_log
from hexforge.errors import FormatError

AI_HUB = json.dumps({"execution_summary": {"estimated_inference_time": 1234, "all_inference_times": [1300, 1234]}})
VIEWER = """Execute Stats (Run 1):
---------------------
Total Inference Time:
---------------------
   NetRun:  2500 us
Execute Stats (Average):
------------------------
Total Inference Time:
---------------------
   NetRun:  2000 us
"""
PERF_TEST = (
    "Session creation time cost: 0.2 s\nTotal inference time cost:0.734 s\nAverage inference time cost:7.34 ms\n"
)


@pytest.mark.parametrize(
    ("text", "taken"),
    [(AI_HUB, 1.234), (VIEWER, 2.0), (VIEWER.partition("Execute Stats (Average)")[0], 2.5), (PERF_TEST, 7.34)],
)
def test_a_log_has_the_time_of_an_inference(text: str, taken: float, tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(text)
    assert time_in_log(tmp_path / "log.txt") == pytest.approx(taken)
    (tmp_path / "times.csv").write_text("model,soc,measured_ms,log\na.onnx,SM8650,,log.txt\nb.onnx,SM8650,3.5,\n")
    assert [float(row["measured_ms"]) for row in read_rows(tmp_path / "times.csv")] == pytest.approx([taken, 3.5])


@pytest.mark.parametrize("text", ["", "{}", '{"execution_summary": []}', "{", "nothing of a time", "\xff"])
def test_another_file_is_refused_with_what_would_do(text: str, tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_bytes(text.encode("latin-1"))
    with pytest.raises(FormatError, match=r"log\.txt"):
        time_in_log(tmp_path / "log.txt")


def test_a_row_without_a_time_and_without_a_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "times.csv").write_text("model,soc,measured_ms,log\na.onnx,SM8650,,\n")
    with pytest.raises(FormatError, match="line 2: a row has model, soc and measured_ms, or a log"):
        read_rows(tmp_path / "times.csv")
