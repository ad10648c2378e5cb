# SPDX-License-Identifier: Apache-2.0
"""`hexforge phone measure`: a model on a phone, virtual or real, and its time beside the estimate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hexforge.cli.arguments import Json
from hexforge.cli.say import say
from hexforge.cli.screen import print_json, spinner
from hexforge.errors import CallError
from hexforge.request_fields import argument, option

PROGRAM = "onnxruntime_perf_test"
Phone = Annotated[
    str, typer.Option("--phone", "-s", metavar="SERIAL", help="Which phone: a virtual one, or one of PATH's adb.")
]


def measure(
    model: Path = argument("The ONNX model.", exists=True, dir_okay=False),
    serial: Phone = "",
    soc: str = option("", "The chip, for the estimate; else what the phone says."),
    programs: Path | None = option(None, f"A folder with {PROGRAM} and its libraries, of a real phone."),
    times: int = option(100, "Runs that are timed.", min=1),
    costs: Path | None = option(None, "Costs that `calibrate` wrote.", exists=True),
    add_to: Path | None = option(None, "A CSV file that gets a row; for `calibrate`."),
    as_json: Json = False,
) -> None:
    """Push a model to a phone, time it there, and show the time beside the estimate."""
    from hexforge.addons.phone.adb_device import find_device
    from hexforge.addons.phone.measured_time import MODE, add_row, beside_estimate, chip_of
    from hexforge.addons.phone.sdk_root import write_marked
    from hexforge.chips.soc import require_chip

    device = find_device(serial)
    chip = require_chip(soc) if soc else chip_of(device)
    files = [model]
    if programs is not None:
        files += sorted(programs.iterdir())
    elif device.is_virtual:
        files.append(write_marked(PROGRAM))
    else:
        raise CallError(f"--programs is missing: a real phone needs {PROGRAM} and the libraries of the QNN provider")
    keys = f"backend_path|libQnnHtp.so htp_performance_mode|{MODE}"
    command = f"chmod +x {PROGRAM} && ./{PROGRAM} -e qnn -I -m times -r {times} -i '{keys}' {model.name}"
    with spinner(f"running {model.name} on {device.serial}"):
        said = device.run_folder(files, command)
        time = beside_estimate(device, said, model, chip.name, costs)
    if add_to is not None:
        add_row(add_to, model, time)
    if as_json:
        print_json({"model": str(model), **time.to_json()})
        return
    for line in time.lines():
        say(line)
