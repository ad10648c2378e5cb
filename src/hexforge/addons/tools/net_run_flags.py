# SPDX-License-Identifier: Apache-2.0
"""The flags of qnn-net-run: what each is and does here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Option

from hexforge.addons.tools.flags import NOTHING, ToolFlags
from hexforge.addons.tools.raw import InputType, OutputType

_NO_LIBRARY = NOTHING + "no library is loaded."
_AS_THEY_RUN = NOTHING + "inputs are read as they are run."


@dataclass(frozen=True, slots=True, kw_only=True)
class NetRunFlags(ToolFlags):
    """What qnn-net-run is called with."""

    model: Annotated[str, Option(help="ONNX files or graph texts, separated by commas.")] = ""
    backend: Annotated[str, Option(help="Selects a backend by its library: libQnnHtp.so …")] = ""
    input_list: Annotated[str, Option(help="Files that list raw inputs, one for each graph; __ skips a graph.")] = ""
    retrieve_context: Annotated[str, Option(help="Context binaries of hexforge, separated by commas.")] = ""
    dlc_path: Annotated[str, Option(help="Models, in the place of --model.")] = ""
    output_dir: Annotated[Path, Option(help="Where results are written.")] = Path("output")
    input_data_type: Annotated[InputType, Option(help="Raw inputs are float32, or of the graph's own types.")] = (
        InputType.FLOAT
    )
    output_data_type: Annotated[
        OutputType, Option(help="Outputs as float32 (x.raw), as they are (x_native.raw), or both.")
    ] = OutputType.FLOAT_ONLY
    use_native_input_files: Annotated[bool, Option(help="As --input_data_type native.")] = False
    use_native_output_files: Annotated[bool, Option(help="As --output_data_type native_only.")] = False
    native_input_tensor_names: Annotated[
        str, Option(help="Inputs whose files are native: graph:a,b;graph2:c; of one graph also a,b.")
    ] = ""
    set_output_tensors: Annotated[
        str, Option(help="Tensors inside that are written beside the outputs: graph:a,b;graph2:c, or a,b.")
    ] = ""
    debug: Annotated[bool, Option(help="Write every tensor inside, too; with --model.")] = False
    op_packages: Annotated[str, Option(help="Op packages: path:interface[:target], separated by commas.")] = ""
    config_file: Annotated[Path | None, Option(help="Backend extensions as JSON.")] = None
    perf_profile: Annotated[str, Option(help="Wins over the config file's profile.")] = ""
    num_inferences: Annotated[int, Option(min=0, help="How many, over and over.")] = 0
    duration: Annotated[float, Option(min=0, help="For how many seconds, over and over.")] = 0
    keep_num_outputs: Annotated[int | None, Option(min=0, help="Write the outputs of the first so many.")] = None
    batch_multiplier: Annotated[
        int, Option(min=1, help="Raw files hold so many batches, run one after another; else as the file's size says.")
    ] = 1
    binary_updates: Annotated[
        str, Option(help="Adapters of `hexforge lora`, applied first: file or graph:file, separated by commas.")
    ] = ""
    timeout: Annotated[int, Option(min=0, help="µs of the simulated device that an execution may take; 0: any.")] = 0
    retrieve_context_timeout: Annotated[
        int, Option(min=0, help="µs of the simulated device that loading a context may take; 0: any.")
    ] = 0
    validate_binary: Annotated[bool, Option(help="Refuse a context that is not optimal for the chip.")] = False
    profiling_level: Annotated[str, Option(help="basic, detailed, backend or client: write a log of the runs.")] = ""
    profiling_option: Annotated[str, Option(help="optrace: every task of the chip, for qnn-profile-viewer.")] = ""
    shared_buffer: Annotated[bool, Option(help="Inputs and outputs lie in shared buffers (memory.mem_type).")] = False
    log_level: Annotated[str, Option(help="error, warn, info, debug or verbose.")] = "error"
    model_prefix: Annotated[str, Option(help=_NO_LIBRARY)] = ""
    system_library: Annotated[str, Option(help=_NO_LIBRARY)] = ""
    platform_options: Annotated[str, Option(help=NOTHING + "there is no platform to configure.")] = ""
    device_options: Annotated[str, Option(help=NOTHING + "the config file's devices say what the device is.")] = ""
    synchronous: Annotated[bool, Option(help=NOTHING + "graphs are always run one after another.")] = False
    asynchronous: Annotated[
        bool, Option(help=NOTHING + "graphs are always run one after another, and give the same.")
    ] = False
    use_mmap: Annotated[bool, Option(help=NOTHING + "contexts are always mapped.")] = False
    max_input_cache_tensor_sets: Annotated[int | None, Option(help=_AS_THEY_RUN)] = None
    max_input_cache_size_mb: Annotated[int | None, Option(help=_AS_THEY_RUN)] = None
    io_tensor_mem_handle_type: Annotated[
        str, Option(help=NOTHING + "--shared_buffer says where inputs and outputs lie.")
    ] = ""
