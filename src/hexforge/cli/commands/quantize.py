# SPDX-License-Identifier: Apache-2.0
"""`hexforge quantize`: a float model and samples to a model that the NPU takes whole, or which nodes it refuses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from hexforge.analysis.requests import QuantizeRequest
from hexforge.analysis.workers import Workers
from hexforge.chips.soc import DEFAULT_SOC
from hexforge.cli.arguments import ClusterArguments, InputArguments, Jobs, Json
from hexforge.cli.commands.compare import print_decisions
from hexforge.cli.commands.picture_arguments import PictureArguments
from hexforge.cli.screen import bars, console, interruptible, print_json, result_table, table
from hexforge.formats.file_kinds import stem_of
from hexforge.formats.files import require_writable
from hexforge.request_fields import option
from hexforge.results import select
from hexforge.rules import by_reason, some_of

if TYPE_CHECKING:
    from hexforge.analysis.quality.held_out import Quality
    from hexforge.analysis.quality.quantize import Quantization

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class EncodingArguments:
    """Options on encodings, beside those of the request."""

    export_encodings: Path | None = option(None, "Write the encodings as an AIMET file.", dir_okay=False)
    encodings_version: str = option("1.0.0", "The version of that file: 0.6.1, 1.0.0 or 2.0.0.")
    restrict_quantization_steps: str = option(
        "", 'Integers that weights may have, hexadecimal: "-0x8000 0x7F7F", which 16-bit ones keep to anyway.',
        "--restrict-quantization-steps", "--restrict_quantization_steps", metavar="MIN MAX",
    )  # fmt: skip


def quantize(
    request: QuantizeRequest,
    given: EncodingArguments,
    jobs: Jobs = 1,
    *,
    cluster: ClusterArguments,
    inputs: InputArguments,
    pictures: PictureArguments,
    as_json: Json = False,
) -> None:
    """Quantize a float model for the NPU by samples of its inputs."""
    from hexforge.analysis.quality.quantize import quantize as quantized
    from hexforge.formats.encodings import check_version
    from hexforge.quant.decide.recipe_reading import recipe as recipe_of
    from hexforge.quant.decide.recipe_reading import restricted

    check_version(given.encodings_version)
    chosen, model = recipe_of(str(request.recipe)), Path(str(request.model))
    if given.restrict_quantization_steps:
        chosen = restricted(chosen, given.restrict_quantization_steps)
    samples = pictures.data(request.data)
    target = request.output if request.output is not None else model.with_name(f"{stem_of(model)}.qdq.onnx")
    fixed = inputs.fixed(model)
    require_writable(target, given.export_encodings, request.state)
    again = "nothing was written; with --state FILE calibration is kept"
    with interruptible(again, *([] if request.state is None else [Path(request.state)])), bars() as progress:
        result = quantized(
            replace(
                request, data=samples, recipe=chosen, output=target, workers=Workers(jobs, cluster.address),
                progress=progress, **fixed,
            )
        )  # fmt: skip
    pictures.say(samples, quiet=as_json)
    if given.export_encodings is not None:
        result.export(given.export_encodings, given.encodings_version)
    if as_json:
        print_json(result.to_json())
    else:
        _print(result, given.export_encodings)
        _print_quality(result, quote(str(model)), quote(request.data), " ".join(["", *inputs.typed()]))


def _print(quantized: Quantization, exported: Path | None) -> None:
    screen = console()
    kinds: Counter[tuple[str, str]] = Counter()
    for name, fixed in quantized.plan.tensors.items():
        role = "constants" if name in quantized.constants else "run-time tensors"
        scales = {"ScaleOffset": "one scale", "AxisScaleOffset": "a scale per channel"}
        kinds[role, f"{fixed.dtype.value}, {scales.get(type(fixed.encoding).__name__, 'a scale per block')}"] += 1
    rows = [(role, kind, str(count)) for (role, kind), count in sorted(kinds.items(), reverse=True)]
    if quantized.plan.converts:
        rows.append(("converted for a reader", "between types", str(len(quantized.plan.converts))))
    title = (
        f"{quantized.name}, {quantized.recipe.name}, {quantized.statistics.samples} samples ({quantized.recipe.method})"
    )
    screen.print(title)
    screen.print(table("", ("what", "type", "count"), rows))
    if quantized.tried:
        screen.print(result_table("", select(quantized.tried[0].described), quantized.tried))
    if quantized.rewritten:
        screen.print(f"written first as what the NPU takes: {some_of(list(quantized.rewritten))}", markup=False)
    if quantized.rewritable:
        screen.print(f"--rewrite writes as what the NPU takes: {some_of(list(quantized.rewritable))}", markup=False)
    screen.print(f"{quantized.quantized} of {quantized.nodes} nodes compute in fixed point")
    for output, how in quantized.plan.mixed_heads.items():
        screen.print(f"{output}: {how}", soft_wrap=True)
    for mask in quantized.masks:
        screen.print(mask.text(), soft_wrap=True, markup=False)
    if quantized.plan.floats:
        screen.print(table("", ("left in float", "why"), _rows_by_reason(quantized.plan.floats.items())))
    for name in quantized.unused[:_SHOWN]:
        screen.print(f"encoding of {name!r} is not used: the folded model has no such tensor")
    if quantized.placed_whole:
        screen.print(
            f"placed whole on htp, {quantized.soc}, as `hexforge check --strict` counts; a session with "
            "offload_graph_io_quantization=1 quantizes inputs and outputs on the CPU",
            markup=False,
        )
    else:
        screen.print(table(f"refused on htp, {quantized.soc}", ("node", "why"), _rows_by_reason(quantized.refused)))
    if quantized.ep_refused:
        from hexforge.frontends.onnx.ep_limits import EP_VERSION

        title = f"left to the CPU by the QNN EP {EP_VERSION}, though the chip takes them"
        screen.print(table(title, ("node", "why"), _rows_by_reason(quantized.ep_refused)))
    for path in (*quantized.files, *((exported,) if exported is not None else ())):
        screen.print(f"wrote {path}")


def _print_quality(quantized: Quantization, model: str, data: str, fixed: str) -> None:
    """How good it is, where it loses most, and what to do next, as it is typed."""
    quality, screen = quantized.quality, console()
    for warning in quantized.warnings:
        screen.print(f"warning: {warning}", style="yellow")
    if quality is None:
        return
    where = "held-out samples" if quality.held_out else "samples, the ones it was calibrated on (give five or more)"
    for row in quality.outputs:
        screen.print(f"output {row.name}: SQNR {row.sqnr_db:.1f} dB on {quality.samples} {where}")
    print_decisions(screen, quality.decisions, f"{quality.samples} {where}")
    if quality.worst:
        screen.print(result_table("", select(quality.worst[0].described), quality.worst))
    screen.print(f"next: {_next(quantized, quality, model, data, fixed)}", markup=False, soft_wrap=True)


def _next(quantized: Quantization, quality: Quality, model: str, data: str, fixed: str) -> str:
    from hexforge.analysis.quality.held_out import GOOD_DB, POOR_DB

    written, compiled = (quote(str(path)) for path in (quantized.files[0], quantized.files[0].with_suffix(".bin")))
    if data.startswith("random:"):
        return f"hexforge quantize {model} --data FOLDER{fixed} (random samples only show that it works)"
    verdict = "unknown" if quality.decisions is None else quality.decisions.verdict
    if verdict == "unknown":  # nothing is decided, so numbers alone count
        verdict = "good" if quality.sqnr_db >= GOOD_DB else "usable" if quality.sqnr_db >= POOR_DB else "unusable"
    activation = quantized.recipe.activation
    if quality.decisions is not None and quality.decisions.alarms and activation is not None and activation.bits <= 8:
        why = "do not use this file: 16 bits keep what its scales of 8 bits lose"
        return f"hexforge quantize {model} --data {data} --recipe w8a16_channel{fixed} ({why})"
    if verdict == "unusable":
        why = "too far from the float model: it finds what needs 16 bits"
        return f"hexforge search {model} --data {data}{fixed} ({why})"
    if verdict == "usable":
        return f"hexforge compare {model} {written} --data {data} --sensitivity one (which layers cost most)"
    chip = quantized.soc.split(" ")[0] if "(" in quantized.soc else DEFAULT_SOC  # an architecture alone is no chip
    return f"hexforge compile {written} -o {compiled} --soc {chip}"


def _rows_by_reason(nodes: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Table rows of refused nodes, grouped by the reason."""
    return [(some_of(names), reason) for reason, names in by_reason(nodes)]
