# SPDX-License-Identifier: Apache-2.0
"""`qnn-context-binary-generator`: models prepared into one context binary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hexforge.addons.tools import graphs
from hexforge.addons.tools.adapter_config import AdapterConfig, changed_constants, read_adapter_config
from hexforge.addons.tools.flags import NOTHING, ToolFlags, Version
from hexforge.addons.tools.profiling import level_of
from hexforge.backend import ContextBackend
from hexforge.cli import arguments
from hexforge.cli.say import say
from hexforge.cli.screen import bar
from hexforge.errors import CallError
from hexforge.formats.backend_extensions import Config
from hexforge.formats.files import file_names, write_atomically
from hexforge.formats.hmx_layout import FLAT, HMX
from hexforge.formats.json_text import read_json
from hexforge.request_fields import option

TOOL = "qnn-context-binary-generator"


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorFlags(ToolFlags):
    """What qnn-context-binary-generator is called with."""

    model: str = option("", "ONNX files, separated by commas.")
    backend: str = option("", "Selects a backend by its library: libQnnHtp.so …")
    binary_file: str = option("", "Name of the context, without .bin.")
    dlc_path: str = option("", "Models, in the place of --model.")
    output_dir: Path = option(Path("output"), "Where the context is written.")
    config_file: Path | None = option(None, "Backend extensions as JSON.")
    op_packages: str = option("", "Op packages: path:interface[:target], separated by commas.")
    enable_intermediate_outputs: bool = option(False, "Every tensor inside is an output, too.")
    set_output_tensors: str = option(
        "", "Tensors inside that are outputs, too: graph:a,b;graph2:c, or a,b of one graph."
    )
    profiling_level: str = option("", "basic, detailed, backend or client; with optrace a schematic is written.")
    profiling_option: str = option("", "optrace: write <graph>_schematic.bin for qnn-profile-viewer.")
    data_format_config: Path | None = option(None, "Which KV caches lie in the HMX layout.")
    adapter_weight_config: Path | None = option(
        None, "YAML that lists adapters (use_case: name, graph, weights): each becomes a file, too."
    )
    log_level: str = option("error", "error, warn, info, debug or verbose.")
    model_prefix: str = option("", NOTHING + "no library is loaded.")
    platform_options: str = option("", NOTHING + "there is no platform to configure.")
    input_output_tensor_mem_type: str = option(
        "", NOTHING + "a context here takes raw memory and shared buffers alike."
    )
    backend_binary: str = option("", NOTHING + "the context is the only binary; --binary_file names it.")


def run(flags: GeneratorFlags, version: Version = False) -> None:
    """Prepare models for the chip that the config file names, into output_dir/<binary_file>.bin."""
    flags.print_silent(TOOL)
    graphs.check_log_level(flags.log_level)
    if not flags.backend:
        raise CallError("--backend is missing; see --help")
    from hexforge.addons.adapters.making import make_adapter
    from hexforge.addons.profiler.recording.schematic import write_schematic
    from hexforge.formats.file_kinds import open_model
    from hexforge.runtime.contexts.compile import compile as compile_models
    from hexforge.runtime.contexts.request import ContextRequest
    from hexforge.runtime.tool_config import graph_settings, power_of

    graphs.register_packages(flags.op_packages)
    config = arguments.read_config(flags.config_file, TOOL)
    level = level_of(flags.profiling_level, flags.profiling_option, config)
    paths = graphs.model_paths(flags.model, flags.dlc_path)
    if any(path.is_file() and open_model(path).does("validate") for path in paths):
        _write_prepared(flags, config, paths, level)
        return
    for path in paths:
        graphs.require_model(path)
    names = tuple(graphs.graph_name(path) for path in paths)
    arguments.print_unmatched_graphs(config, TOOL, names)
    made = graphs.tool_backend(flags.backend, config, TOOL, names)
    adapters = AdapterConfig((), ())
    if flags.adapter_weight_config is not None:
        adapters = read_adapter_config(flags.adapter_weight_config, names)
        for notice in adapters.notices:
            arguments.print_notice(TOOL, notice)
    models = dict(zip(names, paths, strict=True))
    request = ContextRequest(
        updatable=changed_constants(adapters.cases, models),
        weight_sharing=len(paths) > 1 and config.htp.context.weight_sharing_enabled,
        graph_names=names,
        exposed=_exposed(flags, names),
        native={} if flags.data_format_config is None else read_data_formats(flags.data_format_config),
        power=power_of(config),
        settings=[graph_settings(config.graph(name), {}) if isinstance(made, ContextBackend) else {} for name in names],
    )
    target = _target(flags, names[0])
    with bar(f"preparing {', '.join(names)}") as progress:
        compiled = compile_models(paths, None, made, request, progress=progress)
    flags.output_dir.mkdir(parents=True, exist_ok=True)
    compiled.save(target)
    for case in adapters.cases:
        make_adapter(target, models[case.graph], weights=case.weights, output=flags.output_dir / case.output)
        say(f"{flags.output_dir / case.output}: adapter {case.name} of {case.graph}")
    for graph, stem in file_names(names).items() if level == "optrace" else ():
        say(str(write_schematic(compiled.program(graph), made, stem, Path.cwd(), power_of(config))))
    say(f"{target}: {compiled.nbytes:,} bytes, graphs {', '.join(names)}")


def _target(flags: GeneratorFlags, default: str) -> Path:
    name = flags.binary_file or default
    return flags.output_dir / (name if name.endswith(".bin") else f"{name}.bin")


def _write_prepared(flags: GeneratorFlags, config: Config, paths: Sequence[Path], level: str) -> None:
    """Write a context as it is: what ExecuTorch hands over as a .dlc (online_prepare) was prepared when lowered."""
    from hexforge.addons.profiler.recording.schematic import write_schematic
    from hexforge.runtime.contexts.context import Context
    from hexforge.runtime.registry import backend
    from hexforge.runtime.tool_config import power_of

    if len(paths) > 1 or flags.adapter_weight_config is not None or flags.enable_intermediate_outputs:
        raise CallError(f"{paths[0]}: is prepared already; it is taken alone, without adapters and further outputs")
    context = Context(paths[0])
    names = [row.name for row in context.graphs]
    chips = ", ".join(target.label for target in context.info.targets) or context.info.backend
    arguments.print_notice(TOOL, f"{paths[0]}: is prepared already, for {chips}, and is written as it is")
    target = _target(flags, names[0])
    flags.output_dir.mkdir(parents=True, exist_ok=True)
    write_atomically(target, paths[0].read_bytes())
    made = backend(context.info.backend, context.info.options)
    for graph, stem in file_names(names).items() if level == "optrace" else ():
        say(str(write_schematic(context.program(graph, made), made, stem, Path.cwd(), power_of(config))))
    say(f"{target}: {target.stat().st_size:,} bytes, graphs {', '.join(names)}")


def _exposed(flags: GeneratorFlags, names: tuple[str, ...]) -> dict[str, list[str]]:
    """The tensors inside that are outputs, by graph."""
    if flags.enable_intermediate_outputs:
        if flags.set_output_tensors:
            raise CallError("--enable_intermediate_outputs takes every tensor; leave --set_output_tensors out")
        return {name: ["*"] for name in names}
    return graphs.tensors_by_graph(flags.set_output_tensors, "--set_output_tensors", names)


# -- the file of --data_format_config, which says of a KV cache's tensors how their bytes lie --------------------------


def read_data_formats(path: Path) -> dict[str, list[str]]:
    """The tensors that are to lie in the HMX layout, by their graph, "" where none is named; CallError otherwise."""
    data = read_json(path)
    rows = data.get("graphs") if isinstance(data, dict) else None
    if not isinstance(rows, list) or not all(
        isinstance(row, dict) and isinstance(row.get("tensors"), list) for row in rows
    ):
        raise CallError(f"{path}: expected graphs, each with graph_name and tensors")
    by_graph: dict[str, list[str]] = {}
    for row in rows:
        given = row.get("graph_name", "")
        names: list[Any] = [given] if isinstance(given, str) else given if isinstance(given, list) else [None]
        if not all(isinstance(name, str) for name in names):
            raise CallError(f"{path}: graph_name is {given!r}; expected a name, or a list of them")
        native = [name for name in (_native(tensor, path) for tensor in row["tensors"]) if name]
        for name in (names or [""]) if native else ():
            by_graph.setdefault(name, []).extend(native)
    return by_graph


def _native(tensor: Any, path: Path) -> str:
    """The name of a tensor that is to lie in the HMX layout, or nothing."""
    name, kind = (tensor.get(key) if isinstance(tensor, dict) else None for key in ("tensor_name", "dataFormat"))
    if not isinstance(name, str) or kind not in (FLAT, HMX):
        raise CallError(f"{path}: tensor {name!r}: dataFormat is {kind!r}; expected {FLAT} or {HMX}")
    return name if kind == HMX else ""
