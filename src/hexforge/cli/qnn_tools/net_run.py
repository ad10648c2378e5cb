# SPDX-License-Identifier: Apache-2.0
"""`qnn-net-run`: graphs run on lists of raw files, results written as raw files."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from hexforge.backend import Backend, Prepares, Program
from hexforge.cli.qnn_tools import graphs
from hexforge.cli.qnn_tools.flags import Version
from hexforge.cli.qnn_tools.on_device import DeviceProgram, on_device
from hexforge.cli.qnn_tools.profiling import level_of, write_profile
from hexforge.cli.qnn_tools.raw import (
    SKIPPED,
    InputList,
    InputType,
    OutputType,
    feeds_of,
    read_input_list,
    write_results,
)
from hexforge.cli.screen import bar, stoppable
from hexforge.errors import CallError
from hexforge.formats.backend_extensions import Config
from hexforge.ir import Array, TensorType
from hexforge.timeline import Times

TOOL = "qnn-net-run"
_SILENT = {
    "model_prefix": "no library is loaded",
    "system_library": "no library is loaded",
    "platform_options": "there is no platform to configure",
    "synchronous": "graphs are always run one after another",
    "max_input_cache_tensor_sets": "inputs are read as they are run",
    "max_input_cache_size_mb": "inputs are read as they are run",
    "use_mmap": "contexts are always mapped",
    "io_tensor_mem_handle_type": "inputs and outputs lie in this process's memory",
    "shared_buffer": "inputs and outputs lie in this process's memory, which graphs read without a copy",
}
"""Flags that are taken and change nothing here, with the reason, which is said aloud."""


@dataclass(frozen=True, slots=True)
class GraphRun:
    """A graph, and what it is run on."""

    name: str
    program: Program
    inputs: InputList
    folder: Path


def run(
    model: Annotated[str, typer.Option("--model", help="ONNX files or graph texts, separated by commas.")] = "",
    backend: Annotated[str, typer.Option("--backend", help="Selects a backend by its library: libQnnHtp.so …")] = "",
    input_list: Annotated[
        str, typer.Option("--input_list", help="Files that list raw inputs, one for each graph; __ skips a graph.")
    ] = "",
    retrieve_context: Annotated[str, typer.Option("--retrieve_context", help="A context binary of hexforge.")] = "",
    dlc_path: Annotated[str, typer.Option("--dlc_path", help="Models, in the place of --model.")] = "",
    output_dir: Annotated[Path, typer.Option("--output_dir", help="Where results are written.")] = Path("output"),
    input_data_type: Annotated[
        InputType, typer.Option("--input_data_type", help="Raw inputs are float32, or of the graph's own types.")
    ] = InputType.FLOAT,
    output_data_type: Annotated[
        OutputType, typer.Option("--output_data_type", help="Outputs as float32 (x.raw), as they are (x_native.raw).")
    ] = OutputType.FLOAT_ONLY,
    use_native_input_files: Annotated[
        bool, typer.Option("--use_native_input_files", help="As --input_data_type native.")
    ] = False,
    use_native_output_files: Annotated[
        bool, typer.Option("--use_native_output_files", help="As --output_data_type native_only.")
    ] = False,
    native_input_tensor_names: Annotated[
        str, typer.Option("--native_input_tensor_names", help="Inputs whose files are native: graph:a,b;graph2:c.")
    ] = "",
    set_output_tensors: Annotated[
        str, typer.Option("--set_output_tensors", help="Outputs that are written: graph:a,b;graph2:c.")
    ] = "",
    config_file: Annotated[Path | None, typer.Option("--config_file", help="Backend extensions as JSON.")] = None,
    perf_profile: Annotated[str, typer.Option("--perf_profile", help="Wins over the config file's profile.")] = "",
    num_inferences: Annotated[int, typer.Option("--num_inferences", min=0, help="How many, over and over.")] = 0,
    duration: Annotated[float, typer.Option("--duration", min=0, help="For how many seconds, over and over.")] = 0,
    keep_num_outputs: Annotated[
        int | None, typer.Option("--keep_num_outputs", min=0, help="Write the outputs of the first so many.")
    ] = None,
    batch_multiplier: Annotated[
        int, typer.Option("--batch_multiplier", min=1, help="Raw files hold so many batches, run one after another.")
    ] = 1,
    binary_updates: Annotated[
        str, typer.Option("--binary_updates", help="Adapters of `hexforge lora`, applied to the context first.")
    ] = "",
    profiling_level: Annotated[
        str,
        typer.Option("--profiling_level", help="basic, detailed, backend or client: write a log of the runs."),
    ] = "",
    profiling_option: Annotated[
        str, typer.Option("--profiling_option", help="optrace: every task of the chip, for qnn-profile-viewer.")
    ] = "",
    log_level: Annotated[str, typer.Option("--log_level", help="error, warn, info, debug or verbose.")] = "error",
    model_prefix: Annotated[str, typer.Option("--model_prefix", help="Changes nothing here.")] = "",
    system_library: Annotated[str, typer.Option("--system_library", help="Changes nothing here.")] = "",
    platform_options: Annotated[str, typer.Option("--platform_options", help="Changes nothing here.")] = "",
    synchronous: Annotated[bool, typer.Option("--synchronous", help="Changes nothing here.")] = False,
    shared_buffer: Annotated[bool, typer.Option("--shared_buffer", help="Changes nothing here.")] = False,
    use_mmap: Annotated[bool, typer.Option("--use_mmap", help="Changes nothing here.")] = False,
    max_input_cache_tensor_sets: Annotated[
        int | None, typer.Option("--max_input_cache_tensor_sets", help="Changes nothing here.")
    ] = None,
    max_input_cache_size_mb: Annotated[
        int | None, typer.Option("--max_input_cache_size_mb", help="Changes nothing here.")
    ] = None,
    io_tensor_mem_handle_type: Annotated[
        str, typer.Option("--io_tensor_mem_handle_type", help="Changes nothing here.")
    ] = "",
    version: Version = False,
) -> None:
    """Run a model or a context binary on raw inputs: outputs are output_dir/Result_<n>/<tensor>.raw."""
    given = dict(locals())
    for flag, reason in _SILENT.items():
        if given[flag]:
            graphs.say(TOOL, f"--{flag} changes nothing: {reason}")
    if not backend or not input_list:
        raise CallError(f"{'--backend' if not backend else '--input_list'} is missing; see --help")
    if bool(retrieve_context) == bool(model or dlc_path):
        raise CallError("give one of --model (or --dlc_path) and --retrieve_context")
    config = graphs.read_config(config_file, TOOL)
    level = level_of(profiling_level, profiling_option, config)
    programs = _programs(model, dlc_path, retrieve_context, backend, config, perf_profile)
    if binary_updates:
        raise CallError("--binary_updates: apply adapters with `hexforge lora`, and give the context it writes")
    jobs = _jobs(programs, input_list, output_dir)
    native = InputType.NATIVE if use_native_input_files else input_data_type
    kind = OutputType.NATIVE_ONLY if use_native_output_files else output_data_type
    chosen = _by_graph(native_input_tensor_names, "--native_input_tensor_names", programs)
    wanted = _by_graph(set_output_tensors, "--set_output_tensors", programs)
    verbose = log_level.lower() in ("info", "debug", "verbose")
    with stoppable("what was written before is whole"):
        for job in jobs:
            inputs = {v.name: v.type for v in job.program.graph.inputs}
            names = set(inputs) if native is InputType.NATIVE else set(chosen.get(job.name, ()))
            written = _wanted(job, wanted.get(job.name) or job.inputs.outputs)
            took = _run(job, inputs, names, written, kind, num_inferences, duration, keep_num_outputs, batch_multiplier)
            if level:
                chip = graphs.tool_backend(backend, config, TOOL, job.name, perf_profile)
                computes = job.program.program if isinstance(job.program, DeviceProgram) else job.program
                write_profile(computes, chip, level, len(took), output_dir, jobs.index(job))
            if verbose and took:
                best, mean = min(took), sum(took) / len(took)
                typer.echo(f"{job.name}: {len(took)} inferences, {mean:.3f} ms each, {best:.3f} the best, {job.folder}")
                if isinstance(job.program, DeviceProgram):
                    simulated = sum(job.program.latencies_us) / len(job.program.latencies_us)
                    typer.echo(f"{job.name}: {simulated / 1e3:.3f} ms each on the simulated device")


def _programs(
    model: str, dlc_path: str, retrieve_context: str, backend: str, config: Config, perf_profile: str
) -> dict[str, Program]:
    """The graphs to run by name; those of the htp backend lie on a simulated device."""
    if retrieve_context:
        made = graphs.tool_backend(backend, config, TOOL, perf_profile=perf_profile)
        context = config.tool.context_configs
        strict = context.cache_compatibility_mode == "strict"
        budget = config.htp.context.file_read_memory_budget_in_mb
        opened = graphs.open_context(Path(retrieve_context), made, context.enable_graphs, strict, budget)
        return _placed(Path(retrieve_context), opened, made, config, perf_profile)
    found: dict[str, Program] = {}
    for path in graphs.model_paths(model, dlc_path):
        name = graphs.graph_name(path)
        made = graphs.tool_backend(backend, config, TOOL, name, perf_profile)
        if name in found:
            raise CallError(f"--model: two models have the graph name {name}; rename one file")
        graphs.require_model(path)
        if graphs.is_graph_text(path):
            found[name] = graphs.text_program(path, made)
            continue
        compiled = graphs.compiled_model(path, made, name)
        found |= _placed(compiled.to_bytes(), {name: compiled.program()}, made, config, perf_profile)
    return found


def _placed(
    source: Path | bytes, programs: dict[str, Program], backend: Backend, config: Config, perf_profile: str
) -> dict[str, Program]:
    """Programs on a simulated device of the backend's chip, where it has one that is known."""
    if not isinstance(backend, Times) or not isinstance(backend, Prepares) or not backend.targets[0].name:
        return programs
    return on_device(source, programs, backend.targets[0].name, config, perf_profile)


