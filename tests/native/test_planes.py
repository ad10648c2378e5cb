# SPDX-License-Identifier: Apache-2.0
"""16-bit activations times 16-bit weights, which are two planes of bytes, against exact integers."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hexforge.backends.htp.numbers.lower.products.weights import flush_interval
from tests.native.kernels import (
    BLOCK,
    HOW,
    assert_bits,
    fill,
    packed_conv,
    packed_depthwise,
    round_and_clamp,
    run,
    spread,
)
from tests.native.test_conv import sums
from tests.native.windows import Geometry, geometries

LOW, HIGH = -32768, 32767
SEEDS = st.integers(0, 2**32 - 1)


def planes(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What 256 is multiplied with, and the rest."""
    low = ((w + 128) & 255) - 128
    return (w - low) >> 8, low


def check(
    kind: str, g: Geometry, rng: np.random.Generator, x: np.ndarray, zero_x: int, acc: np.ndarray, w: np.ndarray,
    attributes: dict[str, Any], groups: int,
) -> None:  # fmt: skip
    """One step whose sums are `acc`, with weights [kd, kh, kw, ..., out]."""
    outputs = acc.shape[-1]
    bias = rng.integers(-(2**40), 2**40, outputs)
    multiplier = rng.uniform(0.5, 1.5, outputs) / max(1, float(np.abs(acc).max()) / (HIGH - LOW))
    multiplier[rng.integers(0, outputs)] = 0.5  # type: ignore[index]
    zero = int(rng.integers(LOW, HIGH + 1))
    want = round_and_clamp((acc + bias).astype(np.float64) * multiplier, zero, LOW, HIGH, 16)
    folded = bias - zero_x * w.reshape(-1, outputs).sum(0)
    given = {
        **g.attributes(), "x_stride": x.shape[-1], "y_stride": outputs, "zero_point": zero, "low": LOW, "high": HIGH,
        "planes": 2, "bias": spread(folded, groups, np.int64), "multiplier": spread(multiplier, groups, np.float64),  # type: ignore[arg-type]
        **attributes,
    }  # fmt: skip
    assert_bits(run(kind, [x.astype(np.int16)], np.zeros(want.shape, np.int16), given), want)


@settings(max_examples=40, deadline=None)
@given(
    seed=SEEDS, g=geometries(most=7), inputs=st.sampled_from([1, 2, 7, 33, 300]), outputs=st.integers(1, 130),
    groups=st.integers(1, 2), how=st.sampled_from(HOW),
)  # fmt: skip
def test_conv(seed: int, g: Geometry, inputs: int, outputs: int, groups: int, how: str) -> None:
    rng = np.random.default_rng(seed)
    x, w = (
        fill(rng, (g.batch, *g.ins, inputs * groups), LOW, HIGH, how),
        fill(rng, (*g.kernel, inputs, outputs * groups), LOW, HIGH, how),
    )
    zero_x = int(fill(rng, (), LOW, HIGH, how))
    row_taps = groups == 1 and g.dilation[2] == 1 and bool(rng.integers(0, 2))
    both = planes(w)
    attributes = {
        "channels": inputs, "out_channels": outputs, "groups": groups, "row_taps": row_taps,
        "flush": min((n for part in both if (n := flush_interval(part, row_taps))), default=0),
        "weights": packed_conv(np.concatenate(both), 16, groups, row_taps),
        "pad_row": np.full(2 * g.kernel[2] * inputs, zero_x, np.int16),
    }  # fmt: skip
    check("conv_s16", g, rng, x, zero_x, sums(g, x - zero_x, w, groups), w, attributes, groups)


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, g=geometries(most=14, kernel=5), channels=st.integers(1, 100), how=st.sampled_from(HOW))
def test_depthwise(seed: int, g: Geometry, channels: int, how: str) -> None:
    rng = np.random.default_rng(seed)
    x, w = fill(rng, (g.batch, *g.ins, channels), LOW, HIGH, how), fill(rng, (*g.kernel, channels), LOW, HIGH, how)
    zero_x = int(fill(rng, (), LOW, HIGH, how))
    acc = sum((seen * w[k] for k, seen in g.taps(x - zero_x)), np.zeros((), np.int64))
    attributes = {
        "channels": channels, "out_channels": channels, "weights": packed_depthwise(np.concatenate(planes(w)), 16),
        "pad_row": np.full(-(-channels // BLOCK) * BLOCK, zero_x, np.int16),
    }  # fmt: skip
    check("depthwise_s16", g, rng, x, zero_x, acc, w, attributes, 1)
