"""The support matrix, read out of the translators and the op table: nothing is listed twice.

A translator names the QNN ops it writes as texts in its code, in tables it looks its ONNX op up in, or in what it was
made with. `writes` follows those, through the functions of the translators' own package.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any

from hexforge.ir import Op, QuantRule

_PACKAGE = "hexforge.frontends.onnx"
_PREFIXES = ("ElementWise", "Reduce", "Arg")
_KINDS = {"macs": "matrix MACs", "lanes": "vector lanes", "lookups": "table look-ups", "moved_bytes": "bytes moved"}


def writes(translator: Callable[..., Any], onnx_op: str, known: Mapping[str, Op]) -> tuple[str, ...]:
    """QNN ops that the translator of an ONNX op may write, by name."""
    bare = onnx_op.rpartition(":")[2]
    texts = {bare, bare.capitalize(), *_texts(translator, onnx_op, set())}
    return tuple(sorted(name for name in known if _said(name, texts)))


def _said(name: str, texts: set[str]) -> bool:
    """True where the texts hold a QNN name, or what it is put together from: f"ElementWise{…}", f"Conv{rank}d"."""
    if name in texts:
        return True
    ranked = re.fullmatch(r"(.+)[123]d", name)
    if ranked and ranked[1] in texts and "d" in texts:
        return True
    return any(name.startswith(p) and p in texts and name.removeprefix(p) in texts for p in _PREFIXES)


def _texts(thing: Any, key: str, seen: set[int]) -> Iterator[str]:
    """Texts that a function, table or value holds."""
    if id(thing) in seen:
        return
    if not isinstance(thing, str):
        seen.add(id(thing))
    if isinstance(thing, str):
        yield thing
    elif isinstance(thing, Mapping):
        # a table by ONNX op gives this op's row, any other table all of them; a registry is not the caller's words
        rows = [thing[key]] if key in thing else [row for row in thing.values() if not callable(row)]
        for row in rows:
            yield from _texts(row, key, seen)
    elif isinstance(thing, (tuple, list, frozenset)):
        for item in thing:
            yield from _texts(item, key, seen)
    elif isinstance(thing, FunctionType) and thing.__module__.startswith(_PACKAGE):
        yield from _code_texts(thing.__code__, thing.__globals__, key, seen)
        for cell in thing.__closure__ or ():
            yield from _texts(cell.cell_contents, key, seen)
        yield from _texts(thing.__defaults__ or (), key, seen)
    elif hasattr(thing, "func") and hasattr(thing, "args"):  # functools.partial
        yield from _texts(thing.func, key, seen)
        yield from _texts(thing.args, key, seen)
        yield from _texts(thing.keywords, key, seen)
    elif hasattr(type(thing), "__slots__") and type(thing).__module__.startswith(_PACKAGE):
        for name in type(thing).__slots__:
            yield from _texts(getattr(thing, name, None), key, seen)


def _code_texts(code: CodeType, names: Mapping[str, Any], key: str, seen: set[int]) -> Iterator[str]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code_texts(constant, names, key, seen)
        else:
            yield from _texts(constant, key, seen)
    for name in code.co_names:
        if name in names:
            yield from _texts(names[name], key, seen)


def kinds(op: Op) -> tuple[str, ...]:
    """The units an op's work is counted in, in words."""
    return tuple(_KINDS[unit] for unit in op.work.units)


def quantization(rule: QuantRule) -> str:
    """A quantization rule in words."""
    words = {
        "own": "output has its own encoding",
        "input": "output has the input's encoding",
        "fixed": "output has a fixed encoding",
        "never": "output is not quantized",
    }[rule.output]
    if rule.weight is not None and rule.weight_axis is not None:
        words += f"; weight per tensor or per axis {rule.weight_axis}"
    if rule.bias is not None:
        words += "; bias int32"
    return words
