# SPDX-License-Identifier: Apache-2.0
"""estimate_llm: the time to the first token, tokens per second, memory and energy of a language model on a chip."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hexforge.addons.llm.shape import LlmShape, read_shape
from hexforge.addons.llm.time.costs import LlmCosts, read_costs
from hexforge.addons.llm.time.measurements import FILLED_BY_GENIE, RUNTIMES
from hexforge.addons.llm.time.terms import (
    CHUNK,
    PRECISIONS,
    SLOW_HOST,
    ChunkTime,
    TokenTime,
    chunk_time,
    token_time,
    work_of,
)
from hexforge.chips.energy import UnitTimes, accelerator_uj
from hexforge.chips.power import Power
from hexforge.chips.soc import DEFAULT_SOC, SESSION_BYTES, Soc, require_chip
from hexforge.errors import CallError
from hexforge.options import did_you_mean
from hexforge.results import Key, Result

DEFAULT_RUNTIME = "geniex_qairt"
SAME_RUNTIME: Mapping[str, str] = {"geniex": "geniex_qairt", "qnn_context_binary": "genie"}
"""Other names of runtimes."""
LADDER = (512, 1024, 2048, 4096)
"""Contexts that bundles with several graphs have: those of the measured models that see pictures."""
NATIVE_CONTEXTS, NATIVE_HEADS, NATIVE_ARCH, NATIVE_PER_VTCM_MB = 256, 64, 69, 8192
"""Published: a native cache asks for a context that is a multiple of 256, heads of a multiple of 64, and v69. Assumed,
of the one example there is: as many positions as 8192 for each MB of VTCM, less one."""
EMBEDDING_BITS = 16
"""Assumed of the table of embeddings, which the host looks up."""
ADVISED_BYTES = 3 << 30
"""Published: contexts of a session should stay below it."""
ADAPTER_RANK = 16
ADAPTER_GBPS, CALL_MS, STORAGE_GBPS = 4.0, 0.1, 2.0
"""Assumed: how fast an adapter's weights are copied, what a call takes, how fast a context is read from storage."""


@dataclass(frozen=True, slots=True)
class LlmSwitches:
    """What the graphs of a bundle are like, apart from their sizes."""

    native_kv: bool = False
    """Whether the cache lies as the matrix unit reads it. The measured bundles are taken for flat ones (assumed); a
    native one saves what heads of keys and values cost (assumed: an attribution of the fit)."""
    masked_softmax: bool = True
    """Whether Softmax takes less time where the context is still empty. Without it every position costs (assumed)."""
    speculative: bool = False
    """Whether a draft is checked, several tokens at a time."""


@dataclass(frozen=True, slots=True)
class LlmEstimate(Result):
    """How a language model answers on a chip."""

    shape: LlmShape
    soc: str
    runtime: str
    precision: str
    context: int
    """The context that was asked for."""
    graph_context: int
    """The context of the graph that runs."""
    filled: int
    """Positions that are filled when tokens are timed."""
    switches: LlmSwitches
    chunk: ChunkTime
    token: TokenTime
    chunk_width: float
    token_width: float
    """Logarithmic half widths of the bands: nine of ten models of families nobody fitted are inside."""
    token_uj_assumed: float
    chunk_uj_assumed: float
    memory_bytes: Mapping[str, int]
    stands_on: str
    """The chip whose rows the estimate stands on, which is the nearest where the chip itself has none."""
    notes: tuple[str, ...]

    described = (
        Key("model", of="shape.name"),
        Key("shape", of=lambda timed: timed.shape_facts()),
        "soc stands_on runtime precision context graph_context filled",
        "switches",
        Key("tokens_per_second", rounded=3),
        Key("tokens_per_second_band", rounded=3),
        Key("first_token_ms", of=lambda timed: timed.first_token_ms(), rounded=3),
        Key("first_token_band_ms", of=lambda timed: timed.first_token_band(), rounded=3),
        Key("first_token_full_context_ms", of=lambda timed: timed.first_token_ms(timed.context), rounded=1),
        Key("prompt_tokens_per_second", rounded=1),
        Key("token_ms", of=lambda timed: timed.token._asdict(), rounded=4),
        Key("chunk_ms", of=lambda timed: timed.chunk._asdict(), rounded=4),
        Key("energy_uj_assumed", rounded=1),
        "memory_bytes",
        Key("context_files", of="contexts_on_disk"),
        Key("adapter_bytes", of=lambda timed: timed.adapter_bytes()),
        Key("switching_ms_assumed", rounded=3),
        "notes",
    )

    @property
    def token_ms(self) -> float:
        """Milliseconds of a token."""
        return float(sum(self.token))

    @property
    def chunk_ms(self) -> float:
        """Milliseconds of a chunk of 128 tokens of a prompt: the time to the first token of a prompt that short."""
        return float(sum(self.chunk))

    def shape_facts(self) -> dict[str, Any]:
        """What is known of the model's shape, and what of it is assumed."""
        facts = dataclasses.asdict(self.shape)
        return facts | {"assumed": self.shape.assumed, "parameters": self.shape.parameters}

    @property
    def energy_uj_assumed(self) -> dict[str, float]:
        """Of a token of the answer, and of a chunk of the prompt."""
        return {"token": self.token_uj_assumed, "chunk": self.chunk_uj_assumed}

    @property
    def tokens_per_second(self) -> float:
        """Tokens of an answer a second."""
        return 1e3 / self.token_ms

    @property
    def tokens_per_second_band(self) -> tuple[float, float]:
        """Where nine of ten such rates are."""
        return self.tokens_per_second * math.exp(-self.token_width), self.tokens_per_second * math.exp(self.token_width)

    @property
    def prompt_tokens_per_second(self) -> float:
        """Tokens of a long prompt a second."""
        return 1e3 * CHUNK / self.chunk_ms

    def first_token_ms(self, prompt: int = CHUNK) -> float:
        """The time to the first token of a prompt of so many tokens: whole chunks."""
        if not 0 < prompt <= self.context:
            raise CallError(f"a prompt of {prompt} tokens: give 1 to {self.context}, the context")
        return math.ceil(prompt / CHUNK) * self.chunk_ms

    def first_token_band(self, prompt: int = CHUNK) -> tuple[float, float]:
        """Where nine of ten such times are."""
        middle = self.first_token_ms(prompt)
        return middle * math.exp(-self.chunk_width), middle * math.exp(self.chunk_width)

    @property
    def contexts_on_disk(self) -> int:
        """How many context files its weights need, each below what a session should hold."""
        return max(1, math.ceil((self.memory_bytes["layers"] + self.memory_bytes["head"]) / ADVISED_BYTES))

    def adapter_bytes(self, rank: int = ADAPTER_RANK) -> int:
        """Bytes of a LoRA adapter of all attention products, in 16 bits."""
        shape = self.shape
        query, cached = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        a_layer = 2 * (shape.hidden + query) + 2 * (shape.hidden + cached)
        return 2 * rank * shape.cached_layers * a_layer

    @property
    def switching_ms_assumed(self) -> dict[str, float]:
        """What it takes to run another graph, another adapter, or a context that is not loaded."""
        weights = self.memory_bytes["layers"] + self.memory_bytes["head"]
        return {
            "graph_of_shared_weights": CALL_MS * self.contexts_on_disk,
            "adapter": CALL_MS * self.contexts_on_disk + self.adapter_bytes() / ADAPTER_GBPS / 1e6,
            "context_from_storage": weights / STORAGE_GBPS / 1e6,
        }


