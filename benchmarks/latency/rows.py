# SPDX-License-Identifier: Apache-2.0
"""Measured rows, the families their models belong to, and their graphs as tiles with amounts of work.

Families are decided by where an architecture comes from (measured/families.csv), before anything is fitted. Models that
share a backbone are in one fold. Families marked `aside` were not looked at while the structure was chosen, those
marked `later` not while it was changed afterwards.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from benchmarks import ROOT
from hexforge.analysis.timed_graphs import graph_of
from hexforge.backends.htp.time.schedule import schedule
from hexforge.backends.htp.time.simulate import Tile, tiles
from hexforge.backends.htp.time.tile import PRECISIONS, Task
from hexforge.chips import soc
from hexforge.ir import Graph

DATA = ROOT / "benchmarks" / "measured"
TARGET_DEVICES = ("Samsung Galaxy S24", "Samsung Galaxy S25", "QCS8550 (Proxy)", "Snapdragon X Elite CRD")


@dataclass(frozen=True, slots=True)
class Measured:
    """One row of measured.csv."""

    model: str
    precision: str
    runtime: str
    device: str
    chip: str
    us: float


@dataclass(frozen=True, slots=True)
class Family:
    """What a model belongs to."""

    name: str
    fold: int
    aside: bool
    """True where it was not looked at while the structure of the model was chosen."""
    later: bool
    """The same of what was changed later, when those put aside first had been seen."""


def measured(folder: Path = DATA) -> list[Measured]:
    """The rows of measured.csv, each with the name of its chip."""
    rows = []
    with (folder / "measured.csv").open() as file:
        for row in csv.DictReader(file):
            chip = soc.named(row["soc_model"])
            us = float(row["inference_ms"]) * 1e3
            rows.append(Measured(row["model"], row["precision"], row["runtime"], row["device"], chip.name, us))
    return rows


def families(folder: Path = DATA) -> dict[str, Family]:
    """The family of each model."""
    with (folder / "families.csv").open() as file:
        return {
            row["model"]: Family(row["family"], int(row["fold"]), row["aside"] == "1", row["later"] == "1")
            for row in csv.DictReader(file)
        }


@dataclass(frozen=True, slots=True)
class Instance:
    """A model through a runtime at a precision: its tasks, cut into tiles."""

    tasks: list[Task]
    cut: list[Tile]
    io_elements: int


Key = tuple[str, str, str, int]
"""Model, runtime, precision, bytes of VTCM."""


def key(row: Measured) -> Key:
    """The instance of a row."""
    return row.model, row.runtime, row.precision, soc.named(row.chip).vtcm_mb << 20


class Instances:
    """Instances by key, made once; a graph is read once."""

    def __init__(self, folder: Path = DATA) -> None:
        self._folder = folder
        self._graphs: dict[str, Graph] = {}
        self._made: dict[Key, Instance] = {}

    def __getitem__(self, key: Key) -> Instance:
        if key not in self._made:
            model, runtime, precision, vtcm_bytes = key
            graph = self.graph(model)
            tasks = schedule(graph, PRECISIONS[precision], runtime, vtcm_bytes)
            elements = sum(v.type.size for v in (*graph.inputs, *graph.outputs))
            self._made[key] = Instance(tasks, tiles(tasks, vtcm_bytes), elements)
        return self._made[key]

    def graph(self, model: str) -> Graph:
        """The QNN graph of a model."""
        if model not in self._graphs:
            self._graphs[model] = graph_of(self._folder / "topologies" / f"{model}.onnx")
        return self._graphs[model]
