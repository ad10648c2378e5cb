# SPDX-License-Identifier: Apache-2.0
"""Critical paths: many graphs on the timeline together, for many sets of parameters, and what their ends waited for.

The recursion is that of `simulate`: a tile ends when its work is done and its transfer has arrived. Which tiles and
transfers the end waited for is found by going back; along them the end is a sum of amounts of work times their costs,
so that its derivative by every parameter is known from one pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from hexforge.addons.latency.terms import (
    CALL,
    DRAM,
    HMX_KINDS,
    HMX_TERMS,
    HVX_KINDS,
    IO,
    RATES,
    TASK,
    TERMS,
    WORK_TERMS,
    serial_of,
    unit_us,
)
from hexforge.addons.latency.tiled_graphs import ModelKey, TileSource
from hexforge.backends.htp.time.simulate import SYNC_US
from hexforge.backends.htp.time.tile import PRECISIONS
from hexforge.chips.deployment import RUNTIMES


@dataclass(frozen=True, slots=True)
class CriticalPaths:
    """What the end of each graph waited for, for one set of parameters: a row for each graph."""

    amounts: np.ndarray
    """Of each term."""
    overlapped_us: np.ndarray
    """What a larger `serial` multiplies."""
    serial: float
    sync_us: np.ndarray

    def us(self, rows: np.ndarray, unit: np.ndarray, serial: float) -> np.ndarray:
        """The latency before the runtime's factor, as long as the end waits for the same tiles."""
        moved = (serial - self.serial) * self.overlapped_us[rows]
        return np.asarray(np.maximum(self.amounts[rows] @ unit + self.sync_us[rows] + moved, 1.0))


