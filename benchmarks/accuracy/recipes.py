# SPDX-License-Identifier: Apache-2.0
"""Accuracy of quantized models on the emulator of the NPU: hexforge's recipes next to onnxruntime's own quantizer.

    python -m benchmarks.accuracy.recipes [--quick] [--markdown] [PAIR ...]

For each pair of `models_with_data` and each way to quantize, all from the same calibration samples: the score, and the
SQNR of the model's worst output against the float model, both of what htp computes. The last lines sum up.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from onnxruntime.quantization import QuantType

from benchmarks.accuracy.models_with_data import PAIRS, Pair, Runner
from benchmarks.arguments import add_names
from benchmarks.models.quantized import quiet
from hexforge.analysis.quality.quantize import quantize
from hexforge.analysis.quality.runners import runner
from hexforge.errors import HexforgeError
from hexforge.quant.compare import ErrorSums
from tests.models.quantize import quantized as quantized_by_onnxruntime

IMPROVED = "+range+equalize+bias+adaround"
_TYPES = {
    "w8a8": (QuantType.QUInt8, QuantType.QUInt8),
    "w8a8_channel": (QuantType.QUInt8, QuantType.QInt8),
    "w8a16": (QuantType.QUInt16, QuantType.QUInt8),
    "w8a16_channel": (QuantType.QUInt16, QuantType.QInt8),
}
"""Types of activations and weights that onnxruntime's quantizer is asked for: the documented ones for QNN, and, as a
scale per channel needs them, signed weights."""
WAYS = {
    "onnxruntime w8a8": ("onnxruntime", "w8a8"),
    "onnxruntime w8a8 channel": ("onnxruntime", "w8a8_channel"),
    "w8a8": ("hexforge", "w8a8"),
    "w8a8 channel": ("hexforge", "w8a8_channel"),
    "w8a8 improved": ("hexforge", f"w8a8_channel{IMPROVED}"),
    "onnxruntime w8a16": ("onnxruntime", "w8a16"),
    "onnxruntime w8a16 channel": ("onnxruntime", "w8a16_channel"),
    "w8a16": ("hexforge", "w8a16"),
    "w8a16 channel": ("hexforge", "w8a16_channel"),
    "w8a16 improved": ("hexforge", f"w8a16_channel{IMPROVED}"),
}
"""column -> who quantizes, and how."""

CALIBRATION, QUICK_CALIBRATION = 64, 16
SQNR_SAMPLES = 400
_QUICK = 10
"""Part of the evaluation samples that --quick looks at."""


@dataclass(slots=True)
class Row:
    """The figures of one pair."""

    pair: str
    metric: str
    score: float
    scores: dict[str, float] = field(default_factory=dict)
    sqnr_db: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def make(pair: Pair, way: str, calibration: int, target: Path) -> None:
    """Write a pair's model, quantized."""
    who, how = WAYS[way]
    if who == "hexforge":
        quantize(pair.model(), pair.calibration(calibration), how, target)
        return
    with quiet(), no_output():
        samples = list(pair.calibration(calibration))
        quantized_by_onnxruntime(pair.model(), target, _TYPES[how], samples, per_channel="channel" in how)


def sqnr_db(pair: Pair, run: Runner, count: int) -> float:
    """Of the worst output, on evaluation samples."""
    sums: dict[str, ErrorSums] = {}
    for feeds in pair.evaluation(count):
        outputs = run(feeds)
        for name, array in pair.float_run(feeds).items():
            sums.setdefault(name, ErrorSums()).update(array, outputs[name])
    return min(one.sqnr_db for one in sums.values())


def measure(pair: Pair, quick: bool, ways: list[str]) -> Row:
    """All ways for one pair."""
    count = max(20, pair.samples // _QUICK) if quick else pair.samples
    row = Row(pair.name, pair.metric, pair.score(pair.float_run, count))
    for way in ways:
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "model.onnx"
            try:
                make(pair, way, QUICK_CALIBRATION if quick else CALIBRATION, target)
                made = time.perf_counter()
                run = runner(target, "htp")
            except Exception as error:
                if WAYS[way][0] == "hexforge" and not isinstance(error, HexforgeError):
                    raise
                # a model that a quantizer cannot take is a result, not the end
                row.failed[way] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
                _say(f"  {pair.name}, {way}: {row.failed[way]}")
                continue
            row.scores[way] = pair.score(run, count)
            row.sqnr_db[way] = sqnr_db(pair, run, min(count, SQNR_SAMPLES))
        took = f"{made - start:.0f} s to quantize, {time.perf_counter() - made:.0f} s to run"
        _say(f"  {pair.name}, {way}: {row.scores[way]:.4f}, {row.sqnr_db[way]:.1f} dB ({took})")
    return row


def table(rows: list[Row], ways: list[str], markdown: bool) -> str:
    """Rows of text: the score and, in brackets, the SQNR."""
    lines = [["model", "metric", "float", *ways]]
    for row in rows:
        cells = [f"{row.scores[way]:.3f} ({row.sqnr_db[way]:.1f} dB)" if way in row.scores else "fails" for way in ways]
        lines.append([row.pair, row.metric, f"{row.score:.3f}", *cells])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = [" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    text.insert(1, " | ".join("-" * width for width in widths))
    return "\n".join(f"| {line} |" if markdown else line.rstrip() for line in text)


def gains(rows: list[Row]) -> Iterator[str]:
    """How much better one way is than another, on average and at worst.

    Improved recipes have a scale per channel too: what the improvements alone are worth is against that.
    """
    for bits in ("w8a8", "w8a16"):
        pairs = ((f"{bits} improved", bits), (f"{bits} improved", f"{bits} channel"))
        peers = [(way, f"onnxruntime {way}") for way in (bits, f"{bits} channel")]
        peers += [(f"{bits} improved", peer) for _, peer in peers]
        for better, worse in (*pairs, *peers):
            yield from _gain(rows, better, worse)


def _gain(rows: list[Row], better: str, worse: str) -> Iterator[str]:
    gain_of = {
        row.pair: row.sqnr_db[better] - row.sqnr_db[worse]
        for row in rows
        if better in row.sqnr_db and worse in row.sqnr_db
    }
    if gain_of:
        least = min(gain_of, key=lambda name: gain_of[name])
        mean = statistics.mean(gain_of.values())
        yield f"{better} - {worse}: {mean:+.1f} dB on average, least {gain_of[least]:+.1f} dB ({least})"


@contextlib.contextmanager
def no_output() -> Iterator[None]:
    """Without what the peer prints."""
    with (
        Path(os.devnull).open("w") as nothing,
        contextlib.redirect_stdout(nothing),
        contextlib.redirect_stderr(nothing),
    ):
        yield


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: list[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_names(parser, "pair", PAIRS)
    parser.add_argument("--quick", action="store_true", help="a tenth of the samples, to see that it works")
    parser.add_argument("--markdown", action="store_true", help="as docs/figures.md has it")
    parser.add_argument("--ways", default=",".join(WAYS), help="columns, parted by commas (default: all)")
    given = parser.parse_args(arguments)
    ways = given.ways.split(",")
    if unknown := [way for way in ways if way not in WAYS]:
        parser.error(f"no way {unknown[0]!r}; there are {', '.join(WAYS)}")
    rows = [measure(PAIRS[name], given.quick, ways) for name in given.pairs]
    print(table(rows, ways, given.markdown))
    print()
    for line in gains(rows):
        print(line)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
