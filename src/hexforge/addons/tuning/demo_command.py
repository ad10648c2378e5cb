# SPDX-License-Identifier: Apache-2.0
"""`hexforge demo`: the built-in night-shot model, checked, run on pictures it never saw, and optimized for a chip."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.color import Color
from rich.console import Console
from rich.style import Style
from rich.text import Text

from hexforge.chips.soc import DEFAULT_SOC
from hexforge.cli.arguments import BackendName, Soc, provider_options
from hexforge.cli.screen import bars, bold_start, console, interruptible, table
from hexforge.ir import Array
from hexforge.request_fields import option

SHOWN_COLUMNS, GAP = 36, "  "
"""Characters that a picture takes on a terminal with colours; each has two pixels, one above the other."""
BUDGET = 24
"""Mixes of precisions that are measured."""
REFERENCE = "onnxruntime"
"""What computes in float32, to compare with."""


def demo(
    backend: BackendName = "htp",
    soc: Soc = "",
    output: Path = option(Path("hexforge-demo"), "Where the files go.", "--output", "-o", file_okay=False),
    no_files: bool = option(False, "Only check and run it."),
) -> None:
    """Check the built-in night-shot model, run it on new pictures, and make it fast on a chip, with a page."""
    from hexforge import demo as built_in
    from hexforge.analysis.quality.runners import runner
    from hexforge.cli.commands.check import print_check
    from hexforge.ort.check import check_file

    screen = console()
    options = provider_options(backend, soc, None)
    flags = f"--backend {backend}" + (f" --soc {soc}" if soc else "")
    screen.print(bold_start("1. Where does each node run?", f"  hexforge check {built_in.MODEL.name} {flags}"))
    placement = check_file(built_in.MODEL, options).to_json()
    print_check(screen, placement)

    shots, wanted = built_in.held_out()
    how = (
        f" on {len(shots)} night shots through hexforge.InferenceSession: short exposures, dark and noisy; out come "
        "the pictures that a long exposure would have shown"
    )
    screen.print(bold_start("2. Run it", how))
    runs = {backend: _timed(_session(options), shots), REFERENCE: _timed(runner(built_in.MODEL, "ort"), shots)}
    if screen.color_system is not None:
        drawings = [_drawing(p) for p in (shots[0], runs[backend][0][0], wanted[0])]
        screen.print(Text("\n").join(Text(GAP).join(line) for line in zip(*drawings, strict=True)))
    _print_quality(screen, shots, wanted, runs)
    if not no_files:
        first = soc.split(",")[0].strip()  # of several chips; the page compares it with all of them
        _optimize(screen, first if first.strip("0") else DEFAULT_SOC, placement, output)


def _print_quality(
    screen: Console, shots: Sequence[Array], wanted: Sequence[Array], runs: Mapping[str, tuple[list[Array], float]]
) -> None:
    """How near the pictures of each backend come to the ones that are wanted, and how long one took here."""
    import numpy as np

    from hexforge import demo as built_in
    from hexforge.analysis.quality.picture_metrics import psnr_db

    made = {"only amplified": [built_in.amplified(shot) for shot in shots]}
    made |= {f"model on {name}": pictures for name, (pictures, _) in runs.items()}
    quality = {name: [psnr_db(p, w, 1) for p, w in zip(made[name], wanted, strict=True)] for name in made}
    rows = [(str(i + 1), *(f"{quality[name][i]:.2f}" for name in made)) for i in range(len(shots))]
    rows.append(("mean", *(f"{np.mean(quality[name]):.2f}" for name in made)))
    rows.append(("ms per picture", "", *(f"{ms:.0f}" for _, ms in runs.values())))
    screen.print(table("PSNR in dB against the long exposure", ("night shot", *made), rows))
    backend, (pictures, elapsed_ms) = next(iter(runs.items()))
    gain = np.mean(quality[f"model on {backend}"]) - np.mean(quality["only amplified"])
    where = f", every node on QNNExecutionProvider, {backend} backend, {elapsed_ms:.0f} ms per picture on this computer"
    screen.print(bold_start(f"{gain:.1f} dB gained", where))
    apart = max(float(np.abs(a - b).max()) for a, b in zip(pictures, runs[REFERENCE][0], strict=True))
    screen.print(f"its pictures are at most {apart:.2g} from those in float32 by {REFERENCE}, of 0 to 1")


def _optimize(screen: Console, soc: str, placement: Mapping[str, Any], folder: Path) -> None:
    """Optimizes the model for the chip, judged by how near its pictures are to the wanted ones; writes the page."""
    from hexforge import demo as built_in
    from hexforge.addons.tuning.optimize import optimize
    from hexforge.addons.tuning.optimize_command import print_optimized
    from hexforge.addons.tuning.optimized_page import optimized_page
    from hexforge.addons.tuning.requests import OptimizeRequest
    from hexforge.analysis.estimate import estimate_all_chips
    from hexforge.backend import processors
    from hexforge.chips.deployment import Deployment
    from hexforge.formats.files import write_atomically

    shown = f"hexforge optimize {built_in.MODEL.name} --data SHOTS --labels PICTURES --metric psnr --soc {soc}"
    screen.print(Text.assemble(("3. Make it fast on the chip", "bold"), f"  {shown} -o {folder}"))
    shots, wanted = built_in.held_out()
    calibration, judged = ([{built_in.INPUT: shot} for shot in some] for some in (built_in.calibration(), shots))
    with interruptible(f"what is done lies in {folder}"), bars() as progress:
        request = OptimizeRequest(
            calibration, judged, wanted, "psnr", None, BUDGET, samples=len(shots), jobs=processors()
        )
        optimized = optimize(built_in.MODEL, folder, request, Deployment(soc), progress=progress)
        progress("drawing the page", 0, 1)
        others = estimate_all_chips(optimized.folder.quantized, optimized.after.deployment)
        write_atomically(optimized.folder.page, optimized_page(optimized, placement, others).encode())
    print_optimized(screen, optimized)
    screen.print(Text.assemble("open ", (str(optimized.folder.page), "bold"), " in a browser"))


def _session(options: dict[str, str]) -> Callable[[Mapping[str, Array]], Mapping[str, Array]]:
    """The model in a session that leaves nothing to onnxruntime's own provider."""
    import hexforge
    from hexforge import demo as built_in

    config = hexforge.SessionOptions()
    config.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    session = hexforge.InferenceSession(built_in.MODEL, config, providers=[("QNNExecutionProvider", options)])
    return lambda feeds: {built_in.OUTPUT: session.run([built_in.OUTPUT], dict(feeds))[0]}


def _timed(
    run: Callable[[Mapping[str, Array]], Mapping[str, Array]], shots: Sequence[Array]
) -> tuple[list[Array], float]:
    """What the model makes of night shots, and milliseconds for each."""
    from hexforge import demo as built_in

    start = time.perf_counter()
    pictures = [run({built_in.INPUT: shot})[built_in.OUTPUT] for shot in shots]
    return pictures, 1e3 * (time.perf_counter() - start) / len(shots)


def _drawing(picture: Array) -> list[Text]:
    """A picture [1, 3, height, width] of 0..1 in coloured half blocks."""
    side = picture.shape[-1] // SHOWN_COLUMNS * SHOWN_COLUMNS
    block = side // SHOWN_COLUMNS
    small = picture[0, :, :side, :side].reshape(3, SHOWN_COLUMNS, block, SHOWN_COLUMNS, block).mean((2, 4))
    colours = [[Color.from_rgb(*pixel) for pixel in row] for row in (255 * small.clip(0, 1)).transpose(1, 2, 0)]
    return [
        Text.assemble(*(("▀", Style(color=a, bgcolor=b)) for a, b in zip(above, below, strict=True)))
        for above, below in zip(colours[::2], colours[1::2], strict=True)
    ]
