# SPDX-License-Identifier: Apache-2.0
"""`hexforge profile`: what a model does on a chip, as files to look at and one page that says why it takes its time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hexforge.chips.soc import DEFAULT_SOC
from hexforge.cli.arguments import CoRunningArguments, DeploymentArguments, InputArguments, model_and_priority, pairs
from hexforge.cli.screen import console, spinner, table
from hexforge.errors import CallError, UnsupportedError
from hexforge.formats.files import write_together
from hexforge.request_fields import argument, option

if TYPE_CHECKING:
    from hexforge.addons.profiler.record import Profile
    from hexforge.addons.tuning.advice.result import Advice
    from hexforge.chips.deployment import Deployment

TOP = 8


@dataclass(frozen=True, slots=True)
class RecordingArguments:
    """How runs are recorded."""

    level: str = option("optrace", "basic, detailed, linting or optrace.")
    measure: str = option("", "Run it here on cpu or gpu, and time its kernels.", metavar="BACKEND")
    runs: int = option(1, "How many runs are recorded.", min=1)


@dataclass(frozen=True, slots=True)
class ProfilePageArguments:
    """What the page and the trace show."""

    compare: Path | None = option(None, "A model or log before the change: the page shows both.")
    retime: list[str] | None = option(
        None, "Time it again with this option; the page shows both. May be repeated.", metavar="KEY=VALUE"
    )
    zoom_start: str = option("", "Only from this node on, by either name.")
    zoom_end: str = option("", "Only up to this node, by either name.")
    flows: bool = option(False, "Arrows between ops in the trace.")
    gzip: bool = option(False, "Compress the trace.")
    advise: bool = option(True, "Try rewrites, and say what each gains.", "--advise/--no-advise")


@dataclass(frozen=True, slots=True)
class ProfileRecording:
    """How runs are recorded, of a model and of the one it is compared with."""

    deployment: Deployment
    given: RecordingArguments
    inputs: InputArguments
    others: CoRunningArguments = CoRunningArguments()  # noqa: RUF009 - it is frozen


def profile(
    model: Path = argument("An ONNX file, a context, a .tflite, a .pte or a profiling log."),
    output: Path = option(Path("profile"), "The folder to write to.", "--output", "-o"),
    soc: str = option(DEFAULT_SOC, "Chip by name, number or device."),
    *,
    recording: RecordingArguments,
    deploying: DeploymentArguments,
    others: CoRunningArguments,
    drawn: ProfilePageArguments,
    inputs: InputArguments,
) -> None:
    """Profile a model on a chip: report, trace, tables and a page that says why it takes its time."""
    from hexforge.addons.profiler.chrometrace import ViewerFeatures
    from hexforge.addons.profiler.profile_files import profile_files
    from hexforge.addons.profiler.recording.retime import retime
    from hexforge.addons.profiler.recording.simulated import require_profile_level
    from hexforge.addons.profiler.recording.zoom import zoom_profile

    require_profile_level(recording.level)
    others.check()
    if others.co_running and recording.measure:
        raise CallError("--co-running is simulated on a chip; leave --measure out")
    if output.exists() and not output.is_dir():
        raise CallError(f"--output {output}: is a file; name a folder")
    deployment = deploying.deployment(soc)
    with spinner(f"profiling {model.name}"):
        how = ProfileRecording(deployment, recording, inputs)
        recorded, source = _profile_file(model, replace(how, others=others))
        earlier = None if drawn.compare is None else _profile_file(drawn.compare, how)[0]
        if drawn.retime:
            earlier = recorded if earlier is None else earlier
            recorded, source = retime(recorded, pairs(drawn.retime, "--retime")), None
    recorded = zoom_profile(recorded, drawn.zoom_start, drawn.zoom_end)
    earlier = zoom_profile(earlier, drawn.zoom_start, drawn.zoom_end) if earlier is not None else None
    ideas: list[Advice] = []
    tried = drawn.advise and not recording.measure and source is not None
    if source is not None and tried:
        with spinner("trying rewrites"):
            tried, ideas = _advice(source, deployment)
    features = ViewerFeatures(
        enable_input_output_flow_events=drawn.flows, enable_sequencer_flow_events=drawn.flows, qhas_schema=True,
        qhas_json=True, gzip=drawn.gzip,
    )  # fmt: skip
    files = profile_files(recorded, output, features, advice=ideas, advised=tried, before=earlier)
    output.mkdir(parents=True, exist_ok=True)
    write_together(files)
    if drawn.retime and earlier is not None:
        _print_change(earlier, recorded)
    _print(recorded, [path for path, _ in files])


def _profile_file(path: Path, how: ProfileRecording) -> tuple[Profile, Path | None]:
    """The profile of whatever a file is, and the model where it is one that can be rewritten."""
    from hexforge.formats.file_kinds import open_model

    recorded: tuple[Profile, Path | None] = open_model(path).do("profile", how)
    return recorded


def read_log(path: Path, how: ProfileRecording) -> tuple[Profile, None]:
    """The profile that a log holds."""
    from hexforge.addons.profiler import log

    return log.read(path), None


def profile_model(path: Path, how: ProfileRecording) -> tuple[Profile, Path | None]:
    """A profile of a model or a context: simulated, or measured here."""
    from hexforge.addons.profiler.recording.simulated import CoRunning
    from hexforge.addons.profiler.recording.simulated import profile as simulated
    from hexforge.formats.file_kinds import open_model

    if how.given.measure:
        return _profile_kernels(path, how), None
    opened = open_model(path)
    source = opened.do("estimate", how.inputs.request(path))
    co_running = [CoRunning(*_model_and_priority(text)) for text in how.others.co_running or ()]
    recorded = simulated(
        source, how.deployment, level=how.given.level, runs=how.given.runs, priority=how.others.priority,
        co_running=co_running,
    )  # fmt: skip
    return recorded, None if opened.kind.is_compiled else path


def _model_and_priority(text: str) -> tuple[str, str]:
    path, priority = model_and_priority(text)
    if not Path(path).exists():
        raise CallError(f"--co-running {text}: no such file")
    return path, priority


def _profile_kernels(path: Path, how: ProfileRecording) -> Profile:
    """Runs on this computer, on random inputs, as a session profiles them."""
    import tempfile

    from hexforge.addons.profiler import log
    from hexforge.cli.runnable import feeds_for
    from hexforge.ort import InferenceSession

    with tempfile.TemporaryDirectory() as folder:
        options = {
            "backend_type": how.given.measure,
            "profiling_level": how.given.level,
            "profiling_file_path": f"{folder}/p.csv",
        }
        session = InferenceSession(str(path), providers=[("QNNExecutionProvider", options)])
        feeds = feeds_for(session.get_inputs(), {})
        for _ in range(how.given.runs + 1):
            session.run(None, feeds)
        measured = log.read(Path(folder) / "p_qnn.log")
        del session
    # the first run makes what later ones use again
    measured = replace(measured, graphs=tuple(replace(graph, runs=graph.runs[1:]) for graph in measured.graphs))
    if not any(graph.runs for graph in measured.graphs):
        raise UnsupportedError(f"{path}: nothing of it ran on the {how.given.measure} backend")
    return measured


def _advice(path: Path, deployment: Deployment) -> tuple[bool, list[Advice]]:
    """Whether rewrites were tried, and those that gain; a model that cannot be rewritten has none."""
    from hexforge.addons.tuning.advice.advise import advise
    from hexforge.errors import HexforgeError

    try:
        return True, advise(path, deployment, verify=False)
    except HexforgeError:
        return False, []


def _print_change(before: Profile, after: Profile) -> None:
    """What each graph takes before and after the change of an option."""
    from hexforge.addons.profiler.profile_text import average

    for old, new in zip(before.graphs, after.graphs, strict=False):
        us = [average(graph).netrun_us / 1e3 for graph in (old, new)]
        console().print(f"{new.name}: {us[0]:.4f} ms as it was, {us[1]:.4f} ms with the change")


def _print(recorded: Profile, files: list[Path]) -> None:
    """The verdict, the ops that take longest, and where the files are."""
    from hexforge.addons.profiler.profile_text import average
    from hexforge.addons.profiler.verdict import bottlenecks, findings

    screen = console()
    if recorded.left_out:
        screen.print(
            f"not in it: {recorded.left_out} nodes that the NPU does not take and the CPU runs", style="yellow"
        )
    for graph in recorded.graphs:
        run = average(graph)
        screen.print(
            f"{graph.name} on {graph.chip} ({recorded.source}): {run.netrun_us / 1e3:.3f} ms, accelerator "
            f"{run.accelerator_us / 1e3:.3f} ms, critical path {run.critical_cycles:,} cycles"
        )
        for reason in findings(recorded, graph, run)[:3]:
            screen.print(f"  {reason.title} ({100 * reason.share:.0f} %): {reason.text}")
        rows = [
            (
                graph.ops[i].name,
                graph.ops[i].type,
                f"{run.costs[i].cycles:,}",
                f"{100 * run.costs[i].cycles / max(run.critical_cycles, 1):.1f} %",
                f"{run.costs[i].wait:,}",
                f"{run.costs[i].overlap:,}",
            )
            for i in bottlenecks(graph, run)[:TOP]
        ]
        if rows:
            screen.print(table("", ("op", "type", "cycles", "share", "wait", "overlap"), rows, optional=("overlap",)))
    for path in files:
        screen.print(str(path), soft_wrap=True)
