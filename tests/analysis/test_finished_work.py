# SPDX-License-Identifier: Apache-2.0
"""Finished work: a job that was stopped at any byte goes on, and a damaged file is not believed."""

from __future__ import annotations

from pathlib import Path

import pytest

from hexforge.analysis.finished_work import FinishedWork
from hexforge.errors import CallError, FormatError

RESULTS = {"a.onnx": {"ms": 1.25}, "b ü\n": [1, 2, None], "c": "text"}


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """The file of a job of three tasks."""
    path = tmp_path / "job"
    with FinishedWork(path, "a job") as work:
        for key, result in RESULTS.items():
            work.add(key, result)
    return path


def test_what_was_added_is_there_when_the_job_goes_on(written: Path) -> None:
    with FinishedWork(written, "a job") as work:
        assert dict(work) == RESULTS


def test_a_job_stopped_at_any_byte_goes_on(written: Path, tmp_path: Path) -> None:
    content = written.read_bytes()
    for length in range(len(content) + 1):
        path = tmp_path / "cut"
        path.write_bytes(content[:length])
        with FinishedWork(path, "a job") as work:
            whole = content[:length].count(b"\n") - 1
            assert list(work) == list(RESULTS)[: max(whole, 0)]
            work.add("next", 1)
        with FinishedWork(path, "a job") as work:
            assert work["next"] == 1


def test_a_changed_byte_is_an_error_with_its_line(written: Path) -> None:
    content = bytearray(written.read_bytes())
    content[content.index(b"1.25")] = ord("9")
    written.write_bytes(content)
    with pytest.raises(FormatError, match="line 2 is damaged"):
        FinishedWork(written, "a job")


def test_another_job_or_another_process_does_not_take_it(written: Path) -> None:
    with pytest.raises(CallError, match="another job"):
        FinishedWork(written, "another job")
    with FinishedWork(written, "a job"), pytest.raises(CallError, match="another process"):
        FinishedWork(written, "a job")


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CallError, match="cannot be written"):
        FinishedWork(tmp_path / "none" / "job", "a job")
