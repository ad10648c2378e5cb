# SPDX-License-Identifier: Apache-2.0
"""Text reader: the parser of the text form of a graph, which trusts nothing it reads."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
import math
import re
from collections.abc import Callable
from json.encoder import encode_basestring_ascii
from typing import Any, NoReturn

import numpy as np

from hexforge.errors import FormatError
from hexforge.ir.graph import Graph, Role, Value
from hexforge.ir.op import lookup
from hexforge.ir.types import (
    KINDS,
    Array,
    AxisScaleOffset,
    Block,
    BlockwiseExpansion,
    DType,
    Encoding,
    NumberArray,
    ScaleOffset,
    TensorType,
    unpack,
)

WORD = re.compile(r"[A-Za-z0-9_./-]+")
KEYWORDS = ("graph", "return")


quoted = encode_basestring_ascii
"""A text as JSON has it."""


def name_text(name: str) -> str:
    """A name, quoted as in JSON where it is not a plain word."""
    return name if WORD.fullmatch(name) and name not in KEYWORDS else quoted(name)


def literal_text(value: Any) -> str:
    """A number, a boolean, none or nested tuples of them."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(literal_text, value))}]"
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return repr(value)


Get = Callable[[int, int], bytes | memoryview]
"""The bytes that were put there; FormatError where there are none."""
_SKIP = re.compile(r"(?:\s+|#[^\n]*)*")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_NUMBER = re.compile(r"-?(?:inf|nan|\d+(\.\d+)?([eE][+-]?\d+)?)(?![A-Za-z0-9_.])", re.ASCII)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONSTANTS = {"true": True, "false": False, "none": None}
_DEEPEST, _MOST_DIGITS, _HIGHEST_RANK, _LARGEST = 8, 40, 32, (1 << 62)
_ENCODINGS: tuple[tuple[str, type[Encoding]], ...] = (  # told apart by a field of their own
    ("scale", ScaleOffset),
    ("block_shape", Block),
    ("block_scales", BlockwiseExpansion),
    ("axis", AxisScaleOffset),
)


