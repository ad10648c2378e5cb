# SPDX-License-Identifier: Apache-2.0
"""`qnn-net-run`: graphs run on lists of raw files, results written as raw files."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hexforge.addons.device.placed_contexts import DeviceProgram, memory_lines, on_device
from hexforge.addons.tools import graphs
from hexforge.addons.tools.flags import NOTHING, ToolFlags, Version
from hexforge.addons.tools.profiling import device_profile, level_of, write_log
from hexforge.addons.tools.raw import (
    SKIPPED,
    InputList,
    InputType,
    OutputType,
    feeds_of,
    read_input_list,
    write_results,
)
from hexforge.backend import Backend, ContextBackend, Program, TimedBackend
from hexforge.cli import arguments
from hexforge.cli.say import say
from hexforge.cli.screen import bar, interruptible
from hexforge.errors import CallError
from hexforge.formats.backend_extensions import Config
from hexforge.formats.files import file_names
from hexforge.ir import Array
from hexforge.request_fields import option

if TYPE_CHECKING:
    from hexforge.addons.profiler.record import Profile

_NO_LIBRARY = NOTHING + "no library is loaded."
_AS_THEY_RUN = NOTHING + "inputs are read as they are run."


@dataclass(frozen=True, slots=True, kw_only=True)
class NetRunFlags(ToolFlags):
    """What qnn-net-run is called with."""

    model: str = option("", "ONNX files or graph texts, separated by commas.")
    backend: str = option("", "Selects a backend by its library: libQnnHtp.so …")
    input_list: str = option("", "Files that list raw inputs, one for each graph; __ skips a graph.")
    retrieve_context: str = option("", "Context binaries of hexforge, separated by commas.")
    dlc_path: str = option("", "Models, in the place of --model.")
    output_dir: Path = option(Path("output"), "Where results are written.")
    input_data_type: InputType = option(
        InputType.FLOAT, "Raw inputs are float32, or of the graph's own types.", kind=InputType
    )
    output_data_type: OutputType = option(
        OutputType.FLOAT_ONLY, "Outputs as float32 (x.raw), as they are (x_native.raw), or both.", kind=OutputType
    )
    use_native_input_files: bool = option(False, "As --input_data_type native.")
    use_native_output_files: bool = option(False, "As --output_data_type native_only.")
    native_input_tensor_names: str = option(
        "", "Inputs whose files are native: graph:a,b;graph2:c; of one graph also a,b."
    )
    set_output_tensors: str = option(
        "", "Tensors inside that are written beside the outputs: graph:a,b;graph2:c, or a,b."
    )
    debug: bool = option(False, "Write every tensor inside, too; with --model.")
    op_packages: str = option("", "Op packages: path:interface[:target], separated by commas.")
    config_file: Path | None = option(None, "Backend extensions as JSON.")
    perf_profile: str = option("", "Wins over the config file's profile.")
    num_inferences: int = option(0, "How many, over and over.", min=0)
    duration: float = option(0, "For how many seconds, over and over.", min=0)
    keep_num_outputs: int | None = option(None, "Write the outputs of the first so many.", min=0)
    batch_multiplier: int = option(
        1, "Raw files hold so many batches, run one after another; else as the file's size says.", min=1
    )
    binary_updates: str = option(
        "", "Adapters of `hexforge lora`, applied first: file or graph:file, separated by commas."
    )
    timeout: int = option(0, "µs of the simulated device that an execution may take; 0: any.", min=0)
    retrieve_context_timeout: int = option(
        0, "µs of the simulated device that loading a context may take; 0: any.", min=0
    )
    validate_binary: bool = option(False, "Refuse a context that is not optimal for the chip.")
    profiling_level: str = option("", "basic, detailed, backend or client: write a log of the runs.")
    profiling_option: str = option("", "optrace: every task of the chip, for qnn-profile-viewer.")
    shared_buffer: bool = option(False, "Inputs and outputs lie in shared buffers (memory.mem_type).")
    log_level: str = option("error", "error, warn, info, debug or verbose.")
    model_prefix: str = option("", _NO_LIBRARY)
    system_library: str = option("", _NO_LIBRARY)
    platform_options: str = option("", NOTHING + "there is no platform to configure.")
    device_options: str = option("", NOTHING + "the config file's devices say what the device is.")
    synchronous: bool = option(False, NOTHING + "graphs are always run one after another.")
    asynchronous: bool = option(False, NOTHING + "graphs are always run one after another, and give the same.")
    use_mmap: bool = option(False, NOTHING + "contexts are always mapped.")
    max_input_cache_tensor_sets: int | None = option(None, _AS_THEY_RUN)
    max_input_cache_size_mb: int | None = option(None, _AS_THEY_RUN)
    io_tensor_mem_handle_type: str = option("", NOTHING + "--shared_buffer says where inputs and outputs lie.")


TOOL = "qnn-net-run"


@dataclass(frozen=True, slots=True)
class GraphRun:
    """A graph, and what it is run on."""

    name: str
    program: Program
    inputs: InputList
    folder: Path


def run(flags: NetRunFlags, version: Version = False) -> None:
    """Run a model or a context binary on raw inputs: outputs are output_dir/Result_<n>/<tensor>.raw."""
    _check(flags)
    graphs.register_packages(flags.op_packages)
    config = arguments.read_config(flags.config_file, TOOL)
    level = level_of(flags.profiling_level, flags.profiling_option, config)
    programs = _programs(flags, config)
    arguments.print_unmatched_graphs(config, TOOL, list(programs))
    for name, adapter in _adapters(flags.binary_updates, programs):
        programs[name].apply(adapter)  # type: ignore[attr-defined]
    jobs = _jobs(programs, flags.input_list, flags.output_dir)
    native = graphs.tensors_by_graph(flags.native_input_tensor_names, "--native_input_tensor_names", list(programs))
    for name, tensors in native.items():
        _require_tensors(name, tensors, [v.name for v in programs[name].graph.inputs], "input")
    counts: list[int] = []
    with interruptible("what was written before is whole"):
        for job in jobs:
            took = _run(job, flags, native.get(job.name, ()))
            counts.append(len(took))
            _say(job, took, flags.log_level)
    placed = [program for program in programs.values() if isinstance(program, DeviceProgram)]
    if _says_more(flags.log_level) or _shares_memory(config):
        for line in memory_lines(placed):
            say(line)
    for number, (job, count) in enumerate(zip(jobs, counts, strict=True) if level else ()):
        write_log(_profile(job, flags, config, level, count), flags.output_dir, number)


def _shares_memory(config: Config) -> bool:
    """Whether the config file asks for what changes the memory of contexts: switching, groups, shared resources."""
    switching = bool(config.tool.context_configs.memory_limit_hint)
    return switching or config.htp.context.group_id is not None or config.htp.groupContext.share_resources


def _says_more(log_level: str) -> bool:
    return log_level.lower() in ("info", "debug", "verbose")


def _check(flags: NetRunFlags) -> None:
    """CallError for flags that are missing or exclude each other; those that change nothing are named."""
    flags.print_silent(TOOL)
    if not flags.backend or not flags.input_list:
        raise CallError(f"{'--backend' if not flags.backend else '--input_list'} is missing; see --help")
    if bool(flags.retrieve_context) == bool(flags.model or flags.dlc_path):
        raise CallError("give one of --model (or --dlc_path) and --retrieve_context")
    graphs.check_profile(flags.perf_profile)
    graphs.check_log_level(flags.log_level)
    if flags.debug and flags.set_output_tensors:
        raise CallError("--debug writes every tensor; leave --set_output_tensors out")
    if flags.retrieve_context and (flags.debug or flags.set_output_tensors):
        given = "--debug" if flags.debug else "--set_output_tensors"
        raise CallError(
            f"{given}: the graphs of a context are finalized; give it to qnn-context-binary-generator "
            "(--enable_intermediate_outputs, --set_output_tensors)"
        )
    if flags.validate_binary and not flags.retrieve_context:
        raise CallError("--validate_binary is for --retrieve_context")
    if flags.use_native_input_files and flags.native_input_tensor_names:
        raise CallError("--use_native_input_files makes all inputs native; leave --native_input_tensor_names out")


def _programs(flags: NetRunFlags, config: Config) -> dict[str, Program]:
    """The graphs to run by name; those of the htp backend lie on a simulated device."""
    if flags.retrieve_context:
        made = graphs.tool_backend(flags.backend, config, TOOL)
        strict = flags.validate_binary or config.tool.context_configs.cache_compatibility_mode == "strict"
        paths = [Path(part) for part in flags.retrieve_context.split(",")]
        if graphs.records(made):
            raise CallError("--backend libQnnSaver.so records how a model is made; give --model, not a context")
        for path in paths:
            graphs.require_suits(path, made, strict)
        if (chip := _chip(made)) is not None:
            return _placed(paths, chip, flags, config)
        programs: dict[str, Program] = {}
        for path in paths:
            programs |= graphs.open_context(path, made, config)
        return _off_device(programs, flags)
    exposed = ("*",) if flags.debug else ()
    paths = graphs.model_paths(flags.model, flags.dlc_path)
    names = [graphs.graph_name(path) for path in paths]
    if len(set(names)) < len(names):
        raise CallError(f"--model: two models have one graph name ({', '.join(names)}); rename a file")
    kept = graphs.tensors_by_graph(flags.set_output_tensors, "--set_output_tensors", names)
    texts: dict[str, Program] = {}
    sources: list[Path | bytes] = []
    for path, name in zip(paths, names, strict=True):
        made = graphs.tool_backend(flags.backend, config, TOOL, name)
        graphs.require_model(path)
        wanted = exposed or kept.get(name, ())
        if graphs.is_graph_text(path):
            texts[name] = graphs.text_program(path, made, wanted)
        elif graphs.records(made):
            if wanted:
                raise CallError(
                    "--backend libQnnSaver.so: every tensor is in the recording; leave --debug and "
                    "--set_output_tensors out"
                )
            texts[name] = graphs.recorded_model(path, made, name)
        elif _chip(made) is None:
            texts[name] = graphs.compiled_model(path, made, name, wanted).program()
        else:
            online = graphs.prepares_online(made)
            sources.append(graphs.compiled_model(path, online, name, wanted).to_bytes())
    chip = _chip(graphs.tool_backend(flags.backend, config, TOOL))
    placed = _placed(sources, chip, flags, config) if sources and chip is not None else _off_device({}, flags)
    return {name: (texts | placed)[name] for name in names}


def _chip(backend: Backend) -> str | None:
    """The chip of a backend that times, where it is one that is known."""
    if not isinstance(backend, TimedBackend) or not isinstance(backend, ContextBackend):
        return None
    return backend.targets[0].name or None


def _placed(sources: Sequence[Path | bytes], chip: str, flags: NetRunFlags, config: Config) -> dict[str, Program]:
    return dict(
        on_device(
            sources, chip, config, flags.perf_profile, shared=flags.shared_buffer, timeout_us=flags.timeout,
            load_timeout_us=flags.retrieve_context_timeout if flags.retrieve_context else 0,
        )
    )  # fmt: skip


def _off_device(programs: dict[str, Program], flags: NetRunFlags) -> dict[str, Program]:
    """Programs that lie on no simulated device; what only a device has is said not to act."""
    for name in ("shared_buffer", "timeout", "retrieve_context_timeout"):
        if getattr(flags, name):
            arguments.print_notice(TOOL, f"--{name} changes nothing: the graphs lie on no simulated device")
    return programs


def _adapters(text: str, programs: Mapping[str, Program]) -> list[tuple[str, Path]]:
    """The graphs of --binary_updates, each with its adapter's file."""
    adapters: list[tuple[str, Path]] = []
    for part in filter(None, text.split(",")):
        name, colon, file = part.partition(":")
        named = {name: Path(file)} if colon and name in programs else dict.fromkeys(programs, Path(part))
        for graph, path in named.items():
            if not path.is_file():
                raise CallError(f"--binary_updates {part!r}: there is no file {path}")
            if not isinstance(programs[graph], DeviceProgram):
                raise CallError("--binary_updates: adapters are for --retrieve_context with libQnnHtp.so")
            adapters.append((graph, path))
    return adapters


