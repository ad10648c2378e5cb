# SPDX-License-Identifier: Apache-2.0
"""Random ops. A seed other than 0 gives the same numbers on every run, 0 gives fresh ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hexforge.ir import Array, Call, Param, QuantRule, TensorType, Work, define, per_element

_SEED = Param("seed", "float32", default=0.0)


def _infer_like(call: Call) -> tuple[TensorType, ...]:
    out = call.out()
    if out.shape != call.input(0).shape:
        raise call.fail(f"the output is declared {list(out.shape)}, the input is {list(call.input(0).shape)}")
    if not out.dtype.is_float:
        raise call.fail(f"the output is declared {out.dtype.value}, not a float type")
    return (out,)


def _generator(call: Call) -> np.random.Generator:
    seed = float(call["seed"])
    return np.random.default_rng(None if seed == 0 else int(np.float64(seed).view(np.uint64)))


def _uniform(call: Call, x: Array) -> Array:
    return _generator(call).uniform(call["low"], call["high"], x.shape)


def _normal(call: Call, x: Array) -> Array:
    return _generator(call).normal(call["mean"], call["scale"], x.shape)


_ROWS: tuple[tuple[str, tuple[str, str], Callable[[Call, Array], Array], str], ...] = (
    ("RandomUniformLike", ("low", "high"), _uniform, "Uniform random numbers in [low, high)."),
    ("RandomNormalLike", ("mean", "scale"), _normal, "Normal random numbers of a mean and standard deviation."),
)
for _name, _params, _function, _doc in _ROWS:
    define(
        _name,
        "in",
        params=(Param(_params[0], "float32", default=0.0), Param(_params[1], "float32", default=1.0), _SEED),
        infer=_infer_like,
        reference=_function,
        kind=Work.RANDOM,
        work=per_element(lanes=4),
        quant=QuantRule("never"),
        doc=f"{_doc} The input gives only the shape.",
    )
