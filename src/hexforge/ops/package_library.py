# SPDX-License-Identifier: Apache-2.0
"""Op packages in shared libraries: the C structs of hexforge_op_package.h."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hexforge.errors import CallError, UnsupportedError
from hexforge.ir.op import Param
from hexforge.ir.types import Array

API, MAX_RANK, MOST_OPS = 1, 8, 1024
HEADERS = Path(__file__).parent / "include"


class _Shape(ctypes.Structure):
    _fields_ = (("rank", ctypes.c_int32), ("dims", ctypes.c_int64 * MAX_RANK))


_INFER = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.POINTER(_Shape), ctypes.c_int32, ctypes.POINTER(ctypes.c_double), ctypes.POINTER(_Shape)
)
_FLOATS = ctypes.POINTER(ctypes.POINTER(ctypes.c_float))
_RUN = ctypes.CFUNCTYPE(
    ctypes.c_int32, _FLOATS, ctypes.POINTER(_Shape), ctypes.POINTER(ctypes.c_double), _FLOATS, ctypes.POINTER(_Shape)
)


class _Op(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_char_p) for name in ("type", "inputs", "outputs", "params", "work")),
        ("lanes", ctypes.c_int32),
        ("lookups", ctypes.c_int32),
        ("infer", _INFER),
        ("run", _RUN),
    )


class _Package(ctypes.Structure):
    _fields_ = (
        ("api", ctypes.c_int32),
        ("name", ctypes.c_char_p),
        ("domain", ctypes.c_char_p),
        ("count", ctypes.c_int32),
        ("ops", ctypes.POINTER(_Op)),
    )


def load_library(file: Path, interface: str, make: Callable[[str, str], Any]) -> None:
    """Fill the package of a name and domain that `make` makes with the ops of a shared library."""
    try:
        library = ctypes.CDLL(str(file.resolve()))
    except OSError as error:
        words = f"{file}: cannot be loaded: {error}"
        raise CallError(f"{words}; it must be built for this computer (`hexforge op-package build`)") from None
    try:
        function = getattr(library, interface)
    except AttributeError:
        raise CallError(f'{file}: has no function {interface!r}; is it extern "C"?') from None
    function.restype, function.argtypes = ctypes.POINTER(_Package), []
    given = function()
    if not given:
        raise CallError(f"{file}: {interface} gives no package")
    library_facts = given.contents
    if library_facts.api != API:
        raise UnsupportedError(
            f"{file}: was built for version {library_facts.api} of hexforge_op_package.h; this is {API}"
        )
    if not 0 < library_facts.count <= MOST_OPS:
        raise CallError(f"{file}: says that it has {library_facts.count} ops")
    package = make(_text(library_facts.name, "name", file), _text(library_facts.domain, "domain", file))
    for index in range(library_facts.count):
        _add(package, library_facts.ops[index], file, library)


def _text(given: bytes | None, what: str, file: Path) -> str:
    try:
        return (given or b"").decode("utf-8")
    except UnicodeDecodeError:
        raise CallError(f"{file}: the {what} is no text") from None


def _add(package: Any, op: _Op, file: Path, library: Any) -> None:
    type = _text(op.type, "type of an op", file)
    names = {side: _text(getattr(op, side), side, file).split() for side in ("inputs", "outputs")}
    params = _params(_text(op.params, "params", file), type)
    run, infer, count = op.run, op.infer, len(names["outputs"])
    if not type or not names["inputs"] or not count or not run:
        raise CallError(f"{file}: op {type!r} lacks a name, inputs, outputs or its function run")

    def shape(*shapes: Sequence[int], **given: float) -> list[Sequence[int]]:
        made = (_Shape * count)()
        if infer(_shapes(shapes), len(shapes), _numbers(given), made):
            raise CallError(f"op {type!r}: its package refuses the shapes {[list(s) for s in shapes]}")
        if any(not 0 <= one.rank <= MAX_RANK for one in made):
            raise CallError(f"op {type!r}: its package gives a tensor of {max(m.rank for m in made)} dimensions")
        return [tuple(one.dims[: one.rank]) for one in made]

    def compute(*arrays: Array, **given: float) -> tuple[Array, ...]:
        ready = [np.ascontiguousarray(array, np.float32) for array in arrays]
        shapes = [array.shape for array in ready]
        sizes = shape(*shapes, **given) if infer else [shapes[0]] * count
        outputs = [np.empty(size, np.float32) for size in sizes]
        if run(_pointers(ready), _shapes(shapes), _numbers(given), _pointers(outputs), _shapes(sizes)):
            raise CallError(f"op {type!r}: its package failed to compute it")
        _ = library  # kept open as long as its functions are used
        return tuple(outputs)

    result: Callable[..., Any] = compute if count > 1 else lambda *a, **p: compute(*a, **p)[0]
    package.op(
        type, " ".join(names["inputs"]), " ".join(names["outputs"]), params, shape=shape if infer else None,
        work=_text(op.work, "work", file) or "add", lanes=max(op.lanes, 1), lookups=max(op.lookups, 0),
        doc=f"{type} of {package.name}.",
    )(result)  # fmt: skip


def _params(text: str, type: str) -> list[Param]:
    made = []
    for part in text.split():
        name, equals, value = part.partition("=")
        try:
            made.append(Param(name, "float32", default=float(value)) if equals else Param(name, "float32"))
        except ValueError:
            raise CallError(f"op {type!r}: parameter {part!r}: expected name or name=number") from None
    return made


def _shapes(shapes: Sequence[Sequence[int]]) -> Any:
    made = (_Shape * max(len(shapes), 1))()
    for one, shape in zip(made, shapes, strict=False):
        if len(shape) > MAX_RANK:
            raise CallError(f"a tensor of {len(shape)} dimensions; op packages take up to {MAX_RANK}")
        one.rank = len(shape)
        one.dims[: len(shape)] = list(shape)
    return made


def _numbers(given: dict[str, Any]) -> Any:
    return (ctypes.c_double * max(len(given), 1))(*map(float, given.values()))


def _pointers(arrays: Sequence[Array]) -> Any:
    kind = ctypes.POINTER(ctypes.c_float)
    return (kind * len(arrays))(*(array.ctypes.data_as(kind) for array in arrays))
