# SPDX-License-Identifier: Apache-2.0
"""Random numbers: like a tensor's shape, and Bernoulli trials."""

from __future__ import annotations

from hexforge.frontends.onnx.translate.builder import Builder, translates
from hexforge.frontends.onnx.translate.compose import binary, cast
from hexforge.frontends.onnx.unit import Refusal, Unit
from hexforge.ir import DType, TensorType, Value


def _seed(b: Builder, u: Unit) -> float:
    """The node's seed; QNN's 0 means fresh numbers on every run, so an explicit 0 becomes another number."""
    seed = b.attr(u, "seed", None)
    return 0.0 if seed is None else float(seed) or 0.5


def _draw(b: Builder, u: Unit, op: str, **params: float) -> Value:
    x = b.real(u, 0)
    out = b.output(u).dtype
    dtype = out if out.is_float else DType.FLOAT32
    return b.emit(op, [x], TensorType(dtype, x.shape), seed=_seed(b, u), **params)


@translates("RandomUniformLike", writes=("RandomUniformLike",))
def random_uniform_like(b: Builder, u: Unit) -> None:
    """Uniform numbers in [low, high)."""
    low, high = float(b.attr(u, "low", 0.0)), float(b.attr(u, "high", 1.0))
    b.finish(u, _draw(b, u, "RandomUniformLike", low=low, high=high))


@translates("RandomNormalLike", writes=("RandomNormalLike",))
def random_normal_like(b: Builder, u: Unit) -> None:
    """Normal numbers."""
    mean, scale = float(b.attr(u, "mean", 0.0)), float(b.attr(u, "scale", 1.0))
    if scale < 0:
        raise Refusal(f"scale {scale} is negative")
    b.finish(u, _draw(b, u, "RandomNormalLike", mean=mean, scale=scale))


@translates("Bernoulli", writes=("ElementWiseLess", "RandomUniformLike"))
def bernoulli(b: Builder, u: Unit) -> None:
    """1 with the probability each element gives: a uniform number is below it."""
    x = cast(b, b.real(u, 0), DType.FLOAT32)
    drawn = b.emit("RandomUniformLike", [x], x.type, seed=_seed(b, u))
    b.finish(u, binary(b, "Less", drawn, x))
