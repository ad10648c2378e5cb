# SPDX-License-Identifier: Apache-2.0
"""A session's inputs and outputs: what they are called, their types and shapes, and whether a feed fits them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hexforge.errors import CallError
from hexforge.model.declarations import Declared
from hexforge.options import did_you_mean
from hexforge.ort.values import to_array


@dataclass(frozen=True, slots=True)
class NodeArg:
    """An input or output of a session, as onnxruntime's NodeArg: a dimension is a number, a name or None."""

    name: str
    type: str
    shape: list[int | str | None]
    dtype: np.dtype[Any] | None = field(default=None, compare=False)
    """The numpy type of a tensor's elements; None for sequences and the like."""

    def __str__(self) -> str:
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape})"


def arguments(declared: Iterable[Declared], values: Iterable[Any]) -> list[NodeArg]:
    """NodeArgs of what a model declares, with the shapes its values have after fixing and inference."""
    shapes = {value.name: value.shape for value in values}
    node_args = []
    for item in declared:
        shape = shapes.get(item.name)
        if shape is None:
            shape = () if item.shape is None else item.shape
        dims = [d if d is None or isinstance(d, (int, str)) else d.value for d in shape]
        node_args.append(NodeArg(item.name, item.type, dims, item.dtype))
    return node_args


def check_feed(feed: Mapping[str, Any], inputs: Sequence[NodeArg], fixed: Iterable[str] = ()) -> dict[str, Any]:
    """The feed as arrays; CallError listing every input that is unknown, missing, or of another type or shape."""
    if not isinstance(feed, Mapping):
        raise CallError(f"input_feed is a {type(feed).__name__}; give a dict of input name to array")
    known = {arg.name: arg for arg in inputs}
    fixed = set(fixed)
    faults = []
    for name in feed:
        if name in fixed:
            faults.append(f"input {name!r} is an initializer, which QNN makes constant; leave it out of the feed")
        elif name not in known:
            listed = ", ".join(map(repr, known)) or "none"
            faults.append(f"unknown input {name!r}; the model's inputs are {listed}{did_you_mean(name, known)}")
    arrays = {}
    for arg in inputs:
        if arg.name not in feed:
            if not arg.type.startswith("optional"):
                faults.append(f"input {arg.name!r} is missing; give an array of {_expected(arg)}")
            continue
        arrays[arg.name], fault = _fitted(feed[arg.name], arg)
        if fault:
            faults.append(fault)
    if faults:
        raise CallError("\n".join(faults))
    return arrays


def _expected(arg: NodeArg) -> str:
    dims = ", ".join("any" if d is None else str(d) for d in arg.shape)
    return f"{arg.type} with shape [{dims}]"


def _fitted(given: Any, arg: NodeArg) -> tuple[Any, str | None]:
    """What is given as an array, or what is wrong with it."""
    if type(given) is np.ndarray and given.dtype == arg.dtype and [*given.shape] == arg.shape:
        return given, None
    value = to_array(given)
    if arg.dtype is None:  # strings, sequences, optionals: onnxruntime checks them
        return value, None
    if isinstance(value, (list, tuple, np.generic)):
        try:
            value = np.asarray(value) if isinstance(value, np.generic) else np.asarray(value, arg.dtype)
        except (TypeError, ValueError, OverflowError):
            return value, f"input {arg.name!r} is a {type(given).__name__} that is no array of {_expected(arg)}"
    if not isinstance(value, np.ndarray):
        what = "None" if given is None else f"a {type(given).__module__}.{type(given).__qualname__}"
        remedy = f"give a numpy array of {_expected(arg)}, e.g. np.asarray(x, np.{arg.dtype.name})"
        return value, f"input {arg.name!r} is {what.replace('builtins.', '')}; {remedy}"
    if not value.dtype.isnative:
        value = value.astype(value.dtype.newbyteorder("="))
    if value.dtype != arg.dtype:
        remedy = f"convert it, e.g. x.astype(np.{arg.dtype.name})"
        return value, f"input {arg.name!r} has data type {value.dtype.name}, expected {arg.dtype.name}; {remedy}"
    if value.ndim != len(arg.shape):
        got = f"{value.ndim} dimensions {list(value.shape)}, expected {len(arg.shape)}"
        return value, f"input {arg.name!r} has {got}: {_expected(arg)}"
    wrong = [
        f"dimension {axis} is {have}, expected {want}"
        for axis, (have, want) in enumerate(zip(value.shape, arg.shape, strict=True))
        if isinstance(want, int) and have != want
    ]
    if wrong:
        return value, f"input {arg.name!r} has shape {list(value.shape)}: {'; '.join(wrong)}"
    return value, None


def check_outputs(names: Sequence[str] | None, outputs: Sequence[NodeArg]) -> list[str]:
    """The outputs asked for, all of them where none are named; CallError for names the model does not have."""
    known = [arg.name for arg in outputs]
    if isinstance(names, str):
        raise CallError(f"output_names is the text {names!r}; give a list of names, or None for all outputs")
    faults = [
        f"unknown output {name!r}; the model's outputs are {', '.join(map(repr, known))}{did_you_mean(name, known)}"
        for name in names or ()
        if name not in known
    ]
    if faults:
        raise CallError("\n".join(faults))
    return list(names or known)
