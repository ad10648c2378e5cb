# SPDX-License-Identifier: Apache-2.0
"""The language of patterns: a shape of nodes is declared as a term and found in a graph, of ONNX or of QNN.

    X = anything()
    SWISH = op("Mul", X, op("Sigmoid", X))

says: a value multiplied by the Sigmoid of the same value. Mul and Add read their operands in either order. What a term
stands for is the same wherever the term stands, so shapes may share values. Only the last node of what is found is read
from outside, so that another node can take the place of all.

A graph is whatever answers the questions of `Questions`: the nodes of an ONNX model (`nodes.ONNX`), its units
(`frontends.onnx.fusions.net.Net`) and QNN graphs (`QNN`) do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from hexforge.ir import Array, Node, Role, Value

V = TypeVar("V", bound=Hashable)
"""What the values of a graph are."""
N = TypeVar("N", bound=Hashable)
"""What its nodes are."""

TOLERANCE = 1e-5
"""How far a constant may be from the number it stands for, relatively: models write sixths and roots in few digits."""
COMMUTATIVE = frozenset({"Add", "Mul", "Max", "Min"})
"""Ops whose two operands may change places."""


class Questions(Protocol[V, N]):
    """What the language asks of a graph."""

    def writer(self, value: V) -> N | None:
        """The node that writes a value."""

    def readers(self, value: V) -> Collection[N]:
        """The nodes that read a value."""

    def op(self, node: N) -> str:
        """The op of a node, with its domain where that is not ai.onnx."""

    def inputs(self, node: N) -> Sequence[V | None]:
        """What a node reads."""

    def outputs(self, node: N) -> Sequence[V | None]:
        """What a node writes."""

    def is_constant(self, value: V) -> bool:
        """True where the numbers of a value are known."""

    def constant(self, value: V) -> Array | None:
        """The numbers of a constant."""

    def closed(self, nodes: Sequence[N]) -> bool:
        """True where only the last of some nodes is read by others."""


@dataclass(frozen=True, slots=True, eq=False)
class Match(Generic[V, N]):
    """Where a shape was found: what each of its terms stands for."""

    graph: Questions[V, N]
    tolerance: float = TOLERANCE
    values: Mapping[Term, V] = field(default_factory=dict)
    nodes: tuple[N, ...] = ()
    """What is read before what reads it; the last one writes the result."""

    def __getitem__(self, term: Term) -> V:
        return self.values[term]

    def __contains__(self, term: Term) -> bool:
        return term in self.values

    def get(self, term: Term) -> V | None:
        """What a term stands for; None for one of an alternative that is not there."""
        return self.values.get(term)

    def node(self, term: Term) -> N:
        """The node that writes what a term stands for."""
        node = self.graph.writer(self.values[term])
        assert node is not None
        return node

    def array(self, term: Term) -> Array:
        """The numbers of a constant."""
        array = self.graph.constant(self.values[term])
        assert array is not None
        return array

    @property
    def last(self) -> N:
        """The node that writes the result."""
        return self.nodes[-1]

    def _with(self, term: Term, value: V, *nodes: N) -> Match[V, N]:
        written = (*self.nodes, *(node for node in nodes if node not in self.nodes))
        return Match(self.graph, self.tolerance, {**self.values, term: value}, written)


class Term(ABC):
    """One value of a shape."""

    def fits(self, match: Match[V, N], value: V | None) -> Iterator[Match[V, N]]:
        """The ways in which the term can stand for a value, besides what is matched already."""
        known = match.values.get(self)
        if known is not None and known is value:
            yield match
        elif known is None and value is not None:
            yield from self._fits(match, value)

    @abstractmethod
    def _fits(self, match: Match[V, N], value: V) -> Iterator[Match[V, N]]: ...

    ops: frozenset[str] = frozenset()
    """The ops of the shape's nodes."""
    depth = 0
    """How many nodes lie one behind the other in the shape at most."""

    def ends_in(self, op: str) -> bool:
        """True where the shape's last node may be of an op."""
        return True


class _Value(Term):
    """Any value, or any constant whose numbers are as wanted."""

    def __init__(self, constant: bool | None, wanted: Callable[[Array, float], bool] | None = None) -> None:
        self.constant, self.wanted = constant, wanted

    def _fits(self, match: Match[V, N], value: V) -> Iterator[Match[V, N]]:
        if self.constant is not None and match.graph.is_constant(value) is not self.constant:
            return
        array = None if self.wanted is None else match.graph.constant(value)
        if self.wanted is None or (array is not None and self.wanted(array, match.tolerance)):
            yield match._with(self, value)


class _Op(Term):
    """What a node of one of some ops writes; no name stands for every op."""

    def __init__(self, names: str, inputs: tuple[Term, ...], where: Callable[[Any], bool] | None, stays: bool) -> None:
        self.names, self.inputs, self.where, self.stays = frozenset(names.split()), inputs, where, stays
        self.ops = self.names.union(*(term.ops for term in inputs))
        self.depth = 1 + max((term.depth for term in inputs), default=0)

    def ends_in(self, op: str) -> bool:
        return not self.names or op in self.names

    def _fits(self, match: Match[V, N], value: V) -> Iterator[Match[V, N]]:
        graph, node = match.graph, match.graph.writer(value)
        if node is None or not self.ends_in(graph.op(node)) or value is not graph.outputs(node)[0]:
            return
        inputs = graph.inputs(node)
        orders = [inputs]
        if len(inputs) == len(self.inputs) == 2 and graph.op(node) in COMMUTATIVE:
            orders.append(inputs[::-1])
        for order in orders:
            for found in _all_fit(match, self.inputs, order):
                if self.where is not None and not self.where(node):
                    return
                yield found._with(self, value, *(() if self.stays else (node,)))


