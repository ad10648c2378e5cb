# SPDX-License-Identifier: Apache-2.0
"""Check: where each node of a model runs, as which QNN ops, or why not and what would work (`hexforge check`)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hexforge.addon import Hook, has_hook, hook
from hexforge.backend import TimedBackend
from hexforge.chips.soc import DEFAULT_SOC, find_chip
from hexforge.formats.file_kinds import open_model
from hexforge.frontends.onnx.ep_limits import EP_VERSION
from hexforge.model.reader import Model, read
from hexforge.model.source import ModelSource
from hexforge.ort.options.backend import backend_of
from hexforge.ort.options.provider_options import ProviderOptions
from hexforge.results import Key, Result, rows
from hexforge.runtime import registry
from hexforge.runtime.cpu_part import CpuPart
from hexforge.runtime.plan import Plan, no_cpu_part
from hexforge.runtime.prepare import DEFAULT_REQUEST, ModelRequest, prepare_model

QNN = "QNNExecutionProvider"
Waiting = Callable[[str], AbstractContextManager[Any]]


REMEDY = "`hexforge advise MODEL --apply OUT` writes it as what the NPU takes, and `quantize --rewrite` does so first"
"""What the reason of a refusal ends with that a rewrite mends."""


@dataclass(frozen=True, slots=True)
class CheckedNode(Result):
    """A node of a model: where it runs, as which QNN ops, or why not."""

    node: str
    op: str
    runs_on: str
    """QNNExecutionProvider or CPUExecutionProvider."""
    qnn_ops: tuple[str, ...]
    slow_ops: tuple[str, ...]
    """QNN ops that have no native kernel here: right, but slow."""
    unsafe: tuple[str, ...]
    """What float16 cannot hold."""
    remarks: tuple[str, ...]
    """What keeps it from the chip's best way to run it, and what would work."""
    reason: str | None
    """Why it is left to the CPU, and what would work."""
    ep_refuses: str
    """Why onnxruntime's QNN EP does not take it though the chip could."""
    unit: int
    """Nodes of one unit, such as a QDQ group, go together."""


@dataclass(frozen=True, slots=True)
class ModelCheck(Result):
    """Where the nodes of a model run."""

    model: str
    opset: int | None
    """None for what was compiled from no ONNX model."""
    backend: Mapping[str, str]
    """Provider options that name the backend and the chip."""
    ep_version: str | None
    """The QNN EP whose limits are told; None where the backend has none."""
    ep_obeyed: bool
    arithmetic: str | None
    """What graphs compute in, where a device of this computer decides that."""
    nodes: tuple[CheckedNode, ...]
    folded: tuple[tuple[str, str], ...]
    """Names and ops of nodes that are computed when the model is read."""
    totals: Mapping[str, Any]

    described = (
        "model opset backend ep_version ep_obeyed arithmetic nodes",
        Key("folded", of=rows("folded", "node op")),
        "totals",
    )

    @property
    def refused(self) -> tuple[CheckedNode, ...]:
        """Nodes that are left to the CPU."""
        return tuple(node for node in self.nodes if node.runs_on != QNN)


def check(
    model: ModelSource,
    soc: str | tuple[Any, ...] = "",
    options: Mapping[str, str] | None = None,
    *,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Mapping[str, Any] | None = None,
    strict: bool = False,
    obey_ep: bool = False,
) -> ModelCheck:
    """Where each node of a model runs on a chip, as which QNN ops, or why not and what would work.

    The model is a file, its bytes, a ModelProto, an exported program of torch, or a module of torch and its example
    inputs, as in `check((module, example_inputs), "SM8650")`, or without a chip `check(module, example_inputs)`.

    `options` are provider options, as a session takes them. With `strict` nodes are placed as in a session without
    CPU fallback; with `obey_ep` the limits of onnxruntime's QNN EP hold, too.
    """
    if isinstance(soc, tuple):
        model, soc = (model, soc), ""
    given = dict(options or {})
    if "backend_path" not in given:
        given.setdefault("backend_type", registry.DEFAULT)
    if soc:
        given["soc_model"] = chip.name if (chip := find_chip(soc)) else soc
    elif given.get("backend_type") == registry.DEFAULT and not {"htp_arch", "backend_extensions"} & given.keys():
        given.setdefault("soc_model", DEFAULT_SOC)
    request = ModelRequest(dims=dims, shapes=shapes, constants=constants, obey_ep=obey_ep)
    if not isinstance(model, (str, os.PathLike)):
        return check_file(model, given, request, strict)
    checked: ModelCheck = open_model(model).do("check", given, request, strict)
    return checked


