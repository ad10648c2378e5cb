# SPDX-License-Identifier: Apache-2.0
"""BundleGraphs: the graphs of a bundle's parts, one after the other, from its contexts or models, and its adapters."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hexforge.addons.llm.bundle import (
    LOGITS,
    PAST,
    POSITIONS,
    PRESENT,
    STATE,
    TOKENS,
    Bundle,
    BundlePart,
    adapted_file,
    graph_name,
)
from hexforge.addons.llm.decoder_graphs import Caches, Run, graph_size
from hexforge.addons.llm.exporting.precision import CACHE_ZERO
from hexforge.formats.hmx_layout import KEY_TILE, VALUE_TILE, to_hmx
from hexforge.ir import Array

if TYPE_CHECKING:
    from hexforge.formats.adapter import Adapter
    from hexforge.runtime.contexts.context import Context


class BundleAdapters:
    """Puts a bundle's adapters on its contexts, all parts together or none."""

    def __init__(self, bundle: Bundle, contexts: Sequence[Context]) -> None:
        self._bundle, self._contexts = bundle, contexts
        self._opened = cache(self._open)

    def apply(self, name: str) -> None:
        """Exchange what is applied for an adapter, or ("") for the base, whose bits come back."""
        from hexforge.runtime.contexts.context import exchange_adapters

        opened = self._opened(name) if name else [None] * len(self._contexts)
        exchange_adapters(
            {
                context: dict.fromkeys(
                    context.adapters if adapter is None else (g.name for g in adapter.graphs), adapter
                )
                for context, adapter in zip(self._contexts, opened, strict=True)
            }
        )

    def _open(self, name: str) -> list[Adapter | None]:
        from hexforge.formats.adapter import Adapter

        files = [part.adapters[name] for part in self._bundle.parts]
        return [Adapter(self._bundle.folder / file) if file else None for file in files]


Runs = Mapping[int, Sequence[Run]]
"""For each number of new tokens the graphs of a bundle's parts."""
ROWS_TOGETHER = 32
"""Fewer new tokens than this a run go into a native cache only up to so far from its end."""


class BundleGraphs:
    """The graphs of a bundle."""

    has_quiet_runs = True

    def __init__(self, bundle: Bundle, runs: Runs) -> None:
        self.bundle, self.runs = bundle, runs

    def empty_caches(self) -> dict[str, Array]:
        """Caches without a token."""
        bundle = self.bundle
        rows = (1, bundle.kv_heads, bundle.context, bundle.head_dim)
        columns = (1, bundle.kv_heads, bundle.head_dim, bundle.context)
        quantized = bundle.precision != "float"
        return {
            PAST.format(layer, name): np.full(
                columns if name == "key" and bundle.keys_transposed else rows,
                CACHE_ZERO if quantized else 0,
                np.uint8 if quantized else np.float32,
            )
            for layer in range(bundle.layers)
            for name in ("key", "value")
        }

    def size(self, left: int, start: int, every: bool) -> int:
        """New tokens of the graph that reads the next chunk."""
        del every  # logits come after each token
        return graph_size(self.bundle.tokens, left, self.bundle.context - start)

    def keeps(self, read: int, count: int) -> bool:
        """Rows stay where they are until others are put there."""
        return True

    def run(
        self, size: int, chunk: Sequence[int], start: int, caches: Caches, quiet: bool
    ) -> tuple[Array | None, Caches]:
        """Logits [size, vocabulary], or none, and the caches."""
        ids = np.zeros((1, size), np.int32)
        ids[0, : len(chunk)] = chunk
        feeds: dict[str, Array] = {TOKENS: ids, POSITIONS: np.arange(start, start + size, dtype=np.int32)[None]}
        caches = dict(caches)
        for run, part in zip(self.runs[size], self.bundle.parts, strict=True):
            names = [(layer, kind) for layer in range(part.first, part.last) for kind in ("key", "value")]
            past = {PAST.format(*name): caches[PAST.format(*name)] for name in names}
            targets = {PRESENT.format(*name): past[PAST.format(*name)] for name in names}
            given = run(feeds | past, targets, (LOGITS,) if quiet else ())
            caches |= {PAST.format(*name): given[PRESENT.format(*name)] for name in names}
            feeds = {POSITIONS: feeds[POSITIONS]}
            if f"{STATE}_out" in given:
                feeds[STATE] = given[f"{STATE}_out"]
        return None if quiet else given[LOGITS][0], caches


def context_graphs(bundle: Bundle) -> tuple[list[Context], BundleGraphs]:
    """The contexts of a bundle, and its graphs in them."""
    import hexforge

    contexts, runs = [], {size: list[Run]() for size in bundle.tokens}
    for part in bundle.parts:
        loaded = hexforge.load_context(bundle.folder / part.context)
        contexts.append(loaded.context)
        for size in bundle.tokens:
            run = loaded.programs[graph_name(size)].run_into
            runs[size].append(_laid_out(run, part) if bundle.native and size % ROWS_TOGETHER else run)
    return contexts, BundleGraphs(bundle, runs)


def _laid_out(run: Run, part: BundlePart) -> Run:
    """A run that takes native caches and gives flat ones, with what it gives laid out as the next run takes it."""
    tiles = [
        (PRESENT.format(layer, name), tile)
        for layer in range(part.first, part.last)
        for name, tile in (("key", KEY_TILE), ("value", VALUE_TILE))
    ]

    def both(
        feeds: Mapping[str, Array], targets: Mapping[str, Array], unwanted: Collection[str]
    ) -> Mapping[str, Array]:
        del targets
        given = run(feeds, {}, unwanted)
        return {**given, **{name: to_hmx(given[name], tile) for name, tile in tiles}}

    return both


def model_graphs(bundle: Bundle, backend: str, adapter: str) -> BundleGraphs:
    """A bundle's ONNX models on a backend, with an adapter or ("") without."""
    import hexforge

    def run_of(path: Path) -> Run:
        providers = [("QNNExecutionProvider", {"backend_type": backend})]
        return session_run(hexforge.InferenceSession(path, providers=providers))

    runs = {
        size: [run_of(bundle.folder / adapted_file(part.graphs[size], adapter)) for part in bundle.parts]
        for size in bundle.tokens
    }
    return BundleGraphs(bundle, runs)


def session_run(session: Any) -> Run:
    """What runs a session of hexforge."""
    names = [output.name for output in session.get_outputs()]

    def run(feeds: Mapping[str, Array], targets: Mapping[str, Array], unwanted: Collection[str]) -> Mapping[str, Array]:
        wanted = [name for name in names if name not in unwanted]
        return dict(zip(wanted, session.run_into(wanted, feeds, targets, None), strict=True))

    return run
