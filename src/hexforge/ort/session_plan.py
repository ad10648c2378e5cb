# SPDX-License-Identifier: Apache-2.0
"""Session plan: from a model, or a context model, to the parts that a session runs; and to files, where asked for."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexforge.addon import Hook, hook
from hexforge.backend import Backend
from hexforge.errors import CallError, NoFallbackError, UnsupportedError
from hexforge.frontends.onnx.context_model import ContextModel, read_context_model
from hexforge.model.load_check import Extract
from hexforge.ops.packages import register_op_package
from hexforge.ort.options.backend import backend_of
from hexforge.ort.options.config import LIKE_THE_EP, ORT_SESSION_KEYS, SessionConfig, spinning_of
from hexforge.ort.options.provider_options import ProviderOptions
from hexforge.ort.options.session_options import (
    context_reader,
    named_dims,
    options_of_parts,
    overridden_shapes,
    session_entries,
)
from hexforge.ort.signature import NodeArg, arguments
from hexforge.runtime.collecting import without_collecting_cycles
from hexforge.runtime.contexts import share
from hexforge.runtime.contexts.context import Context
from hexforge.runtime.contexts.context_model import Output, Report, context_in_memory, save
from hexforge.runtime.contexts.context_plan import PrecompiledPlan
from hexforge.runtime.contexts.request import names_of
from hexforge.runtime.cpu_part import CpuPart
from hexforge.runtime.stages import Stages

if TYPE_CHECKING:
    from hexforge.model.declarations import Metadata
    from hexforge.model.reader import Model

ModelSource = str | bytes | os.PathLike[str]
STRICT = "session.disable_cpu_ep_fallback"
WITHOUT_CONTEXTS = ("cpu",)
"""Backends that the execution provider makes no contexts for."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A model that is ready to run."""

    plan: Stages
    backend: Backend
    inputs: list[NodeArg]
    outputs: list[NodeArg]
    fixed: frozenset[str]
    """Names of initializers."""
    metadata: Metadata
    report: Report | None = None
    """What was written."""
    notes: tuple[str, ...] = ()
    from_context: bool = False
    """Whether the graphs were compiled before, and only loaded."""
    reloads: bool = False
    """Whether they come from files, which can be loaded again after a crash of the device."""


def context_output(source: ModelSource, config: SessionConfig, options: ProviderOptions) -> Output | None:
    """Where session config keys have a context model written; None where they do not."""
    if not config.context_enable:
        if options.acts("enable_htp_prepare_only"):
            raise CallError("enable_htp_prepare_only=1 needs the session config key ep.context_enable=1")
        return None
    if options.backend in WITHOUT_CONTEXTS:
        raise UnsupportedError(
            "ep.context_enable=1: Qnn context cache only works for HTP/DSP/GPU backend; "
            f"hexforge.ModelCompiler makes contexts of the {options.backend} backend too"
        )
    if config.context_file_path:
        path = Path(config.context_file_path)
    elif isinstance(source, bytes):
        raise CallError("ep.context_enable=1: the model was given as bytes; set ep.context_file_path, where to write")
    else:
        path = default_context_path(Path(source))
    stop = config.stop_share_ep_contexts
    return Output(
        path,
        embed=config.context_embed_mode,
        prefix=config.context_node_name_prefix,
        initializers=config.context_model_external_initializers_file_name,
        share=config.share_ep_contexts or stop,
        stop=stop,
    )


def default_context_path(model: Path) -> Path:
    """Where the context model of a model goes: `<model>_ctx.onnx` beside it."""
    return model.with_name(f"{model.name.removesuffix('.onnx')}_ctx.onnx")


