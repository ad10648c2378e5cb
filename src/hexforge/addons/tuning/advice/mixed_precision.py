# SPDX-License-Identifier: Apache-2.0
"""Mixed precision: an inference with some nodes of an 8-bit graph at 16 bit; and one with attention fused."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from hexforge.chips.deployment import Deployment
from hexforge.ir import Graph, Node, Role, text
from hexforge.runtime.registry import timed_backend

BETWEEN = {
    "ElementWiseAdd", "ElementWiseSubtract", "ElementWiseMultiply", "ElementWiseDivide", "ElementWiseSelect", "Reshape",
    "Cast", "Convert", "StridedSlice", "Concat",
}  # fmt: skip
"""What may stand between a product of attention and its softmax: scale, mask, shape."""
FUNCTIONS = {"LayerNorm", "RmsNorm", "Gelu"}


def attention_nodes(graph: Graph) -> set[Node]:
    """Softmax with the products of two computed tensors before and after it, and what is between."""
    attention: set[Node] = set()
    for node in graph:
        if node.op.name in ("Softmax", "MaskedSoftmax"):
            before = _until_product(node, lambda n: [v.producer for v in n.inputs if v is not None])
            after = _until_product(node, lambda n: [u for v in n.outputs for u in v.users])
            if before and after:
                attention |= {node, *before, *after}
    return attention


def _until_product(start: Node, step: Callable[[Node], Iterable[Node | None]]) -> set[Node]:
    """Nodes on the way from a softmax to a product of two computed tensors; empty where there is none."""
    on_the_way: set[Node] = set()
    product = False
    waiting = list(step(start))
    while waiting:
        node = waiting.pop()
        if node is None or node in on_the_way:
            continue
        if node.op.name == "MatMul" and not any(v is not None and v.is_static for v in node.inputs[:2]):
            on_the_way.add(node)
            product = True
        elif node.op.name in BETWEEN:
            on_the_way.add(node)
            waiting += step(node)
    return on_the_way if product else set()


def with_masked_softmax(graph: Graph, names: Collection[str]) -> Graph:
    """A copy of a graph, without its constants, in which each of some Softmax nodes is one op with its mask."""
    copy = text.loads(text.dumps(graph, put=lambda data: (0, 0), kept=()), lambda offset, size: memoryview(b""))
    for node in [node for node in copy if node.name in names]:
        made = node.inputs[0].producer if node.inputs[0] is not None else None
        if made is None:
            continue
        added = made.op.name == "ElementWiseAdd"
        scores, mask = (made.inputs[0], made.inputs[1]) if added else (made.inputs[1], made.inputs[0])
        if added and scores is not None and scores.shape != made.outputs[0].shape:
            scores, mask = mask, scores
        params, outputs = {"axis": node.params["axis"], "beta": node.params["beta"]}, list(node.outputs)
        copy.remove(node)
        copy.node("MaskedSoftmax", [scores, mask], outputs, name=node.name, source=node.source, **params)
    while unread := [n for n in copy if all(v.role is Role.NATIVE and not v.users for v in n.outputs)]:
        for node in unread:
            copy.remove(node)
    copy.sort()
    return copy


@dataclass(frozen=True, slots=True)
class PrecisionRule:
    """Nodes that are faster at another precision than the graph's."""

    name: str
    title: str
    why: str
    source: str
    how: str

    def time_at_16_bits(self, graph: Graph, deployment: Deployment) -> tuple[tuple[str, ...], float] | None:
        """Names of nodes, and the latency in us with them at 16 bit; None where nothing of the kind is at 8 bit."""
        attention = attention_nodes(graph)
        if not attention:
            return None
        functions = {node for node in graph if node.op.name in FUNCTIONS}
        best: tuple[tuple[str, ...], float] | None = None
        for nodes in (attention, attention | functions):
            names = tuple(node.name for node in graph if node in nodes)
            us = mixed_us(graph, deployment, names)
            if us is not None and (best is None or us < best[1]):
                best = names, us
        return best


def mixed_us(graph: Graph, deployment: Deployment, names: Collection[str]) -> float | None:
    """The latency with some 8-bit nodes at 16 bit, conversions included; None where none of them is 8-bit."""
    backend = timed_backend(deployment)
    return backend.mixed_us(graph, deployment.precision, deployment.runtime, names, deployment.power)


PRECISION_RULES = (
    PrecisionRule(
        "attention-at-16-bit",
        "Attention of an 8-bit model runs at 16 bit",
        "Softmax and normalisation are computed in 16 bit and more inside; between 8-bit tensors every one of them "
        "converts on its way in and out.",
        "measured latencies (qai-hub-models): ViT on a Galaxy S24 takes 7.0 ms at w8a8, 5.2 ms at w8a16",
        "Quantize these nodes' activations to 16 bit (overrides of the quantizer), the rest to 8 bit.",
    ),
)
