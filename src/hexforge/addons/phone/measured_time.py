# SPDX-License-Identifier: Apache-2.0
"""MeasuredTime: what a model took on a phone, compared with the estimate for its chip."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hexforge.addons.phone.adb_device import AdbDevice, DeviceRunError
from hexforge.analysis.estimate import estimate
from hexforge.chips.deployment import Deployment
from hexforge.chips.power import Power
from hexforge.chips.soc import Soc, require_chip
from hexforge.formats.files import write_atomically
from hexforge.results import Key, Result

COLUMNS = ("model", "soc", "precision", "runtime", "measured_ms")
"""What a row of a file of measured times has, which `hexforge calibrate` reads."""
MODE = "burst"
"""The performance mode that models are timed in unless their options name one."""
_AVERAGE = re.compile(r"Average inference time cost:\s*([\d.]+)\s*ms")


@dataclass(frozen=True, slots=True)
class MeasuredTime(Result):
    """A model's time on a phone, and the estimate with the band of nine in ten, in ms."""

    soc: str
    is_virtual: bool
    serial: str
    measured_ms: float
    estimate_ms: float
    low_ms: float
    high_ms: float

    described = (
        Key("phone", of="serial"),
        Key("virtual", of="is_virtual"),
        "soc measured_ms estimate_ms low_ms high_ms",
    )
    decimals = 4

    def lines(self) -> Iterator[str]:
        """What a command prints of it."""
        kind = "a virtual phone, whose time is the simulated device's" if self.is_virtual else "measured"
        yield f"{self.measured_ms:.3f} ms on {self.serial} ({kind})"
        band = f"{self.low_ms:.3f} to {self.high_ms:.3f} in nine of ten"
        yield f"{self.estimate_ms:.3f} ms estimated on {self.soc}, {band}"


def chip_of(device: AdbDevice) -> Soc:
    """The chip that a phone says it has."""
    return require_chip(device.adb("shell", "getprop ro.soc.model").strip())


def with_estimate(
    device: AdbDevice, printed: str, model: Path, soc: str, costs: Path | None = None, mode: str = MODE
) -> MeasuredTime:
    """The average time that a program printed on a phone, with the estimate of the model in a performance mode."""
    match = _AVERAGE.search(printed)
    if match is None or float(match[1]) <= 0:
        raise DeviceRunError(f"{device.serial}: no average time was printed there: {printed[-500:]!r}")
    cost_file = str(costs.absolute()) if costs else ""
    timed = estimate(model, Deployment(soc, runtime="onnx", power=Power(mode), cost_file=cost_file))
    return MeasuredTime(
        soc, device.is_virtual, device.serial, float(match[1]), timed.latency_ms, timed.low_ms, timed.high_ms
    )


def add_row(table: Path, model: Path, time: MeasuredTime) -> None:
    """Add a row to a CSV file of measured times, which is made where it is not there."""
    before = table.read_text("utf-8") if table.exists() else ",".join(COLUMNS) + "\n"
    deployment = Deployment(time.soc, runtime="onnx")
    row = io.StringIO()
    csv.writer(row, lineterminator="\n").writerow(
        [model.absolute(), time.soc, deployment.precision, deployment.runtime, time.measured_ms]
    )
    write_atomically(table, (before + row.getvalue()).encode())
