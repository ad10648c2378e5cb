# SPDX-License-Identifier: Apache-2.0
"""`hexforge demo`: the built-in digit classifier, checked, run on digits it never saw, and optimized for a chip."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from hexforge.chips.soc import DEFAULT_SOC
from hexforge.cli.arguments import BackendName, Soc, provider_options
from hexforge.cli.screen import bars, console, stoppable, table
from hexforge.ir import Array

SHADES = " .:-=+*%@"
WIDTH, GAP = 16, "   "
CALIBRATION = 64
"""Digits that the model is quantized by; it is judged on the others."""
JUDGED = 120
"""Digits that each mix of precisions is judged on."""
REFERENCE = "cpu"
"""The backend that computes in float32."""


def demo(
    backend: BackendName = "htp",
    soc: Soc = "",
    output: Annotated[Path, typer.Option("--output", "-o", file_okay=False, help="Where the files go.")] = Path(
        "hexforge-demo"
    ),
    no_files: Annotated[bool, typer.Option("--no-files", help="Only check and run it.")] = False,
) -> None:
    """Check the built-in digit classifier, run it on held-out digits, and make it fast on a chip, with a page."""
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
    room = max(2, (screen.width + len(GAP)) // (WIDTH + len(GAP)))
    wrong = np.flatnonzero(answers != labels)[: min(3, room // 2)]
    sample = [*range(min(6, room) - len(wrong)), *wrong]
    screen.print(_side_by_side([_drawing(pictures[i, 0, 0], answers[i], labels[i]) for i in sample]))

    runs = {backend: (logits, elapsed_ms)}
    if backend != REFERENCE:
        runs[REFERENCE] = _logits(pictures, {"backend_type": REFERENCE})
    rows = [
        (
            str(digit),
            str(int(mine.sum())),
            *(f"{(outputs.argmax(1)[mine] == digit).mean():.1%}" for outputs, _ in runs.values()),
        )
        for digit in range(10)
        if (mine := labels == digit).any()
    ]
    rows.append(
        ("all", str(len(labels)), *(f"{(outputs.argmax(1) == labels).mean():.2%}" for outputs, _ in runs.values()))
    )
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
    if not no_files:
        first = soc.split(",")[0].strip()  # of several chips; the page compares it with all of them
        _optimize(screen, first if first.strip("0") else DEFAULT_SOC, placement, output)


def _optimize(screen: Console, soc: str, placement: Mapping[str, Any], folder: Path) -> None:
    """Optimizes the model for the chip by half of the digits, judged on the others, and writes the page."""
    from hexforge import demo as built_in
    from hexforge.analysis.estimate import everywhere
    from hexforge.analysis.optimize import OptimizeRequest, optimize
    from hexforge.chips.deployment import Deployment
    from hexforge.cli.commands.quality.optimize import print_optimized
    from hexforge.formats.files import write_atomically
    from hexforge.report.optimizing import optimized_page

    shown = f"hexforge optimize {built_in.MODEL.name} --data DIGITS --labels LABELS --soc {soc} -o {folder}"
    screen.print(Text.assemble(("3. Make it fast on the chip", "bold"), f"  {shown}"))
    pictures, labels = built_in.held_out()
    feeds = [{"image": picture} for picture in pictures]
    with stoppable(f"what is done lies in {folder}"), bars() as progress:
        request = OptimizeRequest(
            feeds[:CALIBRATION], feeds[CALIBRATION:], labels[CALIBRATION:].tolist(), "top1", samples=JUDGED, budget=12
        )
        optimized = optimize(built_in.MODEL, folder, request, Deployment(soc), progress=progress)
        progress("drawing the page", 0, 1)
        others = everywhere(optimized.folder.quantized, optimized.after.deployment)
        write_atomically(optimized.folder.page, optimized_page(optimized, placement, others).encode())
    print_optimized(screen, optimized)
    screen.print(Text.assemble("open ", (str(optimized.folder.page), "bold"), " in a browser"))


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
    return [*lines, Text(f"{verdict:<{WIDTH}}", "green" if answer == label else "red")]


def _side_by_side(drawings: list[list[Text]]) -> Text:
    return Text("\n").join(Text(GAP).join(line) for line in zip(*drawings, strict=True))
