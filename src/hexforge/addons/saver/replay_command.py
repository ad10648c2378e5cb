# SPDX-License-Identifier: Apache-2.0
"""`hexforge replay`: recorded sessions run again, and made smaller where they fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.text import Text

from hexforge.cli.arguments import Json, Options, Soc, pairs
from hexforge.cli.say import say
from hexforge.cli.screen import bar, console, print_json, spinner, table
from hexforge.errors import CallError
from hexforge.request_fields import argument, option


def replay(
    recording: Path = argument("The folder saver_output, or its script.", show_default=False),
    backend: str = option("", "Where to run it; else where it was recorded."),
    soc: Soc = "",
    option: Options = None,
    against: str = option("cpu", "With --minimise: the backend whose numbers are right."),
    minimise: Path | None = option(None, "A folder for the smallest part that still fails."),
    steps: float = option(1.0, "Steps that a fixed-point tensor may be off."),
    relative: float = option(0.01, "Share of its range that a float may be off."),
    as_json: Json = False,
) -> None:
    """Run a recording of the Saver again and compare what comes out; find the smallest part that fails."""
    from hexforge.addons.saver.recorded_graphs import read_session
    from hexforge.addons.saver.recording import Recording
    from hexforge.addons.saver.replay import replay as replayed
    from hexforge.runtime import registry

    session = read_session(Recording(recording))
    name = backend or session.backend
    settings = pairs(option, "--option") or (session.settings if name == session.backend else {})
    if soc:
        settings = {**settings, "soc_model": soc}
    chosen = registry.backend(name, settings)
    if minimise is not None:
        _minimise(session, chosen, registry.backend(against), minimise, steps, relative)
        return
    with spinner(f"replaying {recording.name} on {name}"):
        rows = list(replayed(session, chosen))
    if not rows:
        raise CallError(f"{recording}: no graph was run in it")
    if as_json:
        print_json([row.to_json() for row in rows])
        return
    same = sum(row.equal for row in rows)
    screen = console()
    screen.print(Text(f"{same} of {len(rows)} outputs on {name} are bit-equal to the recording's", "bold"))
    cells = [
        (r.graph, str(r.execution), r.tensor, "yes" if r.equal else "no", f"{r.largest:.4g}", f"{r.sqnr_db:.1f}")
        for r in rows
    ]
    screen.print(table("", ("graph", "run", "output", "equal", "largest difference", "SQNR dB"), cells))


def _minimise(session: Any, backend: Any, reference: Any, folder: Path, steps: float, relative: float) -> None:
    from hexforge.addons.saver.minimise import Tolerance
    from hexforge.addons.saver.minimise import minimise as smallest
    from hexforge.addons.saver.recorder import SaverBackend

    for recorded in session.graphs.values():
        if not recorded.executions:
            continue
        with bar(f"trying parts of {recorded.name}") as progress:
            try:
                smallest_fault = smallest(recorded, backend, reference, Tolerance(steps, relative), progress)
            except CallError as error:
                say(error)
                continue
        saver = SaverBackend(reference, folder=folder)
        saver.compile(smallest_fault.graph).run(smallest_fault.feeds)
        nodes = ", ".join(f"{node.name!r} {node.op.name}" for node in smallest_fault.graph)
        say(f"{len(smallest_fault.graph)} of {len(recorded.graph)} nodes still fail: {nodes}")
        say(f"{smallest_fault.fault}; {smallest_fault.tried} parts were tried; recorded in {saver.recorder.folder}")
        return
    raise CallError("every graph of the recording is computed as the reference does; there is nothing to minimise")
