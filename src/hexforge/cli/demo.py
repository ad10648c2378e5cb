"""`hexforge demo`: the built-in digit classifier, checked and run on digits it never saw."""

from __future__ import annotations

import time

from rich.text import Text

from hexforge.cli.arguments import BackendName
from hexforge.cli.screen import console, table
from hexforge.ir import Array

SHADES = " .:-=+*%@"


def demo(backend: BackendName = "cpu") -> None:
    """Check the built-in digit classifier, run it on held-out digits, and report."""
    import numpy as np

    import hexforge
    from hexforge import demo as built_in
    from hexforge.cli.check import checked, print_checked

    screen = console()
    screen.print(f"[bold]1. Where does each node run?[/]  hexforge check {built_in.MODEL.name} --backend {backend}")
    print_checked(screen, checked(built_in.MODEL, {"backend_type": backend}))

    pictures, labels = built_in.held_out()
    screen.print(f"[bold]2. Run it[/] on {len(labels)} held-out digits through hexforge.InferenceSession")
    options = hexforge.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    providers = [("QNNExecutionProvider", {"backend_type": backend})]
    session = hexforge.InferenceSession(built_in.MODEL, options, providers=providers)
    start = time.perf_counter()
    logits = np.concatenate([session.run(None, {"image": picture})[0] for picture in pictures])
    elapsed_ms = 1e3 * (time.perf_counter() - start) / len(labels)
    answers = logits.argmax(1)

    sample = [0, 1, 2, *np.flatnonzero(answers != labels)[:3]]
    screen.print(_side_by_side([_drawing(pictures[i, 0, 0], answers[i], labels[i]) for i in sample]))
    rows = [
        (str(digit), str(int(mine.sum())), f"{(answers[mine] == digit).mean():.1%}")
        for digit in range(10)
        if (mine := labels == digit).any()
    ]
    screen.print(table("", ("digit", "held out", "right"), rows))
    right = int((answers == labels).sum())
    screen.print(
        f"[bold]accuracy {right / len(labels):.2%}[/] ({right} of {len(labels)}), every node on QNNExecutionProvider, "
        f"{backend} backend, {elapsed_ms:.2f} ms per digit on this computer"
    )


def _drawing(picture: Array, answer: int, label: int) -> list[Text]:
    """A picture in characters, with the answer under it."""
    lines = [Text("".join(2 * SHADES[int(pixel) // 2] for pixel in row)) for row in picture]
    verdict = f"says {answer}" if answer == label else f"says {answer}, is {label}"
    return [*lines, Text(f"{verdict:<16}", "green" if answer == label else "red")]


def _side_by_side(drawings: list[list[Text]]) -> Text:
    return Text("\n").join(Text("   ").join(line) for line in zip(*drawings, strict=True))
