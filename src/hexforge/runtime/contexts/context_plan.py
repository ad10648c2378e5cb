# SPDX-License-Identifier: Apache-2.0
"""Precompiled plan: the parts of an EPContext model: graphs of its context, and what is left to onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from typing import Any

from hexforge.backend import Backend, Program
from hexforge.errors import FormatError, ModelError, NoFallbackError, UnsupportedError
from hexforge.formats.container import MAGIC
from hexforge.frontends.onnx.context_model import ContextModel, EpContext
from hexforge.model.load_check import Extract
from hexforge.runtime.contexts import share
from hexforge.runtime.contexts.adapted_program import AdaptedProgram, AdapterHolder, Adapters
from hexforge.runtime.contexts.adapter_config import apply_config
from hexforge.runtime.contexts.compatibility import BinaryCompatibility, require_compatible
from hexforge.runtime.contexts.context import Context
from hexforge.runtime.cpu_part import CPU, QNN, CpuPart
from hexforge.runtime.partition import Part, PartitionStep, partition
from hexforge.runtime.stages import PlacedNode, Stage, Stages

Read = Callable[[str], bytes | bytearray]
"""Gives a context by its name in the model, instead of the file of that name."""

_LEFT = "the context model leaves it to the CPU"


class PrecompiledPlan(Stages):
    """What a session does with an EPContext model."""

    def __init__(
        self,
        model: ContextModel,
        backend: Backend,
        *,
        strict: bool = False,
        optimal: bool = False,
        shared: bool = False,
        read: Read | None = None,
        make_cpu_part: Callable[[Extract, Sequence[str]], CpuPart] = CpuPart,
    ) -> None:
        self.contexts = _contexts(model, shared, read)
        """The contexts, the main one first."""
        mode = BinaryCompatibility.STRICT if optimal else BinaryCompatibility.PERMISSIVE
        verdicts = [require_compatible(c.info, backend, mode, where=c.where) for c in self.contexts]
        self.suboptimal = tuple(reason for v in verdicts for reason in v.reasons)
        """Why a context does not use all that the chip has."""
        nodes = model.nodes
        steps = [
            PartitionStep(model.reads(i), tuple(o for o in node.output if o), i in model.contexts)
            for i, node in enumerate(nodes)
        ]
        rows = [_row(node, i, i in model.contexts) for i, node in enumerate(nodes)]
        if strict and (left := [row for row in rows if row.where == CPU]):
            raise NoFallbackError(
                f"session.disable_cpu_ep_fallback=1, and {model.where} leaves {len(left)} of its {len(rows)} nodes "
                f"to the CPU: {', '.join(map(str, left))}"
            )
        outputs = [item.name for item in model.outputs]
        stages: list[Stage] = []
        for part in partition(steps, outputs):
            if part.taken:  # each graph runs by itself
                stages += [
                    self._graph_stage(model, model.contexts[i], steps[i], (rows[i],), i, backend) for i in part.steps
                ]
                continue
            chosen = tuple(rows[i] for i in part.steps)
            runner = make_cpu_part(model.extract(part.steps, part.inputs, part.outputs), [str(row) for row in chosen])
            stages.append(Stage(f"cpu_{len(stages)}", part, chosen, runner, part.inputs))
        written = {name for step in steps for name in step.writes}
        constants = {n: model.constant(n) for n in outputs if n in model.constants and n not in written}
        super().__init__(stages, constants)

    @cached_property
    def _described(self) -> tuple[Stage, ...]:
        """The stages with what their graphs have in them, which is read from the context only when asked for."""
        return tuple(replace(s, rows=tuple(_with_ops(row, s.runner) for row in s.rows)) for s in self._stages)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The parts, in the order they run."""
        return self._described

    def current_stages(self) -> Sequence[Stage]:
        """The parts under the adapters that the contexts have now."""
        adapters: dict[AdapterHolder, Adapters] = {context: context.adapters for context in self.contexts}
        return [
            replace(s, runner=s.runner.with_adapters(adapters[s.runner.context]))
            if isinstance(s.runner, AdaptedProgram)
            else s
            for s in self._stages
        ]

    def stages_with_adapters(self, config: str) -> Sequence[Stage]:
        """Apply a LoRA config file and return the parts with its adapters, which other runs do not change."""
        with ExitStack() as locks:
            for context in sorted(self.contexts, key=id):
                locks.enter_context(context.switching)
            apply_config(self.contexts, config)
            return self.current_stages()

    @property
    def rows(self) -> tuple[PlacedNode, ...]:
        """Every node of the model, in the model's order."""
        return tuple(sorted((row for stage in self._described for row in stage.rows), key=lambda row: row.unit))

    def _graph_stage(
        self,
        model: ContextModel,
        node: EpContext,
        step: PartitionStep,
        rows: tuple[PlacedNode, ...],
        index: int,
        backend: Backend,
    ) -> Stage:
        subject = f"{model.where}: node {node.name!r}"
        having = [c for c in self.contexts if any(g.name == node.graph for g in c.graphs)]
        if not having:
            names = ", ".join(g.name for c in self.contexts for g in c.graphs)
            raise ModelError(f"{subject} stands for graph {node.graph!r}, which its context has not; it has {names}")
        row = having[0].graph(node.graph)
        reads, writes = ([node.names.get(name, name) for name in names] for names in (step.reads, step.writes))
        for kind, have, want in (("reads", reads, row.inputs), ("writes", writes, row.outputs)):
            graph_names = [name for name, _ in want]
            strange = [name for name in have if name not in graph_names]
            missing = [name for name in graph_names if name not in have] if kind == "reads" else []
            if strange or missing:
                names = ", ".join(map(repr, graph_names)) or "nothing"
                raise ModelError(
                    f"{subject} {kind} {', '.join(map(repr, have)) or 'nothing'}, its graph {names}; "
                    "io_name_overrides tells names apart"
                )
        part = Part(True, (index,), step.reads, step.writes)
        program = having[0].program(node.graph, backend)
        return Stage(node.name, part, rows, program, step.reads, node.names or None)


