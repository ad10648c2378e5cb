# SPDX-License-Identifier: Apache-2.0
"""Rule: what a guideline says, the places in a model it speaks of, and the change it asks for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, replace

import onnx_ir
from onnx_ir import Node

from hexforge.model.edit import Editor
from hexforge.patterns.nodes import is_quantized, shape

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
    match: Callable[[Editor, Node], Rewrite | None]
    runtimes: tuple[str, ...] = ()
    """Paths to the device it is for; none: all."""
    accuracy: bool = False
    """True where it is for the numbers' sake; time is no reason to leave it out."""
    quantized: bool = False
    """True where it also holds between the codes of a QDQ model, whose groups must stay whole."""

    tolerance: float = 0.0
    """The part of an output's range that results may differ by, where it leaves out roundings of the model."""

    def matched(self, editor: Editor, node: Node) -> Rewrite | None:
        """The change to make at a node, if any."""
        return None if is_quantized(node) and not self.quantized else self.match(editor, node)


def rewrite_of(description: str, nodes: list[Node], make: Callable[[], object], *more: Hashable) -> Rewrite:
    """A change of nodes; places whose nodes have the same ops and shapes are alike."""
    key = tuple((n.op_type, *(shape(v) for v in (*n.inputs, *n.outputs) if v is not None)) for n in nodes)
    return Rewrite(tuple(n.name or "" for n in nodes), description, (*key, *more), make)


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