class BatchTimeline:
    """Graphs that are timed together, for as many sets of parameters as are given."""

    def __init__(self, models: TileSource, keys: Iterable[ModelKey]) -> None:
        self.keys = sorted(set(keys), key=lambda k: (-len(models[k].tiles), k))
        self.position = {k: i for i, k in enumerate(self.keys)}
        each = [models[k] for k in self.keys]
        self.rate = np.array([RATES.index(PRECISIONS[k[2]].rate) for k in self.keys], int)
        self.runtime = np.array([RUNTIMES.index(k[1]) for k in self.keys], int)
        self._io = np.array([i.io_elements for i in each]) / 1e6
        self._count = np.array([len(i.tiles) for i in each], int)
        self._offset = np.concatenate([[0], np.cumsum(self._count)])
        self._owner = np.repeat(np.arange(len(each)), self._count)
        cut = [(model, tile) for model in each for tile in model.tiles]
        self._share = np.array([tile.share for _, tile in cut])
        self._free = np.array([tile.free_after for _, tile in cut], int)
        moved = [tile.weight_bytes + i.tasks[tile.task].spill_bytes * tile.share for i, tile in cut]
        self._moved = np.array(moved) / 1e6
        cells: list[tuple[int, int, float]] = []
        for row, (model, tile) in enumerate(cut):
            task, rate = model.tasks[tile.task], self.rate[self._owner[row]]
            for kind, amount in task.hmx.items():
                cells.append((row, rate * len(HMX_KINDS) + HMX_KINDS.index(kind), amount * tile.share))
            for kind, amount in task.hvx.items():
                cells.append((row, HMX_TERMS + rate * len(HVX_KINDS) + HVX_KINDS.index(kind), amount * tile.share))
        self._row, self._term = (np.array([cell[i] for cell in cells], int) for i in (0, 1))
        self._amount = np.array([cell[2] for cell in cells])
        self._is_hmx = self._term < HMX_TERMS
        self._work = sparse.csr_matrix((self._amount, (self._row, self._term)), (len(cut), WORK_TERMS))

    def paths(self, sets: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[CriticalPaths]:
        """For each set of parameters and chip factors, both logarithms, what the end of each graph waits for."""
        unit = np.stack([unit_us(logs, factors) for logs, factors in sets], 1)
        serial = np.array([serial_of(logs) for logs, _ in sets])
        hmx = self._work[:, :HMX_TERMS] @ unit[:HMX_TERMS]
        hvx = self._work[:, HMX_TERMS:] @ unit[HMX_TERMS:WORK_TERMS]
        both = np.minimum(hmx, hvx)
        work = np.maximum(hmx, hvx) + serial * both + self._share[:, None] * unit[TASK]
        late, queued = self._forward(work, self._moved[:, None] * unit[DRAM])
        executed, fetched, synced = self._backward(late, queued)
        paths = []
        for column in range(len(sets)):
            longer = hmx[:, column] >= hvx[:, column]
            weight = executed[:, column, None] * np.where([longer, ~longer], 1.0, serial[column]).T
            paths.append(
                CriticalPaths(
                    self._amounts(weight, executed[:, column], fetched[:, column]),
                    np.bincount(self._owner, both[:, column] * executed[:, column], len(self.keys)),
                    float(serial[column]),
                    synced[:, column] * SYNC_US,
                )
            )
        return paths

    def _live(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """The tiles of a step, and where their starts lie among the ends."""
        live = int(np.searchsorted(-self._count, -step, "left"))
        return self._offset[:live] + step, self._offset[:live] + np.arange(live) + step

    def _forward(self, work: np.ndarray, transfer: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which tiles end by their transfer, and which transfers began when room was free."""
        graphs, columns = len(self.keys), work.shape[1]
        ends = np.zeros((len(work) + graphs, columns))
        fetched = np.zeros((graphs, columns))
        late, queued = np.zeros(work.shape, bool), np.zeros(work.shape, bool)
        first = self._offset[:-1] + np.arange(graphs)
        for step in range(int(self._count.max())):
            tile, start = self._live(step)
            ready = ends[start] + work[tile]
            moves = np.nonzero(self._moved[tile] > 0)[0]
            if len(moves):
                which = tile[moves]
                room = ends[first[moves] + self._free[which]]
                queued[which] = room > fetched[moves]
                fetched[moves] = np.maximum(room, fetched[moves]) + transfer[which]
                late[which] = fetched[moves] + SYNC_US > ready[moves]
                ready[moves] = np.maximum(ready[moves], fetched[moves] + SYNC_US)
            ends[start + 1] = ready
        return late, queued

    def _backward(self, late: np.ndarray, queued: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """1 for work, for transfers and the number of times the end waited for a transfer's end."""
        graphs, columns = len(self.keys), late.shape[1]
        waits = np.zeros((len(late) + graphs, columns))
        first = self._offset[:-1] + np.arange(graphs)
        waits[first + self._count] = 1
        transfer, synced = np.zeros((graphs, columns)), np.zeros((graphs, columns))
        executed, fetched = np.zeros(late.shape), np.zeros(late.shape)
        for step in range(int(self._count.max()) - 1, -1, -1):
            tile, start = self._live(step)
            here = waits[start + 1]
            moves = np.nonzero(self._moved[tile] > 0)[0]
            if len(moves):
                which = tile[moves]
                by_transfer = here[moves] * late[which]
                synced[moves] += by_transfer
                transfer[moves] += by_transfer
                here[moves] -= by_transfer
                fetched[which] = transfer[moves]
                back = transfer[moves] * queued[which]
                waits[first[moves] + self._free[which]] += back
                transfer[moves] -= back
            executed[tile] = here
            waits[start] += here
        return executed, fetched, synced

    def _amounts(self, weight: np.ndarray, executed: np.ndarray, fetched: np.ndarray) -> np.ndarray:
        graphs = len(self.keys)
        amounts = np.zeros((graphs, len(TERMS)))
        each = self._amount * np.where(self._is_hmx, weight[self._row, 0], weight[self._row, 1])
        where = self._owner[self._row] * WORK_TERMS + self._term
        amounts[:, :WORK_TERMS] = np.bincount(where, each, graphs * WORK_TERMS).reshape(graphs, -1)
        amounts[:, TASK] = np.bincount(self._owner, self._share * executed, graphs)
        amounts[:, DRAM] = np.bincount(self._owner, self._moved * fetched, graphs)
        amounts[np.arange(graphs), CALL + self.runtime] = 1
        amounts[:, IO] = self._io
        return amounts
