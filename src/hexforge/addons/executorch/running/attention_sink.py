# SPDX-License-Identifier: Apache-2.0
"""SinkEvictor: the attention_sink_evictor.pte of ExecuTorch's `llama.py`, which makes room in full caches.

Its `kv_forward` takes the caches of all layers and gives them back without some of the oldest rows: those of the first
tokens stay (the sink), the others move up, and their keys are turned to their new positions.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hexforge.addons.executorch.formats.pte import TensorValue
from hexforge.addons.executorch.running.chip_time import ChipTime
from hexforge.addons.executorch.running.decoder import KV, PteDecoder, fact, rows
from hexforge.addons.executorch.running.pte_loading import load
from hexforge.chips.soc import require_chip
from hexforge.errors import CallError, FormatError
from hexforge.ir import Array


class SinkEvictor:
    """Evicts tokens from the caches of one decoder; with a chip its time is that of its simulated device."""

    def __init__(self, path: Path, decoder: PteDecoder, soc: str = "") -> None:
        module = load(path)
        if KV not in module.names:
            raise CallError(f"{path}: has the methods {', '.join(module.names)}, not {KV}; llama.py's evictors have it")
        names = ("get_sink_size", "get_eviction_batch_size", "get_max_context_len")
        self.sink, self.evicts, context = (int(fact(module, name, path)) for name in names)
        self._method, self._graph = module.method(KV), decoder.methods[0]
        if context != decoder.context or self.sink < 0 or not 0 < self.evicts <= self._graph.room - self.sink:
            raise FormatError(
                f"{path}: keeps {self.sink} tokens and evicts {self.evicts} of a context of {context}; the decoder's "
                f"is {decoder.context}: export both at once"
            )
        wanted = [(v.sizes, v.dtype) for v in self._graph.caches.values()]
        for values in (self._method.inputs, self._method.outputs):
            if [(v.sizes, v.dtype) for v in values if isinstance(v, TensorValue)] != wanted:
                raise FormatError(f"{path}: {KV}'s inputs or outputs are not the decoder's caches: export both at once")
        self.clocks = [ChipTime(require_chip(soc), self._method, decoder.mode)] if soc else []

    def evicted(self, caches: dict[str, Array]) -> dict[str, Array]:
        """Caches without the oldest rows behind the sink."""
        room, names = self._graph.room, list(self._graph.caches)
        feeds = [np.ascontiguousarray(rows(name, caches[name], 0, room)) for name in names]
        given = self._method.run(feeds, self.clocks[0] if self.clocks else None)
        made = {name: caches[name].copy() for name in names}
        for name, new in zip(names, given, strict=True):
            rows(name, made[name], 0, room)[...] = new
        return made
