# SPDX-License-Identifier: Apache-2.0
"""Proof: what the model or the context at hand says of a finding: buffers and their sizes, a split that fits, the node
that is refused and why, the chip that a context is for."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from hexforge.addons.diagnosis.reading import ExplainedLine, Explanation, bytes_of
from hexforge.amounts import size
from hexforge.analysis.timed_graphs import TimedGraphs, graphs_of
from hexforge.chips.deployment import Deployment
from hexforge.chips.soc import SESSION_BYTES, require_chip
from hexforge.errors import FormatError, HexforgeError
from hexforge.ir import Graph, Node, Value
from hexforge.runtime.contexts.compatibility import validate
from hexforge.runtime.contexts.context import Context
from hexforge.runtime.prepare import DEFAULT_REQUEST, ModelRequest
from hexforge.runtime.registry import timed_backend

MOST_NAMED = 3
"""Buffers and nodes that a proof names."""
FAR = 16
"""How many times a graph's own bytes a log may say before it is not about this graph."""
FULL = 0.8
"""The part of the fullest piece that a piece may be, so that less crosses its end."""
ROOM = 0.9
"""The part of a limit that a piece of a split is filled to: the preparer adds records of its own."""


def with_proofs(
    explanation: Explanation,
    model: str | os.PathLike[str] | None,
    context: str | os.PathLike[str] | None,
    soc: str,
    request: ModelRequest = DEFAULT_REQUEST,
) -> Explanation:
    """The explanation with what the model and the context say of its findings."""
    witness = _Witness(model, context, require_chip(soc).name, request)
    return replace(explanation, findings=tuple(replace(f, proof=tuple(witness.proof(f))) for f in explanation.findings))


