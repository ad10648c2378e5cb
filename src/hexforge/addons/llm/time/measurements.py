# SPDX-License-Identifier: Apache-2.0
"""Tokens per second and times to the first token that were measured on devices (llm.csv), as rows of a fit.

Families are decided by where a model comes from (families below), before anything is fitted; those `ASIDE` are the
first two in the order of sha256(name) and were not looked at while the terms were chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hexforge.addons.latency.measurements import DATA, table_rows
from hexforge.addons.llm.shape import LlmShape, named_shapes
from hexforge.addons.llm.time.terms import PRECISIONS
from hexforge.chips import soc
from hexforge.errors import FormatError

MEASURED = DATA / "llm.csv"
"""Published: the performance files of qai-hub-models 0.65.0. In the checkout, not in packages."""
RUNTIMES = ("genie", "geniex_qairt")
"""The paths to the device that are fitted: QAIRT's own, each with its way of measuring."""
FILLED_BY_GENIE = 112
"""Positions that are filled when genie's tokens are timed: prompts of 36 to 56 tokens (seen: its rate of a prompt times
its time to the first token), answers of at most 128 (published: the scripts that measured), on average half of them.
GenieX's prompts are texts that fill the context but for 256 positions (published), taken as all of it."""
FAMILIES: Mapping[str, str] = {
    "falcon_v3": "falcon3", "ibm_granite_v3": "granite3", "intern3_5": "internvl3_5", "llama_v3_2": "llama3_2",
    "llama_v3": "llama3", "qwen2_5_vl": "qwen2_5_vl", "smollm2": "smollm2", "gpt_oss": "gpt_oss",
    "granite_4": "granite4", "lfm2": "lfm2", "smolvlm2": "smolvlm2",
}  # fmt: skip
"""The family of a model, by how its name begins."""
ASIDE = ("smollm2", "llama3")
SPECULATIVE = "_ssd"
_COLUMNS = (
    "model", "precision", "device", "soc_model", "runtime", "context_length", "tokens_per_second", "ttft_min_ms",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LlmMeasurement:
    """One row: a model at a precision and context through a runtime on a device."""

    model: str
    family: str
    shape: LlmShape
    precision: str
    runtime: str
    chip: str
    context: int
    graph_context: int
    """The context that the graph which ran was made for."""
    graph_contexts: tuple[int, ...]
    """The contexts that the bundle has graphs for: those that were measured."""
    filled: int
    token_ms: float
    chunk_ms: float
    """The time to the first token of a prompt of one chunk."""

    @property
    def speculative(self) -> bool:
        """Whether a draft was checked, several tokens at a time."""
        return self.model.endswith(SPECULATIVE)

    @property
    def judged(self) -> bool:
        """Whether it counts for the published figures: 4-bit weights, 16-bit activations, token by token."""
        return self.precision == "w4a16" and not self.speculative


def family_of(model: str) -> str:
    """The family of a model; the first word of its name where none is known."""
    start = next((s for s in sorted(FAMILIES, key=len, reverse=True) if model.startswith(s)), None)
    return FAMILIES[start] if start is not None else model.partition("_")[0]


def read_llm_measurements(
    path: Path = MEASURED, shapes: Mapping[str, LlmShape] | None = None
) -> tuple[list[LlmMeasurement], list[str]]:
    """The rows that a fit can use, and the models that it cannot, because nothing says their shape."""
    rows = list(table_rows(path, _COLUMNS))
    known = {**named_shapes(), **(shapes or {})}
    contexts: dict[str, set[int]] = {}
    for _, row in rows:
        if row["runtime"] in RUNTIMES:
            contexts.setdefault(row["model"], set()).add(int(row["context_length"]))
    measured, unknown = [], set()
    for where, row in rows:
        if row["runtime"] not in RUNTIMES or row["precision"] not in PRECISIONS:
            continue
        name = row["model"].removesuffix(SPECULATIVE)
        if name not in known:
            unknown.add(name)
            continue
        try:
            rate, first = float(row["tokens_per_second"]), float(row["ttft_min_ms"])
        except (TypeError, ValueError):
            raise FormatError(f"{where}: tokens_per_second or ttft_min_ms is no number") from None
        if rate <= 0 or first <= 0:
            continue  # two rows of the file: nothing was measured
        context = int(row["context_length"])
        filled = min(FILLED_BY_GENIE, context) if row["runtime"] == "genie" else context
        bundled = tuple(sorted(c for c in contexts[row["model"]] if c <= context))
        graph = min(c for c in bundled if c >= filled)
        measured.append(
            LlmMeasurement(
                row["model"], family_of(row["model"]), known[name], row["precision"], row["runtime"],
                soc.require_chip(row["soc_model"]).name, context, graph, bundled, filled,
                1e3 / rate, first,
            )
        )  # fmt: skip
    return measured, sorted(unknown)
