# SPDX-License-Identifier: Apache-2.0
"""The text form of a graph: `dumps` prints it, `loads` reads it back exactly.

    graph "digits" {
      %x: uint8[1, 8, 8, 1] {scale=0.0625, offset=0} = APP_WRITE
      %w: int8[3, 3, 1, 2] {axis=3, scales=[0.5, 0.25], offsets=[0, 0]} = STATIC base64 "AAECAwQFBgcICQoLDA0ODxAR"
      Conv_0: %y = Conv2d(%x, %w) {stride=[1, 1], …} : uint8[1, 8, 8, 2] {scale=1.0, offset=-3} from "Conv_0", "Relu_1"
      return %y
    }

Values are declared where they first appear; `return` lists the APP_READ ones. Names that are not plain words are quoted
as in JSON. `#` starts a comment. Reading needs the op table (import hexforge.ops) and trusts nothing it reads.
"""

from __future__ import annotations

import base64
import dataclasses
import math
import re
from collections.abc import Callable, Container
from typing import Any

import numpy as np

from hexforge.errors import FormatError, ModelError
from hexforge.ir.graph import Graph, Node, Value
from hexforge.ir.text_reader import Get, TextReader, literal_text, name_text, quoted
from hexforge.ir.types import (
    Array,
    AxisScaleOffset,
    Block,
    BlockwiseExpansion,
    DType,
    NumberArray,
    ScaleOffset,
    TensorType,
    pack,
)

_INLINE = 16  # elements; more are printed as base64
Put = Callable[[bytes], tuple[int, int]]
"""Stores the packed bytes of a static elsewhere and says where: offset and size."""


# -- printing ---------------------------------------------------------------------------------------------------


def dumps(
    graph: Graph, *, elide: int | None = None, put: Put | None = None, kept: Container[Value] | None = None
) -> str:
    """The graph as text; statics of more than `elide` elements are left out (and the text is then for reading only).

    With `put` the data of statics lie elsewhere, and only of the `kept` ones, if that is given: the others are absent.
    """
    lines = [f"graph {quoted(graph.name)} {{"]
    shown: set[Value] = set()

    def declare(value: Value) -> None:
        if value not in shown:
            shown.add(value)
            absent = value.data is not None and kept is not None and value not in kept
            origin = "STATIC absent" if absent else _origin(value, elide, put)
            lines.append(f"  {_ref(value)}: {_type(value.type, put)} = {origin}")

    for value in graph.inputs:
        declare(value)
    for node in graph.nodes:
        for operand in node.inputs:
            if operand is not None and operand.producer is None:
                declare(operand)
        shown.update(node.outputs)
        lines.append(f"  {_node(node)}")
    for value in graph.values.values():
        declare(value)
    if graph.outputs:
        lines.append(f"  return {', '.join(map(_ref, graph.outputs))}")
    return "\n".join([*lines, "}", ""])


def dumps_without_weights(graph: Graph) -> str:
    """The graph as text, only small constants with their numbers: enough to time it, not to compute with it."""
    return dumps(graph, kept={v for v in graph.values.values() if v.data is not None and v.data.size <= _INLINE})


def _node(node: Node) -> str:
    ins = ", ".join("_" if v is None else _ref(v) for v in node.inputs)
    params = ", ".join(f"{k}={literal_text(v)}" for k, v in node.params.items())
    return (
        f"{name_text(node.name)}: {', '.join(map(_ref, node.outputs))} = {node.op.name}({ins})"
        + (f" {{{params}}}" if params else "")
        + f" : {', '.join(_type(v.type) for v in node.outputs)}"
        + (f" from {', '.join(map(quoted, node.source))}" if node.source else "")
    )


_FIELDS: dict[Any, list[tuple[str, Any, Any]]] = {
    encoding: [
        (f.name, float if "float" in str(f.type) else int, f.default if f.name.endswith("bitwidth") else None)
        for f in dataclasses.fields(encoding)
    ]
    for encoding in (ScaleOffset, AxisScaleOffset, BlockwiseExpansion, Block)
}
"""The fields of encodings: name, what makes its numbers plain ones, and the bit width that is left out."""