def _jobs(programs: Mapping[str, Program], input_list: str, output_dir: Path) -> list[GraphRun]:
    """What is run on what; folders of their own for several graphs."""
    lists = input_list.split(",")
    if len(lists) != len(programs):
        raise CallError(
            f"--input_list has {len(lists)} lists for the graphs {', '.join(programs)}; give one for each, or {SKIPPED}"
        )
    several = len(programs) > 1
    return [
        GraphRun(name, program, read_input_list(Path(path)), output_dir / name if several else output_dir)
        for (name, program), path in zip(programs.items(), lists, strict=True)
        if path != SKIPPED
    ]


def _wanted(job: GraphRun, names: Sequence[str]) -> list[str]:
    known = [value.name for value in job.program.graph.outputs]
    for name in names:
        if name not in known:
            raise CallError(f"{job.name}: has no output {name!r}; it has {', '.join(known)}")
    return list(names) or known


def _by_graph(text: str, flag: str, programs: Mapping[str, Program]) -> dict[str, list[str]]:
    """`graph:a,b;graph2:c` as names by graph."""
    found: dict[str, list[str]] = {}
    for part in filter(None, text.split(";")):
        graph, colon, names = part.partition(":")
        if not colon or graph not in programs:
            raise CallError(
                f"{flag} {part!r}: expected <graph>:<tensor>,<tensor> with graph one of {', '.join(programs)}"
            )
        known = {v.name for v in (*programs[graph].graph.inputs, *programs[graph].graph.outputs)}
        for name in names.split(","):
            if name not in known:
                raise CallError(
                    f"{flag} {part!r}: graph {graph!r} has no tensor {name!r}; it has {', '.join(sorted(known))}"
                )
        found[graph] = names.split(",")
    return found


