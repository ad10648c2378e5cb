# SPDX-License-Identifier: Apache-2.0
"""One inference: hexforge, onnxruntime's CPU provider, OpenVINO and the vendor's emulator on the same files.

`python -m benchmarks.inference [MODEL ...] [--variant a8w8-int8] [--rounds 15] [--level avx512] [--no-vendor]
[--json FILE] [--steps 8] [--no-wall] [--scaling]`; with --json also the tables as docs/figures_inference.md has them

Every engine has its default options: hexforge is a session with QNNExecutionProvider and nothing else, so Quantize and
Dequantize at a model's border are outside its graphs, as with the execution provider. The engines take turns in one
process; the stable figure on a shared machine is the CPU time of the process with one thread, its best round and its
median (ms: best / median). OpenVINO and the emulator are optional (`make peers`); the emulator has a process of its own
and a few repetitions, as one inference takes seconds. The floor is the time of the multiply-accumulates alone, at the
rate of a loop that only touches registers, measured between the rounds.

Wall times are a section of their own: every engine in a process of its own, with one thread, two, and all cores, in
alternating blocks (`interleaved_timing`), the best run of all blocks. `--scaling` adds 1, 2, 4, 8 and 16 threads of
hexforge where the machine has the cores.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from rich.console import Console
from rich.table import Table

from benchmarks.accuracy import vendor_fidelity
from benchmarks.arguments import add_names
from benchmarks.htp import native_steps
from benchmarks.inference.page import page
from benchmarks.models.quantized import CACHE, MODELS, VARIANTS, file
from benchmarks.peers import vendor
from benchmarks.peers.engines import ENGINES, Times, cpu_times, hexforge_session, macs, programs, settle_openvino
from benchmarks.peers.interleaved_timing import Engine, alternate, counts
from hexforge import _native
from hexforge.backend import processors

Array = np.ndarray[Any, Any]

_STORED = {"a8w8-int8": "u8", "a8w8-uint8": "u8", "a16w8": "s16", "float": "f32"}
_SEED = 7  # of the input measured with; calibration used others
_LEAST_FLOOR_SHARE = 0.85
_NOTES = Console(stderr=True, highlight=False)


_TIGHT = ("resnet50", "mobilenet_v2", "yolov8n", "ppocr_det", "ppocr_rec")
"""Models with targets of their own; of the others, some of little work, it is not to be behind."""


def most_ratio(model: str, variant: str) -> float:
    """Target: hexforge's time over onnxruntime's on the same file, with one thread and with two."""
    if variant == "float" or model not in _TIGHT:
        return 1.0
    if variant in ("a16w8", "a8w8-uint8"):
        return 0.45
    return {"resnet50": 0.95, "mobilenet_v2": 1.0}.get(model, 0.65)


def least_gain(model: str) -> float:
    """Target: how many times faster two threads are than one."""
    return 1.7 if model == "resnet50" else 1.6


def least_speedup(variant: str) -> float:
    """Target: how many times less CPU time than the vendor's emulator."""
    return 20 if variant == "float" else 150


