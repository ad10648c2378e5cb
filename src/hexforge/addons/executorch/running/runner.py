# SPDX-License-Identifier: Apache-2.0
"""Runner: what qnn_executor_runner does with a .pte and files of inputs, flag by flag."""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hexforge.addons.executorch.formats import etdump
from hexforge.addons.executorch.formats.pte import TensorValue
from hexforge.addons.executorch.formats.qnn_options import PERFORMANCE_MODES
from hexforge.addons.executorch.running.event_log import EXECUTE, INIT, LOAD, EventLog
from hexforge.addons.executorch.running.method import Method
from hexforge.addons.executorch.running.pte_loading import load
from hexforge.addons.executorch.running.runner_flags import RunnerFlags
from hexforge.chips.power import MODES
from hexforge.chips.soc import require_chip
from hexforge.errors import CallError, FormatError
from hexforge.formats.files import write_together
from hexforge.ir import Array

if TYPE_CHECKING:
    from hexforge.addons.executorch.running.chip_time import ChipTime

Write = Callable[[int, str], None]
"""Told a level (1 error to 5 debug; 0 a line of ExecuTorch's runtime) and a line."""
RUNTIME, ERROR, WARN, INFO, VERBOSE, DEBUG = range(6)
"""RUNTIME: a line of ExecuTorch's runtime, which has no mark of its Qualcomm backend."""
DEFAULT_LIST = Path("input_list.txt")
"""What qnn_executor_runner reads unless told; scripts name it whether they made one or not."""


class Log:
    """Writes what is asked for: by the flag, else by what the delegates were compiled with."""

    def __init__(self, level: int, write: Write) -> None:
        self.level, self._write = level, write

    def __call__(self, level: int, line: str) -> None:
        """Write a line, or leave it."""
        if level <= (self.level or INFO):
            self._write(level, line)

    def runtime(self, line: str, at_ns: int = 0) -> None:
        """Write a line as ExecuTorch's own runtime writes its log; scripts look for these."""
        seconds, rest = divmod(at_ns // 1000, 1_000_000)
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest:06}"
        if (self.level or INFO) >= INFO:
            self._write(RUNTIME, f"I {clock} executorch:qnn_executor_runner.cpp:0] {line}")

    def destroyed(self, *parts: str) -> None:
        """Say of parts of QNN that they are gone, as ExecuTorch's Qualcomm backend does."""
        for part in parts if (self.level or INFO) >= INFO else ():
            self._write(RUNTIME, f"[INFO] [Qnn ExecuTorch]: Destroy Qnn {part}")


def power_vote(name: str) -> str:
    """What a device is asked for under a performance mode."""
    mode = MODES[name]
    corner = int(mode.corner)
    return (
        f"performance mode {mode.name}: busVoltageCornerMin {corner}, busVoltageCornerTarget {corner}, "
        f"busVoltageCornerMax {corner}, coreVoltageCornerMin {corner}, coreVoltageCornerTarget {corner}, "
        f"coreVoltageCornerMax {corner}, sleepLatency {mode.sleep_latency_us}, dcvsEnable {int(mode.dcvs)}"
    )


def execute(flags: RunnerFlags, log: Log) -> None:
    """Run the method over every line of the input list, and write what the flags ask for."""
    heap = [("before_context_created", _resident_bytes())]
    log(INFO, f"loading {flags.model_path}")
    start = time.perf_counter_ns()
    module = load(flags.model_path, data=flags.data_path, threads=flags.threads)
    if not 0 <= flags.method_index < len(module.names):
        raise CallError(
            f"{flags.model_path}: has the methods 0 to {len(module.names) - 1} ({', '.join(module.names)}), not "
            f"{flags.method_index}"
        )
    method = module.method(module.names[flags.method_index])
    tensors = etdump.TensorStore(flags.debug_buffer_size) if flags.dump_intermediate_outputs else None
    events = EventLog(flags.profile_level, tensors)
    loaded = (start, time.perf_counter_ns())
    log(INFO, f"method {method.name!r}: {len(method.inputs)} inputs, {len(method.outputs)} outputs, "
              f"{len(method.delegates)} delegates, {len(method.plan.operators)} operators left to the CPU")  # fmt: skip
    delegates = len(method.delegates)
    options = [d.options for d in method.delegates if d.options is not None]
    log.level = log.level or max([INFO, *(o.log_level for o in options)])
    modes = [o.performance_mode for o in options]
    if flags.htp_performance_mode:
        modes = [PERFORMANCE_MODES[flags.htp_performance_mode]]
    chip: ChipTime | None = None
    if flags.soc:
        from hexforge.addons.executorch.running.chip_time import ChipTime

        chip = ChipTime(require_chip(flags.soc), method, next(iter(modes), "burst"))
    acts = "" if chip is not None else "; a device would vote so, nothing on this computer depends on it"
    for mode in dict.fromkeys(modes):
        log(VERBOSE, f"{power_vote(mode)}{acts}")
    log.runtime("Method loaded.")
    if flags.input_list_path == DEFAULT_LIST and not DEFAULT_LIST.exists():
        log(WARN, f"input_list_path: there is no {DEFAULT_LIST}; every number of the inputs is one")
        flags = replace(flags, input_list_path=None)
    sizes = _shapes(flags.input_shape_path)
    expected = _shapes(flags.output_shape_path)
    flags.output_folder_path.mkdir(parents=True, exist_ok=True)
    log.runtime("Inputs prepared.")
    spent_ms: list[float] = []
    for number, feeds in enumerate(_inferences(flags, method, sizes)):
        outputs = _inference(flags, method, feeds, events, loaded, spent_ms, chip)
        files: list[tuple[Path, Any]] = []
        for i, output in enumerate(outputs):
            array = np.ascontiguousarray(output)
            if i < len(expected) and array.shape != expected[i]:
                raise CallError(
                    f"inference {number}: output {i} has the sizes {list(array.shape)}, "
                    f"{flags.output_shape_path} says {list(expected[i])}"
                )
            files.append((flags.output_folder_path / f"output_{number}_{i}.raw", array.tobytes()))
        if files:
            write_together(files)
    average = sum(spent_ms) / max(len(spent_ms), 1)
    at_ns = round(sum(spent_ms) * 1e6)
    log.runtime(f"{len(spent_ms)} inference took {sum(spent_ms):.6f} ms, avg {average:.6f} ms", at_ns)
    log.runtime("Model executed successfully.", at_ns)
    if chip is not None:
        chip.close()
    dumped = etdump.dump(events.runs)
    written: list[tuple[Path, Any]] = [(flags.etdump_path, dumped)]
    if tensors is not None:
        if tensors.is_full:
            log(WARN, f"debug_buffer_size {flags.debug_buffer_size}: is too small for all tensors; some are left out")
        written.append((flags.debug_output_path, b"".join(tensors.parts)))
    if flags.performance_output_path is not None:
        flags.performance_output_path.parent.mkdir(parents=True, exist_ok=True)
        written.append((flags.performance_output_path, f"{average}\n".encode()))
    if flags.heap_profiling_path is not None:
        del method, module
        gc.collect()
        heap.append(("after_context_freed", _resident_bytes()))
        written.append((flags.heap_profiling_path, "".join(f"{name}, {size}\n" for name, size in heap).encode()))
    write_together(written)
    log.runtime(f"Write etdump to {flags.etdump_path}, Size = {len(dumped)}", at_ns)
    if delegates:
        log.destroyed("backend parameters", "context", "device", "backend")


