# SPDX-License-Identifier: Apache-2.0
"""`qnn-context-binary-generator`: models prepared into one context binary."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hexforge.backend import Prepares
from hexforge.cli.qnn_tools import graphs
from hexforge.cli.qnn_tools.data_formats import read_data_formats
from hexforge.cli.qnn_tools.flags import Version
from hexforge.cli.qnn_tools.profiling import level_of, write_schematic
from hexforge.cli.screen import bar
from hexforge.errors import CallError

TOOL = "qnn-context-binary-generator"


def run(
    model: Annotated[str, typer.Option("--model", help="ONNX files, separated by commas.")] = "",
    backend: Annotated[str, typer.Option("--backend", help="Selects a backend by its library: libQnnHtp.so …")] = "",
    binary_file: Annotated[str, typer.Option("--binary_file", help="Name of the context, without .bin.")] = "",
    dlc_path: Annotated[str, typer.Option("--dlc_path", help="Models, in the place of --model.")] = "",
    output_dir: Annotated[Path, typer.Option("--output_dir", help="Where the context is written.")] = Path("output"),
    config_file: Annotated[Path | None, typer.Option("--config_file", help="Backend extensions as JSON.")] = None,
    profiling_level: Annotated[
        str, typer.Option("--profiling_level", help="basic, detailed, backend or client; with optrace a schematic.")
    ] = "",
    profiling_option: Annotated[
        str, typer.Option("--profiling_option", help="optrace: write <graph>_schematic.bin for qnn-profile-viewer.")
    ] = "",
    data_format_config: Annotated[
        Path | None, typer.Option("--data_format_config", help="Data formats of tensors; checked, and kept flat here.")
    ] = None,
    log_level: Annotated[str, typer.Option("--log_level", help="error, warn, info, debug or verbose.")] = "error",
    model_prefix: Annotated[str, typer.Option("--model_prefix", help="Changes nothing here.")] = "",
    version: Version = False,
) -> None:
    """Prepare models for the chip that the config file names, into output_dir/<binary_file>.bin."""
    if model_prefix:
        graphs.say(TOOL, "--model_prefix changes nothing: no library is loaded")
    if not backend:
        raise CallError("--backend is missing; see --help")
    from hexforge.runtime.contexts.compile import compile as compile_models
    from hexforge.runtime.contexts.request import ContextRequest

    config = graphs.read_config(config_file, TOOL)
    level = level_of(profiling_level, profiling_option, config)
    paths = graphs.model_paths(model, dlc_path)
    for path in paths:
        graphs.require_model(path)
    names = tuple(graphs.graph_name(path) for path in paths)
    made = graphs.tool_backend(backend, config, TOOL, names[0])
    section = config.graph(names[0])
    if any(config.graph(name) is not section for name in names[1:] if config.htp.graphs):
        raise CallError(f"{config.where}: graphs of one context are prepared alike; name them in one section")
    settings = {}
    if isinstance(made, Prepares):
        settings = {"num_hvx_threads": section.hvx_threads, "vtcm_mb": section.vtcm_mb}
    sharing = config.htp.context.weight_sharing_enabled if len(paths) > 1 else None
    request = ContextRequest(
        weight_sharing=sharing,
        graph_names=names,
        settings={key: value for key, value in settings.items() if value is not None},
    )
    name = binary_file or names[0]
    target = output_dir / (name if name.endswith(".bin") else f"{name}.bin")
    with bar(f"preparing {', '.join(names)}") as progress:
        compiled = compile_models(paths, None, made, request, progress=progress)
    if data_format_config is not None:
        known = {t for graph in compiled.info.graphs for t, _ in (*graph.inputs, *graph.outputs)}
        for tensor in read_data_formats(data_format_config, known):
            graphs.say(TOOL, f"{data_format_config}: {tensor} stays flat; the HMX layout of KV caches is not built")
    output_dir.mkdir(parents=True, exist_ok=True)
    compiled.save(target)
    for graph in names if level == "optrace" else ():
        typer.echo(str(write_schematic(compiled.program(graph), made, graph, Path.cwd())))
    typer.echo(f"{target}: {compiled.nbytes:,} bytes, graphs {', '.join(names)}")
