# SPDX-License-Identifier: Apache-2.0
"""Context models: a session's compiled graphs as an EPContext model and a context binary."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexforge.backend import Backend, ContextBackend
from hexforge.errors import CallError, CapacityError, ExistingFileError
from hexforge.formats.context import Info
from hexforge.formats.files import Data, write_together
from hexforge.frontends.onnx.context_model import COMPATIBILITY, EpContext
from hexforge.model.load_check import MOST_BYTES, Extract
from hexforge.runtime.contexts import share
from hexforge.runtime.contexts.context_builder import PRODUCER, ContextBuilder, PreparedGraph
from hexforge.runtime.cpu_part import CpuPart
from hexforge.runtime.stages import Stage, Stages
from hexforge.terminal_text import visible

if TYPE_CHECKING:
    from hexforge.frontends.onnx.context_writer import Composed
    from hexforge.model.reader import Model

_LOG = logging.getLogger("hexforge")


@dataclass(frozen=True, slots=True)
class Output:
    """Where a context model goes, and in what form."""

    path: Path | None
    """The model's file; None: its bytes are wanted."""
    embed: bool = False
    prefix: str = ""
    """Put before the names of nodes and graphs."""
    initializers: str = ""
    """File beside the model for the constants of nodes on the CPU."""
    initializers_over_bytes: int = 0
    replace: bool = False
    """Files that are there may be replaced."""
    without_graphs: bool = False
    """Write the model also where no node was compiled."""
    share: bool = False
    stop: bool = False
    place: Callable[[Any], tuple[str, int, int] | None] | None = None
    """Says of each constant in which file it lies."""
    send: Callable[[str, bytes], None] | None = None
    """Takes the context binary instead of a file: name and data."""

    @property
    def binary(self) -> Path:
        """The context's file: `<model>_qnn.bin` beside the model."""
        path = self.path or Path("model_ctx.onnx")
        return path.with_name(f"{path.stem}_qnn.bin")

    def check(self) -> None:
        """CallError for what cannot be written, before anything is compiled."""
        if self.share and self.embed:
            raise CallError("ep.share_ep_contexts=1 needs ep.context_embed_mode=0: what is shared is a file of its own")
        if self.path is None:
            if not self.embed and self.send is None:
                raise CallError(
                    "the context model is wanted as bytes: embed the context in it "
                    "(embed_compiled_data_into_model=True), or compile to a file"
                )
            return
        if self.path.is_dir():
            raise CallError(f"ep.context_file_path: {self.path} is a folder; give a file, e.g. model_ctx.onnx in it")
        if not self.path.parent.is_dir():
            raise CallError(f"ep.context_file_path: the folder {self.path.parent} does not exist; make it first")
        if self.initializers and Path(self.initializers).name != self.initializers:
            raise CallError(f"{self.initializers!r}: constants lie beside the model; give a file name without a folder")
        names = [self.path.name, *([] if self.embed else [self.binary.name])]
        if self.initializers in names:
            raise CallError(f"{self.initializers!r} is the name of another file that is written; give another")
        for path in () if self.replace else self._paths():
            if path.exists():
                raise ExistingFileError(
                    f"{path}: is there already; remove it or set ep.context_file_path to another path"
                )

    def _paths(self) -> list[Path]:
        assert self.path is not None
        paths = [self.path]
        if not self.embed and not self.share and self.send is None:
            paths.append(self.binary)
        return [*paths, *([self.path.with_name(self.initializers)] if self.initializers else [])]


@dataclass(frozen=True, slots=True)
class Report:
    """What was written, and what it takes."""

    model: bytes | None
    """The model, where it was wanted as bytes."""
    binary: Path | None
    """The context's file; None where it is embedded, or a later session writes it."""
    context_bytes: int
    graphs: tuple[str, ...]
    weights_bytes: int
    """Bytes of weights in the context."""
    unshared_bytes: int
    """Bytes they would be, were each graph's stored for itself."""
    builder: ContextBuilder | None = None

    def __str__(self) -> str:
        name = self.binary.name if self.binary is not None else "embedded context"
        count = f"{len(self.graphs)} graph{'s' if len(self.graphs) != 1 else ''}"
        return (
            f"{name}: {count}, {self.context_bytes} bytes; {self.weights_bytes} bytes of weights, "
            f"{self.unshared_bytes} were they not shared"
        )


def compatibility_text(info: Info) -> str:
    """The metadata entry that lets a model be judged without its context: format, backend, facts of its chips."""
    figures = tuple(info.targets[0].facts) if info.targets else ()
    lists = [",".join(str(target.facts.get(figure, 0)) for target in info.targets) for figure in figures]
    return ":".join([info.producer.replace(" ", "-"), info.backend, *lists])


