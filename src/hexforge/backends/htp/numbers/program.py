# SPDX-License-Identifier: Apache-2.0
"""HtpProgram: runs of native steps in one call each, references between them."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from hexforge import _native
from hexforge.backend import Get, Program, ProgramFacts, Put, Read, Spinning, interruption
from hexforge.backends.htp.numbers import large_pages
from hexforge.backends.htp.numbers.file_arrays import put_again
from hexforge.backends.htp.numbers.float_results import (
    as_ieee,
    in_float32,
    passes_float16,
    rounding,
    tests_for_no_number,
    without_infinity,
)
from hexforge.backends.htp.numbers.halves import matrix_half
from hexforge.backends.htp.numbers.lower.native_steps import Lowering, NativeStep, ReferenceStep
from hexforge.backends.htp.numbers.ports import Ports
from hexforge.backends.htp.numbers.segment import (
    EXACT_FROM,
    ROOM,
    Known,
    NativeCall,
    Segment,
    SegmentRunner,
    is_padded,
    padded,
)
from hexforge.backends.htp.numbers.storage import computes_in_float32, storage, stored, to_model_type
from hexforge.errors import CapacityError, FormatError
from hexforge.formats.container import mappings_of, require_whole
from hexforge.ir import Array, Graph, Node, Role, Value, text
from hexforge.ir.arena import arena
from hexforge.ops.evaluate import PreparedCall

_ALIGN = 64
SavedStages = Callable[[Put], list[Any]]
"""What a file holds of the stages of a program, with its arrays put into another file."""


class HtpProgram(Program):
    """A lowered graph. Threads may run it at the same time; results do not depend on the number of threads."""

    def __init__(
        self,
        name: str,
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        graph: Callable[[], Graph],
        stages: Sequence[Segment | Evaluated],
        runners: Sequence[SegmentRunner | Evaluated] | None = None,
        saved: SavedStages | None = None,
        threads: int = 1,
    ) -> None:
        """`runners`, and how a file holds them, are those of a program from a file, which has no `stages`."""
        self.name, self.inputs, self.outputs = name, tuple(inputs), tuple(outputs)
        self.running.threads = threads
        self._ports = Ports(name, inputs, outputs)
        self._read_graph, self._stages, self._made, self._saved = graph, stages, runners, saved
        self.packs_weights = False
        """Whether a file holds integers of few values in 4 bits."""
        parts = stages if runners is None else runners
        self._arena_bytes = max((p.arena_bytes for p in parts if not isinstance(p, Evaluated)), default=0)

    @classmethod
    def of(cls, graph: Graph, lowering: Lowering, threads: int = 1) -> HtpProgram:
        """The program of a graph that was lowered."""
        return cls(graph.name, graph.inputs, graph.outputs, lambda: graph, stages_of(lowering), threads=threads)

    @functools.cached_property
    def graph(self) -> Graph:
        """The QNN graph; of a program from a context without the constants that only native steps use."""
        return self._read_graph()

    @property
    def _runners(self) -> Sequence[SegmentRunner | Evaluated]:
        """What runs, made when it first does, its weights in large pages: a program may only be saved."""
        if self._made is None:
            for stage in self._stages:
                if isinstance(stage, Segment):
                    large_pages.gather(call.attributes for call in stage.calls)
            self._made = [stage.runner() if isinstance(stage, Segment) else stage for stage in self._stages]
        return self._made

    @property
    def facts(self) -> ProgramFacts:
        """Nodes that have no native kernel, and the memory of the tensors between its steps."""
        return ProgramFacts(self._references, arena_bytes=self._arena_bytes)

    @property
    def overflowed(self) -> bool:
        """True once a run had a number past what float16 holds."""
        return any(runner.overflowed for runner in self._made or ())

    @property
    def _references(self) -> tuple[Node, ...]:
        parts = self._stages if self._made is None else self._made
        return tuple(p.node for p in parts if isinstance(p, Evaluated))

    @functools.cached_property
    def states(self) -> Mapping[str, str]:
        """Outputs that are the next state of an input, as those of a cache: `run_into` may have one array for both.

        New rows are then put into that array, and nothing of it is copied. It must hold what a run stored there, or
        numbers of float16, as zeros are.
        """
        pairs = {o: i for r in self._runners if not isinstance(r, Evaluated) for o, i in r.states.items()}
        return {o: i for o, i in pairs.items() if self._reads[i] == 1}

    @functools.cached_property
    def _reads(self) -> Counter[str | None]:
        """How many stages read each tensor that crosses a border."""
        return Counter(name for r in self._runners for name in (r.ins if isinstance(r, Evaluated) else r.reads))

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs (APP_READ) by name for inputs (APP_WRITE) by name, in the tensors' own data types."""
        return self.run_into(feeds, {})

    def run_into(
        self, feeds: Mapping[str, Array], targets: Mapping[str, Array], unwanted: Collection[str] = ()
    ) -> dict[str, Array]:
        """As `run`; an output is the array in `targets` where that can hold it as it is made, else one of its own.

        That may be the array of the input whose next `state` it is, which is then updated in place. What comes behind
        all that is wanted is not run where outputs are `unwanted`.
        """
        tensors = self._ports.enter(feeds)
        targets = self._ports.writable(targets, tensors, self.states) if targets else targets
        running = self.running
        if running.on_first_run is not None:
            running.on_first_run()
            running.on_first_run = None
        check = interruption.get()
        left_out = [name for name in unwanted if name not in self._reads] if unwanted else ()
        for runner in self._runners:
            if check is not None:
                check()
            runner.run(tensors, running.threads, running.spinning, targets, left_out)
        return self._ports.leave(tensors, unwanted)

    def save(self, put: Put) -> dict[str, Any]:
        """What a context file holds of it; arrays are put elsewhere in it."""
        kept = {v for node in self._references for v in node.inputs if v is not None}
        graph = text.dumps(self.graph, put=put, kept=kept)
        if self._saved is not None:
            return {"graph": graph, "stages": self._saved(put)}
        return {
            "graph": graph,
            "stages": [
                s.to_json(put, self.packs_weights)
                if isinstance(s, Segment)
                else {"node": s.node.name, "ins": s.ins, "outs": s.outs}
                for s in self._stages
            ],
        }

    @classmethod
    def load(cls, name: str, inputs: Sequence[Value], outputs: Sequence[Value], read: Read, get: Get,
             threads: int = 1) -> tuple[HtpProgram, Collection[str] | None]:  # fmt: skip
        """The program that `save` wrote, over the file's own bytes, and the tensors that it says are bfloat16 inside.

        FormatError where the data are not one. Native code makes what runs; the graph, and what a file holds of the
        steps, are read again when asked for.
        """

        def graph() -> Graph:
            import hexforge.ops  # noqa: F401 - fills the table

            return text.loads(read()["graph"], get)

        described, narrow = _native.load_program(name, read.text(), get)
        nodes = functools.cache(lambda: {n.name: n for n in graph().nodes})  # which only references need
        known = {v.name: _stored(v) for v in inputs}
        runners: list[SegmentRunner | Evaluated] = []
        for stage in described:
            if isinstance(stage[0], str):
                node, ins, outs = stage
                reference = _evaluated(nodes(), node, ins, outs, name)
                reference.check(known)
                runners.append(reference)
            else:
                program, arena_bytes, reads, writes = stage
                runners.append(SegmentRunner.loaded(program, arena_bytes, reads, writes, known, name))
        if any(known.get(v.name) != _stored(v) for v in outputs):
            raise FormatError(f"program {name!r}: does not write all its outputs")

        def saved(put: Put) -> list[Any]:
            stages: list[Any] = put_again(read()["stages"], put, get)
            return stages

        return cls(name, inputs, outputs, graph, (), runners, saved, threads), narrow


