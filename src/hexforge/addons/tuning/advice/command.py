# SPDX-License-Identifier: Apache-2.0
"""`hexforge advise`: what would make a model faster on a chip, by how much, and the model rewritten."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from hexforge.chips.soc import DEFAULT_SOC
from hexforge.cli.arguments import DeviceRuntime, InputArguments, Json, Model, Precision, Soc
from hexforge.cli.screen import bar, console, print_json, result_table
from hexforge.errors import CallError
from hexforge.formats.files import require_another_file, write_atomically
from hexforge.request_fields import option
from hexforge.results import Column

if TYPE_CHECKING:
    from hexforge.addons.tuning.advice.result import Advice, AdviceResult
    from hexforge.chips.deployment import Deployment


@dataclass(frozen=True, slots=True)
class AskedAdvice:
    """What advice is asked for, and what is done with it."""

    deployment: Deployment
    min_gain: float
    apply: Path | None
    verify: bool
    cpu: bool
    inputs: InputArguments
    report: bool
    as_json: bool


def advise(
    model: Model,
    soc: Soc = DEFAULT_SOC,
    precision: Precision = "as-is",
    runtime: DeviceRuntime = "qnn_dlc",
    apply: Path | None = option(
        None, "Write the model with every rewrite that keeps its function and gains.", dir_okay=False
    ),
    min_gain: str = option("1%", "Leave out advice that gains less.", metavar="PERCENT"),
    verify: bool = option(True, "Compare rewritten models with the original on random inputs.", "--verify/--no-verify"),
    report: bool = option(False, "Say of each why, how, where, and who says so."),
    cpu: bool = option(True, "Measure here what the NPU leaves to the CPU, for a rough time.", "--cpu/--no-cpu"),
    *,
    inputs: InputArguments,
    as_json: Json = False,
) -> None:
    """Say what would make a model faster on a chip: each idea tried by rewriting the model and simulating it again."""
    from hexforge.chips.deployment import Deployment
    from hexforge.formats.file_kinds import open_model

    least = _part(min_gain)
    if apply is not None:
        require_another_file(apply, model)
        if not verify:
            raise CallError("--apply writes only what was verified; leave --no-verify out")
    asked = AskedAdvice(Deployment(soc, precision, runtime), least, apply, verify, cpu, inputs, report, as_json)
    open_model(model).do("advise", asked)


def advise_on_model(model: Path, asked: AskedAdvice) -> None:
    """Print advice on an ONNX model, and write it rewritten where that is asked for."""
    from hexforge.addons.tuning.advice.advise import AdviceRequest, advise_and_rewrite

    given, apply = asked.inputs.request(model), asked.apply
    with bar(f"trying rewrites of {model.name}") as show:
        result = advise_and_rewrite(
            model,
            asked.deployment,
            AdviceRequest(asked.min_gain, asked.verify, asked.cpu),
            dims=given.dims,
            shapes=given.shapes,
            constants=given.constants,
            observe=lambda done, of, rule: show(done, of),
        )
    if apply is not None and result.applied:
        _write(apply, result, model.name)
    if asked.as_json:
        print_json({**result.to_json(), "written": str(apply) if apply is not None and result.applied else None})
        return
    _print(console(), result, asked.report)
    if apply is not None:
        if result.applied:
            console().print(Text(f"written: {apply} ({', '.join(result.applied)})"))
        else:
            console().print(
                Text(f"not written: nothing that keeps the function gains, so {apply} would be the model as it is")
            )


def _write(path: Path, result: AdviceResult, name: str) -> None:
    """Write the rewritten model; CallError where it could not be compared with the original."""
    from hexforge.model.extraction import model_bytes
    from hexforge.model.load_check import require_loads

    if result.error is None:
        raise CallError(f"{path}: not written: what {name} computes could not be compared; see the advice without it")
    rewritten = model_bytes(result.rewritten)
    require_loads(rewritten, str(path))
    write_atomically(path, rewritten)


def _part(text: str) -> float:
    """A percentage as a part of the whole."""
    try:
        fraction = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        raise CallError(f"--min-gain {text!r}: a percentage such as 1% or 0.5") from None
    if not 0 <= fraction < 1:
        raise CallError(f"--min-gain {text!r}: from 0 to below 100 percent")
    return fraction


def _columns(whole_known: bool) -> tuple[Column, ...]:
    """An advice as the table has it; what brings nodes to the NPU gains what is known of NPU and CPU together."""

    def rough(advice: Advice, text: str) -> str:
        return ("about " if advice.brings else "") + text if whole_known or not advice.brings else "not measured"

    return (
        Column("µs", text=lambda advice: rough(advice, f"{advice.gain_us:.1f}")),
        Column("gain", text=lambda advice: rough(advice, f"{100 * advice.gain:.1f} %")),
        Column("advice", of="title"),
        Column("keeps the function", text=_keeps),
        Column("where", text=_where, leaves=1),
        Column("rule", leaves=2),
    )


def _keeps(advice: Advice) -> Text:
    if not advice.keeps_function:
        return Text("no: advice only", "yellow")
    return Text("yes" if advice.error is None else f"yes, error {advice.error:.0e}", "green")


def _where(advice: Advice) -> str:
    more = f" (+{len(advice.nodes) - 1})" if len(advice.nodes) > 1 else ""
    return (advice.nodes[0] if advice.nodes else "") + more


def _print(screen: Console, result: AdviceResult, report: bool) -> None:
    from hexforge.report.formatting import npu_part_only, whole_time

    if result.timed.left_on_cpu:
        screen.print(Text(f"{npu_part_only(result.timed)}. {whole_time(result.timed)}", "yellow"))
    if result.advice:
        screen.print(result_table("", _columns(result.timed.total_us_rough is not None), result.advice, whole=True))
    for advice in result.advice if report else ():
        screen.print(Text(advice.title, "bold"))
        counted = list(dict.fromkeys(advice.places))
        shown = "; ".join(counted[:5]) + (f"; and {len(counted) - 5} more" if len(counted) > 5 else "")
        for label, words in (("found", shown), ("why", advice.why), ("how", advice.how), ("source", advice.source)):
            screen.print(Text(f"  {label}: {words}"))
        screen.print(Text(f"  nodes: {', '.join(advice.nodes)}"))
    for rule, why in result.dropped:
        screen.print(Text(f"left out: {rule}: {why}", "yellow"))
    rough = "about " if result.timed.left_on_cpu and result.timed.total_us_rough is not None else ""
    head = (
        f"{result.model} on {result.soc}, {result.precision}, {result.runtime}: {rough}{result.before_us / 1e3:.3f} ms"
    )
    if not result.advice and not result.applied:
        screen.print(Text(f"{head}; nothing to advise"))
        return
    gain = 1 - result.after_us / result.before_us
    nodes = result.cpu_nodes_after
    left = (
        f", {nodes if nodes else 'no'} node{'s' if nodes != 1 else ''} on the CPU" if result.timed.left_on_cpu else ""
    )
    checked = "" if result.error is None else f", outputs within {result.error:.0e} of their range"
    together = (
        f"; with all that keeps the function {result.after_us / 1e3:.3f} ms ({100 * gain:.1f} % less{left}{checked})"
        if result.applied
        else "; nothing that keeps the function gains"
    )
    screen.print(Text(head + together))