@dataclass(frozen=True)
class _Witness:
    """A model and a context for a chip; each is read once, when a finding asks for it."""

    model: str | os.PathLike[str] | None
    context: str | os.PathLike[str] | None
    soc: str
    request: ModelRequest = DEFAULT_REQUEST

    def proof(self, finding: ExplainedLine) -> Iterator[str]:
        """Sentences on one finding; none where nothing at hand speaks of it."""
        if finding.kind == "notice" and finding.proof_kind != "chip":
            return
        if finding.proof_kind == "memory":
            yield from self._memory(finding.values)
        elif finding.proof_kind == "vtcm":
            yield from self._vtcm(finding.values)
        elif finding.proof_kind == "node":
            yield from self._nodes(finding.values)
        elif finding.proof_kind == "chip":
            yield from self._chip()

    @cached_property
    def _graphs(self) -> TimedGraphs | str:
        """The graphs of the model on the chip, or why there are none."""
        assert self.model is not None
        try:
            return graphs_of(Path(self.model), timed_backend(Deployment(self.soc)), self.request)
        except HexforgeError as error:
            return f"{Path(self.model).name} cannot be looked at: {error}"

    def _memory(self, values: Mapping[str, str]) -> Iterator[str]:
        if self.context is not None:
            yield from self._context_memory()
        if self.model is None:
            return
        if isinstance(self._graphs, str):
            yield self._graphs
            return
        need, limit = bytes_of(values, "need"), bytes_of(values, "limit") or SESSION_BYTES
        for graph in self._graphs.graphs:
            yield from _memory_of(graph, need if len(self._graphs.graphs) == 1 else None, limit)

    def _context_memory(self) -> Iterator[str]:
        assert self.context is not None
        from hexforge.runtime.contexts.describe import describe

        try:
            ours = describe(self.context)["hexforge"]
        except HexforgeError as error:
            yield f"{Path(self.context).name} cannot be looked at: {error}"
            return
        stored = ours["weights"]["stored_bytes"]
        buffers = [f"{g['name']}: spill-fill {size(g['spill_fill_bytes'])}" for g in ours["graphs"][:MOST_NAMED]]
        whole = stored + sum(g["spill_fill_bytes"] for g in ours["graphs"])
        verdict = "fits" if whole <= SESSION_BYTES else "does not fit"
        yield (
            f"{Path(self.context).name} maps {size(stored)} of weights; {'; '.join(buffers)}. Its {size(whole)} "
            f"{verdict} an empty session of {size(SESSION_BYTES)}."
        )

    def _vtcm(self, values: Mapping[str, str]) -> Iterator[str]:
        chip = require_chip(self.soc)
        if limit := bytes_of(values, "limit"):
            given = chip.vtcm_mb << 20
            if limit < given:
                yield f"The graph has {size(limit)}, and {chip.name} has {size(given)}: take all of it (vtcm_mb 0)."
            else:
                yield f"{chip.name} has {size(given)}: there is no more to give."
        if self.model is None or isinstance(self._graphs, str):
            return
        name = values.get("node", "")
        for node in (node for graph in self._graphs.graphs for node in graph):
            if name and _same_name(node.name, name):
                yield f"{_described(node)}."
                return
        graphs = self._graphs.graphs
        largest = sorted((v for g in graphs for v in _tensors(g)), key=lambda v: -v.type.nbytes)[:MOST_NAMED]
        told = ", ".join(f"{v.name} {list(v.shape)} {size(v.type.nbytes)}" for v in largest)
        yield f"The largest tensors of {self._graphs.name} are {told}."

    def _nodes(self, values: Mapping[str, str]) -> Iterator[str]:
        if self.model is None:
            return
        if isinstance(self._graphs, str):
            yield self._graphs
            return
        refused = [row for row in self._graphs.left_on_cpu if row.reason]
        name = values.get("node", "")
        named = [row for row in refused if _same_name(row.node, name)] if name else []
        for row in (named or refused)[:MOST_NAMED]:
            yield f"{row} is refused on {self.soc}: {row.reason}"
        if not refused:
            yield f"hexforge refuses no node of {self._graphs.name} on {self.soc}: the release that gave this does."
        elif len(refused) > MOST_NAMED and not named:
            yield f"{len(refused) - MOST_NAMED} more nodes are refused: hexforge check --refused."

    def _chip(self) -> Iterator[str]:
        chip = require_chip(self.soc)
        yield f"{chip.name} is SoC {chip.soc_model}, HTP v{chip.htp_arch}, {chip.vtcm_mb} MB of VTCM."
        if self.context is None:
            return
        where = Path(self.context).name
        try:
            made_for = ", ".join(target.label for target in Context(self.context).info.targets)
            verdict = validate(Path(self.context), self.soc)
        except FormatError as error:
            yield f"{where} is no context of hexforge, and the vendor's files are not read here: {error}"
            return
        except HexforgeError as error:
            yield f"{where} cannot be looked at: {error}"
            return
        why = f": {'; '.join(verdict.reasons)}" if verdict.reasons else ""
        yield f"{where} was made for {made_for or 'no chip'}; on {chip.name} it is {verdict.verdict}{why}."


def _memory_of(graph: Graph, need: int | None, limit: int) -> Iterator[str]:
    """What of a graph takes memory, and where it can be cut so that each piece fits."""
    weights = [*_constants(graph)]
    whole, live = sum(value.type.nbytes for value in weights), _most_live(graph)
    largest = sorted(weights, key=lambda value: -value.type.nbytes)[:MOST_NAMED]
    told = ", ".join(f"{value.name} {size(value.type.nbytes)}" for value in largest)
    yield (
        f"{graph.name} has {size(whole)} of weights (largest: {told or 'none'}), and one node's inputs and "
        f"outputs are up to {size(live)}."
    )
    own = whole + live
    if need and need > FAR * own:
        yield f"The log says {size(need)}, far more than these {size(own)}: it is of another model, or of another size."
        return
    needed = max(need or 0, own)
    if needed <= limit:
        yield f"Its {size(needed)} fit into {size(limit)}: what else is there beside it is too much."
        return
    grown = needed / own
    if (cuts := _cuts(graph, int(limit * ROOM / grown))) is None:
        yield f"No cut between nodes makes every piece fit into {size(limit)}; make the largest constant smaller."
        return
    for node, crossing in cuts:
        tensors = ", ".join(f"{value.name} {size(value.type.nbytes)}" for value in crossing[:MOST_NAMED])
        plural = "tensor crosses" if len(crossing) == 1 else "tensors cross"
        yield f"Cut after {node.name} ({node.op.name}): {len(crossing)} {plural}, {tensors}."
    pieces = ", ".join(size(piece * grown) for piece in _pieces(graph, cuts))
    yield f"The {len(cuts) + 1} pieces then need about {pieces}, each below {size(limit)}."


