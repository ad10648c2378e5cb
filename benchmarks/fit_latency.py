"""Fit the HTP cost model on measured latencies: `python -m benchmarks.fit_latency` writes backends/htp/time/cost.json.

Every parameter is physical and has a prior (hexforge.backends.htp.time.cost); nothing is fitted per model. Errors are
logarithmic and robust, each (model, precision) weighs the same. The reference chip's parameters are fitted on the chips
of BASE together, a chip's factors on its own rows. The error that is kept in the file is that on families held out
(benchmarks/latency.py).
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hexforge.analysis.estimate import graph_of
from hexforge.backends.htp.chip import soc
from hexforge.backends.htp.time import cost
from hexforge.backends.htp.time.schedule import RUNTIMES, schedule
from hexforge.backends.htp.time.simulate import SYNC_US, tiles
from hexforge.backends.htp.time.tile import PRECISIONS

DATA = Path(__file__).with_name("measured")
TARGET = Path(cost.__file__).with_name("cost.json")
BASE = ("SM8650", "SM8750", "SM8550", "SC8380XP")
"""Chips whose rows fit the reference parameters together."""
RATES = ("float", "w8a8", "w8a16")
HMX = [p.name.removeprefix("share.") for p in cost.PARAMETERS if p.name.startswith("share.")]
HVX = [*cost.VECTOR, *cost.COUNTED]
INDEX = {p.name: i for i, p in enumerate(cost.PARAMETERS)}
PRIOR = np.log([p.prior for p in cost.PARAMETERS])
SPREAD = np.array([p.spread for p in cost.PARAMETERS])
BOUNDS = np.log([p.bounds for p in cost.PARAMETERS]).T
ROBUST = 0.1
"""Logarithmic error from which on rows pull with the same force."""
TOGETHER = 0.25
"""How far a chip's factors of time are from their mean, as a logarithm, before its rows say so."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One row of measured.csv."""

    model: str
    precision: str
    runtime: str
    device: str
    chip: str
    us: float


def measured(data: Path) -> list[Measured]:
    """The rows of measured.csv, each with the name of its chip."""
    found = []
    with (data / "measured.csv").open() as file:
        for row in csv.DictReader(file):
            chip = soc.find(row["soc_model"])
            assert chip is not None, row
            us = float(row["inference_ms"]) * 1e3
            found.append(Measured(row["model"], row["precision"], row["runtime"], row["device"], chip.name, us))
    return found


@dataclass(frozen=True, slots=True)
class Instance:
    """A model through a runtime at a precision, as tiles with amounts of work."""

    hmx: np.ndarray
    hvx: np.ndarray
    moved_mb: np.ndarray
    share: np.ndarray
    free_after: np.ndarray
    elements: float


Key = tuple[str, str, str, int]
"""Model, runtime, precision, bytes of VTCM."""