class Evaluated:
    """A node run by its reference on the model's types; float results are rounded to halves, but where it computes in
    float32 what no other node reads.
    """

    def __init__(self, node: Node, ins: Sequence[str | None], outs: Sequence[str]) -> None:
        self.node, self.ins, self.outs = node, list(ins), list(outs)
        wide = computes_in_float32(node)
        real = storage(node.outputs[0].type).kind == "f32" and not wide
        self._exact = [
            wide and storage(v.type).kind == "f32" and v.role is Role.APP_READ and not v.users for v in node.outputs
        ]
        constants = [None if v is None or v.data is None else _constant(v, real) for v in node.inputs]
        self._constants = constants
        self._mappings = mappings_of(c for c in constants if c is not None)
        self._evaluation = PreparedCall(in_float32(node.call), constants)
        self._rounded, self._tests = rounding(node), tests_for_no_number(node)
        self.overflowed = False

    def check(self, known: Known) -> None:
        """Add what it writes to what is `known` by name; FormatError where it does not fit to that."""
        for name, value in zip(self.ins, self.node.inputs, strict=True):
            if name is not None and (value is None or known.get(name) != _stored(value)):
                raise FormatError(f"node {self.node.name!r} reads a tensor that is not there, or not of that size")
        known.update((n, _stored(v)) for n, v in zip(self.outs, self.node.outputs, strict=True))

    def run(
        self, tensors: dict[str, Array], threads: int, spinning: Spinning, targets: Mapping[str, Array],
        unwanted: Collection[str] = (),
    ) -> None:  # fmt: skip
        del threads, spinning, targets, unwanted  # they are for native steps
        arrays = [
            constant if name is None else to_model_type(tensors[name].reshape(value.shape), value.type)  # type: ignore[union-attr]
            for constant, name, value in zip(self._constants, self.ins, self.node.inputs, strict=True)
        ]
        if self._tests and arrays[0] is not None:
            arrays[0] = as_ieee(arrays[0])
        try:
            results = self._evaluation(arrays)
        except MemoryError as error:
            raise CapacityError(f"node {self.node.name!r} needs memory that cannot be had: {error}") from None
        require_whole(self._mappings)
        for name, value, result, exact in zip(self.outs, self.node.outputs, results, self._exact, strict=True):
            if exact:
                tensors[name] = np.ascontiguousarray(result, np.float32)
                continue
            if storage(value.type).kind == "f32":
                result = without_infinity(self.node, arrays, result)
            tensors[name] = np.ascontiguousarray(stored(result, value.type, self._rounded))
            self.overflowed |= storage(value.type).kind == "f32" and passes_float16(tensors[name])


