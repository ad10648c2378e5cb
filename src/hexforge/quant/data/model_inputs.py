# SPDX-License-Identifier: Apache-2.0
"""Model inputs: what a model reads, and samples checked against it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir

from hexforge.errors import CallError
from hexforge.ir import Array


@dataclass(frozen=True, slots=True)
class Input:
    """What a model reads; None in its shape is a dimension of any size."""

    name: str
    shape: tuple[int | None, ...]
    dtype: np.dtype[Any]

    def __str__(self) -> str:
        dims = ", ".join("?" if d is None else str(d) for d in self.shape)
        return f"{self.name!r} {self.dtype.name}[{dims}]"


def inputs_of(model: onnx_ir.Model) -> tuple[Input, ...]:
    """The inputs of a model."""
    inputs = []
    for value in model.graph.inputs:
        if value.dtype is None or value.shape is None or value.dtype == onnx_ir.DataType.STRING:
            raise CallError(
                f"input {value.name!r} is not a tensor of numbers with a known rank; samples cannot be made for it"
            )
        shape = tuple(d if isinstance(d, int) else None for d in value.shape)
        inputs.append(Input(str(value.name), shape, np.dtype(value.dtype.numpy())))
    return tuple(inputs)


def checked_sample(raw: Any, inputs: Sequence[Input], where: str) -> dict[str, Array]:
    """A sample as arrays by name; CallError where it does not fit the inputs or holds NaN or infinity."""
    if not isinstance(raw, Mapping):
        if len(inputs) != 1:
            raise CallError(f"{where}: the model has {len(inputs)} inputs; give a dict of {_names(inputs)}")
        raw = {inputs[0].name: raw}
    unknown = sorted(str(name) for name in set(raw) - {i.name for i in inputs})
    if unknown:
        raise CallError(f"{where}: the model has no input {unknown[0]!r}; it reads {_names(inputs)}")
    return {i.name: _checked_array(raw, i, where) for i in inputs}


def _names(inputs: Sequence[Input]) -> str:
    return ", ".join(map(str, inputs))


def _checked_array(raw: Mapping[str, Any], model_input: Input, where: str) -> Array:
    if model_input.name not in raw:
        raise CallError(f"{where}: input {model_input} is missing; there is {', '.join(map(str, raw)) or 'nothing'}")
    value = raw[model_input.name]
    try:
        array = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
    except (ValueError, TypeError) as error:
        raise CallError(f"{where}: input {model_input.name!r} is not an array: {error}") from None
    if array.dtype != model_input.dtype:
        raise CallError(
            f"{where}: input {model_input.name!r} is {array.dtype.name}, the model reads {model_input.dtype.name}; "
            f"convert it with .astype({model_input.dtype.name!r})"
        )
    if not _fits(array.shape, model_input.shape):
        missing = array.shape == model_input.shape[1:] and model_input.shape[0] == 1
        hint = "add the batch with array[None]" if missing else "reshape it, or fix the model's shapes to it"
        raise CallError(
            f"{where}: input {model_input.name!r} has shape {list(array.shape)}, the model reads {model_input}; {hint}"
        )
    if array.dtype.kind in "fV" and not np.isfinite(array).all():
        flat = array.ravel()
        at = int(np.argmin(np.isfinite(flat)))
        bad = len(flat) - int(np.isfinite(flat).sum())
        raise CallError(
            f"{where}: input {model_input.name!r} holds {bad} value(s) that are NaN or infinite, the first {flat[at]} "
            f"at {[int(n) for n in np.unravel_index(at, array.shape)]}; leave this sample out, or mend it"
        )
    return array


def _fits(shape: tuple[int, ...], declared: tuple[int | None, ...]) -> bool:
    return len(shape) == len(declared) and all(w in (None, n) for n, w in zip(shape, declared, strict=True))
