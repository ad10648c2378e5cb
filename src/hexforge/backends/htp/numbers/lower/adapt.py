# SPDX-License-Identifier: Apache-2.0
"""Tensors made ready for a step: constants added, encodings aligned, an axis moved last and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from hexforge.backends.htp.numbers.halves import every_half
from hexforge.backends.htp.numbers.lower.moves import copy, merged, strides
from hexforge.backends.htp.numbers.lower.native_steps import Lowering
from hexforge.backends.htp.numbers.storage import Storage
from hexforge.ir import Array, Value
from hexforge.ir.fixed_point import dequantize

INTEGERS = (np.dtype(np.int32), np.dtype(np.int64))


def kind_of(own: Storage) -> str | None:
    """The suffix of the steps that work on a tensor: its kind, int32 or int64; None for other raw tensors."""
    if own.kind != "raw":
        return own.kind
    return own.dtype.name if own.dtype in INTEGERS else None


def same_encoding(a: Storage, b: Storage) -> bool:
    """True where the stored integers (or floats) of one mean the same in the other."""
    return (a.kind, a.dtype, a.scale, a.zero_point) == (b.kind, b.dtype, b.scale, b.zero_point)


def constant(lowering: Lowering, array: Array, stem: str) -> str:
    """A new constant tensor that holds `array` as it is."""
    ready = np.ascontiguousarray(array)
    name = lowering.temp(Storage("raw", ready.dtype, ready.shape), stem)
    lowering.constants[name] = ready
    return name


def real(value: Value) -> Array:
    """A constant's real numbers as float64."""
    assert value.data is not None
    return (value.data if value.encoding is None else dequantize(value.data, value.type)).astype(np.float64)


def requantized(lowering: Lowering, tensor: str, own: Storage, y: Storage) -> str:
    """A tensor of integers with `y`'s encoding: itself, or looked up in a table of the nearest ones."""
    if same_encoding(own, y):
        return tensor
    out = lowering.temp(replace(y, shape=own.shape), tensor)
    requantize(lowering, tensor, own, out, y)
    return out


def requantize(lowering: Lowering, tensor: str, own: Storage, out: str | Value, y: Storage) -> None:
    """Write `tensor` with `y`'s encoding into `out`."""
    stored = np.arange(256) if own.kind == "u8" else np.arange(-32768, 32768)
    steps = np.rint((stored - own.zero_point) * own.scale / y.scale) + y.zero_point
    kind = f"table_{own.kind}" if own.kind == y.kind else f"table_{own.kind}_{y.kind}"
    table = np.clip(steps, y.low, y.high).astype(y.dtype)
    lowering.emit(kind, [tensor], [out], count=own.size, table=table)


def transpose(lowering: Lowering, x: Value | str, y: Value | str, shape: Sequence[int], perm: Sequence[int]) -> None:
    """Copy `x` of `shape` with its axes permuted into `y`."""
    source = strides(shape)
    out = [shape[p] for p in perm]
    copy(lowering, x, y, *merged(out, [source[p] for p in perm], strides(out)))


def along_last(
    lowering: Lowering, x: Value, y: Value, axis: int, write: Callable[[Value | str, Value | str], None]
) -> None:
    """Run steps that need `axis` last between tensors of one shape: moved there and back where it is not."""
    own, out = lowering.storage(x), lowering.storage(y)
    rank = len(x.shape)
    if math.prod(x.shape[axis + 1 :]) == 1:
        write(x, y)
        return
    there = [*(i for i in range(rank) if i != axis), axis]
    shape = tuple(x.shape[p] for p in there)
    before = lowering.temp(replace(own, shape=shape), x.name)
    after = lowering.temp(replace(out, shape=shape), y.name)
    transpose(lowering, x, before, x.shape, there)
    write(before, after)
    transpose(lowering, after, y, shape, [there.index(i) for i in range(rank)])


def three(values: Iterable[int], fill: int) -> tuple[int, ...]:
    """Numbers of one to three spatial axes as three, with `fill` in front."""
    given = [int(v) for v in values]
    return (*[fill] * (3 - len(given)), *given)


def nest(shape: Sequence[int], *operands: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """The broadcast loops of any number of operands, axes merged: dims, and the strides of one after the other."""
    steps = []
    for operand in operands:
        padded = (*(1,) * (len(shape) - len(operand)), *operand)
        dense = strides(padded)
        steps.append([0 if size == 1 else stride for size, stride in zip(padded, dense, strict=True)])
    rows: list[list[int]] = []
    for size, *each in zip(shape, *steps, strict=True):
        if size == 1:
            continue
        if rows and all(before == s * size for before, s in zip(rows[-1][1:], each, strict=True)):
            rows[-1] = [rows[-1][0] * size, *each]
        else:
            rows.append([size, *each])
    columns = list(zip(*(rows or [[1] + [0] * len(operands)]), strict=True))
    return {"dims": columns[0], "strides": tuple(s for column in columns[1:] for s in column)}


def exponentials(step: float, count: int) -> Array:
    """exp(-distance * step) as integers of 2^-31, for every distance between two stored values."""
    return np.rint(np.exp(-np.arange(count, dtype=np.float64) * step) * 2.0**31).astype(np.uint32)


@lru_cache(maxsize=64)
def half_table(function: str, factor: float = 1.0) -> Array:
    """exp, tanh or sigmoid of factor * h as float32, for every half h by its bits."""
    with np.errstate(all="ignore"):
        h = every_half().astype(np.float64) * factor
        if function == "sigmoid":
            return (1 / (1 + np.exp(-h))).astype(np.float32)
        return (np.exp(h) if function == "exp" else np.tanh(h)).astype(np.float32)