def _inference(
    flags: RunnerFlags, method: Method, feeds: Sequence[Any], events: EventLog, loaded: tuple[int, int],
    spent_ms: list[float], chip: ChipTime | None,
) -> list[Any]:  # fmt: skip
    """Warm up, then run as often as asked for; only the last run's tensors are logged."""
    if chip is not None:
        chip.log = None
    for _ in range(flags.warm_up):
        method.run(feeds, chip)
    outputs: list[Any] = []
    for _ in range(max(flags.iteration, 1)):
        events.begin(method.name)
        if len(events.runs) == 1:
            events.profile(INIT, *loaded)
            events.profile(LOAD, *loaded)
        if chip is not None:
            chip.log = events
        start = time.perf_counter_ns() if chip is None else chip.now_ns
        outputs = method.run(feeds, events if chip is None else chip)
        end = time.perf_counter_ns() if chip is None else chip.now_ns
        events.profile(EXECUTE, start, end)
        spent_ms.append((end - start) / 1e6)
    for output in outputs:
        if isinstance(output, np.ndarray):
            events.output(output)
    return outputs


# -- inputs -----------------------------------------------------------------------------------------------------------


def _inferences(flags: RunnerFlags, method: Method, sizes: Sequence[tuple[int, ...]]) -> Iterator[list[Any]]:
    """The inputs of each inference: a line of the list, or ones where there is no list."""
    if flags.input_list_path is None:
        yield [
            np.ones(_size(v, i, sizes), v.dtype.numpy) if isinstance(v, TensorValue) else v
            for i, v in enumerate(method.inputs)
        ]
        return
    lines = _text(flags.input_list_path).splitlines()
    for number, line in enumerate(lines):
        files = line.split()
        if not files:
            continue
        where = f"{flags.input_list_path}, line {number + 1}"
        tensors = [v for v in method.inputs if isinstance(v, TensorValue)]
        if len(files) not in (len(tensors), len(method.inputs)):
            raise CallError(f"{where}: names {len(files)} files, method {method.name!r} has {len(tensors)} inputs")
        with_numbers = len(files) == len(method.inputs)
        left = iter(enumerate(files))
        feeds: list[Any] = []
        for value in method.inputs:
            if isinstance(value, TensorValue):
                i, file = next(left)
                feeds.append(_tensor(Path(file.rpartition(":=")[2]), value, _size(value, i, sizes), where))
            else:
                feeds.append(value)
                if with_numbers:
                    next(left)
        yield feeds


def _tensor(file: Path, value: TensorValue, shape: tuple[int, ...], where: str) -> Array:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise CallError(f"{where}: {file}: {error.strerror}") from None
    size = int(np.prod(shape)) * value.dtype.numpy.itemsize
    if len(data) != size:
        raise CallError(f"{where}: {file} has {len(data)} bytes, {value.dtype.numpy.name}{list(shape)} has {size}")
    return np.frombuffer(data, value.dtype.numpy).reshape(shape)


def _size(value: TensorValue, index: int, sizes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    return sizes[index] if index < len(sizes) else value.sizes


def _shapes(path: Path | None) -> list[tuple[int, ...]]:
    """Sizes, one tensor a line, numbers with commas between."""
    if path is None:
        return []
    shapes: list[tuple[int, ...]] = []
    for number, line in enumerate(_text(path).splitlines()):
        if re.sub(r"[\s,\d]", "", line):
            raise FormatError(f"{path}, line {number + 1}: sizes are numbers with commas between, not {line[:40]!r}")
        shapes.append(tuple(int(d) for d in re.findall(r"\d+", line)))
    return shapes


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CallError(f"{path}: cannot be read: {error}") from None


def _resident_bytes() -> int:
    """Memory that this process has in use; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    except (OSError, ValueError, IndexError):
        return 0