def _run(
    job: GraphRun,
    inputs: Mapping[str, TensorType],
    native: set[str],
    written: Sequence[str],
    kind: OutputType,
    num_inferences: int,
    duration: float,
    keep: int | None,
    batches: int,
) -> list[float]:
    """Run a job's inferences and write them; how long each took, in ms."""
    types = {value.name: value.type for value in job.program.graph.outputs}
    lines = job.inputs.inferences
    count = num_inferences or len(lines)
    took: list[float] = []
    end = time.perf_counter() + duration
    with bar(f"running {job.name}") as progress:
        index = 0
        while index < count or (duration and time.perf_counter() < end):
            line = index % len(lines)
            where = f"{job.inputs.path}: inference {line}"
            feeds = feeds_of(lines[line], inputs, native, where)
            if batches > 1 and len(feeds) != batches:
                raise CallError(f"{where}: the files hold {len(feeds)} batches, --batch_multiplier says {batches}")
            outputs: list[Mapping[str, Array]] = []
            start = time.perf_counter()
            outputs = [job.program.run(one) for one in feeds]
            took.append(1e3 * (time.perf_counter() - start))
            if index < len(lines) and (keep is None or index < keep):
                write_results(job.folder, index, outputs, types, written, kind)
            index += 1
            progress(min(index, count), count)
    return took
