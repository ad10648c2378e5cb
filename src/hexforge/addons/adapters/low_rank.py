# SPDX-License-Identifier: Apache-2.0
"""Low-rank factors: weights A and B as checkpoints name them, merged with the constants of a model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from hexforge.errors import CallError
from hexforge.ir import Array

if TYPE_CHECKING:
    from hexforge.frontends.onnx.context_constants import Constants

_FACTOR = re.compile(r"(?P<stem>.+?)[._](?P<kind>lora_A|lora_B|lora_down|lora_up)(\.[^.]+)??(\.weight)?")
_IS_FIRST = {"lora_A": True, "lora_down": True, "lora_B": False, "lora_up": False}
_PREFIXES = ("base_model.model.", "base_model.")
_SUFFIXES = ("_quantized", ".weight", ".kernel")


def merge_weights(
    base: Constants, arrays: Mapping[str, Array], alpha: float | None, names: Mapping[str, str]
) -> dict[str, Array]:
    """The constants of the base merged with the given arrays; the error lists every fault at once."""
    factors: dict[str, dict[bool, Array]] = {}
    alphas: dict[str, float] = {}
    whole: dict[str, Array] = {}
    for name, array in arrays.items():
        if match := _FACTOR.fullmatch(name):
            factors.setdefault(match["stem"], {})[_IS_FIRST[match["kind"]]] = array
        elif name.endswith(".alpha") and array.size == 1:
            alphas[name.removesuffix(".alpha")] = float(array.reshape(-1)[0])
        else:
            whole[name] = array
    faults: list[str] = []
    out: dict[str, Array] = {}
    for stem, pair in factors.items():
        try:
            target = _target(base, stem, names)
            scale = _scale(stem, pair, alpha if alpha is not None else alphas.get(stem))
            out[target] = base.stored(target, base.real(target) + scale * _delta(base, target, stem, pair))
        except CallError as error:
            faults.append(str(error))
    for name, array in whole.items():
        try:
            target = _target(base, name, names)
            out[target] = base.stored(target, array.astype(np.float64))
        except CallError as error:
            faults.append(str(error))
    if faults:
        raise CallError("\n".join(faults))
    if not out:
        raise CallError("the adapter weights are empty: there is no lora_A and lora_B, nor a constant of the model")
    return out


def _target(base: Constants, stem: str, names: Mapping[str, str]) -> str:
    """The constant that weights are for."""
    if stem in names:
        base.array(names[stem])
        return names[stem]
    plain = stem
    for prefix in _PREFIXES:
        plain = plain.removeprefix(prefix)
    path = plain.split(".")
    real = [n for n in base.names if base.is_real(n)]
    for accepts in (lambda n: n == stem, lambda n: _plain_name(n) in (plain, _plain_name(plain)),
                    lambda n: re.split(r"[./]", _plain_name(n))[-len(path):] == path):  # fmt: skip
        matching = [n for n in real if accepts(n)]
        if len(matching) == 1:
            return matching[0]
        if matching:
            raise CallError(
                f"{stem}: may be {' or '.join(matching[:4])} of {base.where}; say which with a map ({stem}=<constant>)"
            )
    raise CallError(
        f"{stem}: {base.where} has no constant of that name; say which it is with a map "
        f"({stem}=<constant>); it has {', '.join(real[:8])}{' …' if len(real) > 8 else ''}"
    )


def _plain_name(name: str) -> str:
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    return name


def _scale(stem: str, pair: Mapping[bool, Array], alpha: float | None) -> float:
    if len(pair) != 2:
        raise CallError(f"{stem}: has only {'A' if True in pair else 'B'} of the factors A and B")
    first, second = pair[True], pair[False]
    rank = first.shape[0] if first.ndim else 0
    if first.ndim < 2 or second.ndim < 2 or not rank or second.shape[1] != rank:
        raise CallError(f"{stem}: A {list(first.shape)} and B {list(second.shape)} are not [rank, in] and [out, rank]")
    return 1.0 if alpha is None else alpha / rank


def _delta(base: Constants, target: str, stem: str, pair: Mapping[bool, Array]) -> Array:
    """B @ A in the shape and orientation of the constant."""
    first, second = (pair[side].astype(np.float64) for side in (True, False))
    shape = base.array(target).shape
    product = second.reshape(len(second), -1) @ first.reshape(len(first), -1)
    if first.ndim > 2 or len(shape) > 2:  # a convolution: [out, in, ...]
        turned = False
    else:
        output_first = base.output_first(target)
        turned = not output_first if output_first is not None else product.shape != shape
        if output_first is None and product.shape == shape and shape[0] == shape[1]:
            raise CallError(
                f"{stem}: {target!r} is square, and no MatMul, Gemm or Conv says which way it lies; "
                "give the adapted model instead"
            )
    delta = product.T if turned else product
    if delta.size != int(np.prod(shape)) or (len(shape) == 2 and delta.shape != shape) or delta.shape[0] != shape[0]:
        raise CallError(f"{stem}: B @ A is {list(product.shape)}, which does not fit {target!r} of {list(shape)}")
    return delta.reshape(shape)
