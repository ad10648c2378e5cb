# SPDX-License-Identifier: Apache-2.0
"""Pooling against naive loops over every window, and what it refuses."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hexforge.ops  # noqa: F401 - fills the table
from hexforge.errors import ModelError
from hexforge.ir import Call, DType, TensorType, lookup


def _call(op: str, shape: tuple[int, ...], params: dict[str, Any]) -> Call:
    found, ins = lookup(op), (TensorType(DType.FLOAT32, shape),)
    full = found.complete(params)
    return Call(found, ins, found.infer(Call(found, ins, (), full)), full)


def _naive(x: np.ndarray, kind: str, shape: tuple[int, ...], case: dict[str, Any]) -> np.ndarray:
    out = np.zeros(shape)
    for n, *position, c in itertools.product(*map(range, shape)):
        values, counted = [], 0
        for tap in itertools.product(*map(range, case["filter_size"])):
            steps = zip(position, case["stride"], tap, case["pad_amount"], strict=True)
            at = [p * s + t - a for p, s, t, (a, _) in steps]
            if all(0 <= i < size for i, size in zip(at, x.shape[1:-1], strict=True)):
                values.append(x[(n, *at, c)])
            if all(-a <= i < size + b for i, size, (a, b) in zip(at, x.shape[1:-1], case["pad_amount"], strict=True)):
                counted += 1
        match kind:
            case "max":
                out[(n, *position, c)] = max(values)
            case "mean":
                out[(n, *position, c)] = sum(values) / len(values)
            case "mean with pads":
                out[(n, *position, c)] = sum(values) / counted
            case _:
                out[(n, *position, c)] = sum(abs(v) ** 3 for v in values) ** (1 / 3)
    return out


@st.composite
def _cases(draw: st.DrawFn) -> dict[str, Any]:
    dims = draw(st.sampled_from([2, 2, 3]))
    kernel = draw(st.tuples(*[st.integers(1, 3)] * dims))
    return {
        "filter_size": kernel,
        "stride": draw(st.tuples(*[st.integers(1, 3)] * dims)),
        "pad_amount": tuple((draw(st.integers(0, k - 1)), draw(st.integers(0, k - 1))) for k in kernel),
        "rounding_mode": draw(st.integers(0, 1)),
        "size": draw(st.tuples(*[st.integers(3, 6)] * dims)),
        "seed": draw(st.integers(0, 99)),
    }


@settings(max_examples=40, deadline=None)
@given(_cases(), st.sampled_from(["max", "mean", "mean with pads", "norm"]))
def test_pool_is_over_its_window(case: dict[str, Any], kind: str) -> None:
    dims = len(case["size"])
    if kind == "norm" and dims == 3:
        return
    op = {"max": f"PoolMax{dims}d", "norm": "L2Pool2d"}.get(kind, f"PoolAvg{dims}d")
    x = np.random.default_rng(case["seed"]).normal(size=(2, *case["size"], 2))
    params = {name: case[name] for name in ("filter_size", "stride", "pad_amount", "rounding_mode")}
    if kind == "norm":
        params = {**params, "p": 3}
        del params["rounding_mode"]
    if kind == "mean with pads":
        params["count_pad_for_edges"] = True
    try:
        call = _call(op, x.shape, params)
    except ModelError as error:
        if "only padding" not in str(error):
            raise
        return
    want = _naive(x, kind, call.out().shape, case)
    np.testing.assert_allclose(call.op.reference(call, x), want, rtol=1e-10, atol=1e-12)
    single = call.op.reference(call, x.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"filter_size": (9, 1)}, "does not fit"),
        ({"filter_size": (2,)}, "filter_size"),
        ({"stride": (0, 1)}, "stride"),
        ({"pad_amount": ((2, 0), (0, 0))}, "only padding"),
        ({"pad_amount": ((-1, 0), (0, 0))}, "pad_amount"),
    ],
)
def test_misfits_are_named(params: dict[str, Any], message: str) -> None:
    base = {"filter_size": (2, 2), "stride": (1, 1), "pad_amount": ((0, 0), (0, 0))}
    with pytest.raises(ModelError, match=message):
        _call("PoolMax2d", (1, 4, 4, 1), {**base, **params})
