# SPDX-License-Identifier: Apache-2.0
"""`hexforge device`: a scenario on a simulated device, or a device that several programs share.

`hexforge device SCRIPT.json` plays a scenario; `serve`, `status`, `fault` and `stop` are about a shared device.
"""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hexforge.addons.device.simulated_device import Fault
from hexforge.amounts import size
from hexforge.chips.soc import DEFAULT_SOC
from hexforge.cli.arguments import All, Json
from hexforge.cli.request_options import CommandGroup
from hexforge.cli.say import say
from hexforge.cli.screen import TOP, console, print_json, rows_left_out, spinner, table
from hexforge.cli.sections import print_sections
from hexforge.request_fields import argument, option

Address = Annotated[
    str,
    typer.Option(
        "--address",
        metavar="ADDRESS",
        help="unix:PATH, tcp:127.0.0.1:PORT; else HEXFORGE_DEVICE, else your own socket.",
    ),
]


def serve(
    soc: str = option(DEFAULT_SOC, f"Chip by name, number or device ({DEFAULT_SOC})."),
    address: Address = "",
    cores: int = option(1, "NSP cores in use.", min=1),
    ram_mb: int = option(16 << 10, "RAM of the device.", min=1),
    platform: str = option("android", "android, windows, linux or qnx."),
    signed_image: bool = option(False, "A signed DSP image was pushed to it."),
    wait_for: int = option(0, "No time passes until so many programs are attached.", min=0),
    patience: float = option(1.0, "Seconds that a program which does not wait is waited for.", min=0.01),
    log: Path | None = option(None, "Write every event, one JSON object a line."),
) -> None:
    """Serve a simulated device to programs of this computer until `hexforge device stop` or Ctrl-C.

    It listens on a Unix socket in a folder of your own, or on the loopback; a token in a file beside it lets programs
    in. Those that have the printed HEXFORGE_DEVICE in their environment are on it: sessions, hexforge run, qnn-net-run.
    """
    import asyncio
    import json

    from hexforge.addons.device import Device
    from hexforge.addons.device.shared.address import VARIABLE, DeviceAddress, default_address
    from hexforge.addons.device.shared.service import DeviceService

    where = DeviceAddress.parse(address) if address else default_address()
    device = Device(soc, platform=platform, cores=cores, ram_bytes=ram_mb << 20, signed_image=signed_image)
    service = DeviceService(device, patience_s=patience, wait_for=wait_for)

    def ready(served: DeviceAddress) -> None:
        with suppress(NotImplementedError, RuntimeError):  # Windows, and a thread that is not the main one
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, service.end)
        say(f"{VARIABLE}={served}")

    if log is None:
        asyncio.run(service.serve(where, ready))
        return
    with log.open("w", encoding="utf-8", buffering=1) as file:

        def note(entry: dict[str, Any]) -> None:
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")

        device.log.listen(note)
        asyncio.run(service.serve(where, ready))


def status(address: Address = "", as_json: Json = False) -> None:
    """Show who is on a shared device, its memory, its cores and what waits for them, its votes and faults."""
    from hexforge.addons.device.shared.remote import connect

    shown = connect(address).status()
    if as_json:
        print_json(shown)
        return
    screen = console()
    screen.print(
        f"{shown['soc']}, {shown['cores']} core{'s' if shown['cores'] != 1 else ''}, at "
        f"{shown['now_us'] / 1e3:.3f} ms: {size(shown['used_bytes'])} of "
        f"{size(shown['ram_bytes'])} in use, at most {size(shown['peak_bytes'])}"
    )
    rows = [_process_cells(process) for process in shown["processes"]]
    titles = ("process", "pid", "memory", "sessions", "contexts", "calls", "profile", "")
    screen.print(table("processes", titles, rows, optional=("profile", "sessions")))
    jobs = [(job["graph"], job["priority"], f"core {job['core']}") for job in shown["running"]]
    jobs += [(job["graph"], job["priority"], "waits") for job in shown["queue"]]
    screen.print(table("cores", ("graph", "priority", "where"), jobs))
    votes = [(v["process"], str(v["id"]), str(v["core"]), v["core_corner"], v["bus_corner"]) for v in shown["votes"]]
    screen.print(table("votes", ("process", "id", "core", "corner", "bus"), votes))
    faults = [(f"{f['at_us'] / 1e3:.3f}", f["kind"], f["process"]) for f in shown["faults"]]
    screen.print(table("faults", ("ms", "kind", "process"), faults))


def _process_cells(process: dict[str, Any]) -> tuple[str, ...]:
    state = "waits" if process["waits"] else "passed over" if process["passed_over"] else "works"
    counts = (str(process["sessions"]), str(len(process["contexts"])), str(process["calls"]))
    return (process["name"], str(process["pid"]), size(process["bytes"]), *counts, process["profile"], state)


def fault(
    kind: Fault = argument("ssr: the subsystem restarts; pd: a session crashes; kill: a process ends."),
    process: str = argument("The process, of pd and kill, as status names it.", default=""),
    session: int = option(0, "Which of its sessions, of pd.", min=0),
    address: Address = "",
) -> None:
    """Let a fault happen on a shared device, at this moment of its clock."""
    from hexforge.addons.device.shared.remote import connect

    connect(address).fault(kind.value, process, session)
    console().print(f"{kind.value} {process}".strip())


def stop(address: Address = "") -> None:
    """End the service of a shared device; programs that are on it see their processes end."""
    from hexforge.addons.device.shared.remote import connect

    device = connect(address)
    device.stop()
    console().print(f"{device.address}: stopped")


class _PlaysByDefault(TyperGroup):
    """A group whose arguments are a scenario's where they do not begin with the name of a command."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Read the arguments."""
        if args and args[0] not in (*self.commands, "--help"):
            args = ["play", *args]
        return super().parse_args(ctx, args)


device = CommandGroup(
    cls=_PlaysByDefault,
    no_args_is_help=True,
    add_completion=False,
    help="Play a scenario on a simulated device (device SCRIPT.json), or serve one that several programs share.",
)
for _command in (serve, status, fault, stop):
    device.command(_command.__name__)(_command)


@device.command("play")
def play_scenario(
    script: Path = argument("The scenario.", exists=True, dir_okay=False, show_default=False),
    report: Path | None = option(None, "Write a page to look at, as HTML."),
    log: Path | None = option(None, "Write every event, one JSON object a line."),
    every: All = False,
    as_json: Json = False,
) -> None:
    """Play a scenario of contexts, priorities, power and faults on a simulated device, and show what became of it.

    The exit status is 1 where a step does not go as the script says. docs/device.md has the fields of a script.
    """
    from hexforge.addons.device.scenario.pages import device_page, played_sections
    from hexforge.addons.device.scenario.play import play
    from hexforge.addons.device.scenario.script import read_script
    from hexforge.formats.files import write_atomically

    with spinner(f"playing {script.name}"):
        played = play(read_script(script))
    if log is not None:
        write_atomically(log, ("\n".join(played.device.log.lines()) + "\n").encode())
    if report is not None:
        write_atomically(report, device_page(played, script.name).encode())
    if as_json:
        print_json(played.to_json())
    else:
        shown = played.steps if every else [*played.unexpected, *(s for s in played.steps if s.as_expected)][: 2 * TOP]
        print_sections(console(), played_sections(played, sorted(shown, key=lambda step: step.start_us)), None)
        console().print(rows_left_out(len(shown), len(played.steps), "steps"))
        for path, kind in ((log, "the log"), (report, "the page")):
            if path is not None:
                console().print(f"{path}: {kind}")
    if played.unexpected:
        raise typer.Exit(1)
