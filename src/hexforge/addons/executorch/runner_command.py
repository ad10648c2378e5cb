# SPDX-License-Identifier: Apache-2.0
"""`hexforge executor-runner`: qnn_executor_runner's flags, files and log on this computer."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from hexforge.cli.arguments import OpPackages
from hexforge.cli.option_groups import with_option_groups
from hexforge.errors import CallError, HexforgeError
from hexforge.terminal_text import visible

_LETTERS = {1: "E", 2: "W", 3: "I", 4: "V", 5: "D"}


def _flag(name: str, help: str, **more: Any) -> Any:
    return typer.Option(f"--{name}", help=help, **more)


def _switch(name: str, help: str) -> Any:
    return typer.Option(f"--{name}/--no{name}", help=help)


@dataclass(frozen=True, slots=True)
class RecordFlags:
    """What is written about the runs."""

    etdump_path: Annotated[Path, _flag("etdump_path", "Events for executorch.devtools.Inspector.")] = Path(
        "etdump.etdp"
    )
    dump_intermediate_outputs: Annotated[
        bool, _switch("dump_intermediate_outputs", "Keep every tensor that was compiled to be kept.")
    ] = False
    debug_output_path: Annotated[Path, _flag("debug_output_path", "Where those tensors are written.")] = Path(
        "debug_output.bin"
    )
    debug_buffer_size: Annotated[int, _flag("debug_buffer_size", "Most bytes of them.", min=0)] = 20_000_000
    performance_output_path: Annotated[
        Path | None, _flag("performance_output_path", "Milliseconds per inference are written there.")
    ] = None
    heap_profiling_path: Annotated[
        Path | None, _flag("heap_profiling_path", "Memory before and after the contexts were there.")
    ] = None
    profile_level: Annotated[int, _flag("profile_level", "0 off, 1 graphs, 2 every op.", min=0, max=3)] = 0


@dataclass(frozen=True, slots=True)
class LpaiFlags:
    """Flags of a backend that hexforge has not."""

    lpai_fps: Annotated[int, _flag("lpai_fps", "For LPAI, which hexforge has not.")] = 0
    lpai_ftrt_ratio: Annotated[int, _flag("lpai_ftrt_ratio", "For LPAI.")] = 0
    lpai_client_perf_type: Annotated[int, _flag("lpai_client_perf_type", "For LPAI.")] = 0
    lpai_affinity: Annotated[int, _flag("lpai_affinity", "For LPAI.")] = 0
    lpai_core_selection: Annotated[int, _flag("lpai_core_selection", "For LPAI.")] = 0


@with_option_groups
def executor_runner(
    model_path: Annotated[Path, _flag("model_path", "The .pte file.")] = Path("model.pte"),
    output_folder_path: Annotated[Path, _flag("output_folder_path", "Folder for output_<inference>_<output>.raw.")] = (
        Path("outputs")
    ),
    input_list_path: Annotated[
        Path | None, _flag("input_list_path", "A line for each inference: its raw files, spaces between.")
    ] = None,
    iteration: Annotated[int, _flag("iteration", "How often each inference is run.", min=1)] = 1,
    warm_up: Annotated[int, _flag("warm_up", "How often it is run before that, without being timed.", min=0)] = 0,
    shared_buffer: Annotated[bool, _switch("shared_buffer", "Inputs and outputs are used where they lie.")] = False,
    method_index: Annotated[int, _flag("method_index", "Which method of the file.", min=0)] = 0,
    input_shape_path: Annotated[Path | None, _flag("input_shape_path", "Sizes of inputs that vary, one a line.")] = (
        None
    ),
    output_shape_path: Annotated[Path | None, _flag("output_shape_path", "Sizes that outputs must have.")] = None,
    log_level: Annotated[
        int, _flag("log_level", "1 errors to 5 everything; 0 as the delegates were compiled.", min=0, max=5)
    ] = 0,
    htp_performance_mode: Annotated[
        int, _flag("htp_performance_mode", "0 to 8: what a device's clocks would be.", min=0, max=8)
    ] = 0,
    data_path: Annotated[
        list[Path] | None, _flag("data_path", "A .ptd with tensors that the .pte keeps elsewhere; may be repeated.")
    ] = None,
    *,
    records: RecordFlags,
    lpai: LpaiFlags,
    op_package: OpPackages = None,
    soc: Annotated[
        str, typer.Option("--soc", help="Run on the simulated device of this chip: times are its own.")
    ] = "",
    threads: Annotated[int, _flag("threads", "Threads of a run; 0: as many as processors.", min=0)] = 0,
) -> None:
    """Run a .pte over files of inputs, with the flags of ExecuTorch's qnn_executor_runner."""
    from hexforge.addons.executorch.running.runner import INFO, RUNTIME, WARN, Log, RunnerFlags, execute

    def write(level: int, line: str) -> None:
        mark = "" if level == RUNTIME else f"[Qnn ExecuTorch]:  <{_LETTERS[level]}> "
        sys.stdout.write(visible(f"{mark}{line}\n"))

    log = Log(log_level, write)
    if lpai != LpaiFlags():
        log(WARN, "lpai_*: hexforge has no LPAI backend; these flags do nothing")
    if htp_performance_mode and not soc:
        log(WARN, "htp_performance_mode: sets a device's clocks; nothing on this computer depends on it")
    if shared_buffer:
        log(INFO, "shared_buffer: inputs and outputs are used where they lie, with this flag and without")
    flags = RunnerFlags(
        model_path, output_folder_path, input_list_path, iteration, warm_up, method_index, records.etdump_path,
        records.dump_intermediate_outputs, records.debug_output_path, records.debug_buffer_size, input_shape_path,
        output_shape_path, records.performance_output_path, records.heap_profiling_path, records.profile_level,
        htp_performance_mode, threads, tuple(data_path or ()), soc,
    )  # fmt: skip
    try:
        execute(flags, log)
    except HexforgeError as error:
        sys.stdout.write(f"[Qnn ExecuTorch]:  <E> {error}\n")
        raise
    except MemoryError:
        raise CallError(f"{model_path}: there is not enough memory to run it") from None
