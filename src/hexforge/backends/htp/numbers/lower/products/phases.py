# SPDX-License-Identifier: Apache-2.0
"""Transposed convolutions as ordinary ones: one for each phase of the stride, its pixels written where they belong."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from hexforge.backends.htp.numbers.lower.adapt import three
from hexforge.backends.htp.numbers.lower.moves import strides
from hexforge.backends.htp.numbers.lower.native_steps import Lowering
from hexforge.backends.htp.numbers.storage import Storage
from hexforge.ir import Node, Value


@dataclass(frozen=True, slots=True)
class Phase:
    """Outputs that the same kernel positions reach; depth, height and width of each."""

    first: tuple[int, ...]
    """The first output."""
    stride: tuple[int, ...]
    """From one output to the next."""
    sizes: tuple[int, ...]
    """How many there are."""
    taps: tuple[tuple[int, ...], ...]
    """Kernel positions along each axis, in the order of the inputs that they are multiplied with."""
    pad: tuple[int, ...]
    """Elements before the input that the first window begins at."""

    def temp(self, lowering: Lowering, y: Storage, stem: str) -> tuple[str, Storage]:
        """A tensor for its outputs, of `y`'s type."""
        like = replace(y, shape=(y.shape[0], *self.sizes, y.shape[-1]))
        return lowering.temp(like, stem), like

    def place(self, lowering: Lowering, temp: str, like: Storage, out: Value, y: Storage) -> None:
        """Write them where they belong."""
        target = strides((y.shape[0], *three(y.shape[1:-1], 1), y.shape[-1]))
        lowering.emit(
            "copy", [temp], [out], element_bytes=y.dtype.itemsize, dims=like.shape, strides_x=strides(like.shape),
            strides_y=(target[0], *(target[1 + i] * self.stride[i] for i in range(3)), 1),
            offset_y=sum(self.first[i] * target[1 + i] for i in range(3)),
        )  # fmt: skip


def phases(node: Node, kernel: tuple[int, ...], y: Storage) -> Iterator[Phase]:
    """Those of a transposed convolution that have outputs."""
    stride = three(node.params["stride"], 1)
    before = three((p[0] for p in node.params["pad_amount"]), 0)
    ends = three(y.shape[1:-1], 1)
    for first in itertools.product(*(range(s) for s in stride)):
        sizes = tuple(len(range(first[i], ends[i], stride[i])) for i in range(3))
        if 0 in sizes:
            continue
        taps = tuple(
            tuple(k for k in range(kernel[i])[::-1] if (first[i] + before[i] - k) % stride[i] == 0) for i in range(3)
        )
        # Input index of the first output under the last kernel tap, negated: how much is padded.
        pad = tuple(-((first[i] + before[i] - t[0]) // stride[i]) if (t := taps[i]) else 0 for i in range(3))
        yield Phase(first, stride, sizes, taps, pad)
