# SPDX-License-Identifier: Apache-2.0
"""`hexforge phone measure`: a model on a phone, virtual or real, and its time beside the estimate."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Annotated

import typer

from hexforge.cli.arguments import Json
from hexforge.cli.say import say
from hexforge.cli.screen import print_json, spinner
from hexforge.errors import CallError

PROGRAM = "onnxruntime_perf_test"
COLUMNS = ("model", "soc", "precision", "runtime", "measured_ms")


def measure(
    model: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="The ONNX model.")],
    serial: Annotated[str, typer.Option("--phone", help="Serial number: a virtual phone, or one of PATH's adb.")] = "",
    soc: Annotated[str, typer.Option("--soc", help="The chip, for the estimate; else what the phone says.")] = "",
    programs: Annotated[
        Path | None, typer.Option("--programs", help=f"A folder with {PROGRAM} and its libraries, of a real phone.")
    ] = None,
    times: Annotated[int, typer.Option("--times", min=1, help="Runs that are timed.")] = 100,
    costs: Annotated[Path | None, typer.Option("--costs", exists=True, help="Costs that `calibrate` wrote.")] = None,
    add_to: Annotated[
        Path | None, typer.Option("--add-to", help="A CSV file that gets a row; for `calibrate`.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Push a model to a phone, time it there, and show the time beside the estimate."""
    from hexforge.any_model import estimate
    from hexforge.chips.deployment import Deployment
    from hexforge.chips.soc import require_chip
    from hexforge.formats.files import write_atomically
    from hexforge.phone.adb_device import find_device
    from hexforge.phone.sdk_root import write_marked

    device = find_device(serial)
    chip = require_chip(soc or device.adb("shell", "getprop ro.soc.model").strip())
    files = [model]
    if programs is not None:
        files += sorted(programs.iterdir())
    elif device.is_virtual:
        files.append(write_marked(PROGRAM))
    else:
        raise CallError(f"--programs is missing: a real phone needs {PROGRAM} and the libraries of the QNN provider")
    keys = "backend_path|libQnnHtp.so htp_performance_mode|burst"
    command = f"chmod +x {PROGRAM} && ./{PROGRAM} -e qnn -I -m times -r {times} -i '{keys}' {model.name}"
    with spinner(f"running {model.name} on {device.serial}"):
        said = device.run_folder(files, command)
    match = re.search(r"Average inference time cost:\s*([\d.]+)\s*ms", said)
    if match is None or float(match[1]) <= 0:
        raise CallError(f"{PROGRAM} on {device.serial} printed no average time: {said[-500:]!r}")
    measured = float(match[1])
    deployment = Deployment(chip.name, runtime="onnx", cost_file=str(costs.absolute()) if costs else "")
    timed = estimate(model, deployment)
    facts = {"model": str(model), "phone": device.serial, "virtual": device.is_virtual, "soc": chip.name,
             "measured_ms": measured, "estimate_ms": round(timed.latency_ms, 4),
             "low_ms": round(timed.low_ms, 4), "high_ms": round(timed.high_ms, 4)}  # fmt: skip
    if add_to is not None:
        before = add_to.read_text("utf-8") if add_to.exists() else ",".join(COLUMNS) + "\n"
        row = io.StringIO()
        csv.writer(row, lineterminator="\n").writerow(
            [model.absolute(), chip.name, deployment.precision, deployment.runtime, measured]
        )
        write_atomically(add_to, (before + row.getvalue()).encode())
    if as_json:
        print_json(facts)
        return
    kind = "a virtual phone, whose time is the simulated device's" if device.is_virtual else "measured"
    say(f"{measured:.3f} ms on {device.serial} ({kind})")
    say(f"{timed.latency_ms:.3f} ms estimated on {chip.name}, {timed.low_ms:.3f} to {timed.high_ms:.3f} in nine of ten")
