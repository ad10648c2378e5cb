# SPDX-License-Identifier: Apache-2.0
"""Measured models as tiles with amounts of work: the HTP's schedule of their graphs, without any cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from hexforge.addons.latency.measurements import DATA, Measurement
from hexforge.backends.htp.time.schedule import schedule
from hexforge.backends.htp.time.task_sequence import Tile, tiles
from hexforge.backends.htp.time.tile import PRECISIONS, Task
from hexforge.chips import soc
from hexforge.chips.deployment import Deployment
from hexforge.errors import CallError
from hexforge.ir import Graph
from hexforge.runtime.prepare import prepare_model
from hexforge.runtime.registry import timed_backend

ModelKey: TypeAlias = tuple[str, str, str, int]
"""Model, runtime, precision, bytes of VTCM: all that decides the tiles of a model."""


def key_of(measurement: Measurement) -> ModelKey:
    """The settings that decide the tiles of a measured model."""
    chip = soc.require_chip(measurement.chip)
    return measurement.model, measurement.runtime, measurement.precision, chip.vtcm_mb << 20


@dataclass(frozen=True, slots=True)
class TiledGraph:
    """A model through a runtime at a precision: its tasks, cut into tiles."""

    tasks: Sequence[Task]
    tiles: Sequence[Tile]
    io_elements: int


class TileSource(Protocol):
    """Where tiled models come from."""

    def __getitem__(self, key: ModelKey, /) -> TiledGraph:
        """The tiles of a model."""


class TiledGraphs:
    """The models of a folder's topologies, tiled; each is made once, and each graph is read once."""

    def __init__(self, folder: Path = DATA, graphs: dict[str, Graph] | None = None) -> None:
        self.graphs: dict[str, Graph] = {} if graphs is None else graphs
        """The graphs that were read."""
        self._folder = folder
        self._tiled: dict[ModelKey, TiledGraph] = {}

    def __getitem__(self, key: ModelKey, /) -> TiledGraph:
        if key not in self._tiled:
            model, runtime, precision, vtcm_bytes = key
            graph = self.graph(model)
            tasks = schedule(graph, PRECISIONS[precision], runtime, vtcm_bytes)
            elements = sum(v.type.size for v in (*graph.inputs, *graph.outputs))
            self._tiled[key] = TiledGraph(tasks, tiles(tasks, vtcm_bytes), elements)
        return self._tiled[key]

    def graph(self, model: str) -> Graph:
        """The QNN graph of a model."""
        if model not in self.graphs:
            path = self._folder / "topologies" / f"{model}.onnx"
            if not path.exists():
                raise CallError(f"{path}: is not there; every measured model has a graph in that folder")
            self.graphs[model] = whole_graph(path)
        return self.graphs[model]


def whole_graph(path: Path) -> Graph:
    """A model as the one graph that the HTP runs; UnsupportedError for one that it does not take whole."""
    backend = timed_backend(Deployment())
    parts = prepare_model(path, backend)
    parts.require_whole(f"{path}:", backend.name, "Measure models that run on the HTP whole.")
    graph = parts.graph(parts.parts[0], path.stem)
    graph.sort()
    return backend.prepared(graph)