def _stored(value: Value) -> tuple[int, np.dtype[Any]]:
    """Bytes and data type of a value as it is stored."""
    form = storage(value.type)
    return form.nbytes, form.dtype


def _evaluated(
    nodes: Mapping[str, Node], node_name: str, ins: Sequence[str | None], outs: Sequence[str], name: str
) -> Evaluated:
    """A node of a program from a file that runs by its reference."""
    node = nodes.get(node_name)
    if node is None or len(ins) != len(node.inputs) or len(outs) != len(node.outputs):
        raise FormatError(f"program {name!r}: a node that runs by its reference is malformed")
    for side, values in ((ins, node.inputs), (outs, node.outputs)):
        for tensor, value in zip(side, values, strict=True):
            known = isinstance(tensor, str) if value is not None and not value.is_static else tensor is None
            if not known or (value is not None and value.is_static and value.data is None):
                raise FormatError(f"program {name!r}: node {node.name!r} has the wrong operands")
    return Evaluated(node, ins, outs)


def _constant(value: Value, real: bool) -> Array:
    """A constant as a node computes with it: a half in float math, as it is beside fixed point."""
    assert value.data is not None
    if real and storage(value.type).kind == "f32":
        return matrix_half(value.data)
    return value.data


def _segment(
    lowering: Lowering, steps: list[NativeStep], reads: list[str], writes: list[str], lives: dict[str, tuple[int, int]]
) -> Segment:
    """Steps with their tensors numbered and placed in an arena."""
    sizes = {name: lowering.tensors[name].nbytes for name in lives}
    offsets, arena_bytes = arena(dict(sorted(sizes.items())), lives, _ALIGN, ROOM)
    tensors: list[tuple[str, int, int] | Array] = [("input", 0, lowering.tensors[name].nbytes) for name in reads]
    ids: dict[str, int] = {name: i for i, name in enumerate(reads) if name not in lives}

    def number(name: str, tensor: tuple[str, int, int] | Array) -> None:
        ids[name] = len(tensors)
        tensors.append(tensor)

    for name in writes:
        number(name, ("output", 0, lowering.tensors[name].nbytes))
    for name, offset in offsets.items():
        number(name, ("arena", offset, sizes[name]))
    calls = [
        NativeCall(
            "copy", (i,), (ids[n],), {"element_bytes": 1, "dims": (sizes[n],), "strides_x": (1,), "strides_y": (1,)}
        )
        for i, n in enumerate(reads)
        if n in lives
    ]
    for step in steps:
        for name in (*step.ins, *step.outs):
            if name not in ids:
                constant = lowering.constants[name]
                number(name, constant if is_padded(constant) else padded(constant.shape, constant.dtype, constant))
        ins, outs = (tuple(ids[n] for n in side) for side in (step.ins, step.outs))
        calls.append(NativeCall(step.kind, ins, outs, step.attributes))
    shapes = {name: (lowering.tensors[name].dtype, lowering.tensors[name].shape) for name in writes}
    return Segment(tuple(reads), shapes, arena_bytes, tuple(tensors), tuple(calls))


