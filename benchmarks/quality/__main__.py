# SPDX-License-Identifier: Apache-2.0
"""Decisions of models of other people's packages: in float, quantized plainly, and as `optimize` recommends.

    python -m benchmarks.quality [--plain] [--calibrated 16] [--judged 32] [--budget 24] [--markdown] [MODEL ...]

Everything is done by the public functions with their defaults: `hexforge.quantize(model, samples)` and
`hexforge.optimize`. Both results run on the emulator of the NPU, and are judged on samples that calibration has not
seen: how often they decide as the float model does, the SQNR of the worst output, the simulated time of an inference,
and alarms (outputs or channels that are lost). The sample on which the recommended model agrees least is shown with
what both models say of it. Exits 1 where a model whose output joins boxes and scores has an alarm, or an average
precision against the float model's boxes below 0.95.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import hexforge
from benchmarks.accuracy.recipes import no_output
from benchmarks.arguments import add_names
from benchmarks.quality.models import CALIBRATION, MODELS, Feeds, PackagedModel
from hexforge.addons.tuning.optimize import optimize
from hexforge.addons.tuning.requests import OptimizeRequest
from hexforge.analysis.quality.decisions.judge import DecisionCollector, DecisionJudge
from hexforge.analysis.quality.decisions.verdict import Decisions
from hexforge.analysis.quality.runners import runner
from hexforge.chips.deployment import Deployment
from hexforge.model.reader import read

LEAST_PRECISION = 0.95


@dataclass(frozen=True, slots=True)
class QuantizedResult:
    """A quantized model, judged."""

    recipe: str
    latency_ms: float
    decisions: Decisions
    left_on_cpu: int

    @property
    def ap50(self) -> float | None:
        """The average precision against the float model's boxes, of a detector."""
        decisive = self.decisions.decisive
        return None if decisive is None else decisive.figures.get("ap50")

    def cells(self) -> list[str]:
        """Recipe, agreement, SQNR, time and alarms."""
        agreement = f"{self.decisions.agreement:.3f}"
        if self.ap50 is not None:
            agreement += f" (AP {self.ap50:.3f})"
        time_text = f"{self.latency_ms:.3f}" + (f" + {self.left_on_cpu} nodes on the CPU" if self.left_on_cpu else "")
        return [agreement, f"{self.decisions.sqnr_db:.1f}", time_text, str(len(self.decisions.alarms) or "")]


@dataclass(frozen=True, slots=True)
class Row:
    """The figures of one model."""

    model: PackagedModel
    float_ms: float
    plain: QuantizedResult
    recommended: QuantizedResult | None
    """None with --plain."""
    seconds: float

    @property
    def fault(self) -> str:
        """What is wrong with a model whose output joins boxes and scores; empty where nothing is."""
        for result in (self.plain, self.recommended):
            if not self.model.heads or result is None:
                continue
            if result.decisions.alarms:
                return f"{self.model.name}, {result.recipe}: {result.decisions.alarms[0].text}"
            if result.ap50 is None or result.ap50 < LEAST_PRECISION:
                return f"{self.model.name}, {result.recipe}: average precision {result.ap50}"
        return ""


def judged(model: PackagedModel, quantized: Path, samples: Sequence[Feeds]) -> Decisions:
    """The decisions of a quantized model on the emulator, beside those of the float model."""
    collector = DecisionCollector(DecisionJudge(read(model.path())))
    in_float, on_chip = runner(model.path(), "ort"), runner(quantized, "htp")
    for feeds in samples:
        collector.add(feeds, in_float(feeds), on_chip(feeds))
    return collector.decisions()


def measure(model: PackagedModel, calibrated: int, judged_on: int, budget: int) -> Row:
    """All figures of one model; `budget` mixes are measured to recommend one, none with a budget of 0."""
    start = time.perf_counter()
    calibration = model.samples(CALIBRATION, calibrated)
    samples = model.samples(0, judged_on)
    float_ms = hexforge.estimate(model.path(), Deployment(precision="float")).latency_ms
    with tempfile.TemporaryDirectory() as made, no_output():
        folder = Path(made)
        plain = hexforge.quantize(model.path(), calibration, output=folder / "plain.onnx")
        results = [_result(model, plain.files[0], plain.recipe.name, samples)]
        if budget:
            best = optimize(model.path(), folder / "best", OptimizeRequest(data=calibration, budget=budget))
            results.append(_result(model, best.folder.quantized, best.quantization.recipe.name, samples))
    return Row(model, float_ms, results[0], results[1] if budget else None, time.perf_counter() - start)


def _result(model: PackagedModel, path: Path, recipe: str, samples: Sequence[Feeds]) -> QuantizedResult:
    timed = hexforge.estimate(path)
    return QuantizedResult(recipe, timed.latency_ms, judged(model, path, samples), len(timed.left_on_cpu))


def table(rows: Sequence[Row], markdown: bool) -> str:
    """Rows of text."""
    names = ("agrees", "dB", "ms", "alarms")
    lines = [["model", "package", "decides by", "float ms", *(f"w8a8: {n}" for n in names)]]
    lines[0] += ["recommended", *names]
    for row in rows:
        cells = [row.model.name, row.model.package, row.plain.decisions.kind, f"{row.float_ms:.3f}", *row.plain.cells()]
        best = row.recommended
        lines.append([*cells, *(["", "", "", "", ""] if best is None else [best.recipe, *best.cells()])])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = [" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    text.insert(1, " | ".join("-" * width for width in widths))
    return "\n".join(f"| {line} |" if markdown else line.rstrip() for line in text)


def side_by_side(row: Row) -> str:
    """What both models say of the sample on which they agree least."""
    result = row.recommended or row.plain
    worst = result.decisions.worst_sample
    if worst is None:
        return f"{row.model.name}: nothing is decided"
    return f"{row.model.name}, sample {worst.number}: float says {worst.in_float}; quantized {worst.in_other}"


def main(arguments: list[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_names(parser, "model", MODELS)
    parser.add_argument("--calibrated", type=int, default=16, help="samples to calibrate and to judge mixes by")
    parser.add_argument("--judged", type=int, default=32, help="other samples to judge both results by")
    parser.add_argument("--plain", action="store_true", help="quantize only, recommend nothing")
    parser.add_argument("--budget", type=int, default=24, help="mixes that optimize measures (default: its own, 24)")
    parser.add_argument("--markdown", action="store_true", help="as docs/figures.md has it")
    given = parser.parse_args(arguments)
    rows = []
    for name in given.models:
        rows.append(measure(MODELS[name], given.calibrated, given.judged, 0 if given.plain else given.budget))
        last = [rows[-1].plain] if rows[-1].recommended is None else [rows[-1].plain, rows[-1].recommended]
        said = "; ".join(f"{r.recipe} {r.decisions.text()}" for r in last)
        print(f"  {name}: {said} ({rows[-1].seconds:.0f} s)", file=sys.stderr, flush=True)
    print(table(rows, given.markdown))
    print()
    for row in rows:
        print(side_by_side(row))
    faults = [row.fault for row in rows if row.fault]
    for fault in faults:
        print(f"not repaired: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
