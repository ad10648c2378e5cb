# SPDX-License-Identifier: Apache-2.0
"""The flags of qnn-net-run: what each is and does here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hexforge.addons.tools.flags import NOTHING, ToolFlags
from hexforge.addons.tools.raw import InputType, OutputType
from hexforge.request_fields import option

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
