# SPDX-License-Identifier: Apache-2.0
"""Wrap: a context's graphs as ONNX models, one each; and prune: a context of several chips for one of them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from hexforge.backend import ContextBackend
from hexforge.errors import CallError
from hexforge.formats.container import Writer
from hexforge.formats.files import Data, file_names, write_atomically, write_together
from hexforge.frontends.onnx.context_model import COMPATIBILITY, EpContext
from hexforge.model.load_check import require_loads
from hexforge.runtime import registry
from hexforge.runtime.contexts.compatibility import chip_backend
from hexforge.runtime.contexts.context import Context
from hexforge.runtime.contexts.context_builder import PRODUCER

_ENDINGS = ("_qnn_ctx.onnx", "_qnn_ctx_fp32_io.onnx")
"""Of a model that takes what the graph does, and of one with Q and DQ around it."""


def wrap(
    context: str | os.PathLike[str],
    folder: str | os.PathLike[str] | None = None,
    *,
    embed: bool = False,
    quantized_io: bool = False,
) -> list[Path]:
    """Write `<graph>_qnn_ctx.onnx` for each graph of a context, `…_fp32_io.onnx` where Q and DQ were put around it.

    They lie beside the context, which is copied where another folder is given, unless it is embedded.
    """
    from hexforge.frontends.onnx.context_writer import is_quantized, wrapper
    from hexforge.runtime.contexts.context_model import compatibility_text

    path = Path(context)
    opened = Context(path)
    out = Path(folder) if folder is not None else path.parent
    if out.exists() and not out.is_dir():
        raise CallError(f"{out}: is a file; give a folder for the models")
    info = opened.info
    backend = registry.backend(info.backend, info.options)
    properties = {COMPATIBILITY: compatibility_text(info)}
    whole = memoryview(path.read_bytes()) if embed else None
    files: list[tuple[Path, Data]] = []
    if not embed and (not out.exists() or not out.samefile(path.parent)):
        files.append((out / path.name, [opened.container.view]))
    stems = file_names((graph.name for graph in opened.graphs), _ENDINGS, taken=[at.name for at, _ in files])
    for graph in opened.graphs:
        real_io = not quantized_io and any(is_quantized(type) for _, type in (*graph.inputs, *graph.outputs))
        node = EpContext(
            name=graph.name,
            graph=graph.name,
            inputs=tuple(name for name, _ in graph.inputs),
            outputs=tuple(name for name, _ in graph.outputs),
            embedded=whole,
            file="" if embed else path.name,
            sdk_version=PRODUCER,
            max_size=graph.spill_fill_bytes,
            multi_soc=len(info.targets) > 1,
            notes=", ".join(t.label for t in info.targets),
        )
        wide = isinstance(backend, ContextBackend) and backend.float_io
        data = wrapper(graph, node, properties, real_io=real_io, wide=wide)
        target = out / f"{stems[graph.name]}{_ENDINGS[real_io]}"
        if isinstance(data, bytes):
            require_loads(data, str(target))
        files.append((target, data))
    out.mkdir(parents=True, exist_ok=True)
    write_together(files)
    return [at for at, _ in files if at.suffix == ".onnx"]


def prune(context: str | os.PathLike[str], soc: str, output: str | os.PathLike[str]) -> Context:
    """Write a context for one of its chips; programs and weights stay as they are."""
    opened = Context(context)
    info = opened.info
    chip = chip_backend(info.backend, soc)
    names = [t.name for t in chip.targets] if isinstance(chip, ContextBackend) else []
    places = [i for i, t in enumerate(info.targets) if t.name and t.name in names]
    backend = registry.backend(info.backend, info.options)
    if not places or not isinstance(backend, ContextBackend):
        has = ", ".join(t.name for t in info.targets) or "no chip"
        raise CallError(f"{opened.where}: was not made for {soc or 'that chip'}; it has {has}")
    target, options = info.targets[places[0]], backend.for_chip(places[0]).config.pairs()
    dropped = {t.name for t in info.targets} - {target.name}
    writer = Writer()
    writer.add_json("info", "", replace(info, targets=(target,), options=options).to_json())
    for section in opened.container.sections:
        other = section.kind == "schematic" and section.name.partition("/")[0] in dropped
        if section.kind != "info" and not other:
            writer.add(section.kind, section.name, opened.container.section(section.kind, section.name))
    write_atomically(Path(output), writer.parts())
    return Context(output)
