# SPDX-License-Identifier: Apache-2.0
"""Lstm and Gru against one cell written out, unit by unit."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hexforge.ir import Call, DType, TensorType, lookup
from hexforge.ops.evaluate import evaluate


def _run(op: str, arrays: list[np.ndarray | None], **params: object) -> tuple[np.ndarray, ...]:
    found = lookup(op)
    types = tuple(None if a is None else TensorType(DType.of(a.dtype), a.shape) for a in arrays)
    full = found.complete(params)
    outs = found.infer(Call(found, types, (), full))
    got = evaluate(Call(found, types, outs, full), arrays)
    assert [a.shape for a in got] == [t.shape for t in outs]
    return got


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


_SIZES = st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3))


@settings(max_examples=30, deadline=None)
@given(
    sizes=_SIZES, reverse=st.booleans(), coupled=st.booleans(), peephole=st.booleans(), norm=st.booleans(),
    clip=st.sampled_from([0.0, 0.25]), project=st.booleans(), time_major=st.booleans(),
)  # fmt: skip
def test_lstm(
    sizes: tuple[int, int, int, int], reverse: bool, coupled: bool, peephole: bool, norm: bool, clip: float,
    project: bool, time_major: bool,
) -> None:  # fmt: skip
    batch, time, features, units = sizes
    rng = np.random.default_rng(sum(sizes))
    size = 2 if project else units

    def draw(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    x, w, r = draw(batch, time, features), draw(4, units, features), draw(4, units, size)  # gates i f c o
    bias, peep, norms = draw(4, units), draw(3, units), draw(4, units)
    proj, proj_bias, h, c = draw(size, units), draw(size), draw(batch, size), draw(batch, units)
    h0, c0 = h, c
    out = np.zeros((batch, time, size))
    for t in reversed(range(time)) if reverse else range(time):
        gates = np.einsum("bf,guf->gbu", x[:, t], w) + np.einsum("bh,guh->gbu", h, r)

        def finish(g: int, value: np.ndarray) -> np.ndarray:
            if norm:
                value = (value - value.mean(1, keepdims=True)) / np.sqrt(value.var(1, keepdims=True) + 1e-8) * norms[g]
            return value + bias[g]

        forget = _sigmoid(finish(1, gates[1] + peephole * peep[1] * c))
        admit = 1 - forget if coupled else _sigmoid(finish(0, gates[0] + peephole * peep[0] * c))
        c = forget * c + admit * np.tanh(finish(2, gates[2]))
        c = np.clip(c, -clip, clip) if clip else c
        h = _sigmoid(finish(3, gates[3] + peephole * peep[2] * c)) * np.tanh(c)
        h = h @ proj.T + proj_bias if project else h
        out[:, t] = h
    inputs: list[np.ndarray | None] = [
        np.swapaxes(x, 0, 1) if time_major else x,
        w[1], w[2], w[3], r[1], r[2], r[3], bias[1], bias[2], bias[3], h0, c0,
        *([None if coupled else norms[0], norms[1], norms[2], norms[3]] if norm else [None] * 4),
        *([None, None] if coupled else [w[0], r[0]]),
        *([None if coupled else peep[0], peep[1], peep[2]] if peephole else [None] * 3),
        None if coupled else bias[0],
        *([proj, proj_bias] if project else []),
    ]  # fmt: skip
    got = _run("Lstm", inputs, direction=int(reverse), cell_clip_threshold=clip, time_major=time_major)
    whole = np.swapaxes(got[0], 0, 1) if time_major else got[0]
    for mine, want in zip((whole, *got[1:]), (out, c, h), strict=True):
        np.testing.assert_allclose(mine, want, rtol=1e-4, atol=1e-5)


def test_reset_clears_the_state() -> None:
    rng = np.random.default_rng(1)
    base = [rng.standard_normal(s).astype(np.float32) for s in ((1, 2, 3), *[(2, 3)] * 3, *[(2, 2)] * 3, *[(2,)] * 3)]
    state = [np.ones((1, 2), np.float32)] * 2
    fresh = _run("Lstm", base)  # type: ignore[arg-type]
    got = _run("Lstm", [*base, *state, *[None] * 12, np.array([True])])
    np.testing.assert_array_equal(got[0], fresh[0])
    assert (_run("Lstm", [*base, *state])[0] != fresh[0]).any()


@settings(max_examples=20, deadline=None)
@given(sizes=_SIZES, reverse=st.booleans(), linear=st.booleans())
def test_gru(sizes: tuple[int, int, int, int], reverse: bool, linear: bool) -> None:
    batch, time, features, units = sizes
    rng = np.random.default_rng(sum(sizes))
    x, h = rng.standard_normal((batch, time, features)), rng.standard_normal((batch, units))
    w, r = rng.standard_normal((3, units, features)), rng.standard_normal((3, units, units))  # z r n
    b, c = rng.standard_normal((3, units)), rng.standard_normal((3, units))
    arrays = [a.astype(np.float32) for a in (x, *w, *r, *b, *c, h)]
    out = np.zeros((batch, time, units))
    for t in reversed(range(time)) if reverse else range(time):
        step = np.einsum("bf,guf->gbu", x[:, t], w) + b[:, None]
        update, reset = (_sigmoid(step[g] + h @ r[g].T + c[g]) for g in (0, 1))
        new = np.tanh(step[2] + (reset * (h @ r[2].T + c[2]) if linear else (reset * h) @ r[2].T + c[2]))
        h = (1 - update) * new + update * h
        out[:, t] = h
    got = _run("Gru", arrays, direction=int(reverse), linear_before_reset=linear)
    np.testing.assert_allclose(got[0], out, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got[1], h, rtol=1e-4, atol=1e-5)