def _cuts(graph: Graph, most: int) -> list[tuple[Node, tuple[Value, ...]]] | None:
    """The nodes after which to cut so that the constants and largest tensors of each piece have at most `most` bytes:
    where least crosses, while a piece is nearly full; None where no cuts make every piece fit."""
    order = [*graph]
    last = {value.name: i for i, node in enumerate(order) for value in node.inputs if value is not None}
    cuts: list[tuple[Node, tuple[Value, ...]]] = []
    start = 0
    while True:
        filled = _filled(order, start)
        fits = [start + i for i, count in enumerate(filled) if count <= most]
        if not fits:
            return None
        if fits[-1] == len(order) - 1:
            return cuts
        fuller = [i for i in fits if filled[i - start] >= FULL * filled[fits[-1] - start]]
        crossings = {i: _crossing(order, last, i) for i in fuller}
        best = min(fuller, key=lambda i: (sum(value.type.nbytes for value in crossings[i]), -i))
        cuts.append((order[best], crossings[best]))
        start = best + 1


def _filled(order: list[Node], start: int) -> list[int]:
    """Bytes of the constants up to each node from one on, with the largest node's tensors."""
    seen: set[str] = set()
    constants = tensors = 0
    counts: list[int] = []
    for node in order[start:]:
        fresh = {v.name: v.type.nbytes for v in node.inputs if v is not None and v.is_static and v.name not in seen}
        seen |= fresh.keys()
        constants += sum(fresh.values())
        tensors = max(tensors, _tensor_bytes(node))
        counts.append(constants + tensors)
    return counts


def _pieces(graph: Graph, cuts: list[tuple[Node, tuple[Value, ...]]]) -> list[int]:
    """Bytes of each piece, as `_filled` counts them; a constant that two pieces read is in both."""
    order, ends = [*graph], {id(node) for node, _ in cuts}
    starts = [0, *(i + 1 for i, node in enumerate(order) if id(node) in ends)]
    return [_filled(order[:stop], start)[-1] for start, stop in zip(starts, [*starts[1:], len(order)], strict=True)]


def _crossing(order: list[Node], last: Mapping[str, int], index: int) -> tuple[Value, ...]:
    """Tensors that nodes up to an index make and later ones read."""
    made = (value for node in order[: index + 1] for value in node.outputs)
    return tuple(value for value in made if last.get(value.name, -1) > index)


def _most_live(graph: Graph) -> int:
    """The most bytes of inputs and outputs of one node."""
    return max((_tensor_bytes(node) for node in graph), default=0)


def _tensor_bytes(node: Node) -> int:
    reads = {v.name: v.type.nbytes for v in node.inputs if v is not None and not v.is_static}
    return sum(reads.values()) + sum(value.type.nbytes for value in node.outputs)


def _constants(graph: Graph) -> Iterator[Value]:
    yield from {v.name: v for node in graph for v in node.inputs if v is not None and v.is_static}.values()


def _tensors(graph: Graph) -> Iterator[Value]:
    yield from graph.inputs
    yield from (value for node in graph for value in node.outputs)


def _described(node: Node) -> str:
    reads = [v for v in node.inputs if v is not None and not v.is_static]
    told = ", ".join(f"{v.name} {list(v.shape)} {size(v.type.nbytes)}" for v in (*reads, *node.outputs))
    return f"{node.name} is a {node.op.name} of {told}"


def _same_name(ours: str, theirs: str) -> bool:
    """Whether QNN's converter, which writes an underscore for what C does not allow, would give one for the other."""
    plain = [re.sub(r"\W", "_", name).strip("_").lower() for name in (ours, theirs)]
    return plain[0] == plain[1]