def estimate_llm(
    model: LlmShape | str | Path,
    soc: str = DEFAULT_SOC,
    *,
    context: int = 4096,
    precision: str = "w4a16",
    runtime: str = DEFAULT_RUNTIME,
    filled: int | None = None,
    graph_contexts: Sequence[int] | None = None,
    switches: LlmSwitches | None = None,
    costs: LlmCosts | None = None,
) -> LlmEstimate:
    """How a model answers on a chip: a shape, a folder with config.json, such a file, or the name of a public model.

    `filled` is how many positions hold tokens while the answer is timed: the whole context through geniex and 256
    through genie by default, as their figures are measured. `graph_contexts` are the contexts that the bundle has
    graphs for; genie runs the smallest that holds what is filled. By default that is the context alone, or the usual
    ones below it for a model that sees pictures.
    """
    shape = model if isinstance(model, LlmShape) else read_shape(model)
    chip = require_chip(soc)
    path = SAME_RUNTIME.get(runtime, runtime)
    if path not in RUNTIMES:
        raise CallError(f"runtime {runtime!r}: is none of {', '.join(RUNTIMES)}{did_you_mean(runtime, RUNTIMES)}")
    if precision not in PRECISIONS:
        known = ", ".join(PRECISIONS)
        raise CallError(f"precision {precision!r}: is none of {known}{did_you_mean(precision, PRECISIONS)}")
    if not CHUNK <= context <= 1 << 20:
        raise CallError(f"context {context}: give {CHUNK} to {1 << 20} positions")
    asked = switches or LlmSwitches()
    through_genie = path == "genie"
    used = (min(FILLED_BY_GENIE, context) if through_genie else context) if filled is None else filled
    if not 1 <= used <= context:
        raise CallError(f"filled {used}: give 1 to {context}, the context")
    graph = _graph_context(shape, context, used, graph_contexts) if through_genie else context
    refused = native_refusals(shape, chip, graph)
    if asked.native_kv and refused:
        raise CallError(f"{shape.name} on {chip.name}: the cache cannot be native: {'; '.join(refused)}")
    known_costs = costs or read_costs()
    values = dict(known_costs.values)
    if asked.native_kv:
        values["attention_kv_head"] = 0.0
    if not asked.masked_softmax:
        values["unmasked_share"] = 1.0
    compute, memory, stands_on = known_costs.factors(chip, path)
    work = dataclasses.replace(
        work_of(shape, precision, graph, used),
        speculative=float(asked.speculative),
        waits_for_host=float(shape.vision and (stands_on, path) == SLOW_HOST),
    )
    chunk, token = chunk_time(values, work, compute), token_time(values, work, compute, memory)
    widths = dict(known_costs.bands[path])
    if stands_on != chip.name:
        widths = {what: width + known_costs.unmeasured[what] for what, width in widths.items()}
    parts = memory_parts(shape, precision, graph)
    return LlmEstimate(
        shape, chip.name, path, precision, context, graph, used, asked, chunk, token,
        widths["chunk"], widths["token"],
        _token_uj(token, parts["layers"] + parts["head"] + parts["cache"], precision),
        _chunk_uj(chunk, parts["layers"] + parts["head"] + parts["cache"], precision),
        parts, stands_on, _notes(shape, chip, path, precision, context, stands_on, refused, parts),
    )  # fmt: skip


