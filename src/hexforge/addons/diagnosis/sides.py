# SPDX-License-Identifier: Apache-2.0
"""Sides: a context, a model, a profile or an estimate as facts and layers, whichever it is, so that two of one kind can
be compared."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from hexforge.addons.profiler import log
from hexforge.addons.profiler.profile_text import average, parse_all
from hexforge.addons.profiler.record import GraphProfile
from hexforge.analysis.estimate import estimate
from hexforge.analysis.timed_graphs import timed_graphs
from hexforge.chips.deployment import Deployment
from hexforge.errors import CallError, FormatError
from hexforge.formats.file_kinds import open_model
from hexforge.formats.json_text import parse_json
from hexforge.ir import Graph, Node
from hexforge.model.declarations import batch_of_one, declared_inputs
from hexforge.results import Result
from hexforge.runtime.contexts.context import Context
from hexforge.runtime.contexts.describe import contexts_of, describe_context
from hexforge.runtime.prepare import ModelRequest
from hexforge.runtime.stages import PlacedNode

SideKind = Literal["context", "model", "profile", "estimate"]
Fact = float | int | str
LARGEST_TEXT = 64 << 20
"""Bytes of an estimate's JSON, or of a report, that are read."""
NPU, CPU = "NPU", "CPU"
_FIGURES = (
    "soc", "precision", "runtime", "performance_mode", "batch", "threads", "core_mhz", "weight_bytes", "spill_bytes",
    "dram_bytes", "vtcm_bytes", "vtcm_peak_bytes", "context_bytes", "cpu_nodes", "costs",
)  # fmt: skip
"""What an estimate's JSON says beside its times."""
_TIMES = ("latency_ms", "accelerator_ms", "host_ms", "rpc_ms", "io_ms", "wait_ms")
_REPORTED = {"rpc_us": "RPC (execute) time", "accelerator_us": "QNN accelerator (execute) time",
             "critical_cycles": "Accelerator (critical path execute) time (cycles)"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class LayerFigures(Result):
    """A layer of one side: what it is, where it runs, and what it takes."""

    name: str
    op: str
    where: str = NPU
    reason: str = ""
    """Why the CPU has it."""
    types: str = ""
    """The data types of its result and of its weights."""
    us: float | None = None
    cycles: int | None = None
    weight_bytes: int | None = None
    spill_bytes: int | None = None
    bound: str = ""
    """What it takes longest for."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of two things that are compared."""

    kind: SideKind
    name: str
    facts: Mapping[str, Fact]
    """Figures by their names, with units as in latency_us and weight_bytes."""
    layers: tuple[LayerFigures, ...]
    slots: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Tensors that adapters may change, by graph."""
    graphs: tuple[str, ...] = ()
    """The graphs whose names stand before facts and layers, as in `graph: layer`."""

    open_names: frozenset[str] = frozenset()
    """Inputs of a model, and names of dimensions that it leaves open."""

    def of_one_graph(self) -> Side:
        """The side of a single graph without its name before facts and layers."""
        start = f"{self.graphs[0]}: "
        facts = {name.removeprefix(start): value for name, value in self.facts.items()}
        layers = tuple(replace(layer, name=layer.name.removeprefix(start)) for layer in self.layers)
        return replace(self, facts=facts, layers=layers, graphs=())

    @property
    def latency_us(self) -> float | None:
        """One inference as the application sees it, where that is known."""
        value = self.facts.get("latency_us")
        return float(value) if isinstance(value, int | float) else None


def read_side(path: Path, deployment: Deployment, request: ModelRequest) -> Side:
    """What a file is, and what it says of itself; a model is timed as `deployment` says."""
    if not path.is_file():
        raise CallError(f"{path}: there is no such file")
    side: Side = open_model(path).do("diff", deployment, request)
    return side


def _text(path: Path) -> str:
    if path.stat().st_size > LARGEST_TEXT:
        raise FormatError(f"{path}: has {path.stat().st_size:,} bytes; at most {LARGEST_TEXT:,} are read")
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: byte {error.start} is no UTF-8") from None


# -- estimates --------------------------------------------------------------------------------------------------------


def side_of_estimate(path: Path, deployment: Deployment, request: ModelRequest) -> Side:
    """The JSON that `hexforge estimate --json` prints."""
    told = parse_json(_text(path), str(path))
    if not isinstance(told, dict) or not {"latency_ms", "soc", "ops"} <= told.keys():
        raise FormatError(f"{path}: is JSON, but no estimate; `hexforge estimate MODEL --json` prints one")
    try:
        return _of_estimate_json(told, path.name)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"{path}: is no whole estimate: {type(error).__name__}: {error}") from None


def _of_estimate_json(told: Mapping[str, Any], name: str) -> Side:
    facts: dict[str, Fact] = {f"{key.removesuffix('_ms')}_us": 1e3 * _number(told[key]) for key in _TIMES}
    facts |= {key: _fact(told[key]) for key in _FIGURES}
    layers = [
        LayerFigures(
            _name(row["name"]),
            _name(row["op"]),
            us=_number(row["us"]),
            cycles=int(_number(row["cycles"])),
            weight_bytes=int(_number(row["weight_bytes"])),
            spill_bytes=int(_number(row["spill_bytes"])),
            bound=_name(row["bound"]),
        )
        for row in told["ops"]
    ]
    left = [LayerFigures(_name(r["node"]), _name(r["op"]), CPU, _name(r["reason"] or "")) for r in told["left_out"]]
    return Side("estimate", name, facts, _distinct([*layers, *left]))


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is no number")
    return value


def _fact(value: Any) -> Fact:
    return value if isinstance(value, str) else _number(value)


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    return value


# -- models -----------------------------------------------------------------------------------------------------------


def side_of_model(path: Path, deployment: Deployment, request: ModelRequest) -> Side:
    """An ONNX model, timed."""
    declared = declared_inputs(path)
    names = {*declared, *(dim for shape in declared.values() for dim in shape or () if isinstance(dim, str))}
    dims = {name: size for name, size in (request.dims or {}).items() if name in names}
    shapes = {name: tuple(shape) for name, shape in (request.shapes or {}).items() if name in names}
    fixed = batch_of_one(declared, dims, shapes)
    timed = timed_graphs(path, deployment, ModelRequest(fixed.dims, fixed.shapes))
    made = estimate(timed, deployment, cpu_part=False)
    side = _of_estimate_json(made.to_json(), path.name)
    nodes = {node.name: node for graph in timed.graphs for node in graph}
    rows = {row.name: row for row in made.timeline.rows}
    layers = tuple(
        layer
        if layer.where == CPU or layer.name not in rows
        else _with_types(layer, [nodes[name] for name in rows[layer.name].ops if name in nodes])
        for layer in side.layers
    )
    facts = {**side.facts, "npu_layers": len(rows), "constant_bytes": sum(map(_constant_bytes, timed.graphs))}
    return Side("model", path.name, facts, layers, open_names=frozenset(names))


def _with_types(layer: LayerFigures, nodes: Sequence[Node]) -> LayerFigures:
    return replace(layer, types=_types(nodes))


def _types(nodes: Sequence[Node]) -> str:
    """The types of what the nodes of a layer make and of their largest constant: `uint8, weights int4`."""
    if not nodes:
        return ""
    constants = [v for node in nodes for v in node.inputs if v is not None and v.is_static]
    largest = max(constants, key=lambda v: v.type.size, default=None)
    made = nodes[-1].outputs[0].dtype.value if nodes[-1].outputs else ""
    return f"{made}, weights {largest.dtype.value}" if largest is not None and largest.type.size > 1 else made


def _constant_bytes(graph: Graph) -> int:
    constants = {v.name: v.type.nbytes for node in graph for v in node.inputs if v is not None and v.is_static}
    return sum(constants.values())


# -- contexts ---------------------------------------------------------------------------------------------------------


def side_of_contexts(path: Path, deployment: Deployment, request: ModelRequest) -> Side:
    """A context file, or the contexts of an EPContext model."""
    return side_of_opened(path, contexts_of(path), deployment)


def side_of_opened(
    path: Path, contexts: Sequence[Context], deployment: Deployment, left_on_cpu: Sequence[PlacedNode] = ()
) -> Side:
    """The contexts that a file holds, and the operators beside them that the CPU keeps."""
    facts: dict[str, Fact] = {}
    layers: list[LayerFigures] = []
    slots: dict[str, tuple[str, ...]] = {}
    times: list[float] = []
    for number, context in enumerate(contexts):
        start = f"{number}: " if len(contexts) > 1 else ""
        told = describe_context(context)["hexforge"]
        facts |= {f"{start}{key}": value for key, value in _context_facts(told).items()}
        graphs = [context.program(row.name).graph for row in context.graphs]
        facts[f"{start}constant_bytes"] = sum(map(_constant_bytes, graphs))
        for graph in told["graphs"]:
            name = f"{start}{graph['name']}"
            own = _graph_facts(graph, deployment.soc)
            facts |= {f"{name}: {key}": value for key, value in own.items()}
            times += [float(own["latency_us"])] if "latency_us" in own else []
            slots[name] = tuple(graph["updatable"])
            layers += _context_layers(context, graph["name"], f"{name}: ", deployment.soc)
    if len(times) == len(slots) > 0:
        facts["latency_us"] = math.fsum(times)
    layers += [LayerFigures(row.node, row.op_type, CPU, row.reason or "") for row in left_on_cpu]
    facts |= {"cpu_nodes": len(left_on_cpu)} if left_on_cpu else {}
    return Side("context", path.name, facts, _distinct(layers), slots, tuple(slots))


def _context_facts(told: Mapping[str, Any]) -> dict[str, Fact]:
    weights = told["weights"]
    return {
        "file_bytes": told["bytes"],
        "backend": told["backend"],
        "producer": told["producer"],
        "chips": ", ".join(target["soc"] for target in told["targets"]) or "none",
        "graphs": len(told["graphs"]),
        "weight_sharing": str(told["weight_sharing"]).lower(),
        "stored_weight_bytes": weights["stored_bytes"],
        "used_weight_bytes": weights["used_bytes"],
        "shared_weight_bytes": weights["shared_bytes"],
        **{f"{kind}_section_bytes": count for kind, count in told["bytes_by_kind"].items()},
        **{f"option {key}": str(value) for key, value in told["options"].items()},
        "adapter_slots": sum(len(graph["updatable"]) for graph in told["graphs"]),
    }


def _graph_facts(graph: Mapping[str, Any], soc: str) -> dict[str, Fact]:
    known = ("name", "program", "updatable", "schematic")
    facts = {key: value for key, value in graph.items() if key not in known}
    times = graph["schematic"]
    if times:
        chosen = times.get(soc) or next(iter(times.values()))
        facts |= {key: chosen[key] for key in ("latency_us", "accelerator_us", "dram_bytes", "vtcm_peak_bytes")}
    return {key: value if isinstance(value, int | float) else str(value) for key, value in facts.items()}


def _context_layers(context: Context, graph: str, start: str, soc: str) -> list[LayerFigures]:
    """The rows of a graph's schematic; a graph that no chip is simulated for has its nodes without times."""
    nodes = {node.name: node for node in context.program(graph).graph}
    targets = [target.name for target in context.info.targets]
    chosen = soc if soc in targets else targets[0] if targets else ""
    schematic = context.schematic(graph, chosen) if chosen else None
    if schematic is None:
        return [
            LayerFigures(f"{start}{node.name}", node.op.name, types=_types([node]), weight_bytes=_node_bytes(node))
            for node in nodes.values()
        ]
    try:
        rows = [dict(zip(schematic["columns"], row, strict=True)) for row in schematic["rows"]]
        return [
            LayerFigures(
                f"{start}{_name(row['name'])}",
                _name(row["op"]),
                types=_types([nodes[name] for name in row["nodes"] if name in nodes]),
                us=_number(row["us"]),
                cycles=int(_number(row["cycles"])),
                weight_bytes=int(_number(row["weight_bytes"])),
                spill_bytes=int(_number(row["spill_bytes"])),
                bound=_name(row["bound"]),
            )
            for row in rows
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{context.where}: the schematic of {graph!r} is malformed: {error!r}") from None


def _node_bytes(node: Node) -> int:
    return sum(v.type.nbytes for v in node.inputs if v is not None and v.is_static)


# -- profiles ---------------------------------------------------------------------------------------------------------


def side_of_log(path: Path, deployment: Deployment, request: ModelRequest) -> Side:
    """A profiling log."""
    profile = log.read(path)
    facts: dict[str, Fact] = {"level": profile.level, "source": profile.source, "left_on_cpu": profile.left_out}
    layers: list[LayerFigures] = []
    facts["latency_us"] = math.fsum(average(graph).netrun_us for graph in profile.graphs)
    for graph in profile.graphs:
        run = average(graph)
        own: dict[str, Fact] = {"chip": graph.chip, "clock_mhz": graph.clock_mhz, "runs": len(graph.runs)}
        own |= {"vtcm_bytes": graph.vtcm_bytes, "yields": run.yields, "critical_cycles": run.critical_cycles}
        own |= {"rpc_us": run.rpc_us, "accelerator_us": run.accelerator_us}
        facts |= {f"{graph.name}: {key}": value for key, value in own.items()}
        layers += _profiled(graph, f"{graph.name}: ")
    return Side("profile", path.name, facts, _distinct(layers), graphs=tuple(graph.name for graph in profile.graphs))


def _profiled(graph: GraphProfile, start: str) -> Iterable[LayerFigures]:
    costs = average(graph).costs
    for op, cost in zip(graph.ops, costs, strict=bool(costs)):
        cycles = cost.cycles + cost.wait
        yield LayerFigures(
            f"{start}{op.name or op.label}",
            op.type,
            types=op.result,
            us=cycles / graph.clock_mhz if graph.clock_mhz else None,
            cycles=cycles,
            weight_bytes=op.weight_bytes,
            bound=", ".join(cost.resources),
        )


def side_of_reports(path: Path, deployment: Deployment, request: ModelRequest) -> Side:
    """The first report of a text that qnn-profile-viewer printed, the vendor's or ours."""
    reports = parse_all(_text(path), str(path))
    if not reports:
        raise FormatError(
            f"{path}: is no context, model, profiling log, report of qnn-profile-viewer or JSON of `hexforge estimate`"
        )
    report = next((one for one in reports if one.title.startswith("Average")), reports[0])
    facts: dict[str, Fact] = {"latency_us": report.netrun_us, "report": report.title}
    facts |= {key: value for key, name in _REPORTED.items() if (value := report.figure(name)) is not None}
    layers = [
        LayerFigures(op.label.rpartition(":OpId_")[0] or op.label, "", cycles=op.cycles + (op.wait or 0),
                     bound=", ".join(op.resources))
        for op in report.ops
    ]  # fmt: skip
    return Side("profile", path.name, facts, _distinct(layers))


def _distinct(layers: Sequence[LayerFigures]) -> tuple[LayerFigures, ...]:
    """Layers of one name told apart by their number."""
    seen: dict[str, int] = {}
    made = []
    for layer in layers:
        seen[layer.name] = count = seen.get(layer.name, 0) + 1
        made.append(layer if count == 1 else replace(layer, name=f"{layer.name} #{count}"))
    return tuple(made)
