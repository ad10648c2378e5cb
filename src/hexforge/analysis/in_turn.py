# SPDX-License-Identifier: Apache-2.0
"""In turn: graphs of one model that are called one after the other, again and again, and what each call waits for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hexforge.chips.power import Power
from hexforge.timeline import Timeline


def with_waits(lines: Sequence[Timeline], power: Power) -> list[Timeline]:
    """The timelines with what each call waits for where the one before it is another graph's."""
    calls = [(line.accelerator_us, line.rpc_us + line.io_us) for line in lines]
    return [replace(line, wait_us=us) for line, us in zip(lines, power.waits_us(calls), strict=True)]