def _jobs(programs: Mapping[str, Program], input_list: str, output_dir: Path) -> list[GraphRun]:
    """What is run on what; folders of their own for several graphs."""
    lists = input_list.split(",")
    if len(lists) != len(programs):
        raise CallError(
            f"--input_list has {len(lists)} lists for the graphs {', '.join(programs)}; give one for each, or {SKIPPED}"
        )
    several, folders = len(programs) > 1, file_names(programs)
    return [
        GraphRun(name, program, read_input_list(Path(path)), output_dir / folders[name] if several else output_dir)
        for (name, program), path in zip(programs.items(), lists, strict=True)
        if path != SKIPPED
    ]


def _require_tensors(graph: str, names: Sequence[str], known: Sequence[str], what: str) -> None:
    for name in names:
        if name not in known:
            raise CallError(f"{graph}: has no {what} {name!r}; it has {', '.join(known)}")


def _run(job: GraphRun, flags: NetRunFlags, native: Collection[str]) -> list[float]:
    """Run a job's inferences and write them; how long each took, in ms."""
    inputs = {value.name: value.type for value in job.program.graph.inputs}
    types = {value.name: value.type for value in job.program.graph.outputs}
    _require_tensors(job.name, job.inputs.outputs, list(types), "output")
    kind = OutputType.NATIVE_ONLY if flags.use_native_output_files else flags.output_data_type
    if flags.use_native_input_files or flags.input_data_type is InputType.NATIVE:
        native = inputs
    lines, keep = job.inputs.inferences, flags.keep_num_outputs
    count = flags.num_inferences or len(lines)
    took: list[float] = []
    end = time.perf_counter() + flags.duration
    with bar(f"running {job.name}") as progress:
        index = 0
        while index < count or (flags.duration and time.perf_counter() < end):
            line = index % len(lines)
            where = f"{job.inputs.path}: inference {line}"
            feeds = feeds_of(lines[line], inputs, native, where)
            if flags.batch_multiplier > 1 and len(feeds) != flags.batch_multiplier:
                said = f"--batch_multiplier says {flags.batch_multiplier}"
                raise CallError(f"{where}: the files hold {len(feeds)} batches, {said}")
            start = time.perf_counter()
            outputs: list[Mapping[str, Array]] = [job.program.run(one) for one in feeds]
            took.append(1e3 * (time.perf_counter() - start))
            if index < len(lines) and (keep is None or index < keep):
                write_results(job.folder, index, outputs, types, job.inputs.outputs or list(types), kind)
            index += 1
            progress(min(index, count), count)
    return took


def _profile(job: GraphRun, flags: NetRunFlags, config: Config, level: str, count: int) -> Profile:
    """What the runs of a job did: on the simulated device where they were there, else as the chip would do them."""
    from hexforge.runtime.tool_config import power_of

    power = power_of(config, flags.perf_profile)
    if isinstance(job.program, DeviceProgram):
        return device_profile(job.program, level, power)
    chip = graphs.tool_backend(flags.backend, config, TOOL, job.name)
    from hexforge.addons.profiler.recording.schematic import simulated_profile

    return simulated_profile(job.program, chip, power, level, max(count, 1))


def _say(job: GraphRun, took: Sequence[float], log_level: str) -> None:
    if not _says_more(log_level) or not took:
        return
    best, mean = min(took), sum(took) / len(took)
    say(f"{job.name}: {len(took)} inferences, {mean:.3f} ms each, {best:.3f} the best, {job.folder}")
    if isinstance(job.program, DeviceProgram):
        results = job.program.results
        simulated = sum(done.latency_us for done in results) / len(results)
        energy = sum(done.energy_uj for done in results) / len(results)
        say(f"{job.name}: {simulated / 1e3:.4f} ms each on the simulated device, {energy:.2f} uJ (assumed)")
