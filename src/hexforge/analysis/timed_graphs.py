# SPDX-License-Identifier: Apache-2.0
"""Timed graphs: what an estimate times: the graphs that the NPU would run of a model, a context or a program."""

from __future__ import annotations

import functools
import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from hexforge.addon import Hook, hook
from hexforge.backend import Backend, Program, SharedWork, TimedBackend
from hexforge.chips.deployment import AS_IS, Deployment, known_precision
from hexforge.chips.graph_config import GraphConfig
from hexforge.chips.htp_config import HtpConfig
from hexforge.chips.soc import require_chip
from hexforge.errors import CallError, UnsupportedError
from hexforge.formats.file_kinds import open_model, stem_of
from hexforge.ir import DType, Graph, Role, ScaleOffset, TensorType
from hexforge.rules import refusal_lines
from hexforge.runtime import registry
from hexforge.runtime.collecting import without_collecting_cycles
from hexforge.runtime.contexts.context import Context
from hexforge.runtime.contexts.describe import StoredWeights
from hexforge.runtime.prepare import DEFAULT_REQUEST, ModelRequest
from hexforge.runtime.registry import timed_backend
from hexforge.runtime.stages import PlacedNode

if TYPE_CHECKING:
    from hexforge.model.reader import Model
    from hexforge.model.source import ModelSource
    from hexforge.quant.as_if_quantized import AsIfQuantized
    from hexforge.quant.decide.encoding_plan import ChipArithmetic
    from hexforge.runtime.prepare import PreparedParts
    from hexforge.runtime.shared_placing import SharedPlacing

    Timeable: TypeAlias = "ModelSource | Model | Graph | Program | TimedGraphs | TimedSource"

FLOAT = "float"
HAS_CODES = ("MatMulNBits", "GatherBlockQuantized")
"""Ops whose weights are codes, beside what has QuantizeLinear and DequantizeLinear."""
MOST_REASONS = 3
"""Why nodes are refused, in an error."""


@dataclass(frozen=True, slots=True)
class TimedGraphs:
    """The QNN graphs of a model as the backend prepares them, and the nodes that are left to the CPU."""

    name: str
    graphs: tuple[Graph, ...]
    left_on_cpu: tuple[PlacedNode, ...] = ()
    built: bool = False
    """True for the graphs of the file that `quantize` would build: they have the types of the precision already."""
    placed: PreparedParts | None = field(default=None, repr=False, compare=False)
    """The model in its parts, where nodes of an ONNX model stay with the CPU."""
    shared: tuple[SharedWork, ...] = field(default=(), repr=False, compare=False)
    """For each graph what chips and options that it is timed with share."""
    ep_refused: tuple[PlacedNode, ...] = ()
    """Nodes in the graphs that onnxruntime's QNN EP leaves to the CPU."""
    prepared: tuple[GraphConfig, Mapping[str, int]] | None = field(default=None, repr=False, compare=False)
    """The options and settings that the graph of a context was prepared with."""
    weights_bytes: int | None = None
    """Of the weights that the graph of a context uses."""

    def __post_init__(self) -> None:
        known = {work.graph: work for work in self.shared}
        object.__setattr__(self, "shared", tuple(known.get(graph) or SharedWork(graph) for graph in self.graphs))

    def deployment(self, given: Deployment) -> Deployment:
        """What they are timed under: a context's graph as it was prepared, unless an option says otherwise."""
        if self.prepared is None:
            return given
        config, settings = self.prepared
        running = config.running(settings, require_chip(timed_backend(given).chip_name))
        return replace(given, config=given.config.on_top_of(running))


@without_collecting_cycles()
def timed_graphs(model: Timeable, deployment: Deployment, request: ModelRequest = DEFAULT_REQUEST) -> TimedGraphs:
    """The graphs that an estimate times: a float model's own, whose floats stand for integers at w8a8, as a converter
    has them: inputs and outputs are integers, and the input's normalisation stays where it is."""
    shared = model if isinstance(model, TimedSource) else TimedSource(model, request)
    if isinstance(shared.source, TimedGraphs):
        return shared.source
    source = shared.floating if deployment.quantizes_floats else shared.source
    return shared.graphs_of(source, timed_backend(deployment))


