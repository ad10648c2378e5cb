# SPDX-License-Identifier: Apache-2.0
"""`hexforge profile`: what a model does on a chip, as files to look at and one page that says why it takes its time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hexforge.chips.soc import DEFAULT_SOC
from hexforge.cli.arguments import CoRunningModels, InputArguments, model_and_priority, pairs
from hexforge.cli.request_options import with_request_options
from hexforge.cli.screen import console, spinner, table
from hexforge.cli.time.estimate import Precision, Runtime
from hexforge.errors import CallError, UnsupportedError
from hexforge.formats.files import write_together

if TYPE_CHECKING:
    from hexforge.analysis.advice import Advice
    from hexforge.chips.deployment import Deployment
    from hexforge.formats.profile.record import Profile

TOP = 8


@dataclass(frozen=True, slots=True)
class ProfileRecording:
    """How runs are recorded, of a model and of the one it is compared with."""

    deployment: Deployment
    level: str
    measured: str
    """The backend whose kernels are timed here; empty where a chip is simulated."""
    runs: int
    inputs: InputArguments
    priority: str = "normal"
    co_running: tuple[str, ...] = ()
    """Models that run on the chip meanwhile, each with its priority behind a colon or without."""


@with_request_options
def profile(
    model: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="An ONNX file, a context, a .pte or a profiling log.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write to.")] = Path("profile"),
    soc: Annotated[str, typer.Option("--soc", help="Chip by name, number or device.")] = DEFAULT_SOC,
    level: Annotated[str, typer.Option("--level", help="basic, detailed, linting or optrace.")] = "optrace",
    measure: Annotated[
        str, typer.Option("--measure", metavar="BACKEND", help="Run it here on cpu or gpu, and time its kernels.")
    ] = "",
    precision: Precision = "as-is",
    runtime: Runtime = "qnn_dlc",
    performance_mode: Annotated[str, typer.Option(help="burst … extreme_power_saver.")] = "burst",
    runs: Annotated[int, typer.Option("--runs", min=1, help="How many runs are recorded.")] = 1,
    priority: Annotated[str, typer.Option(help="low … critical_plus, with --co-running.")] = "normal",
    co_running: CoRunningModels = None,
    compare: Annotated[
        Path | None, typer.Option("--compare", help="A model or log before the change: the page shows both.")
    ] = None,
    retimed: Annotated[
        list[str] | None,
        typer.Option(
            "--retime",
            metavar="KEY=VALUE",
            help="Time it again with this option; the page shows both. May be repeated.",
        ),
    ] = None,
    zoom_start: Annotated[str, typer.Option("--zoom-start", help="Only from this node on, by either name.")] = "",
    zoom_end: Annotated[str, typer.Option("--zoom-end", help="Only up to this node, by either name.")] = "",
    flows: Annotated[bool, typer.Option("--flows", help="Arrows between ops in the trace.")] = False,
    gzip: Annotated[bool, typer.Option("--gzip", help="Compress the trace.")] = False,
    advise: Annotated[bool, typer.Option("--advise/--no-advise", help="Try rewrites, and say what each gains.")] = True,
    *,
    inputs: InputArguments,
) -> None:
    """Profile a model on a chip: report, trace, tables and a page that says why it takes its time."""
    from hexforge.analysis.profile.retime import retime
    from hexforge.analysis.profile.simulated import require_profile_level
    from hexforge.analysis.profile.trace import ViewerFeatures
    from hexforge.analysis.profile.zoom import zoom_profile
    from hexforge.chips.deployment import Deployment
    from hexforge.chips.power import Power
    from hexforge.report.profile_files import profile_files

    require_profile_level(level)
    _require_consistent(output, measure, priority, co_running)
    deployment = Deployment(soc, precision, runtime, power=Power(performance_mode))
    with spinner(f"profiling {model.name}"):
        how = ProfileRecording(deployment, level, measure, runs, inputs)
        recorded, source = _profile_file(model, replace(how, priority=priority, co_running=tuple(co_running or ())))
        earlier = None if compare is None else _profile_file(compare, how)[0]
        if retimed:
            earlier = recorded if earlier is None else earlier
            recorded, source = retime(recorded, pairs(retimed, "--retime")), None
    recorded = zoom_profile(recorded, zoom_start, zoom_end)
    earlier = zoom_profile(earlier, zoom_start, zoom_end) if earlier is not None else None
    ideas: list[Advice] = []
    tried = advise and not measure and source is not None
    if source is not None and tried:
        with spinner("trying rewrites"):
            tried, ideas = _advice(source, deployment)
    features = ViewerFeatures(
        enable_input_output_flow_events=flows, enable_sequencer_flow_events=flows, qhas_schema=True, qhas_json=True,
        gzip=gzip,
    )  # fmt: skip
    files = profile_files(recorded, output, features, advice=ideas, advised=tried, before=earlier)
    output.mkdir(parents=True, exist_ok=True)
    write_together(files)
    if retimed and earlier is not None:
        _print_change(earlier, recorded)
    _print(recorded, [path for path, _ in files])


def _require_consistent(output: Path, measure: str, priority: str, co_running: list[str] | None) -> None:
    if priority != "normal" and not co_running:
        raise CallError("--priority is against other models on the chip; name them with --co-running")
    if co_running and measure:
        raise CallError("--co-running is simulated on a chip; leave --measure out")
    if output.exists() and not output.is_dir():
        raise CallError(f"--output {output}: is a file; name a folder")


def _profile_file(path: Path, how: ProfileRecording) -> tuple[Profile, Path | None]:
    """The profile of whatever a file is, and the model where it is one that can be rewritten."""
    from hexforge.formats.file_kinds import open_model

    recorded: tuple[Profile, Path | None] = open_model(path).do("profile", how)
    return recorded


def read_log(path: Path, how: ProfileRecording) -> tuple[Profile, None]:
    """The profile that a log holds."""
    from hexforge.formats.profile import log

    return log.read(path), None


def profile_model(path: Path, how: ProfileRecording) -> tuple[Profile, Path | None]:
    """A profile of a model or a context: simulated, or measured here."""
    from hexforge.analysis.profile.simulated import CoRunning
    from hexforge.analysis.profile.simulated import profile as simulated
    from hexforge.formats.file_kinds import open_model

    if how.measured:
        return _profile_kernels(path, how), None
    opened = open_model(path)
    source = opened.do("estimate", how.inputs.request(path))
    others = [CoRunning(*_model_and_priority(text)) for text in how.co_running]
    recorded = simulated(
        source, how.deployment, level=how.level, runs=how.runs, priority=how.priority, co_running=others
    )
    return recorded, None if opened.kind.is_compiled else path


def _model_and_priority(text: str) -> tuple[str, str]:
    path, priority = model_and_priority(text)
    if not Path(path).exists():
        raise CallError(f"--co-running {text}: no such file")
    return path, priority


def _profile_kernels(path: Path, how: ProfileRecording) -> Profile:
    """Runs on this computer, on random inputs, as a session profiles them."""
    import tempfile

    from hexforge.cli.runnable import feeds_for
    from hexforge.formats.profile import log
    from hexforge.ort import InferenceSession

    with tempfile.TemporaryDirectory() as folder:
        options = {
            "backend_type": how.measured, "profiling_level": how.level, "profiling_file_path": f"{folder}/p.csv",
        }  # fmt: skip
        session = InferenceSession(str(path), providers=[("QNNExecutionProvider", options)])
        feeds = feeds_for(session.get_inputs(), {})
        for _ in range(how.runs + 1):
            session.run(None, feeds)
        measured = log.read(Path(folder) / "p_qnn.log")
        del session
    # the first run makes what later ones use again
    measured = replace(measured, graphs=tuple(replace(graph, runs=graph.runs[1:]) for graph in measured.graphs))
    if not any(graph.runs for graph in measured.graphs):
        raise UnsupportedError(f"{path}: nothing of it ran on the {how.measured} backend")
    return measured


def _advice(path: Path, deployment: Deployment) -> tuple[bool, list[Advice]]:
    """Whether rewrites were tried, and those that gain; a model that cannot be rewritten has none."""
    from hexforge.analysis.advise import advise
    from hexforge.errors import HexforgeError

    try:
        return True, advise(path, deployment, verify=False)
    except HexforgeError:
        return False, []


def _print_change(before: Profile, after: Profile) -> None:
    """What each graph takes before and after the change of an option."""
    from hexforge.analysis.profile.profile_text import average

    for old, new in zip(before.graphs, after.graphs, strict=False):
        us = [average(graph).netrun_us / 1e3 for graph in (old, new)]
        console().print(f"{new.name}: {us[0]:.4f} ms as it was, {us[1]:.4f} ms with the change")


def _print(recorded: Profile, files: list[Path]) -> None:
    """The verdict, the ops that take longest, and where the files are."""
    from hexforge.analysis.profile.profile_text import average
    from hexforge.analysis.profile.verdict import bottlenecks, findings

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
