# SPDX-License-Identifier: Apache-2.0
"""Layers and pairs that nobody chose, float and QDQ, on hexforge and on onnxruntime's CPU provider.

`python -m benchmarks.sweep [--graphs FOLDER] [--count 300] [--seed 0] [--threads 1] [--level avx2] [--rounds 5]
[--kind float|qdq] [--only WORD] [--json FILE]`

Each engine has a process of its own, and they take turns with every layer; a layer's figure is the least wall time of
one inference of all turns. The worst are the work list. --graphs is a folder of ONNX graphs to draw layers from; where
there is none all layers have random shapes. Another seed draws other layers.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import onnx
from rich.console import Console
from rich.table import Table

from benchmarks.models.quantized import quiet
from benchmarks.sweep.engine_process import EngineProcess, feeds, open_session
from benchmarks.sweep.layers import Layer, drawn, of_random_shapes
from hexforge import _native
from tests.models.fetch import FOLDER
from tests.models.quantize import quantized

_NOTES = Console(stderr=True, highlight=False)
_TURN_S = 0.02
_MOST_RATIO, _MEAN_RATIO = 1.3, 0.7
_RANDOM_SHARE = 0.4
CACHE = FOLDER / "sweep"


@dataclass(frozen=True, slots=True)
class Measured:
    """What both engines took for one model."""

    name: str
    kind: str
    threads: int
    ours_ms: float
    theirs_ms: float

    @property
    def ratio(self) -> float:
        """hexforge's time over onnxruntime's."""
        return self.ours_ms / self.theirs_ms


def mean_ratio(rows: list[Measured]) -> float:
    """The geometric mean."""
    return math.exp(sum(math.log(row.ratio) for row in rows) / max(1, len(rows)))


def measure(
    engines: list[EngineProcess], path: Path, name: str, kind: str, threads: int, rounds: int
) -> Measured | str:
    """Both engines in turns; or why one of them does not run it."""
    for engine in engines:
        if error := engine.load(path, threads):
            return f"{engine.name}: {error}"
    least = {engine.name: float("inf") for engine in engines}
    for _ in range(rounds):
        for engine in engines:
            least[engine.name] = min(least[engine.name], engine.turn(_TURN_S))
    return Measured(name, kind, threads, least["hexforge"], least["onnxruntime"])


def write_qdq(source: Path, target: Path) -> None:
    """The QDQ version of a float file, calibrated with one random input."""
    session = open_session("onnxruntime", str(source), 1)
    with quiet():
        quantized(source, target, "a8w8", [feeds(session, seed) for seed in (1, 2)])


def print_rows(out: Console, rows: list[Measured], worst: int) -> None:
    """The mean, the means by kind of layer, and the worst."""
    groups: dict[tuple[str, int], list[Measured]] = defaultdict(list)
    for row in rows:
        groups[row.kind, row.threads].append(row)
    for (kind, threads), some in sorted(groups.items()):
        by_layer: dict[str, list[Measured]] = defaultdict(list)
        for row in some:
            by_layer[row.name.split(" ")[0]].append(row)
        over = sum(row.ratio > _MOST_RATIO for row in some)
        out.print(
            f"{kind}, {threads} thread(s): {len(some)} models, geometric mean {mean_ratio(some):.3f} of onnxruntime "
            f"(target {_MEAN_RATIO}), {over} above {_MOST_RATIO}, {sum(row.ratio > 1 for row in some)} above 1"
        )
        table = Table("model", "hexforge ms", "onnxruntime ms", "ratio", title=f"worst of {kind}, {threads} thread(s)")
        for row in sorted(some, key=lambda row: -row.ratio)[:worst]:
            table.add_row(row.name, f"{row.ours_ms:.3f}", f"{row.theirs_ms:.3f}", f"{row.ratio:.2f}")
        out.print(table)
        means = sorted(((mean_ratio(each), name, len(each)) for name, each in by_layer.items()), reverse=True)
        out.print("by layer: " + ", ".join(f"{name} {mean:.2f} ({n})" for mean, name, n in means), highlight=False)


def _layers(given: argparse.Namespace) -> list[Layer]:
    random = given.count if given.graphs is None else round(given.count * _RANDOM_SHARE)
    made = [] if given.graphs is None else drawn(given.graphs, given.count - random, given.seed)
    made += of_random_shapes(given.count - len(made), given.seed)
    return [layer for layer in made if not given.only or given.only in layer.name]


def main(arguments: list[str]) -> int:
    """Print the tables; 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=Path, help="folder of ONNX graphs that layers are drawn from")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, action="append", help="1 and 2 by default; may be repeated")
    parser.add_argument(
        "--level", default="", choices=_native.levels(), help="hold hexforge to a lower instruction set"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kind", action="append", choices=("float", "qdq"), help="both by default")
    parser.add_argument("--only", default="", help="layers whose names have this in them")
    parser.add_argument("--worst", type=int, default=20)
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of the files")
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args(arguments)
    given.cache.mkdir(parents=True, exist_ok=True)
    rows: list[Measured] = []
    left_out: list[str] = []
    with _NOTES.status("layers"):
        layers = _layers(given)
    with EngineProcess("hexforge", given.level) as ours, EngineProcess("onnxruntime") as theirs:
        for number, layer in enumerate(layers, 1):
            for kind in given.kind or ("float", "qdq"):
                source = given.cache / f"{given.seed}.{number}.float.onnx"
                path = given.cache / f"{given.seed}.{number}.{kind}.onnx"
                try:
                    onnx.save(layer.model, source)
                    if kind == "qdq":
                        write_qdq(source, path)
                except Exception as error:  # onnxruntime's quantizer fails in ways of its own
                    left_out.append(f"{layer.name} {kind}: {str(error).strip().splitlines()[:1]}")
                    continue
                for threads in given.threads or (1, 2):
                    said = measure([ours, theirs], path, layer.name, kind, threads, given.rounds)
                    if isinstance(said, str):
                        left_out.append(f"{layer.name} {kind}: {said}")
                        break
                    rows.append(said)
                    if said.ratio > _MOST_RATIO:
                        _NOTES.print(f"{number} {said.name} {kind} {threads}: {said.ratio:.2f} ({said.ours_ms:.3f} ms)")
            if given.json:
                _write(given.json, rows)
    out = Console(width=None if sys.stdout.isatty() else 160)
    print_rows(out, rows, given.worst)
    out.print(f"left out: {len(left_out)}" + "".join(f"\n  {line}" for line in left_out), highlight=False)
    missed = mean_ratio(rows) > _MEAN_RATIO or any(row.ratio > _MOST_RATIO for row in rows)
    return 1 if missed else 0


def _write(path: Path, rows: list[Measured]) -> None:
    data: list[dict[str, Any]] = [asdict(row) | {"ratio": row.ratio} for row in rows]
    path.write_text(json.dumps(data, indent=1))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
