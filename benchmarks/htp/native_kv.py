# SPDX-License-Identifier: Apache-2.0
"""Decode steps with native KV caches against flat ones, and attention with MaskedSoftmax against its parts.

    python -m benchmarks.htp.native_kv [--contexts 1024 4096 8192] [--heads 8]

One layer's attention with as many KV heads as are asked for: what the chip takes by the estimate, and what this
computer takes for it (processor time of the best of many runs, one thread, the two in turn). The results are compared
bit by bit between the layouts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import hexforge
from hexforge.backend import Backend, Program
from hexforge.formats.hmx_layout import KEY_TILE, VALUE_TILE, to_hmx
from hexforge.runtime.registry import backend
from tests.models.attention import CACHES_IN, decoder, masked_attention

SOC = "SM8650"
Feeds = Mapping[str, np.ndarray[Any, Any]]


def best_ms(programs: Sequence[tuple[Program, Feeds]], rounds: int) -> list[float]:
    """Processor time of the best run of each program, which take turns."""
    best = [float("inf")] * len(programs)
    for program, feeds in programs:
        program.run(feeds)
    for _ in range(rounds):
        for i, (program, feeds) in enumerate(programs):
            start = time.process_time()
            program.run(feeds)
            best[i] = min(best[i], time.process_time() - start)
    return [1e3 * seconds for seconds in best]


def one_thread() -> Backend:
    """The backend of the chip, with one thread here."""
    return backend("htp", {"soc_model": SOC}, threads=1)


def native_against_flat(context: int, heads: int, wide: bool, rounds: int) -> list[str]:
    """A row of the table."""
    model = decoder(context=context, heads=heads, wide=wide, caches_out=False)
    made = []
    for native in ((), CACHES_IN):
        request = hexforge.ContextRequest(graph_names=("decoder",), native={"decoder": native} if native else {})
        made.append(hexforge.compile(model, None, SOC, request).context.program("decoder", one_thread()))
    estimates = [hexforge.estimate(program, SOC).timeline.accelerator_us for program in made]
    random = np.random.default_rng(0)
    feeds = {}
    for value in made[0].graph.inputs:
        if value.name.startswith("index"):
            feeds[value.name] = np.full(value.shape, context // 2, value.dtype.numpy)
        elif value.name in CACHES_IN:
            feeds[value.name] = random.integers(0, 256, value.shape).astype(np.uint8)
        else:
            feeds[value.name] = random.standard_normal(value.shape).astype(value.dtype.numpy)
    tiles = dict(zip(CACHES_IN, (KEY_TILE, VALUE_TILE), strict=True))
    lying = {name: to_hmx(array, tiles[name]) if name in tiles else array for name, array in feeds.items()}
    same = np.array_equal(made[0].run(feeds)["out"], made[1].run(lying)["out"])
    here = best_ms([(made[0], feeds), (made[1], lying)], rounds)
    return [
        f"{context}", "16" if wide else "8", *(f"{us:.1f}" for us in estimates), f"{estimates[1] / estimates[0]:.2f}",
        *(f"{ms:.3f}" for ms in here), f"{here[1] / here[0]:.2f}", "yes" if same else "NO",
    ]  # fmt: skip


def fused_against_parts(context: int, heads: int, bits: int, share: float, rounds: int) -> list[str]:
    """A row of the table."""
    made = [
        hexforge.compile(masked_attention("C", bits, b, 1, context, heads), None, SOC).program(backend=one_thread())
        for b in (-20.0, -19.9)
    ]
    estimates = [hexforge.estimate(program, SOC).timeline.accelerator_us for program in made]
    types = {value.name: value.type for value in made[0].graph.inputs}
    scores = np.random.default_rng(0).integers(0, 1 << bits, types["x"].shape).astype(types["x"].dtype.numpy)
    mask = np.broadcast_to(np.arange(context) < share * context, types["mask"].shape).astype(np.uint8)
    here = best_ms([(program, {"x": scores, "mask": mask}) for program in made], rounds)
    return [
        f"{context}", f"{bits}", f"{100 * share:.0f} %", *(f"{us:.1f}" for us in reversed(estimates)),
        f"{estimates[0] / estimates[1]:.2f}", *(f"{ms:.3f}" for ms in reversed(here)), f"{here[0] / here[1]:.2f}",
    ]  # fmt: skip


def main() -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contexts", nargs="+", type=int, default=[1024, 4096, 8192])
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=40)
    given = parser.parse_args()
    screen = Console()
    chip, here = f"{SOC}, us", "here, ms"
    table = Table("context", "bits", f"flat ({chip})", "native", "ratio", f"flat ({here})", "native", "ratio",
                  "same bits", title="A decode step, native KV caches against flat ones")  # fmt: skip
    for context in given.contexts:
        for wide in (False, True):
            table.add_row(*native_against_flat(context, given.heads, wide, given.rounds))
    screen.print(table)
    table = Table("context", "bits", "kept", f"parts ({chip})", "fused", "ratio", f"parts ({here})", "fused", "ratio",
                  title="Masked attention, MaskedSoftmax against its parts")  # fmt: skip
    for context in given.contexts:
        for bits in (8, 16):
            for share in (0.1, 1.0):
                table.add_row(*fused_against_parts(context, given.heads, bits, share, given.rounds))
    screen.print(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
