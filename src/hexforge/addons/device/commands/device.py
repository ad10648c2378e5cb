# SPDX-License-Identifier: Apache-2.0
"""`hexforge device`: a scenario on a simulated device, or a device that several programs share.

`hexforge device SCRIPT.json` plays a scenario; `serve`, `status`, `fault` and `stop` are about a shared device.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from hexforge.addons.device.commands.device_service import fault, serve, status, stop
from hexforge.cli.arguments import All, Json
from hexforge.cli.request_options import CommandGroup
from hexforge.cli.screen import TOP, console, print_json, rows_left_out, spinner
from hexforge.cli.sections import print_sections
from hexforge.request_fields import argument, option

if TYPE_CHECKING:
    pass


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
    from hexforge.addons.device.commands.pages import device_page, played_sections
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
