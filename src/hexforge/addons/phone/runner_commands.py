# SPDX-License-Identifier: Apache-2.0
"""What phones run in the place of other programs, in the time of the simulated device of the phone's chip.

`hexforge phone perf-test` is onnxruntime_perf_test with its flags and lines, `run-model` what run_model of a deployed
folder does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hexforge.cli.arguments import pairs
from hexforge.cli.say import say
from hexforge.errors import CallError
from hexforge.request_fields import argument, option

MOST_REQUESTS = 20_000
"""A test by duration ends after so many runs, however short they are."""


@dataclass(frozen=True, slots=True)
class PerfTestFlags:
    """What onnxruntime_perf_test is called with, and the chip."""

    model: Path = argument("The ONNX model, or a model with a context.")
    result_file: Path | None = argument("The time of each run is written there, as CSV.", default=None)
    provider: str = option("qnn", "The execution provider: qnn.", "-e")
    keys: str = option("", "Provider options: key|value pairs, spaces between.", "-i")
    session_keys: str = option("", "Session config entries; they change nothing here.", "-C")
    mode: str = option("duration", "duration or times.", "-m")
    repeat: int = option(1000, "Runs, with -m times.", "-r", min=1)
    seconds: float = option(600.0, "Seconds of the device, with -m duration.", "-t", min=0.0)
    generated: bool = option(False, "Inputs are generated; they always are here.", "-I")
    statistics: bool = option(False, "Print percentiles.", "-s")
    verbose: bool = option(False, "Accepted.", "-v")
    soc: str = option("", "The chip of the device.")


def perf_test(flags: PerfTestFlags) -> None:
    """Time a model as onnxruntime_perf_test does, with its flags and its lines, on the simulated device of a chip."""
    from hexforge.formats.files import write_atomically

    if flags.provider.lower() != "qnn":
        raise CallError(
            f"-e {flags.provider}: only the QNN execution provider has a device that is simulated; give -e qnn"
        )
    if flags.mode not in ("duration", "times"):
        raise CallError(f"-m {flags.mode}: is duration or times")
    session = _session(flags.model, flags.keys, flags.soc)
    times_us: list[float] = []
    while len(times_us) < (flags.repeat if flags.mode == "times" else MOST_REQUESTS):
        times_us.append(session.simulated.run().latency_us)
        if flags.mode == "duration" and sum(times_us) >= flags.seconds * 1e6:
            break
    total_s = sum(times_us) / 1e6
    say("Session creation time cost: 0 s (the simulated device does not time it)")
    say(f"First inference time cost: {times_us[0] / 1e3:.3f} ms")
    say(f"Total inference time cost: {total_s:.6f} s")
    say(f"Total inference requests: {len(times_us)}")
    say(f"Average inference time cost: {1e3 * total_s / len(times_us):.6f} ms")
    say(f"Total inference run time: {total_s:.6f} s")
    say(f"Number of inferences per second: {len(times_us) / total_s:.4f}")
    if flags.statistics:
        ordered = sorted(times_us)
        for part in (50, 90, 95, 99, 99.9):
            rank = min(len(ordered) - 1, int(len(ordered) * part / 100))
            say(f"P{part} Latency: {ordered[rank] / 1e6:.9f} s")
    if flags.result_file is not None:
        rows = "".join(f"{flags.model.name},{us / 1e6:.9f}\n" for us in times_us)
        write_atomically(flags.result_file, rows.encode())


def _session(model: Path, keys: str, soc: str) -> Any:
    """A session whose numbers were computed once, so that a model that does not run is no result."""
    from hexforge.cli.runnable import feeds_for

    options: dict[str, str] = {}
    for pair in keys.split():
        key, bar, value = pair.partition("|")
        if not bar:
            raise CallError(f"-i {pair!r}: provider options are key|value pairs with spaces between")
        options[key] = value
    session = session_on_chip(model, options, soc)
    session.run(None, feeds_for(session.get_inputs(), {}))
    return session


def session_on_chip(model: Path, options: Mapping[str, str], soc: str) -> Any:
    """A session with a phone's provider options, on the simulated device of the phone's chip."""
    from hexforge.ort import InferenceSession

    chip = soc or options.get("soc_model", "")
    if not chip:
        raise CallError("--soc is missing; on a virtual phone it is the phone's chip")
    given = {"backend_path": "libQnnHtp.so", **options, "soc_model": chip}
    return InferenceSession(str(model), providers=["QNNExecutionProvider"], provider_options=[given])


def run_model(
    model: Path = argument("The ONNX model.", exists=True, dir_okay=False),
    inputs: Path = argument("Folder with SAMPLE/NUMBER.raw files.", exists=True, file_okay=False),
    outputs: Path = argument("Folder for the same of the outputs."),
    times: int = argument("Runs that are timed.", default=100, min=1),
    option: list[str] | None = argument("Provider options: KEY=VALUE.", default=None),
    soc: str = option("", "The chip of the device."),
) -> None:
    """Run a model on files of raw inputs, write files of raw outputs, and time it on the simulated device of a chip."""
    import numpy as np

    session = session_on_chip(model, pairs(option, "provider option"), soc)
    count = 0
    while (inputs / str(count)).is_dir():
        feeds = {}
        for number, value in enumerate(session.get_inputs()):
            path, dtype = inputs / str(count) / f"{number}.raw", value.dtype
            data = path.read_bytes() if path.is_file() else b""
            if dtype is None or len(data) != dtype.itemsize * int(np.prod(value.shape)):
                raise CallError(f"{path}: has {len(data)} bytes; {value.name} is {value.type} of {value.shape}")
            feeds[value.name] = np.frombuffer(data, dtype).reshape(value.shape)
        (outputs / str(count)).mkdir(parents=True, exist_ok=True)
        for number, result in enumerate(session.run(None, feeds)):
            (outputs / str(count) / f"{number}.raw").write_bytes(np.ascontiguousarray(result).tobytes())
        count += 1
    times_us = [session.simulated.run().latency_us for _ in range(times)]
    say(f"{count} samples were run")
    say(f"Average inference time cost: {sum(times_us) / 1e3 / times:.6f} ms")