@without_collecting_cycles()
def built_graphs(model: Timeable, deployment: Deployment, request: ModelRequest = DEFAULT_REQUEST) -> TimedGraphs:
    """The graphs of the file that `quantize` would build of a float model; of any other model those that are timed."""
    shared = model if isinstance(model, TimedSource) else TimedSource(model, request)
    if isinstance(shared.source, TimedGraphs) or not deployment.quantizes_floats or shared.as_if_quantized is None:
        return timed_graphs(shared, deployment)
    backend = timed_backend(replace(deployment, precision=AS_IS))
    arithmetic, quantized = chip_arithmetic(backend), shared.as_if_quantized
    precision = known_precision(deployment.precision)
    timed = shared.graphs_of(quantized.model(precision, arithmetic), backend)
    if timed.placed is not None and timed.placed.refused:
        settled = with_nodes_on_cpu(arithmetic, timed.placed, quantized.floating, backend, shared.placing)
        timed = shared.graphs_of(quantized.model(precision, settled), backend)
    return replace(timed, built=True)


class TimedSource:
    """A model that is read once, and placed, quantized and prepared once for all chips that take it alike."""

    def __init__(self, model: Timeable, request: ModelRequest = DEFAULT_REQUEST) -> None:
        with without_collecting_cycles():
            self.source = read_timeable(model, request)
        self.request = request
        self._graphs: dict[Hashable, TimedGraphs] = {}

    @functools.cached_property
    def placing(self) -> SharedPlacing:
        """What placing it for one chip leaves for the next."""
        from hexforge.runtime.shared_placing import SharedPlacing

        return SharedPlacing()

    @functools.cached_property
    def floating(self) -> Model:
        """The model with what is quantized dynamically in it as floats."""
        from hexforge.quant.float_source import as_float

        assert not isinstance(self.source, TimedGraphs)
        return as_float(self.source)

    @functools.cached_property
    def as_if_quantized(self) -> AsIfQuantized | None:
        """The models that `quantize` would make of it; None where it has encodings already."""
        from hexforge.quant.as_if_quantized import AsIfQuantized
        from hexforge.quant.compare import is_quantized

        floating = self.floating
        has_codes = is_quantized(floating.ir) or any(node.op_type in HAS_CODES for node in floating.ir.graph)
        return None if has_codes else AsIfQuantized(floating)

    def graphs_of(self, model: Model, backend: Backend) -> TimedGraphs:
        """The graphs of the model, or of one that was made of it, as the backend's programs would run them."""
        parts = self.placing.prepare_model(model, backend, self.request)
        assert isinstance(backend, TimedBackend)
        key = parts.placed, type(backend), backend.graph_config
        if key not in self._graphs:
            self._graphs[key] = graphs_of_parts(parts, backend)
        known = self._graphs[key]
        return known if known.placed in (None, parts) else replace(known, left_on_cpu=parts.left_on_cpu, placed=parts)


def chip_arithmetic(backend: Backend) -> ChipArithmetic:
    """What the backend computes: it is shown a product of two run-time tensors of 16 bits, and a float node."""
    import hexforge.ops  # noqa: F401 - fills the table
    from hexforge.quant.decide.encoding_plan import ChipArithmetic

    graph = Graph("arithmetic")
    wide, floating = TensorType(DType.UINT16, (2, 2), ScaleOffset(1.0, 0)), TensorType(DType.FLOAT16, (2, 2))

    def takes(op: str, type: TensorType) -> bool:
        left, right = (graph.value(f"{op} {name}", type, Role.APP_WRITE) for name in ("left", "right"))
        node = graph.node(op, [left, right], [graph.value(f"{op} result", type, Role.APP_READ)])
        return backend.unsupported(node) is None

    return ChipArithmetic(wide_products=takes("MatMul", wide), floats=takes("ElementWiseAdd", floating))


def with_nodes_on_cpu(
    arithmetic: ChipArithmetic,
    quantized: PreparedParts,
    floating: Model,
    backend: Backend,
    placing: SharedPlacing | None = None,
) -> ChipArithmetic:
    """What the chip computes, and which nodes stay with the CPU: it refuses them in the quantized model and in the
    folded float one, so that encodings would be of no use."""
    from hexforge.frontends.onnx.placing import CONVERTS
    from hexforge.runtime.shared_placing import SharedPlacing

    in_float = {row.node for row in (placing or SharedPlacing()).prepare_model(floating, backend).refused}
    refused = {row.node: row.reason or "" for row in quantized.refused if row.op_type not in CONVERTS}
    return replace(arithmetic, on_cpu=tuple((node, why) for node, why in refused.items() if node in in_float))


def graphs_of(model: Timeable, backend: Backend, request: ModelRequest = DEFAULT_REQUEST) -> TimedGraphs:
    """The graphs that the backend's programs would run of a model as it is; UnsupportedError where it takes nothing."""
    source = read_timeable(model, request)
    if isinstance(source, TimedGraphs):
        return source
    from hexforge.runtime.prepare import prepare_model

    return graphs_of_parts(prepare_model(source, backend, request), backend)


