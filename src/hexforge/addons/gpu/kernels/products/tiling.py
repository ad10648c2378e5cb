# SPDX-License-Identifier: Apache-2.0
"""Tiling: the tile that a product takes least time in on a GPU, by a model of what its work-groups wait for.

A work-group goes through its share of the depth in steps: each waits for its loads, then for the multiplications of all
work-groups on its unit. The constants were fitted to 3,500 kernels for 150 products of nine networks on an H200: the
model is off by 13 %, and what it chooses takes 4.5 % more time than the best of 10 to 40 tiles. It looks at shape,
storage and device alone, so that sums are added up in one order whatever is tuned.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from hexforge.addons.gpu.kernels.code import HALF
from hexforge.addons.gpu.kernels.launch import Machine
from hexforge.addons.gpu.kernels.products.product import Product
from hexforge.addons.gpu.kernels.products.tiles import ProductTile
from hexforge.addons.gpu.kernels.products.winograd import POINTS, Winograd

_SHAPES = (
    (16, 16, 2, 2), (16, 32, 2, 4), (16, 32, 4, 4), (16, 64, 4, 4), (32, 16, 4, 2), (32, 32, 2, 4), (32, 32, 4, 4),
    (32, 64, 4, 4), (64, 32, 4, 4), (64, 64, 4, 4), (64, 64, 8, 4), (64, 64, 8, 8), (128, 64, 8, 4), (64, 128, 4, 8),
    (64, 128, 8, 8), (128, 128, 8, 8),
)  # fmt: skip
"""Rows and columns of a work-group and of a work-item."""
_DEPTH, _SLICES, _PARTS = 16, (1, 2, 4, 8), (1, 2, 4, 8, 16)
_ITEMS, _REGISTERS, _LOCAL = 2048, 65536, 220 << 10
"""What the work-groups of an H200's unit have together."""
_START, _WAIT, _SUM = 1.22, 0.312, 0.764
"""Microseconds of a kernel without work, of a step's loads, and of the kernel that adds parts up."""
_MULTIPLY, _FETCH, _LOAD = 5.06e-6, 3.69e-6, 4.46e-5
"""Microseconds that a unit takes for a multiplication, for one that reads both its factors from local memory, and for
an element that is brought there."""
_WINDOW, _DEPTHWISE, _NARROW = 1.22, 12.9, 1.32
"""How much longer loads take through a window of taps, with a depthwise convolution on the way, and of halves."""
_ADD_SLICE, _STORE, _ADD_PART = 7.56e-5, 8.91e-6, 1.69e-6
_BUSY = 5.38 * 32
"""Work-items that keep a unit busy."""


@dataclass(frozen=True, slots=True)
class _Work:
    """The properties of a product that decide how long it takes."""

    m: int
    n: int
    k: int
    batches: int
    window: bool
    depthwise: bool
    half: bool

    @classmethod
    def of(cls, product: Product) -> _Work:
        half = product.a.storage == HALF or product.b.storage == HALF
        batches = math.prod(product.batch)
        return cls(product.m, product.n, product.k, batches, product.window is not None, product.rows is not None, half)

    def groups(self, tile: ProductTile) -> int:
        """Work-groups of the product in a tile."""
        return -(-self.m // tile.bm) * -(-self.n // tile.bn) * self.batches * tile.parts

    def us(self, tile: ProductTile, units: int) -> float:
        """Microseconds in a tile."""
        area, each, threads = tile.bm * tile.bn, tile.tm * tile.tn, tile.threads
        loads = (tile.bm + tile.bn) * tile.bk * tile.slices
        registers = min(255, 28 + each + 2 * (tile.tm + tile.tn) + loads // threads)
        fitting = min(_ITEMS // threads, _LOCAL // tile.local_bytes, _REGISTERS // (threads * registers), 32)
        groups = self.groups(tile)
        together = min(max(1, fitting), -(-groups // units))
        full = groups / (units * together)
        rounds = (full + math.ceil(full)) / 2 if full > 1 else 1.0
        slower = _NARROW if self.half else 1.0
        longer = _DEPTHWISE if self.depthwise else _WINDOW if self.window else 1.0
        work = area * (_MULTIPLY + _FETCH * (tile.tm + tile.tn) / each) + _LOAD * slower * (tile.bm * longer + tile.bn)
        step = _WAIT * slower + together * work * tile.bk * tile.slices / min(1.0, threads * together / _BUSY)
        steps = -(-self.k // (tile.bk * tile.slices * tile.parts))
        ending = (_ADD_SLICE * (tile.slices - 1) + _STORE) * area * together
        added = _SUM + _ADD_PART * tile.parts * self.m * self.n * self.batches if tile.parts > 1 else 0.0
        return _START + rounds * (steps * step + ending) + added


def _runnable_tiles(work: _Work, machine: Machine) -> list[ProductTile]:
    """Tiles that a device can run and that waste no more than half of their rows and columns."""
    tiles = []
    for bm, bn, tm, tn in _SHAPES:
        if (work.m <= bm // 2 and bm > 16) or (work.n <= bn // 2 and bn > 16):
            continue
        for slices in _SLICES:
            for parts in _PARTS:
                tile = ProductTile(bm, bn, _DEPTH, tm, tn, slices, parts)
                if tile.cut and (work.k < _DEPTH * slices * parts or work.groups(tile) > 8 * machine.units):
                    continue
                fits = tile.threads <= machine.most_items and tile.local_bytes <= machine.local_bytes
                if fits and (slices == 1 or 8 * bm * bn <= tile.local_bytes):  # in half too, where a slice is added up
                    tiles.append(tile)
    return tiles


@cache
def _ranked(work: _Work, machine: Machine) -> tuple[tuple[float, ProductTile], ...]:
    """Tiles with their times, the fastest first; those behind it sum up in its order."""
    timed = sorted(
        ((work.us(t, machine.units), t) for t in _runnable_tiles(work, machine)), key=lambda x: (x[0], x[1].name)
    )
    first = timed[0][1]
    return tuple(x for x in timed if (x[1].slices, x[1].parts) == (first.slices, first.parts))


def tiles(product: Product, machine: Machine) -> list[ProductTile]:
    """Tiles for a product on a GPU, the likeliest first; all of them sum up in the same order."""
    return [tile for _, tile in _ranked(_Work.of(product), machine)[:4]]


def winograd_pays(product: Product, machine: Machine) -> bool:
    """Whether 36 products of tiles take less time than the convolution: three kernels instead of one."""
    if machine.is_processor:
        return product.m >= 36
    assert product.window is not None
    count = Winograd.of(product, product.m // math.prod(product.window.outs)).inputs.shape[1]
    inner = _Work(count, product.n, product.depth, POINTS, False, False, False)
    moved = sum(2.3 + 0.8e-6 * POINTS * count * channels for channels in (product.depth, product.n))
    return _ranked(inner, machine)[0][0] + moved < 0.95 * _ranked(_Work.of(product), machine)[0][0]
