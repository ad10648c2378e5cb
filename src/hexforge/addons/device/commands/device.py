# SPDX-License-Identifier: Apache-2.0
"""`hexforge device`: a scenario on a simulated device, or a device that several programs share.

`hexforge device SCRIPT.json` plays a scenario; `serve`, `status`, `fault` and `stop` are about a shared device.
"""

from __future__ import annotations

from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from hexforge.addons.device.commands.device_service import fault, serve, status, stop
from hexforge.cli.arguments import All, Json
from hexforge.cli.request_options import CommandGroup
from hexforge.cli.screen import TOP, console, print_json, rows_left_out, spinner, table
from hexforge.request_fields import argument, option

if TYPE_CHECKING:
    from hexforge.addons.device.scenario.play import PlayedScenario


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
    from hexforge.addons.device.scenario.play import play
    from hexforge.addons.device.scenario.script import read_script
    from hexforge.formats.files import write_atomically

    with spinner(f"playing {script.name}"):
        played = play(read_script(script))
    if log is not None:
        write_atomically(log, ("\n".join(played.device.log.lines()) + "\n").encode())
    if report is not None:
        from hexforge.addons.device.pages import device_page

        write_atomically(report, device_page(played, script.name).encode())
    if as_json:
        print_json(_facts(played))
    else:
        _show(played, every)
        for path, kind in ((log, "the log"), (report, "the page")):
            if path is not None:
                console().print(f"{path}: {kind}")
    if played.unexpected:
        raise typer.Exit(1)


def _facts(played: PlayedScenario) -> dict[str, Any]:
    simulated = played.device
    return {
        "soc": simulated.soc.name,
        "simulated_us": round(simulated.clock.now_us, 3),
        "events": len(simulated.log.entries),
        "memory_bytes": simulated.memory.used_bytes,
        "peak_memory_bytes": simulated.log.peak_bytes,
        "energy_uj_assumed": round(simulated.energy_uj, 3),
        "sessions": [
            {"process": s.process, "index": s.index, "used_bytes": s.used_bytes, "by_kind": s.by_kind()}
            for s in simulated.memory.sessions.values()
        ],
        "contexts": {
            c.label: {"session": c.session.index if c.session else None, "state": str(c.state)}
            for client in simulated.clients.values()
            for c in client.contexts.values()
        },
        "steps": [
            {
                "process": s.process, "thread": s.thread, "do": s.step.do, "start_us": round(s.start_us, 3),
                "end_us": round(s.end_us, 3), "code": s.code, "as_expected": s.as_expected, "message": s.message,
                "digests": list(s.digests),
            }
            for s in played.steps
        ],
    }  # fmt: skip


def _show(played: PlayedScenario, every: bool) -> None:
    screen, simulated = console(), played.device
    shown = played.steps if every else [*played.unexpected, *(s for s in played.steps if s.as_expected)][: 2 * TOP]
    rows = [
        (f"{s.start_us / 1e3:.3f}", f"{(s.end_us - s.start_us) / 1e3:.3f}", f"{s.process}.{s.thread}", s.step.do,
         s.code or "ok", "" if s.as_expected else "UNEXPECTED", s.message or s.step.note)
        for s in sorted(shown, key=lambda s: s.start_us)
    ]  # fmt: skip
    columns = ("ms", "took", "thread", "step", "code", "", "what")
    screen.print(table(f"steps on {simulated.soc.name}", columns, rows, optional=("took", "what")))
    screen.print(rows_left_out(len(shown), len(played.steps), "steps"))
    runs = []
    for name, done in played.executed.items():
        times = [run.latency_us / 1e3 for run in done]
        cells = (name, str(len(done)), f"{mean(times):.3f}", f"{max(times):.3f}", str(sum(r.yields for r in done)))
        runs.append((*cells, f"{mean(r.energy_uj for r in done):.1f}"))
    titles = ("process and graph", "runs", "mean ms", "longest", "yields", "µJ (assumed)")
    screen.print(table("executions", titles, runs, optional=("µJ (assumed)", "yields")))
    peak = simulated.log.peak_bytes
    held = ", ".join(f"{s.process}/{s.index} {s.used_bytes / 2**20:.1f} MB" for s in simulated.memory.sessions.values())
    screen.print(f"{len(simulated.log.entries)} events in {simulated.clock.now_us / 1e3:.3f} simulated ms; at every "
                 f"one memory adds up. Most {peak / 2**20:.1f} MB; at the end {held or 'no session'}.")  # fmt: skip
    wrong = len(played.unexpected)
    screen.print("every step went as the script says" if not wrong else f"{wrong} steps did not go as the script says")