class Instances:
    """Instances by key, made once."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._graphs: dict[str, Any] = {}
        self._made: dict[Key, Instance] = {}

    def __getitem__(self, key: Key) -> Instance:
        if key not in self._made:
            self._made[key] = self._make(*key)
        return self._made[key]

    def _make(self, model: str, runtime: str, precision: str, vtcm: int) -> Instance:
        if model not in self._graphs:
            self._graphs[model] = graph_of(self._data / "topologies" / f"{model}.onnx")
        graph = self._graphs[model]
        tasks = schedule(graph, PRECISIONS[precision], runtime, vtcm)
        cut = tiles(tasks, vtcm)
        hmx, hvx = np.zeros((len(cut), len(HMX))), np.zeros((len(cut), len(HVX)))
        for i, tile in enumerate(cut):
            for kind, amount in tasks[tile.task].hmx.items():
                hmx[i, HMX.index(kind)] = amount * tile.share
            for kind, amount in tasks[tile.task].hvx.items():
                hvx[i, HVX.index(kind)] = amount * tile.share
        moved = np.array([t.weight_bytes + tasks[t.task].spill_bytes * t.share for t in cut]) / 1e6
        share, free = np.array([t.share for t in cut]), np.array([t.free_after for t in cut])
        elements = sum(v.type.size for v in (*graph.inputs, *graph.outputs)) / 1e6
        return Instance(hmx, hvx, moved, share, free, elements)


class Batch:
    """Instances evaluated together, for many sets of parameters at once."""

    def __init__(self, instances: Instances, keys: Iterable[Key]) -> None:
        self.keys = sorted(set(keys), key=lambda k: (-len(instances[k].share), k))
        self.position = {k: i for i, k in enumerate(self.keys)}
        found = [instances[k] for k in self.keys]
        self._count = np.array([len(f.share) for f in found])
        self._offset = np.concatenate([[0], np.cumsum(self._count)])
        self._hmx = np.concatenate([f.hmx for f in found])
        self._hvx = np.concatenate([f.hvx for f in found])
        self._moved = np.concatenate([f.moved_mb for f in found])[:, None]
        self._share = np.concatenate([f.share for f in found])[:, None]
        self._free = np.concatenate([f.free_after for f in found])
        self._elements = np.array([f.elements for f in found])[:, None]
        self._rate = np.array([RATES.index(PRECISIONS[k[2]].rate) for k in self.keys])
        self._rows = [np.nonzero(np.repeat(self._rate, self._count) == r)[0] for r in range(len(RATES))]
        self._runtime = np.array([RUNTIMES.index(k[1]) for k in self.keys])

    def us(self, logs: np.ndarray) -> np.ndarray:
        """Latency of each instance (rows) for columns of logarithms of parameters, as `simulate.run` has it."""
        v = np.exp(logs)
        shares, kinds = v[[INDEX[f"share.{k}"] for k in HMX]], v[[INDEX[f"hvx.{k}"] for k in HVX]]
        hmx = np.empty((len(self._share), v.shape[1]))
        hvx = np.empty_like(hmx)
        for r, rate in enumerate(RATES):
            scale = np.stack([_group(v, rate, kind) for kind in HVX])
            rows = self._rows[r]
            hmx[rows] = (self._hmx[rows] @ shares) * v[INDEX[f"hmx.{rate}"]]
            hvx[rows] = self._hvx[rows] @ (kinds * scale)
        serial = np.minimum(v[INDEX["serial"]], 1.0)
        work = np.maximum(hmx, hvx) + serial * np.minimum(hmx, hvx) + self._share * v[INDEX["task"]]
        transfer = self._moved * v[INDEX["dram"]]
        longest, columns = int(self._count.max()), v.shape[1]
        ends = np.zeros((longest + 1, len(self.keys), columns))
        fetched = np.zeros((len(self.keys), columns))
        for step in range(longest):
            live = int(np.searchsorted(-self._count, -step, "left"))
            rows = self._offset[:live] + step
            fetched[:live] = np.maximum(fetched[:live], ends[self._free[rows], np.arange(live)]) + transfer[rows]
            ready = ends[step, :live] + work[rows]
            waits = np.maximum(ready, fetched[:live] + SYNC_US)
            ends[step + 1, :live] = np.where(self._moved[rows] > 0, waits, ready)
            ends[step + 1, live:] = ends[step, live:]
        factor, call = np.ones((len(RUNTIMES), columns)), np.ones((len(RUNTIMES), columns))
        for i, runtime in enumerate(RUNTIMES[1:], 1):
            factor[i], call[i] = v[INDEX[f"runtime.{runtime}"]], v[INDEX[f"call.{runtime}"]]
        host = v[INDEX["host.call"]] * call[self._runtime] + self._elements * v[INDEX["host.io"]]
        return np.asarray((ends[longest] + host) * factor[self._runtime])


def _group(values: np.ndarray, rate: str, kind: str) -> np.ndarray:
    name = cost.group(kind)
    return np.ones(values.shape[1]) if name is None else np.asarray(values[INDEX[f"hvx_{rate}.{name}"]])


def vtcm(chip: str) -> int:
    """Bytes of vector memory of a chip."""
    found = soc.find(chip)
    assert found is not None
    return found.vtcm_mb << 20


def offsets(factors: np.ndarray) -> np.ndarray:
    """Logarithms of a chip's factors, as what is added to the parameters' logarithms."""
    where = [cost.FACTORS.index(p.factor) if p.factor else -1 for p in cost.PARAMETERS]
    return np.append(factors, 0.0)[where]


def robust(errors: np.ndarray) -> np.ndarray:
    """Errors whose squares are the pseudo-Huber loss."""
    z = errors / ROBUST
    return np.asarray(np.sign(z) * np.sqrt(2 * (np.sqrt(1 + z * z) - 1)))


def minimise(
    start: np.ndarray,
    residuals: Callable[[np.ndarray], np.ndarray],
    steps: int,
    bounds: np.ndarray | None = None,
    tolerance: float = 1e-3,
) -> np.ndarray:
    """Levenberg-Marquardt within bounds; `residuals` takes columns of parameters and gives columns."""
    low, high = (-np.inf, np.inf) if bounds is None else bounds
    x, damping, h = start.copy(), 1e-2, 1e-3
    for _ in range(steps):
        columns = residuals(np.concatenate([x[:, None], x[:, None] + h * np.eye(len(x))], 1))
        r, jacobian = columns[:, 0], (columns[:, 1:] - columns[:, :1]) / h
        before = after = float(r @ r)
        for _ in range(6):
            normal = jacobian.T @ jacobian
            step = -np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-9), jacobian.T @ r)
            tried = np.clip(x + np.clip(step, -0.7, 0.7), low, high)
            moved = residuals(tried[:, None])[:, 0]
            after = float(moved @ moved)
            if after < before:
                x, damping = tried, max(damping / 5, 1e-6)
                break
            damping *= 5
        if before - after < tolerance * before:
            break
    return x


@dataclass(frozen=True, slots=True)
class Fit:
    """Logarithms of the reference chip's parameters and of every chip's factors."""

    parameters: np.ndarray
    chips: Mapping[str, np.ndarray]

    def us(self, instances: Instances, rows: Sequence[Measured]) -> np.ndarray:
        """Predicted latency of each row."""
        found = np.zeros(len(rows))
        for chip in dict.fromkeys(r.chip for r in rows):
            here = [i for i, r in enumerate(rows) if r.chip == chip]
            keys = [key(rows[i]) for i in here]
            batch = Batch(instances, keys)
            us = batch.us((self.parameters + offsets(self.chips[chip]))[:, None])[:, 0]
            found[here] = us[[batch.position[k] for k in keys]]
        return found


def key(row: Measured) -> Key:
    """The instance of a row."""
    return row.model, row.runtime, row.precision, vtcm(row.chip)


class _Rows:
    """Rows of one chip, ready to be compared with predictions."""

    def __init__(self, instances: Instances, rows: Sequence[Measured]) -> None:
        keys = [key(r) for r in rows]
        self.batch = Batch(instances, keys)
        self._at = [self.batch.position[k] for k in keys]
        self._log = np.log([r.us for r in rows])[:, None]
        count = Counter((r.model, r.precision) for r in rows)
        self._weight = np.array([1 / math.sqrt(count[r.model, r.precision]) for r in rows])[:, None]

    def residuals(self, logs: np.ndarray) -> np.ndarray:
        """Weighted robust errors, a column for each column of parameters."""
        return np.asarray(robust(np.log(self.batch.us(logs)[self._at]) - self._log) * self._weight)


def fit(instances: Instances, rows: Sequence[Measured]) -> Fit:
    """Parameters on the reference chip's rows, the other chips' factors, then each again with the other known."""
    chips = {c: _Rows(instances, [r for r in rows if r.chip == c]) for c in dict.fromkeys(r.chip for r in rows)}
    x = PRIOR.copy()
    factors = {c: np.zeros(len(cost.FACTORS)) for c in chips}
    count = Counter(r.chip for r in rows)
    for used in ((cost.REFERENCE,), BASE):

        def base(logs: np.ndarray, used: Sequence[str] = used) -> np.ndarray:
            parts = [chips[c].residuals(logs + offsets(factors[c])[:, None]) / math.sqrt(len(used)) for c in used]
            return np.concatenate([*parts, (logs - PRIOR[:, None]) / SPREAD[:, None] / 2])

        x = minimise(x, base, 25, BOUNDS)
        for chip in sorted(chips, key=lambda c: -count[c]):
            if chip == cost.REFERENCE:
                continue
            held, kin = chips[chip], _kin(chip, count)
            like = None if kin is None else factors[kin][: len(cost.TIMES)].mean()

            def one(logs: np.ndarray, held: _Rows = held, x: np.ndarray = x, like: float | None = like) -> np.ndarray:
                each = np.stack([x + offsets(column) for column in logs.T], 1)
                # a chip's factors of time are near each other, and its runtimes alike, unless its rows say otherwise
                times, calls = logs[: len(cost.TIMES)], logs[len(cost.TIMES) :]
                # the chip of its architecture with the most rows counts as a model: it tells where there are few
                apart = [] if like is None else [robust(times.mean(0, keepdims=True) - like)]
                return np.concatenate([held.residuals(each), (times - times.mean(0)) / TOGETHER, calls / 0.5, *apart])

            factors[chip] = minimise(factors[chip], one, 15)
    return Fit(x, factors)


def _kin(chip: str, count: Mapping[str, int]) -> str | None:
    """The chip of the same architecture with the most rows, where it has more than this one."""
    arch = {name: found.htp_arch for name in count if (found := soc.find(name)) is not None}
    alike = [c for c in count if arch[c] == arch[chip] and (count[c], c) > (count[chip], chip)]
    return max(alike, key=lambda c: (count[c], c), default=None)


def main() -> None:
    """Fit on everything, print what was found and what error is left, write the file."""
    from benchmarks import latency

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, default=TARGET)
    given = parser.parse_args()
    rows, instances = measured(given.data), Instances(given.data)
    found = fit(instances, rows)
    held_out = latency.held_out(instances, rows)
    for parameter, log in zip(cost.PARAMETERS, found.parameters, strict=True):
        print(f"{parameter.name:24} {math.exp(log):10.4g} {parameter.unit} (prior {parameter.prior:g})")
    for chip, factors in found.chips.items():
        print(f"{chip:10}", *(f"{n} {math.exp(f):.2f}" for n, f in zip(cost.FACTORS, factors, strict=True)))
    latency.show(rows, held_out)
    given.out.write_text(json.dumps(_file(given.data, rows, found, held_out), indent=1) + "\n")


def _file(data: Path, rows: Sequence[Measured], found: Fit, held_out: np.ndarray) -> dict[str, Any]:
    from benchmarks import latency

    digest = hashlib.sha256((data / "measured.csv").read_bytes()).hexdigest()
    return {
        "source": "fitted by benchmarks/fit_latency.py on the measured latencies of qai-hub-models 0.65.0",
        "data": {"rows": len(rows), "models": len({r.model for r in rows}), "sha256": digest},
        "reference": cost.REFERENCE,
        "parameters": {
            p.name: float(f"{math.exp(v):.6g}") for p, v in zip(cost.PARAMETERS, found.parameters, strict=True)
        },
        "chips": {
            chip: {n: float(f"{math.exp(v):.5g}") for n, v in zip(cost.FACTORS, factors, strict=True)}
            for chip, factors in sorted(found.chips.items())
        },
        "error": latency.summary(rows, held_out),
    }


if __name__ == "__main__":
    main()