def check_file(
    model: ModelSource, options: Mapping[str, str], request: ModelRequest = DEFAULT_REQUEST, strict: bool = False
) -> ModelCheck:
    """The same of an ONNX model, with all provider options."""
    plan = compiled_plan(model, options, request, strict=strict)
    checked, nodes = plan.parts.model, _nodes(plan)
    if plan.parts.refused and has_hook(Hook.MEND_REFUSALS):
        nodes = _with_remedy(model, options, plan, nodes, request)
    return ModelCheck(
        model=checked.name,
        opset=checked.opset,
        backend=dict(options),
        ep_version=EP_VERSION if plan.parts.placed.ep_limited else None,
        ep_obeyed=request.obey_ep,
        arithmetic=next((p.facts.arithmetic for p in plan.programs if p.facts.arithmetic), None),
        nodes=nodes,
        folded=tuple((node.name, node.op_type) for node in checked.folded),
        totals=_totals(checked, plan, nodes),
    )


def compiled_plan(
    source: ModelSource,
    provider_options: Mapping[str, str],
    request: ModelRequest = DEFAULT_REQUEST,
    *,
    strict: bool = False,
    runs: bool = False,
    waiting: Waiting = nullcontext,
) -> Plan:
    """A model placed and compiled, able to run where `runs` is set; the provider options complete the request.

    With `strict` nodes are placed as in a session without CPU fallback, and refusals are rows of the plan all the
    same. `waiting` is entered with what goes on.
    """
    options = ProviderOptions.parse(provider_options)
    backend = backend_of(options)
    name = Path(source).name if isinstance(source, (str, os.PathLike)) else "the model"
    with waiting(f"reading {name}"):
        model = read(source, dims=request.dims, shapes=request.shapes, constants=request.constants)
    with waiting(f"placing {model.node_count} nodes"):
        offload = options.offload_graph_io_quantization and not strict
        whole = replace(request, offload_io_quantization=offload, affinity=options.affinity())
        parts = prepare_model(model, backend, whole, give_away=True)
        return Plan(parts, backend, CpuPart if runs else no_cpu_part)


def _nodes(plan: Plan) -> tuple[CheckedNode, ...]:
    executed: dict[str, list[str]] = {}
    for graph in plan.graphs:
        for qnn in graph:
            for name in qnn.source:
                executed.setdefault(name, []).append(qnn.op.name)
    return tuple(
        CheckedNode(
            node=row.node,
            op=f"{row.domain}:{row.op_type}" if row.domain not in ("", "ai.onnx") else row.op_type,
            runs_on=row.where,
            qnn_ops=tuple(executed.get(row.node, ())) if row.where == QNN else (),
            slow_ops=tuple(row.slow),
            unsafe=tuple(row.unsafe),
            remarks=tuple(row.remarks),
            reason=row.reason,
            ep_refuses=row.ep_refuses,
            unit=row.unit,
        )
        for row in plan.rows
    )


def _with_remedy(
    model: ModelSource, options: Mapping[str, str], plan: Plan, nodes: tuple[CheckedNode, ...], request: ModelRequest
) -> tuple[CheckedNode, ...]:
    """The nodes, where the reason of one that a rewrite brings onto the NPU names the command that makes it."""
    backend = backend_of(ProviderOptions.parse(options))
    if not isinstance(backend, TimedBackend):
        return nodes
    again = read(model, dims=request.dims, shapes=request.shapes, constants=request.constants)
    refused = [row.node for row in plan.parts.refused]
    _, mended = hook(Hook.MEND_REFUSALS)(again, backend, refused)
    units = {node.unit for node in nodes if node.node in mended}
    return tuple(
        replace(node, reason=f"{node.reason}; {REMEDY}") if node.unit in units and node.reason else node
        for node in nodes
    )


def _totals(model: Model, plan: Plan, nodes: Sequence[CheckedNode]) -> dict[str, Any]:
    """How many nodes, units and ops there are of each kind."""
    placed = sum(node.runs_on == QNN for node in nodes)
    qnn_ops = {row.unit: row.qnn_ops for row in plan.rows if row.where == QNN}
    return {
        "nodes": model.node_count,
        # a shared DequantizeLinear becomes one for each reader, a function the nodes of its body
        "added": max(0, len(nodes) + len(model.folded) - model.node_count),
        "folded": len(model.folded),
        "placed": placed,
        "refused": len(nodes) - placed,
        "refused_by_ep": sum(bool(node.ep_refuses) for node in nodes),
        # of the refused, what the NPU takes and the session option gives to the CPU: --strict and quantize place it
        "offloaded": sum("offload_graph_io_quantization=1" in str(node.reason or "") for node in nodes),
        "units": len({node.unit for node in nodes}),
        "qnn_graphs": len(plan.graphs),
        "qnn_ops_before_passes": sum(map(len, qnn_ops.values())),
        "qnn_ops": sum(map(len, plan.graphs)),
        "slow_ops": dict(Counter(node.op.name for program in plan.programs for node in program.facts.references)),
    }
