"""One inference: hexforge, onnxruntime's CPU provider, OpenVINO and the vendor's emulator on the same files.

`python -m benchmarks.inference [MODEL ...] [--variant a8w8-int8] [--rounds 15] [--level avx512] [--no-vendor]
[--json FILE] [--steps 8]`

The engines take turns in one process; the stable figure on a shared machine is the CPU time of the process with one
thread, its best round and its median (ms: best / median). OpenVINO and the emulator are optional (`make peers`); the
emulator has a process of its own and a few repetitions, as one inference takes seconds. The floor is the time of the
multiply-accumulates alone, at the rate of a loop that only touches registers, measured between the rounds.
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

from benchmarks import fidelity, steps, vendor
from benchmarks.engines import ENGINES, Times, cpu_times, hexforge_session, macs, programs, settle_openvino, wall_times
from benchmarks.quantized import CACHE, MODELS, VARIANTS, file
from hexforge import _native

Array = np.ndarray[Any, Any]

_STORED = {"a8w8-int8": "u8", "a8w8-uint8": "u8", "a16w8": "s16", "float": "f32"}
_SEED = 7  # of the input measured with; calibration used others
_LEAST_FLOOR_SHARE = 0.8
_NOTES = Console(stderr=True, highlight=False)


def most_ratio(model: str, variant: str) -> float | None:
    """Target: hexforge's CPU time over onnxruntime's on the same file."""
    if variant == "a16w8":
        return 0.45
    if variant == "float":
        return None
    if model == "resnet50":
        return 1.0 if variant == "a8w8-int8" else 0.45
    return {"yolov8n": 0.6, "ppocr_det": 0.5, "ppocr_rec": 0.5}.get(model)


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
    wall: dict[str, Times] = field(default_factory=dict)
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

    def missed(self) -> list[str]:
        """Targets that were not met."""
        found = []
        ratio, most = self.ratio("onnxruntime"), most_ratio(self.model, self.variant)
        if ratio is not None and most is not None and ratio > most:
            found.append(f"{ratio:.2f} of onnxruntime's CPU time, target {most:g}")
        ratio = self.ratio("vendor")
        if ratio is not None and 1 / ratio < least_speedup(self.variant):
            found.append(f"{1 / ratio:.0f} times faster than the emulator, target {least_speedup(self.variant):g}")
        if self.model == "resnet50" and self.variant != "float" and self.floor_share < _LEAST_FLOOR_SHARE:
            found.append(f"{self.floor_share:.0%} of the floor, target {_LEAST_FLOOR_SHARE:.0%}")
        return found

    def json(self) -> dict[str, Any]:
        """As plain data."""

        def times(of: dict[str, Times]) -> dict[str, Any]:
            return {name: {"best_ms": t.best, "median_ms": t.median, "rounds_ms": t.ms} for name, t in of.items()}

        return {
            "model": self.model, "variant": self.variant, "macs": self.macs, "floor_ms": self.floor_ms,
            "floor_share": self.floor_share, "references": self.references, "cpu_1_thread": times(self.cpu),
            "wall_2_threads": times(self.wall), "sqnr_db": self.sqnr, "errors": self.errors, "missed": self.missed(),
            "ratios": {peer: self.ratio(peer) for peer in self.cpu if peer != "hexforge"},
        }  # fmt: skip


def measure(model: str, variant: str, given: argparse.Namespace) -> Row:
    """Run one file on every engine."""
    row = Row(model, variant)
    path = file(model, variant, given.cache)
    feeds = MODELS[model].feeds(_SEED)
    session = hexforge_session(path, 1)
    row.macs = macs(session)
    row.references = sum(len(program.references) for program in programs(session))
    if given.steps:
        _NOTES.print(steps.table(session, f"{model} {variant}", given.steps))
    del session
    real = ENGINES["onnxruntime"](file(model, "float", given.cache), 1)(feeds)
    for threads in (1, 2):
        runners = {}
        for name, load in ENGINES.items():
            try:
                runners[name] = load(path, threads)
                outputs = runners[name](feeds)
            except Exception as error:  # each engine has errors of its own
                runners.pop(name, None)
                row.errors[name] = str(error).strip().splitlines()[0]
                continue
            if threads == 1 and not (variant == "float" and name == "onnxruntime"):
                row.sqnr[name] = fidelity.sqnr(real, dict(zip(real, outputs.values(), strict=True)))
            if threads == 1 and name == "hexforge":
                ours = {n: np.array(a) for n, a in outputs.items()}
        if threads == 1:

            def floor() -> None:
                row.rate = max(row.rate, _native.peak_macs(_STORED[variant]))

            row.cpu = cpu_times(runners, feeds, given.rounds, floor)
        else:
            row.wall = wall_times(runners, feeds, given.rounds)
    if given.vendor:
        _ask_vendor(row, vendor.Case(path, feeds, given.vendor_runs), real, ours)
    return row


def _ask_vendor(row: Row, case: vendor.Case, real: dict[str, Array], ours: dict[str, Array]) -> None:
    (found,) = vendor.run([case], fp16=row.variant == "float")
    if found.error:
        row.errors["vendor"] = found.error.strip().splitlines()[0]
        return
    if not found.whole:
        row.errors["vendor"] = f"not all nodes are the emulator's: {found.nodes}"
    row.cpu["vendor"] = Times([s * 1e3 for s in found.cpu_s])
    row.sqnr["vendor"] = fidelity.sqnr(real, found.outputs)
    row.sqnr["hexforge to vendor"] = fidelity.sqnr(found.outputs, ours)


def times_table(rows: list[Row]) -> Table:
    """CPU and wall times, ratios, targets."""
    table = Table(title="CPU time with one thread, ms: best / median round. Ratios: hexforge's time over the peer's")
    peers = [name for name in (*ENGINES, "vendor") if name != "hexforge" and any(name in r.cpu for r in rows)]
    for title in ("model", "variant", "hexforge", "floor", "of floor"):
        table.add_column(title, no_wrap=True, justify="left" if title in ("model", "variant") else "right")
    for peer in peers:
        table.add_column(peer, no_wrap=True, justify="right")
        table.add_column("times faster" if peer == "vendor" else "ratio", justify="right")
    table.add_column("2 threads, wall: " + ", ".join(ENGINES), justify="right")
    table.add_column("references", justify="right")
    table.add_column("targets")
    for row in rows:
        cells = [row.model, row.variant, str(row.cpu["hexforge"]), f"{row.floor_ms:.1f}", f"{row.floor_share:.0%}"]
        for peer in peers:
            ratio = row.ratio(peer)
            cells.append(str(row.cpu[peer]) if ratio else "-")
            cells.append("-" if ratio is None else f"{1 / ratio:.0f}" if peer == "vendor" else f"{ratio:.2f}")
        cells.append(", ".join(f"{row.wall[n].best:.1f}" if n in row.wall else "-" for n in ENGINES))
        cells.append(str(row.references))
        table.add_row(*cells, "[bold red]missed" if row.missed() else "met")
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
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)}; all by default")
    parser.add_argument("--variant", action="append", choices=list(VARIANTS), help="may be repeated; all by default")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each engine")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of the model files")
    parser.add_argument("--no-vendor", dest="vendor", action="store_false", help="leave the emulator out")
    parser.add_argument("--vendor-runs", type=int, default=2, help="inferences on the emulator")
    parser.add_argument("--level", choices=_native.levels(), help="hold hexforge to a lower instruction set")
    parser.add_argument("--steps", type=int, default=0, metavar="N", help="also print the N slowest native steps")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.models if name not in MODELS]:
        parser.error(f"no model {unknown[0]!r}; there are {', '.join(MODELS)}")
    return given


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
    chosen = [(m, v) for m in given.models or MODELS for v in given.variant or VARIANTS]
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
    out = Console(width=None if sys.stdout.isatty() else 190)
    out.print(times_table(rows))
    out.print(sqnr_table(rows))
    differences = []
    if given.vendor:
        with _NOTES.status("single ops against the emulator"):
            differences = fidelity.differences()
        out.print(fidelity.table(differences))
    missed = [f"{row.model} {row.variant}: {what}" for row in rows for what in row.missed()]
    missed += [f"{d.name} at {d.bits} bits: {d.lsb} LSB" for d in differences if d.lsb >= 0 and not d.kept]
    machine = f"{processor()}, hexforge on {_native.level()}; {rates()}; onnxruntime {onnxruntime.__version__}"
    out.print(machine, highlight=False)
    out.print("targets: " + ("met" if not missed else "missed by\n  " + "\n  ".join(missed)), highlight=False)
    if given.json:
        data = {"machine": machine, "rows": [r.json() for r in rows], "missed": missed}
        data["single_ops"] = [{"op": d.name, "bits": d.bits, "lsb": d.lsb, "equal": d.same} for d in differences]
        given.json.write_text(json.dumps(data, indent=1))
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
