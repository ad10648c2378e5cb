# SPDX-License-Identifier: Apache-2.0
"""The flags of ExecuTorch's qnn_executor_runner, under their own names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hexforge.request_fields import FlagsAsNamed, option


@dataclass(frozen=True, slots=True)
class RunnerFlags(FlagsAsNamed):
    """What is run, what is written about the runs, and flags that change nothing here."""

    model_path: Path = option(Path("model.pte"), "The .pte file.")
    output_folder_path: Path = option(Path("outputs"), "Folder for output_<inference>_<output>.raw.")
    input_list_path: Path | None = option(None, "A line for each inference: its raw files, spaces between.")
    iteration: int = option(1, "How often each inference is run.", min=1)
    warm_up: int = option(0, "How often it is run before that, without being timed.", min=0)
    shared_buffer: bool = option(
        False, "Inputs and outputs are used where they lie.", "--shared_buffer/--noshared_buffer"
    )
    method_index: int = option(0, "Which method of the file.", min=0)
    input_shape_path: Path | None = option(None, "Sizes of inputs that vary, one a line.")
    output_shape_path: Path | None = option(None, "Sizes that outputs must have.")
    log_level: int = option(0, "1 errors to 5 everything; 0 as the delegates were compiled.", min=0, max=5)
    htp_performance_mode: int = option(0, "0 to 8: what a device's clocks would be.", min=0, max=8)
    data_path: tuple[Path, ...] = option(
        (), "A .ptd with tensors that the .pte keeps elsewhere; may be repeated.",
        kind=list[Path], given=None, read=lambda paths: tuple(paths or ()),
    )  # fmt: skip
    etdump_path: Path = option(Path("etdump.etdp"), "Events for executorch.devtools.Inspector.")
    dump_intermediate_outputs: bool = option(
        False, "Keep every tensor that was compiled to be kept.",
        "--dump_intermediate_outputs/--nodump_intermediate_outputs",
    )  # fmt: skip
    debug_output_path: Path = option(Path("debug_output.bin"), "Where those tensors are written.")
    debug_buffer_size: int = option(20_000_000, "Most bytes of them.", min=0)
    performance_output_path: Path | None = option(None, "Milliseconds per inference are written there.")
    heap_profiling_path: Path | None = option(None, "Memory before and after the contexts were there.")
    profile_level: int = option(0, "0 off, 1 graphs, 2 every op.", min=0, max=3)
    lpai_fps: int = option(0, "For LPAI, which hexforge has not.")
    lpai_ftrt_ratio: int = option(0, "For LPAI.")
    lpai_client_perf_type: int = option(0, "For LPAI.")
    lpai_affinity: int = option(0, "For LPAI.")
    lpai_core_selection: int = option(0, "For LPAI.")
    soc: str = option("", "Run on the simulated device of this chip: times are its own.")
    threads: int = option(0, "Threads of a run; 0: as many as processors.", min=0)
