# SPDX-License-Identifier: Apache-2.0
"""PushedDeployment: a deployed folder run on a phone: its time and its outputs compared with hexforge's."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hexforge.addons.phone.adb_device import AdbDevice
from hexforge.addons.phone.phone_commands import MODE, MeasuredTime, chip_of, with_estimate
from hexforge.addons.phone.script_folders import write_marked
from hexforge.addons.vendor.folder import changed_files, read_manifest, read_samples
from hexforge.addons.vendor.proof import place_by_the_rules
from hexforge.addons.vendor.session import VendorOptions
from hexforge.errors import CallError, FormatError
from hexforge.ir import Array
from hexforge.model.reader import Model, read
from hexforge.quant.steps import StepCounts, tolerance_of
from hexforge.request_fields import option
from hexforge.results import Key, Result
from hexforge.runtime.plan import Plan

RUNNER = "run_model"
"""The program of a deployed folder's cpp/, which runs a model on files of inputs and writes files of outputs."""
PERF_TEST = "onnxruntime_perf_test"
"""onnxruntime's program, which times a model and writes no outputs."""
MODE_KEY = "htp_performance_mode"
INPUTS, OUTPUTS = "inputs", "outputs"
PANEL = "Phone"
"""Where the help of a command has the options of a phone."""


@dataclass(frozen=True, slots=True)
class PushRequest:
    """How a deployed folder is run on a phone."""

    programs: Path | None = option(
        None,
        "Folder with run_model or onnxruntime_perf_test and its libraries, of a real phone.",
        file_okay=False,
        exists=True,
        rich_help_panel=PANEL,
    )
    times: int = option(100, "Runs that are timed there.", min=1, rich_help_panel=PANEL)
    costs: Path | None = option(
        None, "Costs that `calibrate` wrote, for the estimate.", exists=True, rich_help_panel=PANEL
    )


@dataclass(frozen=True, slots=True)
class PushedDeployment(Result):
    """What came back from a phone."""

    time: MeasuredTime
    ran: str
    """The file of the folder that ran there."""
    outputs: Mapping[str, StepCounts]
    """By output: how far the phone's numbers are from hexforge's, over all samples."""
    samples: int
    not_compared: str = ""
    """Why outputs did not come back."""

    described = (
        Key("time", inline=True),
        "ran samples",
        Key("outputs", of=lambda pushed: {name: _judged(counts) for name, counts in pushed.outputs.items()}),
        "agrees",
        Key("not_compared", of=lambda pushed: pushed.not_compared or None),
    )

    @property
    def agrees(self) -> bool:
        """True where every output that came back agrees."""
        return all(counts.agree for counts in self.outputs.values())


def _judged(counts: StepCounts) -> dict[str, Any]:
    return {"agree": counts.agree, "tolerance_steps": counts.tolerance, **counts.to_json()}


def push_deployment(folder: Path, device: AdbDevice, request: PushRequest) -> PushedDeployment:
    """Push what a phone needs of a deployed folder, run it there, and compare what comes back.

    A real phone runs the context of its chip, or compiles the model where there is none. A virtual phone reads no
    context of Qualcomm's and runs the model itself. FormatError where the folder is not as it was deployed.
    """
    manifest = read_manifest(folder)
    if faults := changed_files(folder, manifest):
        raise FormatError(f"{folder}: is not pushed, it is not what was deployed: {'; '.join(faults[:4])}")
    chip = chip_of(device).name
    if chip not in manifest.chips:
        made = ", ".join(manifest.chips)
        raise CallError(f"{folder}: was deployed for {made}; {device.serial} has {chip}: deploy with --soc {chip}")
    facts = manifest.chips[chip]
    ran = manifest.model if device.is_virtual or not facts.context_model else facts.context_model
    model = read(folder / ran)
    programs, runner = _programs(device, request.programs)
    samples = read_samples(folder, read(folder / manifest.model).inputs)
    options = {MODE_KEY: MODE} | facts.provider_options
    given = VendorOptions(chip, {key: value for key, value in options.items() if key != "soc_model"})
    pushed = [folder / ran] if "/" not in ran else sorted((folder / ran).parent.glob(f"{Path(ran).stem}*"))
    with tempfile.TemporaryDirectory(prefix="hexforge-push-") as scratch:
        inputs = Path(scratch) / INPUTS
        _write_inputs(inputs, model, samples)
        command = _command(runner, Path(ran).name, request.times, options)
        came = [OUTPUTS] if runner == RUNNER else []
        said = device.run_folder([*pushed, inputs, *programs], command, came, Path(scratch))
        outputs = _compared(folder / manifest.model, given, model, samples, Path(scratch)) if came else {}
    time = with_estimate(device, said, folder / manifest.model, chip, request.costs, options[MODE_KEY])
    why = "" if came else f"{PERF_TEST} writes no outputs; build {RUNNER} of the folder's cpp/ into --programs"
    return PushedDeployment(time, ran, outputs, len(samples), why)


