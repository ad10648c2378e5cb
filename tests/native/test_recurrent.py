# SPDX-License-Identifier: Apache-2.0
"""lstm_f32 and gru_f32 against a step-by-step definition in float32, one addition at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hexforge.backends.htp.numbers.lower.adapt import half_table
from tests.native.halves import half, patterns
from tests.native.kernels import assert_bits
from tests.native.several import halves, run_all

EXAMPLES = settings(max_examples=25, deadline=None)
SEEDS = st.integers(0, 2**32 - 1)
SIZES = st.tuples(st.integers(1, 5), st.integers(1, 7), st.integers(1, 9), st.integers(1, 70))
SIGMOID, TANH = half_table("sigmoid"), half_table("tanh")


def _look_up(table: np.ndarray, x: np.ndarray) -> np.ndarray:
    return table[patterns(half(x))]


def _accumulate(y: np.ndarray, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """y + x @ w in float32, one term after the other."""
    for k in range(len(w)):
        y = y + x[:, k : k + 1] * w[k]
    return y


def lstm(x: np.ndarray, h: np.ndarray, c: np.ndarray, at: dict[str, Any]) -> tuple[np.ndarray, ...]:
    """[time, batch, features] to all h, the last c, the last h."""
    units, out = at["units"], []
    peephole = at.get("peephole", np.zeros(3 * units, np.float32)).reshape(3, units)
    for step in x[::-1] if at["reverse"] else x:
        gate = _accumulate(np.broadcast_to(at["bias"], (len(step), len(at["bias"]))), step, at["wx"])
        gate = _accumulate(gate, h, at["wh"])
        parts = np.split(gate, at["gates"], axis=1)
        forget = _look_up(SIGMOID, parts[-3] + peephole[1] * c)
        admit = np.float32(1) - forget if at["gates"] == 3 else _look_up(SIGMOID, parts[0] + peephole[0] * c)
        c = forget * c + admit * _look_up(TANH, parts[-2])
        if at["cell_clip"] > 0:
            c = np.clip(c, -np.float32(at["cell_clip"]), np.float32(at["cell_clip"]))
        c = half(c)
        h = _look_up(SIGMOID, parts[-1] + peephole[2] * c) * _look_up(TANH, c)
        if "projection" in at:
            h = _accumulate(np.broadcast_to(at["projection_bias"], (len(h), at["size"])), h, at["projection"])
            if at["output_clip"] > 0:
                h = np.clip(h, -np.float32(at["output_clip"]), np.float32(at["output_clip"]))
        h = half(h)
        out.append(h)
    return np.stack(out[::-1] if at["reverse"] else out), c, h


@EXAMPLES
@given(SIZES, st.sampled_from([3, 4]), st.booleans(), st.booleans(), st.booleans(), st.booleans(), SEEDS)
def test_lstm(
    sizes: tuple[int, ...], gates: int, peephole: bool, project: bool, major: bool, reverse: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    time, batch, features, units = sizes
    size = 7 if project else units
    at: dict[str, Any] = {
        "time": time, "batch": batch, "features": features, "units": units, "size": size, "gates": gates,
        "time_major": int(major), "reverse": int(reverse), "has_h": int(seed % 2), "has_c": int(seed // 2 % 2),
        "wx": halves(rng, (features, gates * units), 0.5), "wh": halves(rng, (size, gates * units), 0.5),
        "bias": halves(rng, (gates * units,), 0.5), "cell_clip": 0.5 if seed % 3 == 0 else 0.0,
        "output_clip": 0.3 if seed % 5 == 0 else 0.0, "sigmoid": SIGMOID, "tanh": TANH,
    }  # fmt: skip
    if peephole:
        at["peephole"] = halves(rng, (3 * units,), 0.5)
    if project:
        at |= {"projection": halves(rng, (units, size), 0.5), "projection_bias": halves(rng, (size,), 0.5)}
    x, h, c = halves(rng, (time, batch, features)), halves(rng, (batch, size)), halves(rng, (batch, units))
    zero_h, zero_c = (a if at[f] else np.zeros_like(a) for a, f in ((h, "has_h"), (c, "has_c")))
    want = lstm(x, zero_h, zero_c, at)
    whole = want[0] if major else np.ascontiguousarray(want[0].swapaxes(0, 1))
    ins = [x if major else x.swapaxes(0, 1), *[h] * at["has_h"], *[c] * at["has_c"]]
    got = run_all("lstm_f32", ins, [whole, want[1], want[2]], at)
    for one, other in zip(got, (whole, *want[1:]), strict=True):
        assert_bits(one, other)


def gru(x: np.ndarray, h: np.ndarray, at: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """[time, batch, features] to all h and the last h."""
    units, out = at["units"], []
    for step in x[::-1] if at["reverse"] else x:
        shape = (len(step), 3 * units)
        a = _accumulate(np.broadcast_to(at["bias_x"], shape), step, at["wx"])
        b = np.broadcast_to(at["bias_h"], shape)
        linear = at["linear"]
        gates = _accumulate(b[:, : 2 * units], h, at["wh"][:, : 2 * units])
        update, reset = np.split(_look_up(SIGMOID, a[:, : 2 * units] + gates), 2, axis=1)
        new = _accumulate(b[:, 2 * units :], h if linear else reset * h, at["wh"][:, 2 * units :])
        fresh = _look_up(TANH, a[:, 2 * units :] + (reset * new if linear else new))
        h = half((np.float32(1) - update) * fresh + update * h)
        out.append(h)
    return np.stack(out[::-1] if at["reverse"] else out), h


@EXAMPLES
@given(SIZES, st.booleans(), st.booleans(), st.booleans(), SEEDS)
def test_gru(sizes: tuple[int, ...], linear: bool, major: bool, reverse: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    time, batch, features, units = sizes
    at: dict[str, Any] = {
        "time": time, "batch": batch, "features": features, "units": units, "time_major": int(major),
        "reverse": int(reverse), "has_h": int(seed % 2), "linear": int(linear), "sigmoid": SIGMOID, "tanh": TANH,
        "wx": halves(rng, (features, 3 * units), 0.5), "wh": halves(rng, (units, 3 * units), 0.5),
        "bias_x": halves(rng, (3 * units,), 0.5), "bias_h": halves(rng, (3 * units,), 0.5),
    }  # fmt: skip
    x, h = halves(rng, (time, batch, features)), halves(rng, (batch, units))
    want = gru(x, h if at["has_h"] else np.zeros_like(h), at)
    whole = want[0] if major else np.ascontiguousarray(want[0].swapaxes(0, 1))
    got = run_all("gru_f32", [x if major else x.swapaxes(0, 1), *[h] * at["has_h"]], [whole, want[1]], at)
    assert_bits(got[0], whole)
    assert_bits(got[1], want[1])


def test_a_sequence_is_its_steps() -> None:
    """The states are float16 between the steps, so a run of four equals four runs of one."""
    rng = np.random.default_rng(4)
    at: dict[str, Any] = {
        "time": 4, "batch": 1, "features": 8, "units": 16, "size": 16, "gates": 4, "time_major": 1, "reverse": 0,
        "has_h": 1, "has_c": 1, "wx": halves(rng, (8, 64)), "wh": halves(rng, (16, 64)), "bias": halves(rng, (64,)),
        "cell_clip": 0.0, "output_clip": 0.0, "sigmoid": SIGMOID, "tanh": TANH,
    }  # fmt: skip
    x, h, c = halves(rng, (4, 1, 8)), halves(rng, (1, 16), 0.5), halves(rng, (1, 16), 0.5)
    whole = run_all("lstm_f32", [x, h, c], [np.zeros((4, 1, 16), np.float32), c, h], at)
    for step in x:
        _, c, h = run_all("lstm_f32", [step[None], h, c], [np.zeros((1, 1, 16), np.float32), c, h], at | {"time": 1})
    assert_bits(whole[1], c)
    assert_bits(whole[2], h)
