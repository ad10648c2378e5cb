# SPDX-License-Identifier: Apache-2.0
"""Models with If, Loop and Scan, written in ONNX's text form: branches that read what lies outside, bodies, nests."""

from __future__ import annotations

import re
from collections.abc import Iterator

import onnx

HEADER = '<ir_version: 8, opset_import: ["" : {opset}]>\n'
BRANCHES: dict[str, tuple[str, str]] = {
    "own values": ("t = Add(x, x)", "e = Mul(x, x)"),
    "own constants": (
        "two = Constant<value = float[1] {2.0}>()\n t = Add(x, two)",
        "three = Constant<value = float[1] {3.0}>()\n e = Mul(x, three)",
    ),
    "an outer initializer in both": ("t = Add(x, w)", "e = Mul(x, w)"),
    "an outer initializer in one": ("t = Add(x, w)", "e = Mul(x, x)"),
    "an outer computed value": ("t = Add(s, x)", "e = Mul(s, x)"),
    "an outer value and an outer initializer": ("t = Add(s, w)", "e = Mul(s, x)"),
    "outer values as they are": ("t = Identity(s)", "e = Identity(x)"),
    "products with outer weights": ("t = MatMul(x, m)", "e = MatMul(s, m)"),
    "several nodes": ("a = Relu(x)\n t = Add(a, s)", "b = Sigmoid(x)\n e = Mul(b, s)"),
    "an op that nobody takes": ("t = Celu(x)", "e = Mul(x, x)"),
}
"""What the two branches of an If compute."""
OUTER = {"w": "float[4] w = {1.0, 2.0, 3.0, 4.0}", "m": "float[4,4] m = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}"}
"""Initializers of the graph around them."""


def _initializers(*bodies: str) -> list[str]:
    """Those that a body reads."""
    return [text for name, text in OUTER.items() if any(re.search(rf"[(, ]{name}\)", body) for body in bodies)]


def _if(then: str, other: str, condition: str = "bool c") -> str:
    constants = ", ".join(_initializers(then, other))
    return (
        f"g (float[1,4] x, {condition}) => (float[1,4] y)\n<{constants}>\n"
        "{ s = Neg(x)\n y = If(c) <\n"
        f" then_branch = then_graph () => (float[1,4] t) {{ {then} }},\n"
        f" else_branch = else_graph () => (float[1,4] e) {{ {other} }}\n> }}"
    )


def _loop(body: str) -> str:
    return (
        "g (float[1,4] x) => (float[1,4] y)\n"
        f"<{', '.join(['int64 n = {3}', 'bool go = {1}', *_initializers(body)])}>\n"
        "{ s = Neg(x)\n y = Loop(n, go, s) <body = b (int64 i, bool c, float[1,4] a) => (bool k, float[1,4] o)\n"
        f" {{ k = Identity(c)\n {body} }}> }}"
    )


def _scan(body: str) -> str:
    return (
        "g (float[4] h, float[3,4] x) => (float[4] y, float[3,4] z)\n"
        f"<{', '.join(_initializers(body))}>\n"
        "{ y, z = Scan<num_scan_inputs = 1, body = b (float[4] a, float[4] v) => (float[4] o, float[4] p)\n"
        f" {{ {body} }}>(h, x) }}"
    )


def _texts() -> Iterator[tuple[str, str]]:
    for what, (then, other) in BRANCHES.items():
        yield f"If of {what}", _if(then, other)
    yield "If of a condition of one element", _if(*BRANCHES["own values"], condition="bool[1] c")
    inner = (
        "t = If(c) <then_branch = a () => (float[1,4] t2) {{ t2 = Add(x, {}) }}, "
        "else_branch = b () => (float[1,4] e2) {{ e2 = Mul(x, x) }}>"
    )
    yield "If in an If", _if(inner.format("x"), "e = Mul(x, x)")
    yield "If in an If that reads an outer initializer", _if(inner.format("w"), "e = Mul(x, x)")
    yield "Loop", _loop("o = Add(a, a)")
    yield "Loop that reads an outer initializer", _loop("o = Add(a, w)")
    yield "Loop that reads an outer value", _loop("o = Add(a, s)")
    yield (
        "Loop with an If",
        _loop(
            "o = If(c) <then_branch = t () => (float[1,4] u) { u = Add(a, a) }, "
            "else_branch = e () => (float[1,4] v) { v = Neg(a) }>"
        ),
    )
    yield "Scan", _scan("o = Add(a, v)\n p = Mul(a, v)")
    yield "Scan that reads an outer initializer", _scan("o = Add(a, w)\n p = Mul(a, v)")


def models() -> Iterator[tuple[str, frozenset[str], bytes]]:
    """Name, ops and model of each, in two opsets."""
    for opset in (13, 17):
        for name, text in _texts():
            proto = onnx.parser.parse_model(HEADER.format(opset=opset) + text)
            for index, node in enumerate(proto.graph.node):
                node.name = f"{node.op_type}_{index}"
            onnx.checker.check_model(proto)
            ops = frozenset(node.op_type for node in proto.graph.node)
            yield f"{name}, opset {opset}", ops, proto.SerializeToString()