def graphs_of_parts(parts: PreparedParts, backend: Backend) -> TimedGraphs:
    """The same of a model that is placed already."""
    source = parts.model
    name = stem_of(source.path) if source.path is not None else source.name
    taken = [part for part in parts.parts if part.taken]
    if not taken:
        if not parts.refused:
            why = "nothing of it runs on the HTP: its outputs are its inputs or constants"
            raise UnsupportedError(f"{source.name}: {why}")
        raise UnsupportedError(f"{source.name}: cannot be timed on the HTP:\n{_refusals(parts.refused)}")
    names = [name] if len(taken) == 1 else [f"{name}_{i}" for i in range(len(taken))]
    graphs = tuple(
        _prepared(backend, parts.graph(part, part_name)) for part, part_name in zip(taken, names, strict=True)
    )
    placed = parts if parts.left_on_cpu else None
    return TimedGraphs(name, graphs, parts.left_on_cpu, placed=placed, ep_refused=parts.ep_refused)


def graph_of(
    model: Timeable,
    deployment: Deployment | str = Deployment(),  # noqa: B008 - it is frozen
) -> Graph:
    """A whole model as the one graph that the NPU runs; UnsupportedError naming the nodes that it does not take."""
    timed = graphs_of(model, timed_backend(Deployment.of(deployment)))
    if timed.left_on_cpu:
        raise UnsupportedError(f"{timed.name}: cannot be timed whole on the HTP:\n{_refusals(timed.left_on_cpu)}")
    return timed.graphs[0]


def _refusals(rows: Sequence[PlacedNode]) -> str:
    """Why nodes are refused, a line for each of the commonest reasons."""
    lines = refusal_lines((str(row), row.reason or "") for row in rows)
    more = [f"  and {len(lines) - MOST_REASONS} more reasons"] if len(lines) > MOST_REASONS else []
    return "\n".join([*lines[:MOST_REASONS], *more])


def _prepared(backend: Backend, graph: Graph) -> Graph:
    assert isinstance(backend, TimedBackend)
    graph.sort()
    return backend.prepared(graph)


def read_timeable(model: Timeable, request: ModelRequest = DEFAULT_REQUEST) -> Model | TimedGraphs:
    """A model to place, or graphs that are there already."""
    if isinstance(model, TimedGraphs):
        return model
    if isinstance(model, TimedSource):
        return model.source
    if isinstance(model, Graph):
        return TimedGraphs(model.name, (model,))
    if isinstance(model, Program):
        return TimedGraphs(model.graph.name, (model.graph,))
    if isinstance(model, str | os.PathLike):
        opened: Model | TimedGraphs = open_model(model).do("estimate", request)
        return opened
    if type(model).__module__.startswith("torch."):
        lowered: TimedGraphs | None = hook(Hook.PROGRAM_GRAPHS)(model)
        if lowered is not None:
            return lowered
    from hexforge.runtime.prepare import read_static

    loaded = read_static(model, request)
    if any(node.op_type == "EPContext" for node in loaded.ir.graph):
        raise UnsupportedError(
            f"{loaded.name}: is a context model; give the context it names, a .bin, or the model it is of"
        )
    return loaded


def model_to_time(path: Path, request: ModelRequest = DEFAULT_REQUEST, graph: str = "") -> Model:
    """An ONNX model to place; it is one graph, so that none of it can be named."""
    from hexforge.runtime.prepare import read_static

    if graph:
        raise CallError(f"{path}: --method names a method of a .pte; leave it out")
    return read_static(path, request)


def graphs_of_context(path: Path, request: ModelRequest = DEFAULT_REQUEST, graph: str = "") -> TimedGraphs:
    """A graph of a context, the only one unless it is named; the context says all that a request could."""
    context = Context(path)
    names = [row.name for row in context.graphs]
    if not graph and len(names) > 1:
        raise CallError(
            f"{path}: has the graphs {', '.join(names)}; estimate Context(path).program(NAME), or give --method NAME"
        )
    name = graph or names[0]
    timed = context.program(name).graph
    settings = next(row.settings for row in context.graphs if row.name == name)
    options = registry.backend(context.info.backend, context.info.options).config
    prepared = (options.graph, settings) if isinstance(options, HtpConfig) else None
    used = StoredWeights(context.weights_used).used_bytes(name)
    return TimedGraphs(name, (timed,), prepared=prepared, weights_bytes=used)