@without_collecting_cycles()
def prepare(
    source: ModelSource,
    sess_options: Any,
    config: SessionConfig,
    options: ProviderOptions,
    output: Output | None = None,
    no_backend: str = "",
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> Prepared:
    """Open a context model, or place and compile any other and write its context model where one is wanted.

    `shapes` are those of inputs that the model leaves open.
    """
    if not isinstance(source, (str, bytes, os.PathLike)):
        raise CallError(f"a model is given by path or as bytes, not as {type(source).__name__}")
    for spec in options.op_packages:
        register_op_package(spec)
    graph = names_of([source], None)[0]
    backend = backend_of(options, sess_options.intra_op_num_threads, every_chip=output is not None, graph=graph)
    options.dumps.check()
    backend.spinning = spinning_of(session_entries(sess_options, ORT_SESSION_KEYS))
    folder = Path(config.context_file_path).parent if isinstance(source, bytes) and config.context_file_path else None
    compiled = read_context_model(source, folder)
    if compiled is not None:
        if output is not None:
            raise CallError(f"{compiled.where}: is a context model, so it is compiled already; use it as it is")
        return _open_context_model(compiled, backend, sess_options, config, options)
    if config.disable_model_compile:
        raise UnsupportedError(
            "session.disable_model_compile=1, and the model must be compiled (ORT_MODEL_REQUIRES_COMPILATION): "
            "compile it first (hexforge.ModelCompiler), and give the context model"
        )
    if output is not None:
        output.check()
    model = read_model(source, sess_options, config.compatibility == LIKE_THE_EP, shapes or {})
    return _compile_model(model, backend, sess_options, config, options, output, no_backend)


def _open_context_model(
    model: ContextModel, backend: Backend, sess_options: Any, config: SessionConfig, options: ProviderOptions
) -> Prepared:
    stop = config.stop_share_ep_contexts
    plan = PrecompiledPlan(
        model,
        backend,
        strict=config.disable_cpu_ep_fallback,
        optimal=config.fail_on_suboptimal_compiled_model,
        shared=config.share_ep_contexts or stop,
        read=context_reader(sess_options) or (_whole_files(model) if options.disable_file_mapped_weights else None),
        make_cpu_part=lambda cut, nodes: CpuPart(
            cut, nodes, options_of_parts(sess_options), backend.threads, backend.spinning
        ),
    )
    if stop:
        share.close()
    if options.dumps.any:
        hook(Hook.WRITE_DUMPS)(options.dumps, plan, backend, None, Path(model.where).stem)
    notes = tuple(f"the context is sub-optimal: {reason}" for reason in plan.suboptimal)
    inputs, outputs = arguments(model.inputs, ()), arguments(model.outputs, ())
    return Prepared(plan, backend, inputs, outputs, model.constants, model.metadata, notes=notes, from_context=True,
                    reloads=all(node.embedded is None for node in model.contexts.values()))  # fmt: skip


def _whole_files(model: ContextModel) -> Callable[[str], bytearray]:
    """What reads contexts into memory instead of mapping their files."""
    files = {node.file: model.context_path(node) for node in model.contexts.values() if node.main and node.file}
    return lambda name: bytearray(files[name].read_bytes())


def _compile_model(model: Model, backend: Backend, sess_options: Any, config: SessionConfig, options: ProviderOptions,
              output: Output | None, no_backend: str) -> Prepared:  # fmt: skip
    from hexforge.runtime.plan import Plan
    from hexforge.runtime.prepare import ModelRequest, prepare_model

    cuts: list[Extract] = []

    def cpu_part(cut: Extract, nodes: Sequence[str]) -> CpuPart:
        if output is not None:  # the part's session changes the model it is made of
            kept = type(cut.proto)()
            kept.CopyFrom(cut.proto)
            cuts.append(Extract(kept, cut.constants))
        return CpuPart(cut, nodes, options_of_parts(sess_options), backend.threads, backend.spinning)

    strict = config.disable_cpu_ep_fallback
    offload = options.offload_graph_io_quantization and not strict
    like_the_ep = config.compatibility == LIKE_THE_EP
    request = ModelRequest(
        offload_io_quantization=offload,
        obey_ep=config.obey_ep_limits or like_the_ep,
        open_shapes=like_the_ep,
        no_backend=no_backend,
        affinity=options.affinity(),
    )
    graph = model.ir.graph
    inputs, outputs = arguments(model.inputs, graph.inputs), arguments(model.outputs, graph.outputs)
    fixed = frozenset(str(v.name) for v in graph.initializers.values()) - {a.name for a in inputs}
    parts = prepare_model(model, backend, request, give_away=output is None and not options.dumps.any)
    if strict:
        parts.require_whole(f"{STRICT}=1, and", backend.name, f"set {STRICT}=0 to run them on the CPU, or change the "
                            "model as said", NoFallbackError)  # fmt: skip
    plan = Plan(parts, backend, cpu_part)
    report = None
    notes: tuple[str, ...] = ()
    if output is not None:
        names = [stage.name for stage in plan.stages if not stage.part.taken]
        report = save(model, plan, dict(zip(names, cuts, strict=True)), backend, output)
        if report is None:
            notes = ("no context model is written: no node was compiled",)
    if options.acts("enable_htp_prepare_and_load") and plan.graphs:
        plan.use_programs(Context(context_in_memory(plan, backend), "the prepared context").programs(backend=backend))
    if options.dumps.any:
        name = model.path.stem if model.path is not None else model.name
        hook(Hook.WRITE_DUMPS)(options.dumps, plan, backend, model, name)
    return Prepared(plan, backend, inputs, outputs, fixed, model.metadata, report, notes)


def extension_notes(options: ProviderOptions, source: ModelSource) -> list[str]:
    """The keys of the backend_extensions file that change nothing in a session."""
    if (file := options.extensions()) is None:
        return []
    from hexforge.runtime.tool_config import session_notes

    return session_notes(file, names_of([source], None)[0])


def read_model(
    source: ModelSource, sess_options: Any, open_shapes: bool, given: Mapping[str, tuple[int, ...]]
) -> Model:
    """The model, with free-dimension overrides and shapes given for open inputs; CallError where one stays open."""
    from hexforge.model.declarations import open_inputs
    from hexforge.model.reader import read
    from hexforge.model.source import open_source

    opened = open_source(source, detach=True)
    open_shapes_of = open_inputs(opened.proto)
    if not open_shapes_of:
        return read(opened)
    symbols = {dim for shape in open_shapes_of.values() for dim in shape or ()}
    inputs = [v for v in opened.proto.graph.input if v.name in open_shapes_of]
    shapes = overridden_shapes(inputs, sess_options) | {n: s for n, s in given.items() if n in open_shapes_of}
    dims = {name: size for name, size in named_dims(sess_options).items() if name in symbols}
    model = read(opened, shapes=shapes, dims=dims)
    if not open_shapes:
        model.require_static()
    return model
