# SPDX-License-Identifier: Apache-2.0
"""Planned memory of a method: how tensors lie in it, and which of them others look at under another shape.

ExecuTorch writes no instruction for a view whose sizes are known: the view is a value of its own at its source's place.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Set
from itertools import accumulate

import numpy as np

from hexforge.addons.executorch.formats.pte import EValue, ExecutionPlan, TensorValue
from hexforge.ir import Array


def with_dim_order(flat: Array, value: TensorValue) -> Array:
    """Memory as a tensor whose dimensions lie in their own order."""
    order = value.dim_order
    stored = flat.reshape([value.sizes[d] for d in order])
    return stored.transpose(np.argsort(order)) if order != tuple(sorted(order)) else stored


def constant(value: TensorValue) -> Array:
    """A tensor that the file holds."""
    assert value.data is not None
    return with_dim_order(np.frombuffer(value.data, value.dtype.numpy), value)


def written_in_place(plan: ExecutionPlan, written: Set[int]) -> frozenset[int]:
    """Of the tensors that inputs and instructions write, those whose memory another tensor is read from."""
    known = {*written, *plan.inputs}
    views = sorted(span for i, value in enumerate(plan.values) if i not in known and (span := _span(value)) is not None)
    starts = [start for start, _ in views]
    ends = list(accumulate((end for _, end in views), max))  # the furthest end of views that start no later
    indices = []
    for i in known:
        if (span := _span(plan.values[i])) is not None:
            start, (memory, end) = span
            before = bisect_right(starts, (memory, end - 1))
            if before and ends[before - 1] > start:
                indices.append(i)
    return frozenset(indices)


def _span(value: EValue) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Where a tensor of known sizes lies: number of a memory and first byte, the same and the byte behind its last."""
    if not isinstance(value, TensorValue) or value.allocation is None or value.dynamism or not value.nbytes:
        return None
    memory, at = value.allocation.memory, value.allocation.offset
    return (memory, at), (memory, at + value.nbytes)
