# SPDX-License-Identifier: Apache-2.0
"""Random inputs: what a model is given where nobody has samples; indices stay within what they look up."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from hexforge.ir import Array
from hexforge.model.reader import Model
from hexforge.patterns.input_numbers import index_range

SEED = 20240229
DRAWN: tuple[Callable[[np.random.Generator, tuple[int, ...]], Array], ...] = (
    lambda random, sizes: random.random(sizes),
    lambda random, sizes: random.standard_normal(sizes),
    lambda random, sizes: random.uniform(-1, 1, sizes),
)
"""Kinds of floats in the order in which they are tried."""


def random_inputs(model: Model) -> Iterator[dict[str, Array]]:
    """Inputs for a model, one for each kind of floats; indices within what they look up."""
    random = np.random.default_rng(SEED)
    for draw in DRAWN:
        sample: dict[str, Array] = {}
        for value in model.ir.graph.inputs:
            sizes = tuple(d for d in value.shape or () if isinstance(d, int))
            dtype = value.dtype.numpy() if value.dtype is not None else np.dtype(np.float32)
            if dtype.kind in "iu":
                sample[value.name or ""] = random.integers(0, index_range(value), sizes).astype(dtype)
            elif dtype.kind == "b":
                sample[value.name or ""] = random.integers(0, 2, sizes).astype(bool)
            else:
                sample[value.name or ""] = np.asarray(draw(random, sizes)).astype(dtype)
        yield sample
