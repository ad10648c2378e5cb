# SPDX-License-Identifier: Apache-2.0
"""The page of a language model's estimate: tokens by context and chip, where a token's time goes, memory by part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hexforge.addons.llm.time.estimate import LlmEstimate
from hexforge.chips.soc import known_for
from hexforge.report.page import sections_page
from hexforge.report.section import Bars, Column, Figure, Figures, Plot, Section, SectionPart, Series, Table

RANGES = (
    "Nine of ten models of families nobody fitted are in the range. It is wider for a chip without measured rows: "
    "it stands on the nearest one that has some."
)


def llm_page(
    here: LlmEstimate,
    by_context: Sequence[LlmEstimate],
    chips: Sequence[LlmEstimate],
    variants: Mapping[str, LlmEstimate],
    remarks: Sequence[str] = (),
) -> str:
    """One HTML file of an estimate: the same model at other contexts, on other chips, and with other graphs."""
    sections = [
        _summary(here, remarks),
        Section("Where a token's time goes", [_parts(here), _variants(variants)], note=_basis(here)),
        Section("By context", [_contexts(here, by_context)], note=_graph_that_runs(here)),
        Section("By chip", [_chips(here, chips)], note=RANGES),
        Section("Memory by part", [_memory(here)], note=f"In context files below 3 GB: {here.contexts_on_disk}."),
    ]
    return sections_page(f"{here.shape.name} on {here.soc}", sections)


def _summary(here: LlmEstimate, remarks: Sequence[str]) -> Section:
    low, high = here.tokens_per_second_band
    first_low, first_high = here.first_token_band()
    figures = Figures(
        [
            Figure("tokens per second", f"{here.tokens_per_second:.1f}", f"{low:.1f} to {high:.1f}"),
            Figure(
                "first token", f"{here.first_token_ms():.0f} ms", f"{first_low:.0f} to {first_high:.0f}, prompt of 128"
            ),
            Figure("whole context", f"{here.first_token_ms(here.context) / 1e3:.2f} s", f"prompt of {here.context:,}"),
            Figure("a token", f"{here.token_uj_assumed / 1e3:.0f} mJ", "assumed"),
        ],
        verdict=" ".join(f"{note[0].upper()}{note[1:]}." for note in (*here.notes, *remarks)),
    )
    return Section(f"{here.precision}, {here.runtime}, context {here.context:,}", [figures])


def _parts(here: LlmEstimate) -> SectionPart:
    parts = here.token._asdict()
    return Bars(list(parts), [float(ms) for ms in parts.values()], unit="ms", title="milliseconds of a token")


def _variants(variants: Mapping[str, LlmEstimate]) -> SectionPart:
    columns = (Column("graphs with"), Column("tokens/s", "number", 1), Column("first token ms", "number", 1))
    rows = [(name, e.tokens_per_second, e.first_token_ms()) for name, e in variants.items()]
    return Table(columns, rows, title="graphs made otherwise (assumed)", narrow=True)


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
    return Table(columns, [(name, count, count / whole) for name, count in here.memory_bytes.items()])


def _basis(here: LlmEstimate) -> str:
    return (
        f"Fitted to measured language models; {here.filled:,} positions of {here.graph_context:,} hold tokens. "
        f"It stands on rows of {here.stands_on}."
    )
