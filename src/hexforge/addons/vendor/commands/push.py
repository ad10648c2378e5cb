# SPDX-License-Identifier: Apache-2.0
"""`hexforge deploy --push`: the folder to ship on a phone, its time and outputs compared with hexforge's."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.text import Text

from hexforge.addons.vendor.commands.pushed_deployment import PANEL, PushRequest
from hexforge.cli.screen import console, interruptible, print_json, spinner, table
from hexforge.errors import CallError
from hexforge.request_fields import option

if TYPE_CHECKING:
    from hexforge.addons.phone.adb_device import AdbDevice
    from hexforge.addons.vendor.commands.pushed_deployment import PushedDeployment


@dataclass(frozen=True, slots=True)
class PushArguments:
    """What the command line says of the phone."""

    push: bool = option(False, "Run the folder on a phone: a real one, else a virtual one.", rich_help_panel=PANEL)
    serial: str = option(
        "", "Which phone, where there are several.", "--phone", "-s", metavar="SERIAL", rich_help_panel=PANEL
    )
    how: PushRequest = field(default_factory=PushRequest)
    add_to: Path | None = option(None, "A CSV file that gets a row; for `calibrate`.", rich_help_panel=PANEL)

    def device(self) -> AdbDevice | None:
        """The phone, which is looked for before anything else is done; None without --push."""
        from hexforge.addons.phone.adb_device import find_device

        if self.push:
            return find_device(self.serial)
        for flag, value in (("-s", self.serial), ("--programs", self.how.programs), ("--costs", self.how.costs),
                            ("--add-to", self.add_to)):  # fmt: skip
            if value:
                raise CallError(f"{flag}: is about a phone; give --push, too")
        return None

    @staticmethod
    def chip(device: AdbDevice | None) -> str:
        """The chip of the phone."""
        from hexforge.addons.phone.phone_commands import chip_of

        if device is None:
            raise CallError("--soc is missing: the chips that the folder is for")
        return chip_of(device).name

    def run(self, folder: Path, device: AdbDevice) -> PushedDeployment:
        """Run a deployed folder on a phone."""
        from hexforge.addons.phone.adb_device import DeviceRunError
        from hexforge.addons.phone.phone_commands import add_row
        from hexforge.addons.vendor.commands.pushed_deployment import push_deployment

        again = f"hexforge deploy {quote(str(folder))} --push -s {quote(device.serial)}"
        with interruptible(f"{folder} stands; try again: {again}"), spinner(f"running {folder} on {device.serial}"):
            try:
                pushed = push_deployment(folder, device, self.how)
            except DeviceRunError as error:
                raise type(error)(f"{error}\n{folder} stands; try again: {again}") from None
        if self.add_to is not None:
            add_row(self.add_to, folder / "model.onnx", pushed.time)
        return pushed

    def run_alone(self, folder: Path, output: Path | None, soc: str, as_json: bool) -> None:
        """Run a folder that was deployed before, and print what came back."""
        device = self.device()
        if device is None:
            raise CallError(f"{folder}: is a folder; a deployed one is run on a phone with --push")
        if output is not None or soc:
            raise CallError(f"{folder}: is pushed as it was deployed; --output and --soc are for a model")
        pushed = self.run(folder, device)
        if as_json:
            print_json({"folder": str(folder), "pushed": pushed.to_json()})
        else:
            print_pushed(console(), pushed)
        if not pushed.agrees:
            raise typer.Exit(1)


def print_pushed(screen: Console, pushed: PushedDeployment) -> None:
    """The time with the estimate, and a row for each output."""
    for line in pushed.time.lines():
        screen.print(Text(line))
    if pushed.time.is_virtual:
        screen.print(Text(f"it ran {pushed.ran}: a virtual phone reads no context of Qualcomm's", "yellow"))
    if pushed.not_compared:
        screen.print(Text(f"outputs are not compared: {pushed.not_compared}", "yellow"))
    rows = [
        (name, Text("agrees", "green") if c.agree else Text("differs", "bold red"), f"{100 * c.share:.2f} %",
         str(c.tolerance), f"{c.largest:g}")
        for name, c in pushed.outputs.items()
    ]  # fmt: skip
    if rows:
        title = f"outputs of {pushed.samples} samples, the phone's beside hexforge's"
        screen.print(table(title, ("output", "", "within", "steps", "at most"), rows))
