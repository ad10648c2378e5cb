"""`hexforge demo`: the built-in digit classifier, checked, run on digits it never saw, and timed in a report."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from hexforge.cli.arguments import BackendName, Soc, provider_options
from hexforge.cli.screen import console, table
from hexforge.ir import Array

SHADES = " .:-=+*%@"
CHIP = "SM8650"
REFERENCE = "cpu"
"""The backend that computes in float32."""


def demo(
    backend: BackendName = "htp",
    soc: Soc = "",
    report: Annotated[Path, typer.Option("--report", dir_okay=False, help="Where the page goes.")] = Path(
        "hexforge-report.html"
    ),
    no_report: Annotated[bool, typer.Option("--no-report", help="Write no page.")] = False,
) -> None:
    """Check the built-in digit classifier, run it on held-out digits, and write a page of its time on a chip."""
    import numpy as np

    from hexforge import demo as built_in
    from hexforge.cli.commands.inspect.check import checked, print_checked

    screen = console()
    options = provider_options(backend, soc, None)
    flags = f"--backend {backend}" + (f" --soc {soc}" if soc else "")
    screen.print(f"[bold]1. Where does each node run?[/]  hexforge check {built_in.MODEL.name} {flags}")
    placement = checked(built_in.MODEL, options)
    print_checked(screen, placement)

    pictures, labels = built_in.held_out()
    screen.print(f"[bold]2. Run it[/] on {len(labels)} held-out digits through hexforge.InferenceSession")
    logits, elapsed_ms = _logits(pictures, options)
    answers = logits.argmax(1)
    sample = [0, 1, 2, *np.flatnonzero(answers != labels)[:3]]
    screen.print(_side_by_side([_drawing(pictures[i, 0, 0], answers[i], labels[i]) for i in sample]))

    runs = {backend: (logits, elapsed_ms)}
    if backend != REFERENCE:
        runs[REFERENCE] = _logits(pictures, {"backend_type": REFERENCE})
    rows = [
        (
            str(digit),
            str(int(mine.sum())),
            *(f"{(found.argmax(1)[mine] == digit).mean():.1%}" for found, _ in runs.values()),
        )
        for digit in range(10)
        if (mine := labels == digit).any()
    ]
    rows.append(("all", str(len(labels)), *(f"{(found.argmax(1) == labels).mean():.2%}" for found, _ in runs.values())))
    rows.append(("ms per digit", "", *(f"{ms:.2f}" for _, ms in runs.values())))
    screen.print(table("", ("digit", "held out", *(f"right on {name}" for name in runs)), rows))
    right = int((answers == labels).sum())
    screen.print(
        f"[bold]accuracy {right / len(labels):.2%}[/] ({right} of {len(labels)}), every node on QNNExecutionProvider, "
        f"{backend} backend, {elapsed_ms:.2f} ms per digit on this computer"
    )
    if backend != REFERENCE:
        apart = float(np.abs(logits - runs[REFERENCE][0]).max())
        largest = float(np.abs(runs[REFERENCE][0]).max())
        screen.print(
            f"htp computes floats in float16: its outputs are at most {apart:.2g} from float32's, of {largest:.3g}"
        )
    if not no_report:
        first = soc.split(",")[0].strip()  # of several chips; the page compares it with all of them
        _report(screen, first if first.strip("0") else CHIP, placement, report)


def _report(screen: Console, soc: str, placement: Mapping[str, Any], path: Path) -> None:
    """Estimates the model on the chip and the others, and writes the page."""
    from hexforge import demo as built_in
    from hexforge.analysis.estimate import estimate, everywhere
    from hexforge.backends.htp.deployment import Deployment
    from hexforge.formats.files import write_atomically
    from hexforge.report import page

    shown = f"hexforge estimate {built_in.MODEL.name} --soc {soc} --precision float --report {path}"
    screen.print(Text.assemble(("3. How long does it take on the chip?", "bold"), f"  {shown}"))
    deployment = Deployment(soc, "float")
    found = estimate(built_in.MODEL, deployment)
    write_atomically(path, page(found, placement, others=everywhere(built_in.MODEL, deployment)).encode())
    screen.print(
        Text.assemble(
            (f"{found.latency_ms:.3f} ms on {found.soc}", "bold"),
            f" ({found.low_ms:.3f} to {found.high_ms:.3f} in nine of ten models); timeline, ops, memory, placement and "
            "other chips: open ",
            (str(path), "bold"),
            " in a browser",
        )
    )


def _logits(pictures: Array, options: dict[str, str]) -> tuple[Array, float]:
    """The model's outputs for pictures, and milliseconds for each."""
    import numpy as np

    import hexforge
    from hexforge import demo as built_in

    config = hexforge.SessionOptions()
    config.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    session = hexforge.InferenceSession(built_in.MODEL, config, providers=[("QNNExecutionProvider", options)])
    start = time.perf_counter()
    logits = np.concatenate([session.run(None, {"image": picture})[0] for picture in pictures])
    return logits, 1e3 * (time.perf_counter() - start) / len(pictures)


def _drawing(picture: Array, answer: int, label: int) -> list[Text]:
    """A picture in characters, with the answer under it."""
    lines = [Text("".join(2 * SHADES[int(pixel) // 2] for pixel in row)) for row in picture]
    verdict = f"says {answer}" if answer == label else f"says {answer}, is {label}"
    return [*lines, Text(f"{verdict:<16}", "green" if answer == label else "red")]


def _side_by_side(drawings: list[list[Text]]) -> Text:
    return Text("\n").join(Text("   ").join(line) for line in zip(*drawings, strict=True))
