# SPDX-License-Identifier: Apache-2.0
"""Pinned: an input that has one value for good is a constant, and what depends on it is folded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hexforge.errors import CallError
from hexforge.options import did_you_mean

if TYPE_CHECKING:
    import onnx_ir


def pinned_value(
    name: str,
    number: Any,
    inputs: Iterable[str],
    dtype: np.dtype[Any] | None,
    shape: Sequence[int | str | None] | None,
    where: str,
) -> np.ndarray[Any, Any]:
    """The constant that an input is pinned to, of its type and shape; one number fills it, open dimensions are 1."""
    names = list(inputs)
    if name not in names:
        raise CallError(f"{where}: has no input {name!r} to pin{did_you_mean(name, names)}")
    if dtype is None:
        raise CallError(f"{where}: input {name!r} is no tensor of numbers, so it cannot be pinned")
    array = np.asarray(number)
    exact = array.astype(dtype) if array.dtype.kind in "biuf" else None
    # a decimal fraction is rounded to float32 or float16; an integer type must hold the very number
    if exact is None or (dtype.kind in "biu" and not np.array_equal(exact.astype(array.dtype), array)):
        raise CallError(f"{where}: input {name!r} is {dtype}, which cannot be {number!r}")
    sizes = None if shape is None else tuple(d if isinstance(d, int) and d >= 0 else None for d in shape)
    if sizes is None:
        return exact
    if exact.size == 1:
        return np.full([1 if d is None else d for d in sizes], exact.reshape(()))
    if exact.ndim != len(sizes) or any(d not in (None, n) for d, n in zip(sizes, exact.shape, strict=True)):
        raise CallError(f"{where}: input {name!r} is {list(shape or ())}; the value to pin is {list(exact.shape)}")
    return exact


def pin_inputs(model: onnx_ir.Model, constants: Mapping[str, Any], where: str) -> None:
    """Turn inputs into constants: `{"sr": 16000}` makes the input sr the number 16000."""
    import onnx_ir  # not with this module: what declares inputs needs none of it

    inputs = {v.name or "": v for v in model.graph.inputs}
    for name, number in constants.items():
        value = inputs.get(name)
        dtype = None if value is None or value.dtype is None else value.dtype.numpy()
        shape = None if value is None or value.shape is None else tuple(_size_or_none(d) for d in value.shape)
        exact = pinned_value(name, number, inputs, dtype, shape, where)
        assert value is not None
        model.graph.inputs.remove(value)
        value.const_value = onnx_ir.tensor(exact, name=name)
        value.shape = onnx_ir.Shape(exact.shape)
        model.graph.register_initializer(value)


def _size_or_none(dim: Any) -> int | None:
    return dim if isinstance(dim, int) else None
