# SPDX-License-Identifier: Apache-2.0
"""The page of a language model's estimate: tokens by context and chip, where a token's time goes, memory by part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hexforge.addons.llm.time.estimate import LlmEstimate
from hexforge.addons.llm.time.terms import CHUNK
from hexforge.amounts import size
from hexforge.chips.soc import known_for
from hexforge.report.page import sections_page
from hexforge.report.section import Bars, Column, Figure, Figures, Plot, Section, SectionPart, Series, Table
from hexforge.results import select

RANGES = (
    "Nine of ten models of families nobody fitted are in the range. It is wider for a chip without measured rows: "
    "it stands on the nearest one that has some."
)

RATES = (
    Column("chip", of="soc", key="soc"),
    Column("context", "number", 0),
    Column("tokens/s", "number", 1, key="tokens_per_second", rounded=3),
    Column("nine of ten in", of=lambda timed: "{:.1f} to {:.1f}".format(*timed.tokens_per_second_band), key="band"),
    Column("first token ms", "number", 0, of=lambda timed: timed.first_token_ms(), key="first_token_ms", rounded=3),
    Column("cache", "bytes", of=lambda timed: timed.memory_bytes["cache"]),
    Column("known for", of=lambda timed: known_for(timed.soc), key="known_for"),
    Column("not measured", of=lambda timed: "" if timed.stands_on == timed.soc else f"as {timed.stands_on}, scaled",
           key="not_measured"),
)  # fmt: skip
CHIP_COLUMNS = select(RATES, "soc tokens_per_second band first_token_ms known_for not_measured")
CONTEXT_COLUMNS = select(RATES, "context tokens_per_second band first_token_ms cache")


def llm_page(
    here: LlmEstimate,
    by_context: Sequence[LlmEstimate],
    chips: Sequence[LlmEstimate],
    variants: Mapping[str, LlmEstimate],
    remarks: Sequence[str] = (),
) -> str:
    """One HTML file of an estimate: the same model at other contexts, on other chips, and with other graphs."""
    sections = [*llm_sections(here, by_context, variants, remarks), Section("By chip", [_chips(here, chips)], RANGES)]
    return sections_page(f"{here.shape.name} on {here.soc}", sections)


def llm_sections(
    here: LlmEstimate,
    by_context: Sequence[LlmEstimate],
    variants: Mapping[str, LlmEstimate],
    remarks: Sequence[str] = (),
    prompt: int | None = None,
) -> list[Section]:
    """How a model answers on one chip; `prompt` is the length of a prompt that is timed, else that of the context."""
    files = here.contexts_on_disk
    contexts = Table.of(CONTEXT_COLUMNS, by_context)
    return [
        _summary(here, remarks, prompt or here.context),
        Section("Where a token's time goes", [*_parts(here), _variants(variants)], _basis(here)),
        Section("By context", [_contexts(here, by_context), contexts], _graph_that_runs(here)),
        Section("Memory by part", [_memory(here)], f"In context files below 3 GB: {files}."),
    ]


def _summary(here: LlmEstimate, remarks: Sequence[str], prompt: int) -> Section:
    low, high = here.tokens_per_second_band
    first_low, first_high = here.first_token_band()
    switching, adapter = here.switching_ms_assumed, size(here.adapter_bytes())
    first = f"{first_low:.0f} to {first_high:.0f}, prompt of {CHUNK}"
    to_another = (
        f"{switching['adapter']:.1f} ms to another adapter of {adapter}, "
        f"{switching['context_from_storage']:.0f} ms from storage"
    )
    figures = [
        Figure("tokens per second", f"{here.tokens_per_second:.1f}", f"{low:.1f} to {high:.1f}"),
        Figure("first token", f"{here.first_token_ms():.0f} ms", first),
        Figure("of a long prompt", f"{here.first_token_ms(prompt) / 1e3:.2f} s", f"prompt of {prompt:,}"),
        Figure("energy (assumed)", f"{here.token_uj_assumed / 1e3:.0f} mJ a token",
               f"{here.chunk_uj_assumed / 1e3:.0f} mJ a chunk of {CHUNK}"),
        Figure("switching (assumed)", f"{switching['graph_of_shared_weights']:.1f} ms to another graph", to_another),
    ]  # fmt: skip
    verdict = " ".join(f"{note[0].upper()}{note[1:]}." for note in (*here.notes, *remarks))
    title = f"{here.shape.name} on {here.soc}, {here.precision}, {here.runtime}, context {here.context:,}"
    return Section(title, [Figures(figures, verdict)])


def _parts(here: LlmEstimate) -> list[SectionPart]:
    columns = (Column("part"), Column("ms", "number", 2), Column("share", "share", 0))
    rows = [(name, float(ms), ms / here.token_ms) for name, ms in here.token._asdict().items()]
    bars = Bars([name for name, _, _ in rows], [ms for _, ms, _ in rows], "ms", "milliseconds of a token")
    return [bars, Table(columns, rows, "where a token's time goes", narrow=True)]


def _variants(variants: Mapping[str, LlmEstimate]) -> SectionPart:
    rate, first = select(RATES, "tokens_per_second first_token_ms")
    rows = [(name, rate.value(e), first.value(e)) for name, e in variants.items()]
    return Table((Column("graphs with"), rate, first), rows, "graphs made otherwise (assumed)", narrow=True)


def _contexts(here: LlmEstimate, by_context: Sequence[LlmEstimate]) -> SectionPart:
    def line(name: str, pick: int) -> Series:
        bands = [(e.tokens_per_second_band[0], e.tokens_per_second, e.tokens_per_second_band[1]) for e in by_context]
        points = [(float(e.context), band[pick]) for e, band in zip(by_context, bands, strict=True)]
        return Series(name, points, large=pick == 1)

    series = [line("low", 0), line(here.soc, 1), line("high", 2)]
    return Plot("context", "tokens per second", series, title="tokens per second by context", lines=True)


def _chips(here: LlmEstimate, chips: Sequence[LlmEstimate]) -> SectionPart:
    names = [e.soc for e in chips]
    labels = [_label(e.soc, known_for(e.soc, 1)) for e in chips]
    bands = [e.tokens_per_second_band for e in chips]
    return Bars(
        labels, [e.tokens_per_second for e in chips], title="tokens per second by chip",
        low=[low for low, _ in bands], high=[high for _, high in bands],
        mark=names.index(here.soc) if here.soc in names else None, wide=True,
    )  # fmt: skip


def _label(soc: str, known: str) -> str:
    """A chip and a device it is known for, the chip once."""
    return known if known.startswith(soc) else f"{soc} {known}".strip()


def _graph_that_runs(here: LlmEstimate) -> str:
    if here.graph_context == here.context:
        return "The cache is read whole for every token."
    return (
        f"The graph of {here.graph_context:,} positions runs whatever the context is: it is the smallest that holds "
        f"the {here.filled:,} that are filled."
    )


def _memory(here: LlmEstimate) -> SectionPart:
    whole = sum(here.memory_bytes.values())
    columns = (Column("part"), Column("bytes", "bytes", total="sum"), Column("share", "share"))
    rows = [(name, count, count / whole) for name, count in here.memory_bytes.items()]
    return Table(columns, rows, f"memory, {size(whole)} together")


def _basis(here: LlmEstimate) -> str:
    return (
        f"Fitted to measured language models; {here.filled:,} positions of {here.graph_context:,} hold tokens. "
        f"It stands on rows of {here.stands_on}."
    )