def stages_of(lowering: Lowering) -> list[Segment | Evaluated]:
    """Native steps gathered into segments; tensors that cross a border are arrays, the others live in an arena."""
    groups: list[list[NativeStep] | ReferenceStep] = []
    for step in lowering.steps:
        if isinstance(step, ReferenceStep):
            groups.append(step)
        elif groups and isinstance(groups[-1], list):
            groups[-1].append(step)
        else:
            groups.append([step])
    used: list[set[str]] = []
    for group in groups:
        if isinstance(group, ReferenceStep):
            node = group.node
            read = {lowering.read_by(node, v) for v in node.inputs if v is not None}
            used.append(read | {lowering.name(v) for v in node.outputs})
        else:
            used.append({n for s in group for n in (*s.ins, *s.outs)})
    graph_outputs = {lowering.name(v) for v in lowering.graph.values.values() if v.role is Role.APP_READ}
    stages: list[Segment | Evaluated] = []
    for i, group in enumerate(groups):
        if isinstance(group, ReferenceStep):
            node = group.node
            names = [None if v is None or v.data is not None else lowering.read_by(node, v) for v in node.inputs]
            stages.append(Evaluated(node, names, [lowering.name(v) for v in node.outputs]))
            continue
        elsewhere = set().union(*used[:i], *used[i + 1 :])
        written: dict[str, None] = {}
        reads: dict[str, None] = {}
        for step in group:
            reads.update(dict.fromkeys(n for n in step.ins if n not in written and n not in lowering.constants))
            written.update(dict.fromkeys(step.outs))
        writes = [n for n in written if n in graph_outputs or n in elsewhere]
        # Inputs are copied into the arena first where a kernel may read a little past a tensor's end.
        beyond = {n for step in group for n in step.ins[: EXACT_FROM[step.kind]]}
        lives: dict[str, tuple[int, int]] = dict.fromkeys((n for n in reads if n in beyond), (-1, -1))
        in_place = reads.keys() - beyond
        for at, step in enumerate(group):
            for name in (*step.ins, *step.outs):
                if name not in lowering.constants and name not in writes and name not in in_place:
                    lives[name] = (lives.get(name, (at, at))[0], at)
        stages.append(_segment(lowering, group, list(reads), writes, lives))
    return stages
