# SPDX-License-Identifier: Apache-2.0
"""What became of a model's operators in a .pte: QNN graphs, and operators left to the CPU, with why."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hexforge.addons.executorch import blob
from hexforge.addons.executorch.formats.pte import ExecutionPlan, KernelCall, PteFile, read_pte
from hexforge.addons.executorch.running.delegate import QnnDelegate
from hexforge.addons.executorch.running.pte_loading import PteModule
from hexforge.analysis.timed_graphs import TimedGraphs
from hexforge.errors import CallError, UnsupportedError
from hexforge.ir import Graph
from hexforge.runtime.prepare import DEFAULT_REQUEST, ModelRequest
from hexforge.runtime.stages import PlacedNode

CPU, QNN = "CPUExecutionProvider", "QNNExecutionProvider"
NOT_SHOWN = (
    "was not shown to the backend, or was left out by the caller (skip_node_id_set, skip_node_op_set), or is one that "
    "ExecuTorch's partitioner never delegates"
)


@dataclass(frozen=True, slots=True)
class LoweredMethod:
    """A method: the delegates of it, and the operators that no delegate took."""

    name: str
    plan: ExecutionPlan
    delegates: tuple[QnnDelegate, ...]
    left_on_cpu: tuple[PlacedNode, ...]

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """The QNN graphs as they run."""
        return tuple(d.program.graph for d in self.delegates)

    def rows(self) -> tuple[PlacedNode, ...]:
        """Every operator: which QNN ops it became, or why none."""
        taken: list[PlacedNode] = []
        for delegate in self.delegates:
            became: dict[str, list[str]] = {}
            for node in delegate.program.graph.nodes:
                for source in node.source or (node.name,):
                    became.setdefault(source, []).append(node.op.name)
            listed = delegate.context.info.metadata.get(blob.ops_key(delegate.graph), "").splitlines()
            for name in dict.fromkeys([*listed, *became]):
                taken.append(PlacedNode(name, operator(name), "", QNN, None, tuple(became.get(name, ())), len(taken)))
        return tuple(taken) + self.left_on_cpu


def lowered_methods(source: str | os.PathLike[str] | bytes | PteFile) -> list[LoweredMethod]:
    """The methods of a file; UnsupportedError where a delegate is not hexforge's."""
    module = PteModule(source if isinstance(source, PteFile) else read_pte(source))
    methods: list[LoweredMethod] = []
    for plan in module.file.plans:
        delegates = module.delegates(plan)
        reasons: dict[str, str] = {}
        for one in delegates:
            for line in one.context.info.metadata.get(blob.REFUSED, "").splitlines():
                node, _, reason = line.partition("\t")
                reasons[operator(node)] = reason
        calls = Counter(i.operator for i in plan.instructions if isinstance(i, KernelCall))
        left = tuple(
            PlacedNode(name if count == 1 else f"{name} x{count}", name, "", CPU, _reason(name, reasons), (), -1 - i)
            for i, (name, count) in enumerate(calls.items())
            if not name.startswith("executorch_prim::")
        )
        methods.append(LoweredMethod(plan.name, plan, delegates, left))
    return methods


def graphs_of_program(model: Any) -> TimedGraphs | None:
    """The graphs of an exported program, which is lowered; None for anything else."""
    if type(model).__module__.startswith("torch.export") and type(model).__name__ == "ExportedProgram":
        return _timed(read_pte(_export_to_pte(model), "exported program"), "exported_program", "")
    return None


def timed_method(path: Path, request: ModelRequest = DEFAULT_REQUEST, method: str = "") -> TimedGraphs:
    """The graphs of a method, the only one unless named."""
    return _timed(read_pte(path), path.stem, method)


def _timed(file: PteFile, name: str, method: str) -> TimedGraphs:
    methods = lowered_methods(file)
    names = [m.name for m in methods]
    if method and method not in names:
        raise CallError(f"{file.where}: has no method {method!r}; it has {', '.join(names)}")
    if not method and len(methods) > 1:
        raise CallError(f"{file.where}: has the methods {', '.join(names)}; name one of them")
    chosen = methods[names.index(method)] if method else methods[0]
    if not chosen.graphs:
        left = ", ".join(row.op_type for row in chosen.left_on_cpu)
        raise UnsupportedError(f"{file.where}: method {chosen.name!r}: nothing of it was delegated; left: {left}")
    return TimedGraphs(name, chosen.graphs, chosen.left_on_cpu)


def operator(node: str) -> str:
    """The ATen operator that a node of an edge program is called by: aten_convolution_default_1 is aten.convolution."""
    bare = re.sub(r"_\d+$", "", node)
    space, _, rest = bare.partition("_")
    if space != "aten":
        return bare
    return f"aten.{re.sub(r'_(default|tensor|scalar|dim|int|out|self|values|intlist|tensor_scalar|vec)$', '', rest)}"


def _reason(kernel: str, reasons: dict[str, str]) -> str:
    """Why an operator was left to the CPU: the backend's reason for operators of its name."""
    name = kernel.partition("::")[2].partition(".")[0]
    return next((reason for op, reason in reasons.items() if op == f"aten.{name}"), NOT_SHOWN)


def _export_to_pte(program: Any, soc: str = "SM8650") -> bytes:
    """The .pte that ExecuTorch's front end makes of a program: float16 unless it has Q and DQ nodes."""
    from hexforge.addons.executorch.import_hook import enable

    enable()
    from executorch.backends.qualcomm.serialization.qc_schema import QcomChipset
    from executorch.backends.qualcomm.utils.utils import (
        generate_htp_compiler_spec,
        generate_qnn_executorch_compiler_spec,
        to_edge_transform_and_lower_to_qnn,
    )

    quantized = any("quantized_decomposed" in str(node.target) for node in program.graph.nodes)
    spec = generate_qnn_executorch_compiler_spec(
        soc_model=QcomChipset[soc], backend_options=generate_htp_compiler_spec(use_fp16=not quantized)
    )
    inputs, _ = program.example_inputs
    edge = to_edge_transform_and_lower_to_qnn(program.module(), inputs, spec)
    return bytes(edge.to_executorch().buffer)
