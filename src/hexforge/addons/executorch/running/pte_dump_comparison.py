# SPDX-License-Identifier: Apache-2.0
"""Dump comparison: the first op of a .pte whose result in a dump is not what hexforge computes from its dumped inputs.

The .pte was lowered with `dump_intermediate_outputs`: its contexts keep the graphs that were handed over. A dump is
what a runner wrote with `--dump_intermediate_outputs` (an etdump with debug_output.bin), or files by tensor name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hexforge.addons.diagnosis.dump_comparison import DumpComparison, Mismatch
from hexforge.addons.executorch import blob
from hexforge.addons.executorch.formats.pte import Delegate, TensorValue, read_pte
from hexforge.addons.executorch.formats.qnn_options import KEY
from hexforge.addons.executorch.running.delegate import QnnDelegate
from hexforge.addons.executorch.running.method import Method
from hexforge.addons.executorch.running.pte_loading import open_delegate
from hexforge.addons.qnn_graphs.compiling import context_builder, context_bytes
from hexforge.addons.saver.replay import copy_graph
from hexforge.backend import Backend, Program, WrappedProgram
from hexforge.errors import CallError
from hexforge.formats.files import write_together
from hexforge.ir import Array, Graph, Role, ScaleOffset, Value, text
from hexforge.passes import NEUTRAL, run
from hexforge.quant.data.dumps import Dump, aligned, read_dump
from hexforge.quant.steps import StepCounts, tolerance_of
from hexforge.runtime import registry
from hexforge.runtime.contexts.context_builder import PreparedGraph

MADE = "@computed"
"""Behind the name of a tensor: what hexforge computes for it from the dumped inputs of its op."""


@dataclass(frozen=True, slots=True, eq=False)
class PteDumpComparison(DumpComparison):
    """What a dump says of a .pte."""

    programs: tuple[ComparedProgram, ...]

    def write(self, folder: Path) -> Path | None:
        """As a DumpComparison does: a context of the one op, `departure.bin`, and its graph as text."""
        if self.first is None:
            return None
        program = next(p for p in self.programs if self.first.tensor in p.computed)
        node = next(n for n in program.source.nodes if n.name == self.first.node)
        alone = copy_graph(program.source, [node])
        alone.expose({value.name for value in alone.nodes[0].outputs})
        shown = text.dumps(alone)
        arrays = {f"input/{value.name}": program.values[value.name] for value in alone.inputs}
        arrays["dumped"], arrays["hexforge"] = program.values[self.first.tensor], program.computed[self.first.tensor]
        compiled = PreparedGraph(alone.name, _compiled(alone, program.backend))
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "departure.bin"
        write_together([(path, context_bytes(context_builder(program.backend), [compiled])),
                        (folder / "departure.txt", shown.encode())])  # fmt: skip
        np.savez_compressed(folder / "departure.npz", allow_pickle=False, **arrays)
        return path


@dataclass(eq=False)
class ComparedProgram(WrappedProgram):
    """A delegate's graph that goes on, op by op, with the tensors of a dump, and says which ops differ from it."""

    source: Graph
    backend: Backend
    files: Dump
    compared: int = 0
    mismatches: list[Mismatch] = field(default_factory=list)
    values: dict[str, Array] = field(default_factory=dict)
    """Every tensor: as the dump has it, else as hexforge computes it."""
    computed: dict[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shown = copy_graph(self.source)
        shown.expose({value.name for node in shown for value in node.outputs})
        super().__init__(_compiled(shown, self.backend))

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs as the dump has them; what hexforge computes where it has not. Only the first run is compared."""
        values = {**feeds, **self._program.run(feeds)}
        if not self.values:
            self.values = values
            self._compare()
        return {value.name: values[value.name] for value in self.source.outputs}

    def _compare(self) -> None:
        values, names = self.values, {}
        for value in (value for node in self.source for value in node.outputs):
            encoding = value.encoding
            steps = (encoding.scale, -encoding.offset) if isinstance(encoding, ScaleOffset) else (0.0, 0)
            for stem, array in self.files.matching([value.name]):
                fitting = aligned(array, values[value.name], *steps)
                if fitting is not None:
                    names[value.name], values[value.name] = stem, fitting
                    break
        alone = separated(self.source)
        fed = {value.name: values[value.name] for value in alone.inputs}
        computed = _compiled(alone, self.backend).run(fed)
        self.computed = {name.removesuffix(MADE): array for name, array in computed.items()}
        for node in self.source:
            known = [value for value in node.outputs if value.name in names]
            self.compared += bool(known)
            for value in known:
                counts = StepCounts(tolerance_of(values[value.name].dtype).steps)
                counts.add(values[value.name], self.computed[value.name])
                if not counts.agree:
                    self.mismatches.append(Mismatch(node.name, node.op.name, value.name, names[value.name], counts))


def separated(graph: Graph) -> Graph:
    """The graph with every op alone: each reads inputs and constants, and what it makes is an output."""
    made = Graph(graph.name)
    values: dict[Value, Value] = {}
    for value in graph.values.values():
        if value.is_static:
            values[value] = made.value(value.name, value.type, value.role, value.data)
        elif value.users:
            values[value] = made.value(value.name, value.type, Role.APP_WRITE)
    for node in graph:
        reads = [None if value is None else values[value] for value in node.inputs]
        writes = [made.value(f"{value.name}{MADE}", value.type, Role.APP_READ) for value in node.outputs]
        made.node(node.op, reads, writes, name=node.name, source=node.source, **node.params)
    return made


def compare_pte_with_dump(
    path: Path, dump: Path, inputs: Mapping[str, Array] | None = None, method: str = ""
) -> PteDumpComparison:
    """Compare a dump of a run of a .pte with what hexforge computes, op by op, each from the dump's own inputs.

    The method's inputs are `input_0` and so on; they are taken from the dump (`_input_0_0.raw`, as scripts push them)
    unless given.
    """
    file, files = read_pte(path), read_dump(dump)
    plan = file.plan(method or file.plans[0].name)
    programs: list[ComparedProgram] = []

    def compared(delegate: Delegate, name: str, where: str) -> QnnDelegate:
        opened = open_delegate(delegate, name, where)
        stored = opened.context.info.metadata.get(blob.source_key(opened.graph))
        if stored is None:
            raise CallError(
                f"{where}: was not lowered with dump_intermediate_outputs=True (in "
                "generate_qnn_executorch_compiler_spec); its ops cannot be run one by one"
            )
        info = opened.context.info
        program = ComparedProgram(_graph(stored), registry.backend(info.backend, info.options), files)
        programs.append(program)
        return QnnDelegate(opened.context, opened.graph, program, where, delegate.specs.get(KEY))

    opened = Method(plan, file.where, compared)
    opened.run([_input(i, value, files, inputs or {}) for i, value in enumerate(opened.inputs)])
    if not any(program.compared for program in programs):
        raise CallError(f"{dump}: has no tensor of {path.name}; are the names of another model?")
    mismatches = tuple(row for program in programs for row in program.mismatches)
    ops = sum(len(program.source) for program in programs)
    return PteDumpComparison(path.name, sum(p.compared for p in programs), ops, mismatches, tuple(programs))


def _compiled(graph: Graph, backend: Backend) -> Program:
    run(graph, NEUTRAL)
    return backend.compile(graph)


def _graph(stored: str) -> Graph:
    import hexforge.ops  # noqa: F401 - fills the table

    return text.loads(stored)


def _input(index: int, value: object, files: Dump, given: Mapping[str, Array]) -> object:
    if not isinstance(value, TensorValue):
        return value
    name, dtype = f"input_{index}", value.dtype.numpy
    if name in given:
        return np.asarray(given[name], dtype).reshape(value.sizes)
    like = np.zeros(value.sizes, dtype)
    called = [f"_input_0_{index}", f"input_0_{index}", name]
    candidates = (aligned(array, like, 0.0, 0) for _, array in files.matching(called))
    fitting = next((array for array in candidates if array is not None), None)
    if fitting is None:
        raise CallError(
            f"{files.folder}: has no {value} for {name!r}: give it with --input {name}=FILE.npy, or put the "
            f"_input_0_{index}.raw that was pushed there"
        )
    return fitting
