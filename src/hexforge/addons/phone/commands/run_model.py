# SPDX-License-Identifier: Apache-2.0
"""`hexforge phone run-model`: what run_model of a deployed folder does, on the simulated device of a phone's chip."""

from __future__ import annotations

from pathlib import Path

from hexforge.addons.phone.commands.perf_test import session_on_chip
from hexforge.cli.arguments import pairs
from hexforge.cli.say import say
from hexforge.errors import CallError
from hexforge.request_fields import argument, option


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
