# SPDX-License-Identifier: Apache-2.0
"""What runs, opened for `run` and `bench`: a model, a context model, a graph of a context, or a method of a .pte."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hexforge.addon import DEVICE_VARIABLE, Hook, engines, hook, import_target
from hexforge.backend import Backend, ContextBackend, TimedBackend
from hexforge.chips.soc import DEFAULT_SOC
from hexforge.cli.arguments import BackendArguments, pairs
from hexforge.cli.screen import spinner
from hexforge.errors import CallError
from hexforge.formats.file_kinds import open_model
from hexforge.formats.npy_files import read_npy
from hexforge.ir import Array
from hexforge.runtime.prepare import DEFAULT_REQUEST, ModelRequest

if TYPE_CHECKING:
    from hexforge.ort.options.provider_options import ProviderOptions
    from hexforge.ort.signature import NodeArg
    from hexforge.runtime.stages import Stages


@dataclass(frozen=True, slots=True)
class Runnable:
    """What runs: its inputs, and a function from feeds to outputs by name."""

    inputs: Sequence[NodeArg]
    run: Callable[[Mapping[str, Array]], dict[str, Array]]
    about: str
    """Where it runs, for people."""
    load_ms: float = 0.0
    """How long it took to read, place and compile or load."""
    first_nonfinite: Callable[[Mapping[str, Array]], str | None] = lambda feeds: None
    """Names the first tensor of a run that is not finite, or past float16, where that can be told."""
    overflowed: Callable[[], bool] = lambda: False
    """Whether numbers of a run were past what float16 holds."""
    device_us: Callable[[], float] | None = None
    """What the last run took on the shared device, where HEXFORGE_DEVICE names one."""


class Engine(Protocol):
    """What runs models itself and is no backend of graphs, named where a backend is: Qualcomm's package."""

    def open_engine(self, model: Path | bytes, name: str) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
        """What runs a model."""

    def open_runnable(self, path: Path, request: ModelRequest) -> Runnable:
        """A model, ready to run on the command line."""

    def print_check(self, model: Path, request: ModelRequest, as_json: bool, strict: bool) -> None:
        """Print where each node runs; exit code 1 where one is left, if that is asked for."""


def engine_of(target: BackendArguments) -> Engine | None:
    """What --backend names where that runs models itself, such as Qualcomm's package; None for a backend.

    Options that the provider does not know are errors.
    """
    named = engines().get(target.backend)
    if named is None:
        return None
    from hexforge.ort.options.provider_options import ProviderOptions

    given = pairs(target.option, "--option")
    ProviderOptions.parse(given)
    engine: Engine = import_target(named)(target.soc or DEFAULT_SOC, given)
    return engine


def open_runnable(
    path: Path, options: Mapping[str, str], request: ModelRequest = DEFAULT_REQUEST, graph: str = ""
) -> Runnable:
    """A model or a context, ready to run with provider options; `graph` is one of a context that has several."""
    import hexforge.frontends.onnx.placing
    import hexforge.ort.session_plan
    import hexforge.runtime.contexts.context_plan
    import hexforge.runtime.plan  # noqa: F401 - not a part of the time that it takes to load

    start = time.perf_counter()
    opened: Runnable = open_model(path).do("run", options, request, graph)
    return replace(opened, load_ms=1e3 * (time.perf_counter() - start))


def open_target(path: Path, target: BackendArguments, request: ModelRequest, graph: str = "") -> Runnable:
    """A model or a context on what the command line names: a backend, or what runs models itself."""
    engine = engine_of(target)
    if engine is None:
        return open_runnable(path, target.provider_options(), request, graph)
    if graph:
        raise CallError(f"--graph names a graph of hexforge's contexts; leave it out with --backend {target.backend}")
    return engine.open_runnable(path, request)


def open_placed_model(path: Path, options: Mapping[str, str], request: ModelRequest, graph: str) -> Runnable:
    """An ONNX model, placed and compiled."""
    from hexforge.ort.check import compiled_plan
    from hexforge.ort.signature import arguments

    _require_no_graph(path, graph)
    plan = compiled_plan(path, options, request, runs=True, waiting=spinner)
    inputs = arguments(plan.parts.model.inputs, plan.parts.model.ir.graph.inputs)
    refused, offloaded = len(plan.parts.left_on_cpu), len(plan.parts.offloaded)
    left = f", {refused} of {len(plan.rows)} nodes on the CPU" if refused else ""
    left += f", {offloaded} more that quantize inputs and outputs there" if offloaded else ""
    return _of_plan(inputs, plan, plan.parts.placed.outputs, options, left)


def open_context_model(path: Path, options: Mapping[str, str], request: ModelRequest, graph: str) -> Runnable:
    """An ONNX model with EPContext nodes."""
    from hexforge.frontends.onnx.context_model import read_context_model
    from hexforge.ort.signature import arguments
    from hexforge.runtime.contexts.context_plan import PrecompiledPlan

    _require_no_graph(path, graph)
    compiled = read_context_model(path)
    assert compiled is not None
    plan = PrecompiledPlan(compiled, _backend(options)[0])
    names = tuple(output.name for output in compiled.outputs)
    return _of_plan(arguments(compiled.inputs, ()), plan, names, options, ", compiled")


