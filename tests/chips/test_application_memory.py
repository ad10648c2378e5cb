# SPDX-License-Identifier: Apache-2.0
"""The memory of a process: what it depends on by host and runtime, and that an estimate has it."""

from __future__ import annotations

from dataclasses import replace

import pytest

import hexforge
from benchmarks.latency.memory import is_aside
from hexforge.addons.latency.measurements import read_families
from hexforge.chips.application_memory import PEAKS, ModelSizes, peak_bytes, platform_of
from tests.addons.device import tiny

MB = 1 << 20
SIZES = ModelSizes(4 * MB, 40 * MB, 100 * MB)


def test_hosts_of_chips() -> None:
    assert [platform_of(chip) for chip in ("SM8650", "SA8775P", "QCS9075", "SC8380XP")] == [
        "android", "android", "linux", "windows",
    ]  # fmt: skip


@pytest.mark.parametrize(("platform", "runtime"), PEAKS)
def test_a_larger_model_never_takes_less(platform: str, runtime: str) -> None:
    costs = PEAKS[platform, runtime]
    before = costs.bytes(SIZES)
    for field in ("io_bytes", "weight_bytes", "activation_bytes"):
        assert costs.bytes(replace(SIZES, **{field: 10 * getattr(SIZES, field)})) >= before
    assert before > costs.base_mb * MB > 0


def test_what_was_not_measured_has_no_figure() -> None:
    assert peak_bytes(SIZES, "SC8380XP", "tflite") is None
    assert peak_bytes(SIZES, "QCS9075", "qnn_dlc") == round(3.0 * MB + 1.75 * 4 * MB)


def test_an_estimate_has_the_memory_of_the_device_and_of_the_process() -> None:
    estimated = hexforge.estimate(tiny.conv(), "SM8650")
    facts = estimated.to_json()
    assert facts["memory_bytes"] == estimated.memory_bytes >= estimated.io_bytes > 0
    assert facts["application_bytes"] == estimated.application_bytes == peak_bytes(estimated.sizes, "SM8650", "qnn_dlc")
    assert hexforge.estimate(tiny.conv(), "SM8650", batch=4).memory_bytes > estimated.memory_bytes


def test_some_families_are_kept_aside() -> None:
    families = {family.name for family in read_families().values()}
    assert 0 < sum(map(is_aside, families)) < len(families) / 2
