# SPDX-License-Identifier: Apache-2.0
"""Normalizations against loops over the sets that are normalized."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexforge.errors import ModelError
from hexforge.ir import Call, DType, TensorType, lookup
from hexforge.ops.evaluate import evaluate

_SHAPE = st.lists(st.integers(1, 4), min_size=3, max_size=4).map(tuple)


def _run(op: str, arrays: list[np.ndarray | None], **params: object) -> np.ndarray:
    found = lookup(op)
    types = tuple(None if a is None else TensorType(DType.of(a.dtype), a.shape) for a in arrays)
    full = found.complete(params)
    outs = found.infer(Call(found, types, (), full))
    return evaluate(Call(found, types, outs, full), arrays)[0]


def _draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@settings(max_examples=30, deadline=None)
@given(shape=_SHAPE, axis=st.integers(0, 2), beta=st.sampled_from([1.0, 0.5]), shift=st.sampled_from([0.0, 3e4, -3e4]))
def test_softmax(shape: tuple[int, ...], axis: int, beta: float, shift: float) -> None:
    x = np.round(_draw(*shape), 1) + np.float32(shift)
    exact = np.exp(beta * (x.astype(np.float64) - shift))
    exact /= exact.sum(axis=axis, keepdims=True)
    np.testing.assert_allclose(_run("Softmax", [x], axis=axis, beta=beta), exact, rtol=5e-3, atol=1e-6)
    np.testing.assert_allclose(_run("LogSoftmax", [x], axis=axis, beta=beta), np.log(exact), rtol=5e-3, atol=5e-3)


@settings(max_examples=40, deadline=None)
@given(shape=_SHAPE, axes=st.sets(st.integers(0, 2), min_size=1), rms=st.booleans(), affine=st.booleans())
def test_layer_and_rms_norm(shape: tuple[int, ...], axes: set[int], rms: bool, affine: bool) -> None:
    x, order = _draw(*shape), sorted(axes)
    sizes = [shape[a] for a in order]
    weight, bias = _draw(*sizes), _draw(*sizes) + 1
    moved = np.moveaxis(x.astype(np.float64), order, range(len(order)))
    flat = moved.reshape(int(np.prod(sizes)), -1)
    want = np.empty_like(flat)
    for i in range(flat.shape[1]):
        column = flat[:, i] - (0 if rms else flat[:, i].mean())
        want[:, i] = column / np.sqrt((column**2).mean() + 1e-3)
        if affine:
            want[:, i] = want[:, i] * weight.ravel() + bias.ravel()
    want = np.moveaxis(want.reshape(moved.shape), range(len(order)), order)  # type: ignore[arg-type]
    arrays = [x, weight, bias] if affine else [x]
    got = _run("RmsNorm" if rms else "LayerNorm", arrays, axes=order, epsilon=1e-3)  # type: ignore[arg-type]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@settings(max_examples=30, deadline=None)
@given(shape=_SHAPE, group=st.integers(1, 2), per=st.integers(1, 3))
def test_group_norm_of_single_channel_groups_is_instance_norm(shape: tuple[int, ...], group: int, per: int) -> None:
    x = _draw(*shape[:-1], group * per)
    weight, bias = _draw(group * per), _draw(group * per) + 1
    want = np.empty(x.shape)
    for n in range(x.shape[0]):
        for g in range(group):
            part = x[n, ..., g * per : (g + 1) * per].astype(np.float64)
            want[n, ..., g * per : (g + 1) * per] = (part - part.mean()) / np.sqrt(part.var() + 1e-3)
    got = _run("GroupNorm", [x, weight, bias], group=group, epsilon=1e-3)
    np.testing.assert_allclose(got, want * weight + bias, rtol=1e-4, atol=1e-4)
    if per == 1:
        same = _run("InstanceNorm", [x, weight, bias], epsilon=1e-3)
        np.testing.assert_allclose(got, same, rtol=1e-5, atol=1e-5)


@settings(max_examples=30, deadline=None)
@given(shape=_SHAPE, radius=st.integers(0, 5), within=st.booleans())
def test_lrn(shape: tuple[int, ...], radius: int, within: bool) -> None:
    x = _draw(*shape)
    axes = range(1, x.ndim - 1) if within else [x.ndim - 1]
    want = np.empty(x.shape)
    for at in np.ndindex(*shape):
        window = tuple(
            slice(max(0, i - radius), i + radius + 1) if a in axes else slice(i, i + 1) for a, i in enumerate(at)
        )
        want[at] = x[at] / (2 + 0.5 * np.square(x[window].astype(np.float64)).sum()) ** 0.75
    params = {"alpha": 0.5, "beta": 0.75, "bias": 2.0, "radius": radius, "region": int(within)}
    np.testing.assert_allclose(_run("Lrn", [x], **params), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("op", "shapes", "params", "words"),
    [
        ("Softmax", [(2, 3)], {"axis": 2}, "outside"),
        ("LayerNorm", [(2, 3), (2,)], {"axes": [1]}, "weight"),
        ("LayerNorm", [(2, 3)], {"axes": []}, "must be given"),
        ("Batchnorm", [(2, 3), (3,), (2,)], {}, "bias"),
        ("GroupNorm", [(2, 3)], {"group": 2}, "groups"),
        ("InstanceNorm", [(2, 3), (3,), (3,)], {}, "spatial"),
    ],
)
def test_what_does_not_fit(op: str, shapes: list[tuple[int, ...]], params: dict[str, object], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        _run(op, [np.zeros(s, np.float32) for s in shapes], **params)