def _require_no_graph(path: Path, graph: str) -> None:
    if graph:
        raise CallError(f"{path}: --graph names a graph of a context (.bin); leave it out")


def _of_plan(
    inputs: Sequence[NodeArg], plan: Stages, outputs: Sequence[str], options: Mapping[str, str], more: str
) -> Runnable:
    """What a plan runs; `more` ends what is said of where that is."""
    runs = Runnable(
        inputs,
        lambda feeds: plan.run(feeds, outputs),
        ", ".join(options.values()) + more,
        first_nonfinite=lambda feeds: _nonfinite(plan, options, feeds),
        overflowed=lambda: plan.overflowed,
    )
    return _on_shared_device(runs, plan, options)


def _on_shared_device(runs: Runnable, plan: Stages, options: Mapping[str, str]) -> Runnable:
    """The same with every run on the device that HEXFORGE_DEVICE names, too, where it names one."""
    if not os.environ.get(DEVICE_VARIABLE):
        return runs
    attached = hook(Hook.ATTACH_TO_DEVICE)(plan.stages, *_backend(options), True)
    if attached is None:
        return runs

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        flight = attached.begin()
        outputs = runs.run(feeds)
        attached.finish(flight)
        return outputs

    return replace(runs, run=run, device_us=lambda: attached.latency_us)


def _nonfinite(plan: Stages, options: Mapping[str, str], feeds: Mapping[str, Array]) -> str | None:
    from hexforge.runtime.nonfinite import first_nonfinite

    first = first_nonfinite(plan, _backend(options)[0], feeds)
    return None if first is None else str(first)


def _backend(options: Mapping[str, str]) -> tuple[Backend, ProviderOptions]:
    """The backend that provider options name, and the options."""
    from hexforge.ort.options.backend import backend_of
    from hexforge.ort.options.provider_options import ProviderOptions

    given = ProviderOptions.parse(options)
    return backend_of(given), given


def open_context(path: Path, options: Mapping[str, str], request: ModelRequest, graph: str) -> Runnable:
    """A graph of a context, the only one unless it is named."""
    from hexforge.ort.signature import NodeArg
    from hexforge.runtime.contexts.compatibility import BinaryCompatibility, require_compatible
    from hexforge.runtime.contexts.context import Context

    context = Context(path)
    names = [row.name for row in context.graphs]
    if not graph and len(names) > 1:
        raise CallError(f"{path}: has the graphs {', '.join(names)}; name one with --graph")
    backend, _ = _backend(options)
    require_compatible(context.info, backend, BinaryCompatibility.PERMISSIVE, where=context.where)
    program = context.program(graph or names[0], backend)
    inputs = [
        NodeArg(value.name, f"tensor({value.dtype.numpy})", list(value.shape), value.dtype.numpy)
        for value in program.graph.inputs
    ]
    where = ", ".join(options.values())
    runs = Runnable(inputs, program.run, f"{where}, compiled")
    if os.environ.get(DEVICE_VARIABLE) and isinstance(backend, TimedBackend) and isinstance(backend, ContextBackend):
        from hexforge.formats.backend_extensions import Config

        placed = hook(Hook.PLACE_CONTEXTS)([path], backend.chip_name, Config())[program.graph.name]
        runs = replace(runs, run=placed.run, device_us=lambda: placed.results[-1].latency_us)
    return runs


def feeds_for(inputs: Sequence[NodeArg], files: Mapping[str, str], seed: int = 0) -> dict[str, Any]:
    """Inputs from files of samples; random ones, the same for a seed, for those that have none."""
    from hexforge.ort.signature import check_feed

    arguments = {value.name: value for value in inputs}
    given: dict[str, Any] = {name: _from_file(Path(file), arguments.get(name)) for name, file in files.items()}
    generator = np.random.default_rng(seed)
    for value in inputs:
        if value.name not in given and value.dtype is not None:
            given[value.name] = _random(generator, value.dtype, tuple(int(d or 0) for d in value.shape))
    with spinner("reading inputs"):
        return check_feed(given, inputs)


def _from_file(path: Path, value: NodeArg | None) -> Any:
    """What a file holds for an input: a .npy file, a picture, a sound or raw bytes."""
    from hexforge.quant.data.model_inputs import Input
    from hexforge.quant.data.sample_files import input_file, sample_kind

    if value is None or value.dtype is None or sample_kind(path.name) in (None, ".npy"):
        return read_npy(path)
    shape = tuple(size if isinstance(size, int) else None for size in value.shape)
    return input_file(path, Input(value.name, shape, value.dtype))


def _random(generator: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """Normal numbers for floats, zeros and ones for the rest."""
    whole = np.issubdtype(dtype, np.integer) or dtype.kind in "bui"
    numbers = generator.integers(0, 2, shape) if whole else generator.standard_normal(shape)
    return np.asarray(numbers).astype(dtype)