def _programs(device: AdbDevice, folder: Path | None) -> tuple[list[Path], str]:
    """What is pushed with the model, and which program of it runs."""
    if folder is None and device.is_virtual:
        return [write_marked(RUNNER)], RUNNER
    if folder is None:
        raise CallError(
            f"--programs is missing: a real phone needs {RUNNER} (built of the folder's cpp/) or {PERF_TEST}, "
            "libonnxruntime.so and the libraries of the QNN provider"
        )
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    for name in (RUNNER, PERF_TEST):
        if any(path.name == name for path in files):
            return files, name
    raise CallError(f"--programs {folder}: has neither {RUNNER} nor {PERF_TEST}")


def _command(runner: str, model: str, times: int, options: Mapping[str, str]) -> str:
    options = {"backend_path": "libQnnHtp.so", **options}
    if runner == PERF_TEST:
        keys = shlex.quote(" ".join(f"{key}|{value}" for key, value in options.items()))
        return f"chmod +x {PERF_TEST} && ./{PERF_TEST} -e qnn -I -m times -r {times} -i {keys} {model}"
    words = [f"./{RUNNER}", model, INPUTS, OUTPUTS, str(times), *(f"{key}={value}" for key, value in options.items())]
    return f"chmod +x {RUNNER} && mkdir {OUTPUTS} && {shlex.join(words)}"


def _write_inputs(folder: Path, model: Model, samples: Sequence[Mapping[str, Array]]) -> None:
    """A file for each input of each sample: inputs/SAMPLE/NUMBER.raw, in the order that the model has."""
    for count, feeds in enumerate(samples):
        (folder / str(count)).mkdir(parents=True)
        for number, value in enumerate(model.inputs):
            array = feeds[str(value.name)]
            (folder / str(count) / f"{number}.raw").write_bytes(np.ascontiguousarray(array).tobytes())


def _compared(
    path: Path, options: VendorOptions, ran: Model, samples: Sequence[Mapping[str, Array]], scratch: Path
) -> dict[str, StepCounts]:
    """How far the phone's outputs are from those of hexforge's own run of the model."""
    placed = place_by_the_rules(path, options)
    plan, names = Plan(placed.parts, placed.backend), placed.parts.placed.outputs
    compared: dict[str, StepCounts] = {}
    for count, feeds in enumerate(samples):
        ours = plan.run(feeds, names)
        for number, value in enumerate(ran.outputs):
            name = str(value.name)
            expected = np.asarray(ours[name])
            data = (scratch / OUTPUTS / str(count) / f"{number}.raw").read_bytes()
            if len(data) != expected.nbytes:
                raise FormatError(f"{name}: {len(data)} bytes came back of sample {count}; it has {expected.nbytes}")
            given = np.frombuffer(data, expected.dtype).reshape(expected.shape)
            counts = compared.setdefault(name, StepCounts(tolerance_of(expected.dtype).steps))
            counts.add(given, expected)
    return compared