def _contexts(model: ContextModel, shared: bool, read: Read | None) -> tuple[Context, ...]:
    """The contexts of a model, opened and verified."""
    mains = [node for node in model.contexts.values() if node.main]
    if not mains:
        raise ModelError(
            f"{model.where}: none of its EPContext nodes is the main one (main_context=1), which has the "
            "context; compile the model again"
        )
    contexts: dict[str, Context] = {}
    for node in mains:
        key = node.file or f"embedded in {node.name}"
        if key not in contexts:
            contexts[key] = _open(model, node, shared, read)
    return tuple(contexts.values())


def _open(model: ContextModel, node: EpContext, shared: bool, read: Read | None) -> Context:
    if node.embedded is not None:
        source: Any = node.embedded
        where = f"{model.where}: the context in node {node.name!r}"
        start = bytes(source[: len(MAGIC)])
    elif read is not None:
        source = memoryview(read(node.file))
        where = f"{model.where}: the context {node.file!r}"
        start = bytes(source[: len(MAGIC)])
    else:
        source = model.context_path(node)
        where = f"{model.where}: {node.file}"
        try:
            with source.open("rb") as file:
                start = file.read(len(MAGIC))
        except OSError as error:
            raise FormatError(f"{where}: cannot be read: {error.strerror or error}") from None
    if start != MAGIC and not node.sdk_version.startswith("hexforge"):
        version = f" (SDK {node.sdk_version})" if node.sdk_version else ""
        raise UnsupportedError(
            f"{where}: was not made by hexforge{version}; a context binary of Qualcomm's tools is run by Qualcomm's "
            "libraries only (the onnxruntime-qnn package): give hexforge the ONNX model that it was compiled from"
        )
    try:
        return share.shared_context(source, where) if shared else Context(source, where)
    except FormatError as error:
        raise FormatError(f"{error}; get the file again, or compile the model again", code=error.code) from None


def _row(node: Any, index: int, taken: bool) -> PlacedNode:
    name = node.name or next((o for o in node.output if o), "") or node.op_type
    return PlacedNode(name, node.op_type, node.domain, QNN if taken else CPU, None if taken else _LEFT, (), index)


def _with_ops(row: PlacedNode, runner: Program | CpuPart) -> PlacedNode:
    """A row with the QNN ops of its graph, and those of them that have no kernel."""
    if isinstance(runner, CpuPart):
        return row
    slow = tuple(n.op.name for n in runner.facts.references)
    return replace(row, qnn_ops=tuple(n.op.name for n in runner.graph), slow=slow)