def _graph_context(shape: LlmShape, context: int, filled: int, graph_contexts: Sequence[int] | None) -> int:
    """The context of the graph that genie runs: the smallest that holds what is filled."""
    usual = [c for c in LADDER if c < context] if shape.vision else []
    return min(c for c in (*(usual if graph_contexts is None else graph_contexts), context) if c >= filled)


def native_refusals(shape: LlmShape, chip: Soc, context: int) -> list[str]:
    """Why a model's cache cannot lie as the matrix unit reads it; empty where it can."""
    reasons = []
    if context % NATIVE_CONTEXTS:
        reasons.append(f"a context of {context} is no multiple of {NATIVE_CONTEXTS}")
    if shape.head_dim % NATIVE_HEADS:
        reasons.append(f"heads of {shape.head_dim} are no multiple of {NATIVE_HEADS}")
    if chip.htp_arch < NATIVE_ARCH:
        reasons.append(f"{chip.name} is v{chip.htp_arch}; it begins with v{NATIVE_ARCH}")
    if context >= NATIVE_PER_VTCM_MB * chip.vtcm_mb:
        reasons.append(f"{chip.vtcm_mb} MB of VTCM do not hold a context of {context}")
    return reasons


def memory_parts(shape: LlmShape, precision: str, context: int) -> dict[str, int]:
    """Bytes of a model by part, in a graph of a context."""
    bits = PRECISIONS[precision]
    return {
        "layers": round(shape.layer_parameters * bits.weight / 8),
        "head": round(shape.head_parameters * bits.head / 8),
        "embedding on the host": shape.head_parameters * EMBEDDING_BITS // 8,
        "cache": round(shape.cached_values(context) * bits.cache / 8),
        "activations of a chunk": 2 * CHUNK * (4 * shape.hidden + 2 * shape.ffn + shape.vocab),
    }


def _token_uj(token: TokenTime, read_bytes: int, precision: str) -> float:
    """Energy of a token: the matrix unit streams weights while they arrive, vectors do the rest (assumed)."""
    busy = 1e3 * float(token.weights + token.head) / 4
    vector, control = 1e3 * float(token.attention), 1e3 * float(token.layers)
    whole = 1e3 * float(sum(token) - token.host)
    rate = PRECISIONS[precision].activations
    return accelerator_uj(UnitTimes({rate: busy}, vector, control, whole, read_bytes), Power("burst"))


def _chunk_uj(chunk: ChunkTime, read_bytes: int, precision: str) -> float:
    rate = PRECISIONS[precision].activations
    vector = 1e3 * float(chunk.attention + chunk.logits)
    times = UnitTimes({rate: 1e3 * float(chunk.products)}, vector, 0.0, 1e3 * float(sum(chunk)), read_bytes)
    return accelerator_uj(times, Power("burst"))


def _notes(
    shape: LlmShape,
    chip: Soc,
    runtime: str,
    precision: str,
    context: int,
    stands_on: str,
    refused: list[str],
    parts: Mapping[str, int],
) -> tuple[str, ...]:
    """What the reader of an estimate must know of it."""
    notes = list(shape.assumed)
    if shape.positions and context > shape.positions:
        notes.append(f"the model was made for {shape.positions:,} positions; a context of {context:,} is beyond them")
    if stands_on != chip.name:
        notes.append(f"no language model was measured on {chip.name}: it stands on {stands_on}, scaled (assumed)")
    if runtime == "genie" and stands_on == "SC8380XP":
        notes.append("genie's rows of this chip contradict each other by up to 1.7 times; nobody knows why")
        if shape.vision:
            notes.append("models that see pictures took about 140 ms more a token there, in two families")
    if not PRECISIONS[precision].measured:
        notes.append(f"no language model was measured at {precision}: as many times the bytes (assumed)")
    if precision == "w4":
        notes.append("float activations were measured for one family alone")
    if shape.wide_attention and PRECISIONS[precision].activations != "float":
        notes.append("attention multiplies with keys and values of 16 bits, as the published recipe of its family does")
    if shape.experts > 1:
        notes.append("no model with experts was measured with these runtimes")
    if refused:
        notes.append(f"the cache cannot be native: {'; '.join(refused)}")
    if (cache := parts["cache"]) > SESSION_BYTES:
        notes.append(f"the cache of {cache / 1e9:.1f} GB is more than a session of {SESSION_BYTES / 1e9:.1f} GB holds")
    return tuple(notes)