class _OneOf(Term):
    """What the first of several terms that fits stands for."""

    def __init__(self, terms: tuple[Term, ...]) -> None:
        self.terms = terms
        self.ops = frozenset[str]().union(*(term.ops for term in terms))
        self.depth = max(term.depth for term in terms)

    def ends_in(self, op: str) -> bool:
        return any(term.ends_in(op) for term in self.terms)

    def _fits(self, match: Match[V, N], value: V) -> Iterator[Match[V, N]]:
        for term in self.terms:
            for found in term.fits(match, value):
                yield found._with(self, value)


def _all_fit(match: Match[V, N], terms: Sequence[Term], values: Sequence[V | None]) -> Iterator[Match[V, N]]:
    """Terms that each stand for the value at their place."""
    if not terms:
        yield match
    elif values:
        for found in terms[0].fits(match, values[0]):
            yield from _all_fit(found, terms[1:], values[1:])


# -- terms ---------------------------------------------------------------------------------------------------------


def anything() -> Term:
    """Any value: a constant, an input or a result."""
    return _Value(None)


def computed() -> Term:
    """A value that is no constant."""
    return _Value(False)


def constant(wanted: Callable[[Array], bool] | None = None) -> Term:
    """A constant, whose numbers are as wanted."""
    return _Value(True, None if wanted is None else lambda array, _: wanted(array))


def number(target: float, tolerance: float | None = TOLERANCE) -> Term:
    """A constant of one element that is a number; None: within the tolerance of the match."""
    return _Value(True, lambda array, given: array.size == 1 and near(array.item(), target, tolerance or given))


def op(names: str, *inputs: Term, where: Callable[[Any], bool] | None = None, stays: bool = False) -> Term:
    """What a node of one of some ops writes first, whose first inputs are as given and of which `where` is true.

    A node that stays is not part of what is replaced, so that others may read it, too.
    """
    return _Op(names, inputs, where, stays)


def any_node() -> Term:
    """What any node writes."""
    return op("")


def one_of(*terms: Term) -> Term:
    """What one of several shapes writes; the first that fits is taken."""
    return _OneOf(terms)


def times(x: Term, factor: float) -> Term:
    """x multiplied by a number, or divided by its reciprocal, within the tolerance of the match."""
    return one_of(op("Mul", x, number(factor, None)), op("Div", x, number(1 / factor, None)))


def near(value: float | None, target: float, tolerance: float = TOLERANCE) -> bool:
    """True where a constant is `target` up to a relative error of `tolerance`."""
    return value is not None and abs(value - target) <= tolerance * abs(target)


# -- finding -------------------------------------------------------------------------------------------------------

Condition = Callable[[Match[V, N]], bool]


def find_ending(
    shape: Term, graph: Questions[V, N], node: N, condition: Condition[V, N] | None = None, tolerance: float = TOLERANCE
) -> Match[V, N] | None:
    """A shape whose last node is the one given."""
    for output in graph.outputs(node)[:1] if shape.ends_in(graph.op(node)) else ():
        for match in shape.fits(Match(graph, tolerance), output):
            if (condition is None or condition(match)) and graph.closed(match.nodes):
                return match
    return None


def find_at(
    shape: Term,
    starts: Collection[Term],
    graph: Questions[V, N],
    node: N,
    condition: Condition[V, N] | None = None,
    tolerance: float = TOLERANCE,
) -> Match[V, N] | None:
    """A shape in which the node given writes what one of some terms stands for; the largest where several fit."""
    kinds = [start for start in starts if start.ends_in(graph.op(node))]
    if not kinds:
        return None
    reached, border = {node: None}, [node]
    for _ in range(shape.depth - 1):
        outputs = [value for reader in border for value in graph.outputs(reader)[:1] if value is not None]
        following = dict.fromkeys(reader for value in outputs for reader in graph.readers(value))
        border = [reader for reader in following if reader not in reached and graph.op(reader) in shape.ops]
        reached |= dict.fromkeys(border)

    def has_start(match: Match[V, N]) -> bool:
        started = any(start in match and match.node(start) is node for start in kinds)
        return started and (condition is None or condition(match))

    lasts = [last for last in reversed(reached) if shape.ends_in(graph.op(last))]
    found = (find_ending(shape, graph, last, has_start, tolerance) for last in lasts)
    return next((match for match in found if match is not None), None)


class _QnnNodes:
    def writer(self, value: Value) -> Node | None:
        """The node that writes a value."""
        return value.producer

    def readers(self, value: Value) -> Sequence[Node]:
        """The nodes that read a value."""
        return tuple(value.users)

    def op(self, node: Node) -> str:
        """The name of a node's op."""
        return node.op.name

    def inputs(self, node: Node) -> Sequence[Value | None]:
        """What a node reads."""
        return node.inputs

    def outputs(self, node: Node) -> Sequence[Value | None]:
        """What a node writes."""
        return node.outputs

    def is_constant(self, value: Value) -> bool:
        """True where the numbers of a value are known."""
        return value.data is not None

    def constant(self, value: Value) -> Array | None:
        """The numbers of a constant, as they are stored."""
        return value.data

    def closed(self, nodes: Sequence[Node]) -> bool:
        """True where only the last of some nodes is read by others."""
        inner = [value for node in nodes[:-1] for value in node.outputs]
        return all(value.role is Role.NATIVE and value.users.keys() <= set(nodes) for value in inner)


QNN = _QnnNodes()
"""Patterns are found in QNN graphs by asking this."""
