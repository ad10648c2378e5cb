# SPDX-License-Identifier: Apache-2.0
"""Rule: what a guideline says, the shape of nodes that it speaks of, and the change it asks for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir
from onnx_ir import Node, Value

from hexforge.ir import Array
from hexforge.model.edit import Editor
from hexforge.patterns.language import TOLERANCE, Match, Term, find_ending
from hexforge.patterns.nodes import ONNX, is_quantized, shape

PREDICTED = "no document: what the costs fitted to measured latencies predict"
"""The source of a rule that stands on the simulator alone."""

MOST_PASSES = 8


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A rewrite of some nodes that was found and not made yet."""

    nodes: tuple[str, ...]
    what: str
    """What is there, in words."""
    key: Hashable
    """Places with the same key are the same work, so that one stands for all."""
    make: Callable[[], object]


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Where the shape of a rule was found, and what its replacement is written with: before the shape's last node."""

    editor: Editor
    match: Match[Value, Node]

    @property
    def node(self) -> Node:
        """The last node of the shape."""
        return self.match.last

    @property
    def out(self) -> Value:
        """What is replaced."""
        return self.node.outputs[0]

    def __getitem__(self, term: Term) -> Value:
        """What a term of the shape stands for."""
        return self.match[term]

    def array(self, term: Term) -> Array:
        """The numbers of a constant of the shape."""
        return self.match.array(term)

    def constant(self, array: Array | Sequence[int], stem: str) -> Value:
        """A new constant; a sequence is one of whole numbers."""
        numbers = array if isinstance(array, np.ndarray | np.generic) else np.array(array, np.int64)
        return self.editor.constant(numbers, f"{self.node.name}_{stem}")

    def add(self, op: str, *inputs: Value | None, **attributes: Any) -> Value:
        """What a new node with one output writes."""
        return self.editor.add(op, inputs, self.node, **attributes)[0]

    def split(self, x: Value, sizes: Sequence[int], axis: int) -> tuple[Value, ...]:
        """Parts of a value along an axis."""
        given = self.constant(sizes, "sizes")
        return self.editor.add("Split", [x, given], self.node, len(sizes), axis=axis)

    def reshaped(self, x: Value) -> Value:
        """A value in the shape of what is replaced."""
        return self.editor.reshape(x, shape(self.out), self.node)

    def instead(
        self, what: str, write: Callable[[], Value], *more: Hashable, nodes: Sequence[Node] | None = None
    ) -> Rewrite:
        """The rewrite that puts what `write` makes in place of the shape's result; `more` tells its places apart."""
        return self.change(what, lambda: self.editor.replace(self.out, write()), *more, nodes=nodes)

    def change(
        self, what: str, make: Callable[[], object], *more: Hashable, nodes: Sequence[Node] | None = None
    ) -> Rewrite:
        """A rewrite of another kind; places whose nodes have the same ops and shapes are alike."""
        changed = self.match.nodes if nodes is None else nodes
        key = tuple((n.op_type, *(shape(v) for v in (*n.inputs, *n.outputs) if v is not None)) for n in changed)
        return Rewrite(tuple(n.name or "" for n in changed), what, (*key, *more), make)


@dataclass(frozen=True, slots=True)
class RewriteRule:
    """One idea: where it holds, and how a model is rewritten for it."""

    name: str
    title: str
    why: str
    source: str
    """Who says so."""
    how: str
    keeps_function: bool
    shape: Term
    """The nodes it speaks of."""
    rewrite: Callable[[Place], Rewrite | None]
    """The change to make where the shape was found; None where more is asked of a place than its shape."""
    runtimes: tuple[str, ...] = ()
    """Paths to the device it is for; none: all."""
    accuracy: bool = False
    """True where it is for the numbers' sake; time is no reason to leave it out."""
    quantized: bool = False
    """True where it also holds between the codes of a QDQ model, whose groups must stay whole."""
    constants: float = TOLERANCE
    """How far off constants of the shape may be, relatively."""
    tolerance: float = 0.0
    """The part of an output's range that results may differ by, where it leaves out roundings of the model."""

    def matched(self, editor: Editor, node: Node) -> Rewrite | None:
        """The change to make where a node ends the shape, if any."""
        match = find_ending(self.shape, ONNX, node, tolerance=self.constants)
        if match is None or (is_quantized(node) and not self.quantized):
            return None
        return self.rewrite(Place(editor, match))


def find(model: onnx_ir.Model, rule: RewriteRule) -> list[Rewrite]:
    """The places of a rule in a model, which is left as it is."""
    editor = Editor(model)
    return [rewrite for node in editor.nodes() if (rewrite := rule.matched(editor, node)) is not None]


def apply(model: onnx_ir.Model, rule: RewriteRule, keys: Collection[Hashable] | None = None) -> list[Rewrite]:
    """Rewrite a model in place wherever the rule holds (or only where its places have one of these keys).

    It goes on with what its own nodes make room for: of two constants before a convolution the second comes next.
    """
    editor = Editor(model)
    original = {node.name for node in editor.nodes()}
    applied: list[Rewrite] = []
    for _ in range(MOST_PASSES):
        before = len(applied)
        for node in editor.nodes():
            rewrite = rule.matched(editor, node)
            if rewrite is None:
                continue
            own = not original.issuperset(rewrite.nodes)
            if own if before else keys is None or rewrite.key in keys or own:
                rewrite.make()
                applied.append(rewrite)
        if len(applied) == before:
            break
    editor.tidy()
    return [replace(change, nodes=tuple(n for n in change.nodes if n in original)) for change in applied]
