# SPDX-License-Identifier: Apache-2.0
"""`hexforge calibrate`: a file of costs of one's own, from times measured on a device."""

from __future__ import annotations

import csv
import json
import re
import statistics
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from hexforge.cli.screen import console, spinner, table
from hexforge.errors import CallError, FormatError
from hexforge.request_fields import argument, required

_PERF_TEST = re.compile(r"Average (?:inference )?time cost:\s*([\d.]+)\s*ms")
_NETRUN = re.compile(r"NetRun[^:\n]*:\s*(\d+)\s*us")


def calibrate(
    measured: Path = argument("CSV: model, soc, measured_ms or log; precision, runtime.", exists=True, dir_okay=False),
    soc: str = required("The chip whose rows are read and whose factors are fitted."),
    out: Path = required("The file of costs that is written.", "-o", "--output"),
) -> None:
    """Fit what makes a chip to times that were measured on a device; `estimate --costs` reads the file it writes.

    The file of times is one row for each model: `hexforge phone measure --add-to FILE` writes such rows. In place of
    a time a row may have a `log`: AI Hub's profile JSON, or what qnn-profile-viewer or onnxruntime_perf_test printed.
    """
    from hexforge.addons.latency.calibration import fit_factors
    from hexforge.addons.latency.cost_file import calibrated_costs
    from hexforge.analysis.estimate import estimate
    from hexforge.analysis.timed_graphs import timed_graphs
    from hexforge.chips.deployment import Deployment
    from hexforge.chips.soc import require_chip
    from hexforge.formats.files import require_writable, write_atomically

    chip = require_chip(soc)
    require_writable(out)
    rows = [row for row in read_rows(measured) if require_chip(row["soc"]) is chip]
    if not rows:
        raise CallError(f"{measured}: has no rows of {chip.name}")
    with spinner(f"reading {len(rows)} models"), tempfile.TemporaryDirectory() as scratch:
        deployments = [
            Deployment(chip.name, row.get("precision") or "as-is", row.get("runtime") or "qnn_dlc") for row in rows
        ]
        graphs = [timed_graphs(row["model"], deployment) for row, deployment in zip(rows, deployments, strict=True)]
        count = 0

        def predict(multiplied: Mapping[str, float]) -> list[float]:
            nonlocal count
            count += 1
            path = Path(scratch) / f"costs_{count}.json"  # estimates keep what they read, by name
            path.write_text(json.dumps(calibrated_costs(chip, multiplied, "trial")))
            under = [replace(deployment, cost_file=str(path)) for deployment in deployments]
            return [estimate(g, d, cpu_part=False).latency_ms for g, d in zip(graphs, under, strict=True)]

        times = [float(row["measured_ms"]) for row in rows]
        before = predict({})
        multiplied = fit_factors(times, predict)
        after = predict(multiplied)
    source = f"calibrated on {len(rows)} measured times of {chip.name}: {measured.name}"
    write_atomically(out, (json.dumps(calibrated_costs(chip, multiplied, source), indent=1) + "\n").encode())
    lines = [
        (Path(row["model"]).name, f"{ms:.3f}", f"{old:.3f}", f"{new:.3f}")
        for row, ms, old, new in zip(rows, times, before, after, strict=True)
    ]
    screen = console()
    screen.print(table(f"{chip.name}, ms", ("model", "measured", "estimated before", "after"), lines))
    screen.print(", ".join(f"{name} x {value:.3f}" for name, value in multiplied.items()))
    screen.print(f"{out}: hexforge estimate MODEL --soc {chip.name} --costs {out}")


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a file of measured times; FormatError with the line for one that is none.

    A row names a time, or a `log` that has it: the file that a tool wrote, relative to the table.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FormatError(f"{path}: cannot be read: {error}") from None
    for number, row in enumerate(rows, 2):
        where = f"{path}, line {number}"
        if row.get("log") and not row.get("measured_ms"):
            row["measured_ms"] = str(time_in_log(path.parent / row["log"]))
        if any(not row.get(name) for name in ("model", "soc", "measured_ms")):
            raise FormatError(f"{where}: a row has model, soc and measured_ms, or a log that has the time")
        try:
            taken = float(row["measured_ms"])
        except ValueError:
            taken = 0.0
        if not 0 < taken < 1e7:
            raise FormatError(f"{where}: measured_ms is {row['measured_ms']!r}; it is a time in ms")
    return rows


def time_in_log(path: Path) -> float:
    """The milliseconds of an inference in what a tool wrote; FormatError for another file.

    AI Hub's profile JSON, a profile as qnn-profile-viewer prints it for a run of qnn-net-run, or what
    onnxruntime_perf_test prints.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(f"{path}: cannot be read: {error}") from None
    if text.lstrip().startswith("{"):
        try:
            return float(json.loads(text)["execution_summary"]["estimated_inference_time"]) / 1e3
        except (ValueError, KeyError, TypeError):
            raise FormatError(
                f"{path}: has no execution_summary.estimated_inference_time, as a profile of AI Hub has"
            ) from None
    if taken := _PERF_TEST.search(text):
        return float(taken[1])
    runs = [float(us) for us in _NETRUN.findall(text.partition("(Average)")[2] or text)]
    if not runs:
        raise FormatError(
            f"{path}: has no time; give a profile of AI Hub (JSON), the text of qnn-profile-viewer (NetRun: ... us) "
            "or of onnxruntime_perf_test (Average inference time cost: ... ms)"
        )
    return statistics.median(runs) / 1e3
