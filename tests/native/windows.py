# SPDX-License-Identifier: Apache-2.0
"""Windows over [n, d, h, w, c]: random geometries, and sums over them by plain indexing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st


@dataclass(frozen=True)
class Geometry:
    """Three spatial axes; those a convolution of fewer dimensions has not are 1."""

    batch: int
    ins: tuple[int, int, int]
    kernel: tuple[int, int, int]
    stride: tuple[int, int, int]
    pad: tuple[int, int, int]
    pad_after: tuple[int, int, int]
    dilation: tuple[int, int, int]

    @property
    def outs(self) -> tuple[int, ...]:
        """Output pixels along each axis."""
        return tuple(
            (self.ins[i] + self.pad[i] + self.pad_after[i] - self.dilation[i] * (self.kernel[i] - 1) - 1)
            // self.stride[i]
            + 1
            for i in range(3)
        )

    def taps(self, x: np.ndarray, fill: float = 0) -> Iterator[tuple[tuple[int, int, int], np.ndarray]]:
        """For every kernel position, the input pixel (`fill` outside) every output pixel sees there."""
        reach = [self.pad[i] + self.pad_after[i] + self.dilation[i] * self.kernel[i] for i in range(3)]
        wide = np.pad(x, [(0, 0), *((r, r) for r in reach), (0, 0)], constant_values=fill)
        for k in itertools.product(*(range(n) for n in self.kernel)):
            index = [
                reach[i] - self.pad[i] + k[i] * self.dilation[i] + self.stride[i] * np.arange(self.outs[i])
                for i in range(3)
            ]
            yield k, wide[:, index[0]][:, :, index[1]][:, :, :, index[2]]  # type: ignore[misc]

    def attributes(self) -> dict[str, object]:
        """As the kernels take it."""
        return {
            "batch": self.batch, "in": self.ins, "out": self.outs, "kernel": self.kernel, "stride": self.stride,
            "pad": self.pad, "dilation": self.dilation,
        }  # fmt: skip


@st.composite
def geometries(draw: st.DrawFn, most: int = 9, kernel: int = 3) -> Geometry:
    """A geometry with at least one output pixel, of one to three dimensions."""
    dims = draw(st.sampled_from([1, 2, 2, 2, 3]))

    def three(low: int, high: int, unused: int) -> tuple[int, int, int]:
        values = [unused if i < 3 - dims else draw(st.integers(low, high)) for i in range(3)]
        return values[0], values[1], values[2]

    size = {1: 4 * most, 2: most, 3: 4}[dims]
    found = Geometry(
        draw(st.integers(1, 2)), three(1, size, 1), three(1, kernel, 1), three(1, 3, 1), three(0, 2, 0),
        three(0, 2, 0), three(1, 2, 1),
    )  # fmt: skip
    ins = [
        max(found.ins[i], found.dilation[i] * (found.kernel[i] - 1) + 1 - found.pad[i] - found.pad_after[i], 1)
        for i in range(3)
    ]
    return Geometry(
        found.batch, (ins[0], ins[1], ins[2]), found.kernel, found.stride, found.pad, found.pad_after, found.dilation
    )