def _ref(value: Value) -> str:
    return f"%{name_text(value.name)}"


def _type(type: TensorType, put: Put | None = None) -> str:
    if type.encoding is None:
        return str(type)
    fields_shown = []
    for name, scalar, default in _FIELDS[type.encoding.__class__]:
        value = getattr(type.encoding, name)
        if default is None or value != default:
            if isinstance(value, NumberArray) and put is not None:
                fields_shown.append(f"{name}={value.array.dtype} at {literal_text(tuple(put(value.array.tobytes())))}")
                continue
            plain = tuple(map(scalar, value)) if isinstance(value, tuple | NumberArray) else scalar(value)
            fields_shown.append(f"{name}={literal_text(plain)}")
    return f"{type} {{{', '.join(fields_shown)}}}"


def dump_type(type: TensorType) -> str:
    """A tensor type as text: data type, shape and encoding."""
    return _type(type)


def _origin(value: Value, elide: int | None, put: Put | None) -> str:
    if value.data is None:
        return f"{value.role.value} absent" if value.is_static else value.role.value
    data = value.data
    if data.size > 1 and not any(data.strides):
        return f"STATIC splat {_data(data[(slice(0, 1),) * data.ndim].reshape(1), value.dtype).strip('[]')}"
    if put is not None and data.size > _INLINE:
        return f"STATIC at {literal_text(tuple(put(pack(data, value.dtype))))}"
    if elide is not None and data.size > elide:
        return f"STATIC elided  # {value.type.nbytes} bytes"
    return f"STATIC {_data(data, value.dtype)}"


def _data(data: Array, dtype: DType) -> str:
    if data.size <= _INLINE and not (dtype.is_float and np.isnan(data).any()):  # a NaN's bits have no short text
        scalar: Any = float if dtype.is_float else bool if dtype is DType.BOOL else int
        return f"[{', '.join(literal_text(scalar(v)) for v in data.ravel())}]"
    return f'base64 "{base64.b64encode(pack(data, dtype)).decode()}"'


# -- reading ----------------------------------------------------------------------------------------------------


def loads(text: str, get: Get | None = None) -> Graph:
    """The graph that `dumps` printed; FormatError with line and column if the text is not one.

    `get` finds what was put elsewhere; absent statics have no data, and nothing can be computed with them.
    """
    reader = TextReader(text, get)
    try:
        return reader.graph()
    except (ModelError, FormatError) as error:
        if error is reader.error:
            raise
        try:
            reader.fail(str(error))
        except FormatError as placed:
            raise placed from error


def loads_without_weights(text: str) -> Graph:
    """The graph that `dumps_without_weights` printed; FormatError if the text is none, or names data elsewhere."""
    return loads(text, _nowhere)


def _nowhere(offset: int, size: int) -> memoryview:
    raise FormatError("the text of a graph names weights, which it does not have")


_PLAIN_TYPE = re.compile(r"(\w+)\[(\d{1,9}(?:, \d{1,9}){0,4})\]", re.ASCII)
"""A type without an encoding."""
_ORDINARY = 1 << 48
_DTYPES = {d.value: d for d in DType}


def load_type(text: str) -> TensorType:
    """The type that `dump_type` printed; FormatError if the text is none."""
    plain = _PLAIN_TYPE.fullmatch(text)
    if plain is not None and plain[1] in _DTYPES:
        shape = tuple(map(int, plain[2].split(", ")))
        if math.prod(shape) < _ORDINARY:
            return TensorType(_DTYPES[plain[1]], shape)
    reader = TextReader(text)
    type = reader.type()
    reader.skip()
    if reader.at != len(text):
        reader.fail(f"expected the end, found {reader.here()}")
    return type
