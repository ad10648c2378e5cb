# SPDX-License-Identifier: Apache-2.0
"""Random ops. A seed other than 0 gives the same numbers on every run, 0 gives fresh ones.

The input is what QNN has, the output's sizes as a constant (uint32), or, as in ONNX, a tensor of that shape.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hexforge.ir import Array, Call, DType, Param, QuantRule, TensorType, Work, define, per_element

_SEED = Param("seed", "float32", default=0.0)


def _infer_like(call: Call) -> tuple[TensorType, ...]:
    out, given = call.out(), call.input(0)
    sizes = given.dtype is DType.UINT32 and given.shape == (len(out.shape),)
    if not sizes and out.shape != given.shape:
        raise call.fail(f"the output is declared {list(out.shape)}, the input is {list(given.shape)}")
    if not out.dtype.is_float and out.encoding is None:
        raise call.fail(f"the output is declared {out.dtype.value}, not a float type")
    return (out,)


def _generator(call: Call) -> np.random.Generator:
    seed = float(call["seed"])
    return np.random.default_rng(None if seed == 0 else int(np.float64(seed).view(np.uint64)))


def _uniform(call: Call, x: Array) -> Array:
    return _generator(call).uniform(call["low"], call["high"], call.out().shape)


def _normal(call: Call, x: Array) -> Array:
    return _generator(call).normal(call["mean"], call["scale"], call.out().shape)


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
        quant=QuantRule(data=()),
        doc=f"{_doc} The input gives only the shape.",
    )
