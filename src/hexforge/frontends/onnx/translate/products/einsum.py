# SPDX-License-Identifier: Apache-2.0
"""Einsum: any equation as transposes, reshapes, diagonals, sums and one MatMul or Multiply per further operand."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hexforge.frontends.onnx.translate.builder import Builder, translates
from hexforge.frontends.onnx.translate.compose import binary, reduce
from hexforge.frontends.onnx.unit import Refusal, Unit
from hexforge.ir import ScaleOffset, TensorType, Value


@dataclass(frozen=True, slots=True)
class _Term:
    """A value whose axes carry labels; axes of an ellipsis are labelled "0", "1"… counted from the right."""

    value: Value
    labels: str

    def size(self, labels: str) -> int:
        """Product of the sizes of some of the axes."""
        return math.prod(self.value.shape[self.labels.index(c)] for c in labels)


def _expand(term: str, rank: int) -> str:
    if "..." not in term:
        if len(term) != rank:
            raise Refusal(f"equation names {len(term)} axes ({term!r}) of a tensor of {rank} dimensions")
        return term
    hidden = rank - len(term) + 3
    if not 0 <= hidden <= 10:
        raise Refusal(f"equation term {term!r} does not fit a tensor of {rank} dimensions")
    return term.replace("...", "".join(str(i) for i in reversed(range(hidden))))


def parse(equation: str, ranks: list[int]) -> tuple[list[str], str]:
    """Labels of each operand's axes and of the output's."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise Refusal(f"equation {equation!r} is for {len(terms)} inputs, the node has {len(ranks)}")
    labels = [_expand(t, r) for t, r in zip(terms, ranks, strict=True)]
    joined = "".join(labels)
    hidden = "".join(sorted({c for c in joined if c.isdigit()}, reverse=True))
    if arrow:
        return labels, right.replace("...", hidden)
    return labels, hidden + "".join(sorted(c for c in set(joined) if c.isalpha() and joined.count(c) == 1))


def _diagonals(b: Builder, term: _Term) -> _Term:
    """Axes that share a label become one: their diagonal."""
    for label in dict.fromkeys(term.labels):
        while term.labels.count(label) > 1:
            first, second = [i for i, c in enumerate(term.labels) if c == label][:2]
            shape = term.value.shape
            n = shape[first]
            if n != shape[second]:
                raise Refusal(f"axes labelled {label!r} have sizes {n} and {shape[second]}")
            rest = [i for i in range(len(shape)) if i not in (first, second)]
            flat = b.transpose(term.value, (*rest, first, second))
            flat = b.reshape(flat, (*(shape[i] for i in rest), n * n))
            value = b.emit("Gather", [flat, b.static(np.arange(n, dtype=np.int32) * (n + 1))], axis=len(rest))
            term = _Term(value, "".join(term.labels[i] for i in rest) + label)
    return term


def _drop(b: Builder, term: _Term, needed: set[str], sizes: dict[str, int]) -> _Term:
    """Sum over axes nobody else names; drop axes of size 1 that broadcast."""
    extra = [i for i, c in enumerate(term.labels) if c not in needed]
    if extra:
        value = reduce(b, "Sum", term.value, extra, keep_dims=False)
        term = _Term(value, "".join(c for c in term.labels if c in needed))
    kept = [i for i, c in enumerate(term.labels) if term.value.shape[i] == sizes[c]]
    if len(kept) == len(term.labels):
        return term
    value = b.reshape(term.value, [term.value.shape[i] for i in kept])
    return _Term(value, "".join(term.labels[i] for i in kept))


def _arranged(b: Builder, term: _Term, labels: str) -> Value:
    return b.transpose(term.value, [term.labels.index(c) for c in labels])


def _contract(b: Builder, x: _Term, y: _Term, later: set[str], product: TensorType | None) -> _Term:
    """Two terms made one, summed over what they share and nobody needs later. `product` types the MatMul's output."""
    shared = "".join(c for c in x.labels if c in y.labels)
    summed, batch = ("".join(c for c in shared if (c in later) is keep) for keep in (False, True))
    left = "".join(c for c in x.labels if c not in shared)
    right = "".join(c for c in y.labels if c not in shared)
    sizes = {c: t.size(c) for t in (x, y) for c in t.labels}
    shape = tuple(sizes[c] for c in batch + left + right)
    if not summed:
        a = b.reshape(_arranged(b, x, batch + left), (*(sizes[c] for c in batch + left), *(1 for _ in right)))
        c = b.reshape(
            _arranged(b, y, batch + right), (*(sizes[c] for c in batch), *(1 for _ in left), *(sizes[c] for c in right))
        )
        return _Term(binary(b, "Multiply", a, c), batch + left + right)
    lead = (x.size(batch),) if batch else ()
    a = b.reshape(_arranged(b, x, batch + left + summed), (*lead, x.size(left), x.size(summed)))
    c = b.reshape(_arranged(b, y, batch + summed + right), (*lead, y.size(summed), y.size(right)))
    out = None if product is None else product.with_shape((*lead, a.shape[-2], c.shape[-1]))
    return _Term(b.reshape(b.emit("MatMul", [a, c], out), shape), batch + left + right)


def _single_product(u: Unit, labels: list[str], output: str) -> bool:
    """True where the equation is transposes around one MatMul, which keeps the encodings."""
    if len(labels) != 2 or any(len(set(t)) != len(t) for t in labels):
        return False
    alone = set(labels[0]) ^ set(labels[1])
    plain = all(o is not None and isinstance(o.encoding, ScaleOffset) for o in (*u.inputs, *u.outputs))
    return plain and alone <= set(output) and bool(set(labels[0]) & set(labels[1]) - set(output))


@translates("Einsum", writes=("ElementWiseMultiply", "Gather", "MatMul", "ReduceSum"))
def einsum(b: Builder, u: Unit) -> None:
    """Any equation, with ellipsis, repeated labels and any number of inputs."""
    shapes = [b.type_of(b.operand(u, i)).shape for i in range(len(u.inputs))]
    equation = str(b.attr(u, "equation"))
    labels, output = parse(equation, [len(s) for s in shapes])
    sizes: dict[str, int] = {}
    for shape, term in zip(shapes, labels, strict=True):
        for n, c in zip(shape, term, strict=True):
            if 1 not in (n, sizes.setdefault(c, n)) and sizes[c] != n:
                raise Refusal(f"axes labelled {c!r} have sizes {sizes[c]} and {n}")
            sizes[c] = n if sizes[c] == 1 else sizes[c]
    if set(output) - set(sizes) or len(set(output)) != len(output):
        raise Refusal(f"equation {equation!r} has an output axis that no input has, or one twice")
    direct = u.quantized and _single_product(u, labels, output)
    values = [b.input(u, i) if direct else b.real(u, i) for i in range(len(u.inputs))]
    typed = b.output(u).type if direct else None
    terms = [_diagonals(b, _Term(v, t)) for v, t in zip(values, labels, strict=True)]
    result = terms[0]
    for i, other in enumerate(terms[1:], 2):
        later = set(output).union(*(t.labels for t in terms[i:]))
        other = _drop(b, other, later | set(result.labels), sizes)
        result = _drop(b, result, later | set(other.labels), sizes)
        result = _contract(b, result, other, later, typed)
    b.finish(u, _arranged(b, _drop(b, result, set(output), sizes), output))
