# SPDX-License-Identifier: Apache-2.0
"""`hexforge llm estimate`: how fast a language model answers on a chip; `hexforge llm models`: those known by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexforge.chips.soc import DEFAULT_SOC
from hexforge.cli.arguments import Json
from hexforge.cli.screen import console, print_json, result_table, spinner
from hexforge.cli.sections import print_sections
from hexforge.errors import CallError, HexforgeError
from hexforge.formats.files import write_atomically
from hexforge.request_fields import argument, option
from hexforge.results import Column, record, select

if TYPE_CHECKING:
    from hexforge.addons.llm import Bundle, LlmEstimate, LlmShape

ALL = "all"
CONTEXTS = (512, 1024, 2048, 4096, 8192, 16384, 32768)
"""Contexts that are compared, those that the model was made for."""
HARDLY_FILLED = 256
"""Positions that are filled where MaskedSoftmax is compared: in a full context it has nothing to save."""


@dataclass(frozen=True, slots=True)
class GraphArguments:
    """What the graphs of a bundle are like."""

    native_kv: bool | None = option(
        None, "Whether the cache lies as the matrix unit reads it. [default: flat]", "--native-kv/--flat-kv"
    )
    masked_softmax: bool = option(True, "Whether empty positions cost less.", "--masked-softmax/--no-masked-softmax")
    speculative: bool = option(False, "With a draft that is checked, several tokens at a time.")


def estimate(
    model: str = argument("A folder with config.json, such a file, or the name of a model.", show_default=False),
    soc: str = option(DEFAULT_SOC, "Chip by name, number or device, or all to compare them."),
    context: int | None = option(None, "Positions of the context; a bundle's own, else 4096."),
    precision: str = option("", "w4a16, w4 (float activations), w8a16, float; a bundle's own, else w4a16."),
    runtime: str = option("geniex_qairt", "geniex_qairt (geniex) or genie."),
    filled: int | None = option(None, "Positions that hold tokens while the answer is timed."),
    prompt: int | None = option(None, "Tokens of a prompt to time the first token of."),
    *,
    graphs: GraphArguments,
    report: Path | None = option(None, "Write a page to look at, as HTML."),
    as_json: Json = False,
) -> None:
    """Say how fast a language model answers on a chip: first token, tokens a second by context, memory, energy."""
    from hexforge.addons.llm import estimate_llm, read_shape
    from hexforge.addons.llm.commands.estimate_page import llm_page, llm_sections
    from hexforge.addons.llm.time.estimate import LlmSwitches

    shape, bundle = read_shape(model), _bundle(Path(model))
    positions_asked = context if context is not None else bundle.context if bundle is not None else 4096
    _refuse_what_the_context_does_not_hold(positions_asked, prompt, filled)
    stored = precision or (bundle.precision if bundle is not None else "w4a16")
    native = graphs.native_kv if graphs.native_kv is not None else bundle is not None and bundle.native
    switches = LlmSwitches(native, graphs.masked_softmax, graphs.speculative)

    def timed(chip: str, positions: int, changed: LlmSwitches = switches, tokens: int | None = filled) -> LlmEstimate:
        return estimate_llm(
            shape, chip, context=positions, precision=stored, runtime=runtime, switches=changed,
            filled=tokens if tokens is None else min(tokens, positions),
        )  # fmt: skip

    every_chip = soc.lower() == ALL
    if every_chip and prompt is not None:
        raise CallError("--prompt is of one chip; name it with --soc")
    chips = _all_chips(timed, positions_asked)
    if every_chip:
        if report is not None:
            raise CallError("--report is of one chip, and compares all of them; name it with --soc")
        _compare(shape, chips, as_json)
        return
    here = timed(soc, positions_asked)
    made_for = [positions for positions in CONTEXTS if positions <= (shape.positions or CONTEXTS[-1])]
    others = {positions: timed(soc, positions) for positions in sorted({*made_for, positions_asked})}
    variants = _variants(timed, soc, positions_asked, switches)
    remarks = _attention_remarks(Path(model), bundle, here.soc)
    if report is not None:
        from hexforge.addons.llm.commands.estimate_page import llm_page

        write_atomically(report, llm_page(here, list(others.values()), chips, variants, remarks).encode())
    if as_json:
        by_context = {str(n): round(e.tokens_per_second, 3) for n, e in others.items()}
        first = {} if prompt is None else {"prompt": prompt, "first_token_of_prompt_ms": here.first_token_ms(prompt)}
        print_json(
            here.to_json() | first | {
                "tokens_per_second_by_context": by_context,
                "tokens_per_second_band_by_context": {str(n): _band(e) for n, e in others.items()},
                "variants": {name: _rates(e) for name, e in variants.items()},
                "attention_remarks": remarks,
            }
        )  # fmt: skip
        return
    print_sections(console(), llm_sections(here, list(others.values()), variants, remarks, prompt), None)


def _refuse_what_the_context_does_not_hold(context: int, prompt: int | None, filled: int | None) -> None:
    """CallError where a prompt or what is filled is none, or more than the context."""
    for flag, count in (("--prompt", prompt), ("--filled", filled)):
        if count is not None and not 1 <= count <= context:
            raise CallError(f"{flag} {count}: give 1 to {context}, the context")


def _all_chips(timed: Any, context: int) -> list[LlmEstimate]:
    """The model on every chip that can run it, the fastest first; the last refusal where none can."""
    from hexforge.chips.soc import SOCS

    estimates, refusal = [], None
    for chip in SOCS:
        try:
            estimates.append(timed(chip.name, context))
        except CallError as error:
            refusal = error  # a native cache that the chip refuses: it is not among those to compare
    if refusal is not None and not estimates:
        raise refusal
    return sorted(estimates, key=lambda e: -e.tokens_per_second)


def _variants(timed: Any, soc: str, context: int, switches: Any) -> dict[str, LlmEstimate]:
    """The model with one thing of its graphs otherwise, where that can be."""
    import dataclasses

    variants = {}
    for name, native in (("native KV", True), ("flat KV", False)):
        try:
            variants[name] = timed(soc, context, dataclasses.replace(switches, native_kv=native))
        except CallError:
            continue  # said in the notes
    filled = timed(soc, context).filled
    hardly = filled if filled < context else min(HARDLY_FILLED, context)
    for name, masked in (("MaskedSoftmax", True), ("Softmax of a sum", False)):
        changed = dataclasses.replace(switches, masked_softmax=masked)
        variants[f"{name}, {hardly:,} filled"] = timed(soc, context, changed, hardly)
    return variants


def _bundle(source: Path) -> Bundle | None:
    """The bundle of a folder; None where it is none."""
    from hexforge.addons.llm.bundle import BUNDLE, read_bundle

    return read_bundle(source) if (source / BUNDLE).is_file() else None


def _attention_remarks(source: Path, bundle: Bundle | None, soc: str) -> list[str]:
    """Why attentions of ONNX models with a config do not become MaskedSoftmax, each reason once."""
    files = sorted(source.glob("*.onnx")) if source.is_dir() else []
    if bundle is not None:  # the layers of one part are like those of another, and so are graphs for more tokens
        files = [bundle.folder / bundle.parts[0].graphs[min(bundle.parts[0].graphs)]]
    if not files:
        return []
    from hexforge.ort.check import check

    reasons: dict[str, int] = {}
    for file in files:
        try:
            with spinner(f"looking at {file.name}"):
                checked = check(file, soc)
        except HexforgeError as error:
            reasons[f"{file.name}: cannot be checked: {error}"] = 1
            continue
        for node in checked.nodes:
            for remark in node.remarks:
                if "MaskedSoftmax" in remark:
                    reasons[f"{file.name}: Softmax {remark}"] = reasons.get(f"{file.name}: Softmax {remark}", 0) + 1
    return [f"{text} ({count} times)" if count > 1 else text for text, count in reasons.items()]


def _rates(timed: LlmEstimate) -> dict[str, float]:
    from hexforge.addons.llm.commands.estimate_page import RATES

    return record(timed, select(RATES, "tokens_per_second first_token_ms"))


def _band(timed: LlmEstimate) -> list[float]:
    return [round(rate, 3) for rate in timed.tokens_per_second_band]


def _compare(shape: LlmShape, chips: Sequence[LlmEstimate], as_json: bool) -> None:
    from hexforge.addons.llm.commands.estimate_page import CHIP_COLUMNS

    if as_json:
        print_json({e.soc: _rates(e) | {"tokens_per_second_band": _band(e), "stands_on": e.stands_on} for e in chips})
        return
    title = f"{shape.name}, {shape.parameters / 1e9:.2f} B parameters"
    console().print(result_table(title, CHIP_COLUMNS, chips))


COLUMNS = (
    Column("model", of="name"),
    Column("parameters", of=lambda shape: f"{shape.parameters / 1e9:.2f} B"),
    *(Column(name) for name in ("layers", "hidden", "heads")),
    Column("keys", of="kv_heads"),
    Column("head", of="head_dim"),
    Column("ffn"),
    Column("vocabulary", "number", 0, of="vocab"),
    Column("tied", of=lambda shape: "yes" if shape.tied else "no"),
)


def models(as_json: Json = False) -> None:
    """List the public language models whose shapes are known by name (published)."""
    from hexforge.addons.llm.shape import named_shapes

    shapes = named_shapes().values()
    if as_json:
        print_json([asdict(shape) | {"parameters": shape.parameters} for shape in shapes])
        return
    title = f"{len(shapes)} models, as their config.json files say (published)"
    console().print(result_table(title, COLUMNS, shapes))
