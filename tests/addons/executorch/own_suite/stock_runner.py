# SPDX-License-Identifier: Apache-2.0
"""qnn_executor_runner's flags over the runtime of the wheel, with the wheel's own QnnBackend: hexforge is libQnnHtp.so.

The wheel has no such program. What its Python bindings cannot be told (power modes, log levels, profiles) is refused.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hexforge.addons.capi.library import lib_path


def main(words: Sequence[str]) -> None:
    """Run a .pte over files of inputs; ends the process with 1 where that fails."""
    parser = argparse.ArgumentParser(prog="qnn_executor_runner", allow_abbrev=False)
    parser.add_argument("--model_path", type=Path, default=Path("model.pte"))
    parser.add_argument("--input_list_path", type=Path, default=Path("input_list.txt"))
    parser.add_argument("--output_folder_path", type=Path, default=Path("outputs"))
    parser.add_argument("--method_index", type=int, default=0)
    parser.add_argument("--iteration", type=int, default=1)
    parser.add_argument("--warm_up", type=int, default=0)
    parser.add_argument("--etdump_path", type=Path, default=Path("etdump.etdp"))
    parser.add_argument("--dump_intermediate_outputs", action="store_true")
    parser.add_argument("--debug_output_path", type=Path, default=Path("debug_output.bin"))
    parser.add_argument("--debug_buffer_size", type=int, default=20_000_000)
    parser.add_argument("--input_shape_path", type=Path)
    parser.add_argument("--output_shape_path", type=Path)
    parser.add_argument("--performance_output_path", type=Path)
    given = parser.parse_args(list(words))
    try:
        _run(given)
    except (RuntimeError, OSError, ValueError) as error:
        sys.exit(f"<E> {error}")


def _run(given: argparse.Namespace) -> None:
    from executorch.extension.pybindings.portable_lib import _load_for_executorch

    debug = given.debug_buffer_size if given.dump_intermediate_outputs else 0
    module = _load_for_executorch(str(given.model_path), enable_etdump=True, debug_buffer_size=debug)
    _assert_ours()
    method = module.method_names()[given.method_index]
    given.output_folder_path.mkdir(parents=True, exist_ok=True)
    shapes = _sizes(given.output_shape_path)
    for number, line in enumerate(given.input_list_path.read_text().splitlines()):
        files = [Path(word) for word in line.split()]
        inputs = _inputs(module.method_meta(method), files, _sizes(given.input_shape_path))
        for _ in range(given.warm_up):
            module.run_method(method, inputs)
        start = time.perf_counter()
        for _ in range(given.iteration):
            outputs = module.run_method(method, inputs)
        seconds = time.perf_counter() - start
        made = [list(output.shape) for output in outputs]
        if shapes and made != shapes:
            raise ValueError(f"the outputs have the shapes {made}, and {shapes} are wanted")
        for i, output in enumerate(outputs):
            place = given.output_folder_path / f"output_{number}_{i}.raw"
            place.write_bytes(output.contiguous().numpy().tobytes())
        if given.performance_output_path is not None:
            given.performance_output_path.parent.mkdir(parents=True, exist_ok=True)
            given.performance_output_path.write_text(f"{1000 * seconds / given.iteration}\n")
    module.write_etdump_result_to_file(str(given.etdump_path), str(given.debug_output_path) if debug else None)


def _assert_ours() -> None:
    """The QNN libraries of this process are hexforge's."""
    opened = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/libQnn" in line}
    foreign = [path for path in opened if Path(path).resolve().parent != lib_path().resolve()]
    if foreign:
        raise RuntimeError(f"{', '.join(foreign)} are not hexforge's; the library path must begin with {lib_path()}")


def _inputs(meta: Any, files: Sequence[Path], sizes: Sequence[list[int]]) -> list[Any]:
    """Tensors of a method, from raw files."""
    import torch
    from executorch.exir.tensor import scalar_type_enum

    known = (
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.float32,
        torch.float64,
    )
    types = {int(scalar_type_enum(dtype)): dtype for dtype in (*known, torch.bool, torch.bfloat16, torch.uint16)}
    if len(files) != meta.num_inputs():
        raise ValueError(f"the method has {meta.num_inputs()} inputs, and the list {len(files)} files")
    tensors = []
    for i, file in enumerate(files):
        of_input = meta.input_tensor_meta(i)
        data = torch.frombuffer(bytearray(file.read_bytes()), dtype=types[of_input.dtype()])
        tensors.append(data.reshape(sizes[i] if sizes else list(of_input.sizes())))
    return tensors


def _sizes(path: Path | None) -> list[list[int]]:
    """Shapes, one a line; nothing without a file."""
    lines = path.read_text().splitlines() if path is not None else ()
    return [[int(size) for size in line.split(",") if size.strip()] for line in lines]