@dataclass(slots=True)
class Row:
    """What was measured with one file."""

    model: str
    variant: str
    macs: int = 0
    rate: float = 0.0
    """Multiply-accumulates per second of the register loop."""
    references: int = 0
    """Nodes without a native kernel."""
    cpu: dict[str, Times] = field(default_factory=dict)
    wall: dict[tuple[str, int], Times] = field(default_factory=dict)
    """By engine and number of threads."""
    errors: dict[str, str] = field(default_factory=dict)
    sqnr: dict[str, float] = field(default_factory=dict)
    """dB against the float model; "hexforge to vendor" between the two."""

    @property
    def floor_ms(self) -> float:
        """The time of the multiply-accumulates alone."""
        return self.macs / self.rate * 1e3

    @property
    def floor_share(self) -> float:
        """How much of the floor's rate was reached."""
        return self.floor_ms / self.cpu["hexforge"].best

    def ratio(self, peer: str) -> float | None:
        """hexforge's CPU time over a peer's, best rounds."""
        return self.cpu["hexforge"].best / self.cpu[peer].best if peer in self.cpu else None

    def wall_ratio(self, threads: int) -> float | None:
        """hexforge's wall time over onnxruntime's with so many threads."""
        ours, theirs = self.wall.get(("hexforge", threads)), self.wall.get(("onnxruntime", threads))
        return ours.best / theirs.best if ours is not None and theirs is not None else None

    def gain(self, threads: int) -> float | None:
        """How many times faster so many threads are than one, by the wall clock."""
        one, many = self.wall.get(("hexforge", 1)), self.wall.get(("hexforge", threads))
        return one.best / many.best if one is not None and many is not None else None

    def missed(self) -> list[str]:
        """Targets that were not met."""
        missed = []
        ratio, most = self.ratio("onnxruntime"), most_ratio(self.model, self.variant)
        if ratio is not None and ratio > most:
            missed.append(f"{ratio:.2f} of onnxruntime's CPU time, target {most:g}")
        ratio = self.ratio("openvino")
        if ratio is not None and self.variant != "float" and ratio > 1:
            missed.append(f"{ratio:.2f} of OpenVINO's CPU time, target 1")
        wall = self.wall_ratio(2)
        if wall is not None and wall > most:
            missed.append(f"{wall:.2f} of onnxruntime's wall time with two threads, target {most:g}")
        gain = self.gain(2)
        if gain is not None and self.model in _TIGHT and gain < least_gain(self.model):
            missed.append(f"two threads {gain:.2f} times as fast as one, target {least_gain(self.model):g}")
        gain = self.gain(16)
        if gain is not None and self.model == "resnet50" and gain < 9:
            missed.append(f"16 threads {gain:.2f} times as fast as one, target 9")
        ratio = self.ratio("vendor")
        if ratio is not None and 1 / ratio < least_speedup(self.variant):
            missed.append(f"{1 / ratio:.0f} times faster than the emulator, target {least_speedup(self.variant):g}")
        if self.model == "resnet50" and self.variant != "float" and self.floor_share < _LEAST_FLOOR_SHARE:
            missed.append(f"{self.floor_share:.0%} of the floor, target {_LEAST_FLOOR_SHARE:.0%}")
        return missed

    def json(self) -> dict[str, Any]:
        """As plain data."""

        def times(of: dict[str, Times]) -> dict[str, Any]:
            return {name: {"best_ms": t.best, "median_ms": t.median, "rounds_ms": t.ms} for name, t in of.items()}

        wall = {f"{name} {threads}": t for (name, threads), t in self.wall.items()}

        return {
            "model": self.model, "variant": self.variant, "macs": self.macs, "floor_ms": self.floor_ms,
            "floor_share": self.floor_share, "references": self.references, "cpu_1_thread": times(self.cpu),
            "wall": times(wall), "sqnr_db": self.sqnr, "errors": self.errors, "missed": self.missed(),
            "ratios": {peer: self.ratio(peer) for peer in self.cpu if peer != "hexforge"},
        }  # fmt: skip


def measure(model: str, variant: str, given: argparse.Namespace) -> Row:
    """Run one file on every engine."""
    row = Row(model, variant)
    path = file(model, variant, given.cache)
    feeds = MODELS[model].feeds(_SEED)
    session = hexforge_session(path, 1)
    row.macs = macs(session)
    row.references = sum(len(program.facts.references) for program in programs(session))
    if given.steps:
        _NOTES.print(native_steps.table(session, f"{model} {variant}", given.steps))
    del session
    real = ENGINES["onnxruntime"](file(model, "float", given.cache), 1)(feeds)
    runners = {}
    for name, load in ENGINES.items():
        try:
            runners[name] = load(path, 1)
            outputs = runners[name](feeds)
        except Exception as error:  # each engine has errors of its own
            runners.pop(name, None)
            row.errors[name] = str(error).strip().splitlines()[0]
            continue
        if not (variant == "float" and name == "onnxruntime"):
            row.sqnr[name] = vendor_fidelity.sqnr(real, dict(zip(real, outputs.values(), strict=True)))
        if name == "hexforge":
            ours = {n: np.array(a) for n, a in outputs.items()}

    def floor() -> None:
        row.rate = max(row.rate, _native.peak_macs(_STORED[variant]))

    row.cpu = cpu_times(runners, feeds, given.rounds, floor)
    del runners
    if given.wall:
        _measure_wall(row, path, given)
    if given.vendor:
        _ask_vendor(row, vendor.Case(path, feeds, given.vendor_runs), real, ours)
    return row