class TextReader:
    """A recursive-descent parser over the text; nothing is evaluated, every size is checked before it is used."""

    def __init__(self, text: str, get: Get | None = None) -> None:
        self.text = text
        self.get = get
        self.at = 0
        self.start = 0  # of the last token: where an error is reported
        self.error: FormatError | None = None

    def fail(self, message: str) -> NoReturn:
        line = self.text.count("\n", 0, self.start) + 1
        column = self.start - self.text.rfind("\n", 0, self.start)
        self.error = FormatError(f"line {line}, column {column}: {message}")
        raise self.error

    def skip(self) -> None:
        if "#" < self.text[self.at : self.at + 1] < "\x7f":  # nothing to skip
            self.start = self.at
            return
        match = _SKIP.match(self.text, self.at)
        assert match is not None  # the pattern matches the empty string
        self.start = self.at = match.end()

    def here(self) -> str:
        """What is next, for a message."""
        return repr(self.text[self.at : self.at + 20].split("\n")[0]) if self.at < len(self.text) else "the end"

    def take(self, pattern: re.Pattern[str], expected: str) -> str:
        self.skip()
        match = pattern.match(self.text, self.at)
        if match is None:
            self.fail(f"expected {expected}, found {self.here()}")
        self.at = match.end()
        return match.group()

    def accept(self, symbol: str) -> bool:
        self.skip()
        if not self.text.startswith(symbol, self.at):
            return False
        end = self.at + len(symbol)
        if symbol[-1].isalnum() and WORD.match(self.text, end):  # a keyword is a whole word
            return False
        self.at = end
        return True

    def expect(self, symbol: str) -> None:
        if not self.accept(symbol):
            self.fail(f"expected {symbol!r}, found {self.here()}")

    def string(self) -> str:
        token = self.take(_STRING, "a quoted string")
        try:
            return str(json.loads(token))
        except ValueError as error:
            self.fail(f"bad string: {error}")

    def name(self, expected: str = "a name") -> str:
        self.skip()
        return self.string() if self.text.startswith('"', self.at) else self.take(WORD, expected)

    def ref(self) -> str:
        self.expect("%")
        return self.name("a tensor's name")

    def number(self) -> int | float:
        token = self.take(_NUMBER, "a number")
        if len(token) > _MOST_DIGITS:
            self.fail("the number is too long")
        return int(token) if token.lstrip("-").isdigit() else float(token)

    def literal(self, depth: int = 0) -> Any:
        if depth > _DEEPEST:
            self.fail("lists are nested too deeply")
        if self.accept("["):
            items: list[Any] = []
            while not self.accept("]"):
                if items:
                    self.expect(",")
                items.append(self.literal(depth + 1))
            return tuple(items)
        if self.text[self.at : self.at + 1].isalpha():
            for word, constant in _CONSTANTS.items():
                if self.accept(word):
                    return constant
        return self.number()

    def fields(self, numbers: bool = False) -> dict[str, Any]:
        """`{key=literal, …}`, or nothing; with `numbers` a literal may be many that lie elsewhere."""
        fields: dict[str, Any] = {}
        if not self.accept("{"):
            return fields
        while not self.accept("}"):
            if fields:
                self.expect(",")
            key = self.take(_IDENTIFIER, "a parameter's name")
            if key in fields:
                self.fail(f"{key} is given twice")
            self.expect("=")
            fields[key] = self.numbers() if numbers and self.get is not None else self.literal()
        return fields

    def numbers(self) -> Any:
        """A literal, or many numbers of one type that lie elsewhere."""
        assert self.get is not None
        kind = next((kind for kind in KINDS if self.accept(kind)), None)
        if kind is None:
            return self.literal()
        self.expect("at")
        where, size = self.place(), np.dtype(kind).itemsize
        if where[1] % size:
            self.fail(f"{where[1]} bytes are no {kind} numbers")
        return NumberArray(np.frombuffer(self.get(*where), kind))

    def place(self) -> tuple[int, int]:
        """Where bytes lie."""
        where = self.literal()
        if not isinstance(where, tuple) or len(where) != 2 or any(v.__class__ is not int or v < 0 for v in where):
            self.fail("data lie at [offset, bytes]")
        return where

    def type(self) -> TensorType:
        word = self.take(_IDENTIFIER, "a data type")
        try:
            dtype = DType(word)
        except ValueError:
            self.fail(f"no data type is named {word!r}")
        shape = self.literal()
        plain = isinstance(shape, tuple) and all(type(d) is int and d >= 0 for d in shape)
        if not plain or len(shape) > _HIGHEST_RANK:
            self.fail("a shape is a list of sizes")
        if math.prod(max(d, 1) for d in shape) * 8 > _LARGEST:
            self.fail(f"shape {list(shape)} is too large")
        fields = self.fields(numbers=True)
        return TensorType(dtype, shape, self.encoding(fields) if fields else None)

    def encoding(self, fields: dict[str, Any]) -> Encoding:
        kind = next((kind for mark, kind in _ENCODINGS if mark in fields), None)
        if kind is None:
            self.fail("an encoding has scale, or axis, scales and offsets, or block_shape, scales and offsets")
        declared = {f.name: f for f in dataclasses.fields(kind)}
        for name, value in fields.items():
            if name not in declared:
                self.fail(f"{kind.__name__} has no field {name}; it has {', '.join(declared)}")
            several = "tuple" in str(declared[name].type) or "Sequence" in str(declared[name].type)
            items = value if several else (value,)
            real = "float" in str(declared[name].type)
            if isinstance(items, NumberArray) and "Sequence" in str(declared[name].type):
                wrong = (items.array.dtype.kind == "f") is not real
            else:
                wrong = not isinstance(items, tuple) or any(type(v) is not (float if real else int) for v in items)
            if wrong:
                self.fail(f"{name} of {kind.__name__} must be {declared[name].type}")
        missing = [n for n, f in declared.items() if f.default is dataclasses.MISSING and n not in fields]
        if missing:
            self.fail(f"{kind.__name__} lacks {', '.join(missing)}")
        return kind(**fields)

    def data(self, type: TensorType) -> Array | None:
        if self.get is not None and self.accept("absent"):
            return None
        if self.get is not None and self.accept("at"):
            where = self.place()
            if where[1] != type.nbytes:
                self.fail(f"{type} has {type.nbytes} bytes, not {where[1]}")
            return unpack(self.get(*where), type)
        if self.accept("splat"):
            element_type = TensorType(type.dtype, (1,))
            bare = not self.accept("base64")
            element = (
                self.elements((self.literal(),), element_type)
                if bare
                else unpack(self.bytes(element_type.nbytes), element_type)
            )
            return np.broadcast_to(element.reshape(()), type.shape)
        if self.accept("base64"):
            return unpack(self.bytes(type.nbytes), type)
        if self.accept("elided"):
            self.fail("the data were elided when the text was written; print it without elide")
        items = self.literal()
        if not isinstance(items, tuple) or len(items) != type.size:
            self.fail(f"{type} needs a list of {type.size} elements, base64 or splat")
        return self.elements(items, type)

    def bytes(self, count: int) -> bytes:
        token = self.take(_STRING, "base64 in quotes")[1:-1]
        if len(token) != (count + 2) // 3 * 4:
            self.fail(f"{count} bytes are {(count + 2) // 3 * 4} base64 characters, not {len(token)}")
        try:
            return base64.b64decode(token, validate=True)
        except (binascii.Error, ValueError) as error:
            self.fail(f"bad base64: {error}")

    def elements(self, items: tuple[Any, ...], type_: TensorType) -> Array:
        dtype = type_.dtype
        python_type = float if dtype.is_float else bool if dtype is DType.BOOL else int
        low, high = dtype.range if dtype.is_integer else (-math.inf, math.inf)
        for item in items:
            if type(item) is not python_type or (dtype.is_integer and not low <= item <= high):
                self.fail(f"{literal_text(item)} is no {dtype.value}")
        with np.errstate(over="ignore"):
            return np.array(items, dtype.numpy).reshape(type_.shape)

    def graph(self) -> Graph:
        self.expect("graph")
        graph = Graph(self.string())
        self.expect("{")
        while not self.accept("}"):
            self.skip()
            if self.text.startswith("%", self.at):
                self.declaration(graph)
            elif self.accept("return"):
                self.returned(graph)
                self.expect("}")
                break
            else:
                self.node(graph)
        self.skip()
        if self.at != len(self.text):
            self.fail("expected the end")
        return graph

    def declaration(self, graph: Graph) -> None:
        name = self.ref()
        self.expect(":")
        type = self.type()
        self.expect("=")
        for role in Role:
            if self.accept(role.value):
                data = self.data(type) if role is Role.STATIC else None
                absent = role is Role.STATIC and data is None
                stand_in = np.broadcast_to(np.zeros((), type.dtype.numpy), type.shape) if absent else data
                value = graph.value(name, type, role, stand_in)
                value.data = data
                return
        self.fail(f"expected {', '.join(r.value for r in Role)}")

    def returned(self, graph: Graph) -> None:
        while True:
            value = self.known(graph, self.ref())
            if value.role not in (Role.NATIVE, Role.APP_READ):
                self.fail(f"%{value.name} is {value.role.value}; only a tensor that a node writes can be returned")
            value.role = Role.APP_READ
            graph.values[value.name] = graph.values.pop(value.name)  # outputs are in the order they are returned
            if not self.accept(","):
                return

    def known(self, graph: Graph, name: str) -> Value:
        value = graph.values.get(name)
        if value is None:
            self.fail(f"no tensor %{name_text(name)} is declared or written above")
        return value

    def node(self, graph: Graph) -> None:
        name = self.name("a tensor, a node, return or }")
        self.expect(":")
        outs = [self.ref()]
        while self.accept(","):
            outs.append(self.ref())
        self.expect("=")
        op = lookup(self.take(_IDENTIFIER, "an op's name"))
        self.expect("(")
        ins: list[Value | None] = []
        while not self.accept(")"):
            if ins:
                self.expect(",")
            ins.append(None if self.accept("_") else self.known(graph, self.ref()))
        params = self.fields()
        op.complete(params)  # names its own faults, before they become keywords
        self.expect(":")
        types = [self.type()]
        while self.accept(","):
            types.append(self.type())
        if len(types) != len(outs):
            self.fail(f"{len(outs)} outputs but {len(types)} types")
        source: list[str] = []
        if self.accept("from"):
            source.append(self.string())
            while self.accept(","):
                source.append(self.string())
        outputs = [graph.value(out, type) for out, type in zip(outs, types, strict=True)]
        node = graph.node(op, ins, outputs, source=tuple(source), **params)
        graph.rename(node, name)
