# SPDX-License-Identifier: Apache-2.0
"""`hexforge phone`: virtual phones, the adb that scripts find on PATH, and models timed on phones.

`hexforge sdk-root` is the folder for QNN_SDK_ROOT.
"""

from __future__ import annotations

import csv
import io
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from hexforge.addons.phone.adb_device import AdbDevice, DeviceRunError
from hexforge.addons.phone.programs import perf_test, run_model
from hexforge.analysis.estimate import estimate
from hexforge.chips.deployment import Deployment
from hexforge.chips.power import Power
from hexforge.chips.soc import DEFAULT_SOC, Soc, require_chip
from hexforge.cli.arguments import Json
from hexforge.cli.request_options import CommandGroup
from hexforge.cli.say import say
from hexforge.cli.screen import console, print_json, spinner, table
from hexforge.errors import CallError
from hexforge.formats.files import write_atomically
from hexforge.request_fields import argument, option
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


PROGRAM = "onnxruntime_perf_test"
PORT, DEVICE_PORT = 5037, 5555
"""Where clients look for adb's server, and for a phone that speaks over TCP."""
Serial = Annotated[str, typer.Argument(help="The phone's serial number, as `adb devices` lists it.")]
Phone = Annotated[
    str, typer.Option("--phone", "-s", metavar="SERIAL", help="Which phone: a virtual one, or one of PATH's adb.")
]


def add(serial: Serial, soc: str = option(DEFAULT_SOC, f"Chip by name, number or device ({DEFAULT_SOC}).")) -> None:
    """Create a virtual phone, plugged in: a folder as its storage, a simulated device of the chip."""
    from hexforge.addons.phone.phones import add_phone

    made = add_phone(serial, soc)
    say(f"{made.serial}: {made.soc.name}, its files are in {made.storage.folder}")


def list_all(as_json: Json = False) -> None:
    """List the virtual phones of this user: chips, whether they are plugged in, where their files are."""
    from hexforge.addons.phone.phones import list_phones

    phones = list_phones()
    if as_json:
        print_json(
            [
                {"serial": p.serial, "soc": p.soc.name, "plugged": p.is_plugged, "files": str(p.storage.folder)}
                for p in phones
            ]
        )
        return
    rows = [(p.serial, p.soc.name, "yes" if p.is_plugged else "no", str(p.storage.folder)) for p in phones]
    console().print(table("virtual phones", ("serial", "chip", "plugged in", "files"), rows))


def remove(serial: Serial) -> None:
    """Remove a phone and everything on it."""
    from hexforge.addons.phone.phones import remove_phone

    remove_phone(serial)
    say(f"{serial}: removed")


def plug(serial: Serial) -> None:
    """Plug a phone in again; its files are as they were."""
    from hexforge.addons.phone import phones

    phones.plug(phones.find_phone(serial))
    say(f"{serial}: plugged in")


def unplug(serial: Serial) -> None:
    """Pull the cable of a phone: adb no longer sees it, and what runs there ends."""
    from hexforge.addons.phone import phones

    phones.unplug(phones.find_phone(serial))
    say(f"{serial}: unplugged")


def path() -> None:
    """Print the folder with the phones' adb, to be put on PATH before any other."""
    from hexforge.addons.phone.script_folders import adb_folder

    say(adb_folder())


def env() -> None:
    """Print what a shell evaluates so that scripts find the phones' adb and an SDK: eval "$(hexforge phone env)"."""
    from hexforge.addons.phone.script_folders import adb_folder, sdk_root

    root = shlex.quote(str(sdk_root()))
    say(f'export PATH={shlex.quote(str(adb_folder()))}:"$PATH"')
    say(f'export QNN_SDK_ROOT="${{QNN_SDK_ROOT:-{root}}}"')
    say(f'export ANDROID_NDK_ROOT="${{ANDROID_NDK_ROOT:-{root}}}"')


def serve(
    port: int = option(PORT, "The server's port, where clients look for adb's; 0 chooses one.", min=0, max=65535),
    device_port: int = option(
        DEVICE_PORT, "The first phone's own port, the next one's two higher; 0 chooses them.", min=0, max=65535
    ),
    ask_keys: bool = option(False, "Ask clients of a phone's own port for a key, which the phone remembers."),
) -> None:
    """Speak adb's protocol on loopback ports, as adb's server and as each phone, until `adb kill-server` or Ctrl-C."""
    from hexforge.addons.phone.protocol.serving import serving

    with serving(port, device_port, ask_keys=ask_keys) as served:
        say(f"adb's server: {served.server}")
        for serial, address in served.phones.items():
            say(f"{serial}: {address}")
        with suppress(KeyboardInterrupt):
            served.wait()


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
    from hexforge.addons.phone.script_folders import write_marked
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
        time = with_estimate(device, said, model, chip.name, costs)
    if add_to is not None:
        add_row(add_to, model, time)
    if as_json:
        print_json({"model": str(model), **time.to_json()})
        return
    for line in time.lines():
        say(line)


def sdk_root(
    executorch_build: bool = option(False, "Print the folder that stands for ExecuTorch's Android build."),
    executorch_root: bool = option(False, "Print the folder that stands for ExecuTorch's repository."),
) -> None:
    """Print a folder for QNN_SDK_ROOT: tools, libraries and headers of hexforge where scripts look for the SDK's."""
    from hexforge.addons.phone.script_folders import EXECUTORCH, EXECUTORCH_BUILD, sdk_root

    root = sdk_root()
    say(root / EXECUTORCH_BUILD if executorch_build else root / EXECUTORCH if executorch_root else root)


phone = CommandGroup(
    no_args_is_help=True,
    add_completion=False,
    help="Virtual phones with an adb of their own: deployment scripts push, run and pull there as they are.",
)
for _command in (add, remove, plug, unplug, path, env, serve):
    phone.command()(_command)
phone.command("list")(list_all)
phone.command()(measure)
phone.command("perf-test", hidden=True)(perf_test)
phone.command("run-model", hidden=True)(run_model)