def _measure_wall(row: Row, path: Path, given: argparse.Namespace) -> None:
    """Every engine with one thread, two and all cores; hexforge with those of the scaling curve, too."""
    cores = processors()
    asked = {(name, threads) for name in ENGINES for threads in {1, min(2, cores), cores}}
    if given.scaling:
        asked |= {("hexforge", threads) for threads in counts(cores)}
    engines = [Engine(name, path, row.model, threads, given.level or "") for name, threads in sorted(asked)]
    alternate(engines, given.rounds)
    row.wall = {(e.name, e.threads): e.times for e in engines if e.times.ms}
    row.errors |= {f"{e.name} with {e.threads} threads": e.error for e in engines if e.error}


def _ask_vendor(row: Row, case: vendor.Case, real: dict[str, Array], ours: dict[str, Array]) -> None:
    (answer,) = vendor.run([case], fp16=row.variant == "float")
    if answer.error:
        row.errors["vendor"] = answer.error.strip().splitlines()[0]
        return
    if not answer.whole:
        row.errors["vendor"] = f"not all nodes are the emulator's: {answer.nodes}"
    row.cpu["vendor"] = Times([s * 1e3 for s in answer.cpu_s])
    row.sqnr["vendor"] = vendor_fidelity.sqnr(real, answer.outputs)
    row.sqnr["hexforge to vendor"] = vendor_fidelity.sqnr(answer.outputs, ours)


def times_table(rows: list[Row]) -> Table:
    """CPU times, ratios, targets."""
    table = Table(title="CPU time with one thread, ms: best / median round. Ratios: hexforge's time over the peer's")
    peers = [name for name in (*ENGINES, "vendor") if name != "hexforge" and any(name in r.cpu for r in rows)]
    for title in ("model", "variant", "hexforge", "floor", "of floor"):
        table.add_column(title, no_wrap=True, justify="left" if title in ("model", "variant") else "right")
    for peer in peers:
        table.add_column(peer, no_wrap=True, justify="right")
        table.add_column("times faster" if peer == "vendor" else "ratio", justify="right")
    table.add_column("references", justify="right")
    table.add_column("targets")
    for row in rows:
        cells = [row.model, row.variant, str(row.cpu["hexforge"]), f"{row.floor_ms:.1f}", f"{row.floor_share:.0%}"]
        for peer in peers:
            ratio = row.ratio(peer)
            cells.append(str(row.cpu[peer]) if ratio else "-")
            cells.append("-" if ratio is None else f"{1 / ratio:.0f}" if peer == "vendor" else f"{ratio:.2f}")
        cells.append(str(row.references))
        table.add_row(*cells, "[bold red]missed" if row.missed() else "met")
    return table


def wall_table(rows: list[Row]) -> Table:
    """Wall times by engine and number of threads, what further threads gain, and the ratio to onnxruntime."""
    columns = sorted({key for row in rows for key in row.wall}, key=lambda key: (list(ENGINES).index(key[0]), key[1]))
    threads = sorted({n for name, n in columns if name == "hexforge" and n > 1})
    both = [n for n in sorted({n for _, n in columns}) if any(row.wall_ratio(n) for row in rows)]
    table = Table(title="Wall time in ms, each engine in a process of its own, best run of alternating blocks")
    for title in ("model", "variant"):
        table.add_column(title, no_wrap=True)
    for title in (
        *(f"{name} {n}" for name, n in columns),
        *(f"gain of {n}" for n in threads),
        *(f"of onnxruntime, {n}" for n in both),
    ):
        table.add_column(title, justify="right")
    for row in rows:
        cells = [f"{row.wall[key].best:.2f}" if key in row.wall else "-" for key in columns]
        cells += ["-" if (gain := row.gain(n)) is None else f"{gain:.2f}" for n in threads]
        cells += ["-" if (ratio := row.wall_ratio(n)) is None else f"{ratio:.2f}" for n in both]
        table.add_row(row.model, row.variant, *cells)
    return table


def sqnr_table(rows: list[Row]) -> Table:
    """How near each engine is to the float model, and hexforge to the emulator."""
    names = list(dict.fromkeys(name for row in rows for name in row.sqnr))
    table = Table("model", "variant", *names, title="SQNR in dB, against the float model on onnxruntime")
    for row in rows:
        table.add_row(row.model, row.variant, *(f"{row.sqnr[n]:.1f}" if n in row.sqnr else "-" for n in names))
    return table