def save(model: Model, plan: Stages, cuts: Mapping[str, Extract], backend: Backend, output: Output) -> Report | None:
    """Write the context model of a plan, and its context; None where nothing was compiled and so nothing is written.

    `cuts` are the parts on the CPU, by the names of their stages.
    """
    compiled = [_context_graph(stage, backend, output.prefix) for stage in plan.stages if stage.part.taken]
    if output.share and (compiled or output.stop):
        return _save_shared(model, plan, cuts, backend, output, compiled)
    if not compiled and not output.without_graphs:
        return None
    builder = ContextBuilder.of(backend, compiled) if compiled else None
    parts = list(builder.writer().parts()) if builder is not None else []
    size = sum(len(p) for p in parts)
    embedded = None
    if output.embed:
        if size > MOST_BYTES:
            raise CapacityError(f"the context has {size >> 20} MB, too many to embed; set ep.context_embed_mode=0")
        embedded = memoryview(b"".join(parts))
    composed = _compose_model(model, plan, cuts, output, builder, embedded, output.binary.name)
    files: list[tuple[Path, Data]] = []
    if builder is not None and not output.embed:
        if output.send is not None:
            output.send(output.binary.name, b"".join(parts))
        else:
            files.append((output.binary, parts))
    data = _write_model(composed, output, files)
    if files:
        write_together(files, output.replace)
    return _report(builder, size, output.binary if files and builder and not output.embed else None, data)


def context_in_memory(plan: Stages, backend: Backend) -> memoryview:
    """The context of a plan's graphs, under the names of their stages."""
    graphs = [_context_graph(stage, backend, "") for stage in plan.stages if stage.part.taken]
    return memoryview(ContextBuilder.of(backend, graphs).writer().to_bytes())


def _save_shared(model: Model, plan: Stages, cuts: Mapping[str, Extract], backend: Backend, output: Output,
                 compiled: list[PreparedGraph]) -> Report:  # fmt: skip
    assert output.path is not None
    with share.LOCK:
        sharing = share.join(output.binary, backend, replace=output.replace)
        share.check_names(sharing, [c.name for c in compiled])
        before = len(sharing.graphs)
        sharing.graphs.extend(compiled)
        try:
            builder = sharing.builder() if output.stop else ContextBuilder.of(backend, compiled, weight_sharing=True)
            parts = list(builder.writer().parts()) if output.stop and sharing.graphs else []
            files: list[tuple[Path, Data]] = [(sharing.path, parts)] if parts else []
            if compiled or output.without_graphs:
                _write_model(_compose_model(model, plan, cuts, output, builder, None, sharing.path.name), output, files)
            if files:
                write_together(files, output.replace)
        except BaseException:
            del sharing.graphs[before:]
            if not sharing.graphs:
                share.end()
            raise
        if output.stop:
            share.end()
        return _report(builder, sum(len(p) for p in parts), sharing.path if parts else None, None)


def _context_graph(stage: Stage, backend: Backend, prefix: str) -> PreparedGraph:
    """A graph without how the chips run it, of which only a model's buffers ask."""
    assert not isinstance(stage.runner, CpuPart)
    timed = isinstance(backend, ContextBackend) and backend.needs_spill_fill_size
    return replace(PreparedGraph.prepared(prefix + stage.name, stage.runner, backend, timed=timed), schematics={})


def _compose_model(model: Model, plan: Stages, cuts: Mapping[str, Extract], output: Output,
                   builder: ContextBuilder | None, embedded: memoryview | None, file: str) -> Composed:  # fmt: skip
    from hexforge.frontends.onnx.context_writer import compose

    info = builder.info if builder is not None else None
    targets = info.targets if info is not None else ()
    parts: list[EpContext | Extract] = []
    main = True
    for stage in plan.stages:
        if not stage.part.taken:
            parts.append(cuts[stage.name])
            continue
        assert info is not None
        parts.append(
            EpContext(
                name=output.prefix + stage.name,
                graph=output.prefix + stage.name,
                inputs=stage.reads,
                outputs=stage.part.outputs,
                main=main,
                embedded=embedded if main else None,
                file="" if output.embed else file,
                sdk_version=PRODUCER,
                max_size=max(g.spill_fill_bytes for g in info.graphs),
                multi_soc=len(targets) > 1,
                notes=", ".join(t.label for t in targets),
            )
        )
        main = False
    properties = {COMPATIBILITY: compatibility_text(info)} if info is not None else {}
    return compose(model, parts, plan.constants, properties)


def _write_model(composed: Composed, output: Output, files: list[tuple[Path, Data]]) -> bytes | None:
    """Write the model and its constants after the other files; return its bytes where it has no path."""
    if output.place is not None:
        composed.place(output.place)
    if output.initializers:
        if output.path is None:
            raise CallError("constants can lie in a file only beside a model that is compiled to a file")
        moved = composed.move_out(output.initializers, output.initializers_over_bytes)
        if moved:
            files.append((output.path.with_name(output.initializers), moved))
    data = composed.serialized()
    if output.path is None:
        return data
    files.append((output.path, data))
    return None


def _report(builder: ContextBuilder | None, size: int, binary: Path | None, data: bytes | None) -> Report:
    if builder is None:
        return Report(data, None, 0, (), 0, 0)
    stored = sum(len(p) for p in builder.pool.parts)
    report = Report(
        data,
        binary,
        size,
        tuple(g.name for g in builder.info.graphs),
        stored,
        max(builder.pool.put_bytes, stored),
        builder,
    )
    _LOG.info("%s", visible(str(report)))
    return report