def processor() -> str:
    """The CPU's name."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def rates() -> str:
    """The rates the floors come from."""
    kinds = {"u8": "u8 x s8", "s16": "s16 x s16", "f32": "float32"}
    said = ", ".join(f"{words} {_native.peak_macs(kind) / 1e9:.0f}" for kind, words in kinds.items())
    if _native.level() == "amx":  # the floor stays that of the vectors, so a share above 100 % is possible
        said += f" (by AMX tiles, u8 x s8: {_native.peak_macs('u8_tiles') / 1e9:.0f})"
    return f"GMAC/s of register-only loops: {said}"


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_names(parser, "model", MODELS)
    parser.add_argument("--variant", action="append", choices=list(VARIANTS), help="may be repeated; all by default")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each engine")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of the model files")
    parser.add_argument("--no-vendor", dest="vendor", action="store_false", help="leave the emulator out")
    parser.add_argument("--vendor-runs", type=int, default=2, help="inferences on the emulator")
    parser.add_argument("--no-wall", dest="wall", action="store_false", help="leave the wall times out")
    parser.add_argument("--scaling", action="store_true", help="hexforge with 1, 2, 4, 8, 16 threads, too")
    parser.add_argument("--level", choices=_native.levels(), help="hold hexforge to a lower instruction set")
    parser.add_argument("--steps", type=int, default=0, metavar="N", help="also print the N slowest native steps")
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="write the figures there, and print the tables of docs/figures_inference.md",
    )
    return parser.parse_args(arguments)


def _machine() -> str:
    return f"{processor()}, hexforge on {_native.level()}; {rates()}; onnxruntime {onnxruntime.__version__}"


def _missed(rows: list[Row], differences: list[vendor_fidelity.Difference]) -> list[str]:
    missed = [f"{row.model} {row.variant}: {what}" for row in rows for what in row.missed()]
    return missed + [f"{d.name} at {d.bits} bits: {d.lsb} LSB" for d in differences if d.lsb >= 0 and not d.kept]


def _write(path: Path, rows: list[Row], differences: list[vendor_fidelity.Difference]) -> dict[str, Any]:
    """What was measured as plain data, which is in the file then."""
    data: dict[str, Any] = {
        "machine": _machine(),
        "rows": [r.json() for r in rows],
        "missed": _missed(rows, differences),
    }
    data["single_ops"] = [{"op": d.name, "bits": d.bits, "lsb": d.lsb, "equal": d.same} for d in differences]
    path.write_text(json.dumps(data, indent=1))
    return data


def main(arguments: list[str]) -> int:
    """Print the tables; 1 if a target is missed."""
    given = _parse(arguments)
    if given.level:
        _native.set_level(given.level)
    if given.vendor and (why := vendor.missing()):
        _NOTES.print(f"without the vendor's emulator: {why}")
        given.vendor = False
    if said := settle_openvino(file("mobilenet_v2", "a8w8-int8", given.cache)):
        _NOTES.print(said)
    chosen = [(m, v) for m in given.models for v in given.variant or VARIANTS]
    rows = []
    for number, (model, variant) in enumerate(chosen, 1):
        with _NOTES.status(f"{number} of {len(chosen)}: {model} {variant}"):
            row = measure(model, variant, given)
        rows.append(row)
        against = row.ratio("onnxruntime")
        _NOTES.print(
            f"{number} of {len(chosen)}: {model} {variant}: {row.cpu['hexforge']} ms"
            + (f", {against:.2f} of onnxruntime" if against else "")
            + "".join(f"; {name}: {error}" for name, error in row.errors.items())
        )
        if given.json:  # a long pass that is ended early keeps what it found
            _write(given.json, rows, [])
    out = Console(width=None if sys.stdout.isatty() else 220)
    out.print(times_table(rows))
    if given.wall:
        out.print(wall_table(rows))
    out.print(sqnr_table(rows))
    differences = []
    if given.vendor:
        with _NOTES.status("single ops against the emulator"):
            differences = vendor_fidelity.differences()
        out.print(vendor_fidelity.table(differences))
    missed = _missed(rows, differences)
    out.print(_machine(), highlight=False)
    out.print("targets: " + ("met" if not missed else "missed by\n  " + "\n  ".join(missed)), highlight=False)
    if given.json:
        print(page(_write(given.json, rows, differences)))
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
