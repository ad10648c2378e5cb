# SPDX-License-Identifier: Apache-2.0
"""Decoder: the language model in a .pte of ExecuTorch's `llama.py`: tokens in, logits out.

Such a file has the methods `kv_forward` (a token at a time) and maybe `prefill_forward` (several), which take tokens, a
mask, positions and the caches of all layers, and give logits and the new rows of the caches; `get_...` are its facts.
The caches stay with who runs it: new rows are put where the sequence ends, and the mask says which rows count. A model
with local layers takes a second mask, which leaves out what is farther back than its window (`get_sliding_window`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hexforge.addons.executorch.formats.pte import TensorValue
from hexforge.addons.executorch.running.chip_time import ChipTime
from hexforge.addons.executorch.running.loading import PteModule, load
from hexforge.addons.executorch.running.method import Method
from hexforge.chips.soc import require_chip
from hexforge.errors import CallError, FormatError
from hexforge.ir import Array

KV, PREFILL = "kv_forward", "prefill_forward"
MASKED = -255.0
"""What ExecuTorch's float masks have for a row that does not count."""
_FACTS = ("vocab_size", "max_context_len", "n_layers", "kv_io_bit_width")


class CacheEvictor(Protocol):
    """What makes room in full caches (attention_sink.py)."""

    evicts: int
    """Tokens that leave at a time."""
    clocks: list[ChipTime]

    def evicted(self, keys: Sequence[Array], values: Sequence[Array]) -> tuple[list[Array], list[Array]]:
        """Caches without them."""


@dataclass(frozen=True, slots=True, eq=False)
class DecoderMethod:
    """A method that takes so many tokens at once."""

    method: Method
    tokens: int
    context: int
    layers: int
    masks: int
    """One, or two where local layers see a window."""

    @property
    def room(self) -> int:
        """The rows of its caches: the most tokens that can have been before."""
        return self.context - self.tokens

    @classmethod
    def of(cls, module: PteModule, name: str, context: int, layers: int) -> DecoderMethod:
        """A method of a file; FormatError where it has not the inputs and outputs of a decoder."""
        method = module.method(name)
        ins, outs = method.inputs, method.outputs
        tensors = all(isinstance(value, TensorValue) for value in (*ins, *outs))
        masks = len(ins) - 2 - 2 * layers
        if not tensors or masks not in (1, 2) or len(outs) != 1 + 2 * layers:
            raise FormatError(
                f"{method.where}: has {len(ins)} inputs and {len(outs)} outputs; a decoder of {layers} layers takes "
                f"tokens, a mask or two, positions and {2 * layers} caches, and gives logits and {2 * layers} new rows"
            )
        count, caches = int(ins[0].sizes[-1]), ins[2 + masks :]
        wanted = [
            all(np.prod(mask.sizes) == count * context for mask in ins[1 : 1 + masks]),
            ins[1 + masks].sizes[-1] == count,
            all(k.sizes[-1] == context - count for k in caches[:layers]),
            all(v.sizes[-2] == context - count for v in caches[layers:]),
            all(k.sizes[-1] == count for k in outs[1 : 1 + layers]),
            all(v.sizes[-2] == count for v in outs[1 + layers :]),
        ]
        if not 0 < count <= context or not all(wanted):
            raise FormatError(f"{method.where}: its inputs are not those of {count} tokens in a context of {context}")
        return cls(method, count, context, layers, masks)


class PteDecoder:
    """A decoder, ready for sessions; with a chip their time is that of its simulated device."""

    def __init__(self, path: Path, soc: str = "") -> None:
        module = load(path)
        if KV not in module.names:
            raise CallError(
                f"{path}: has the methods {', '.join(module.names)}, not {KV}; it is no decoder of llama.py's"
            )
        facts = {name: self.fact(module, f"get_{name}", path) for name in _FACTS}
        self.vocabulary, self.context, self.layers, self.cache_bits = (int(facts[name]) for name in _FACTS)
        self.end_token = int(self.fact(module, "get_eos_id", path))
        self.scale, self.zero_point = 1.0, 0
        if self.cache_bits != 32:
            self.scale = float(self.fact(module, "get_logits_scale", path))
            self.zero_point = int(self.fact(module, "get_logits_zero_point", path))
        names = [name for name in (KV, PREFILL) if name in module.names]
        self.graphs = [DecoderMethod.of(module, name, self.context, self.layers) for name in names]
        self.window = 0
        if any(graph.masks == 2 for graph in self.graphs):
            self.window = int(self.fact(module, "get_sliding_window", path))
            if self.window < 1:
                raise FormatError(f"{path}: get_sliding_window is {self.window}; a window is of one token or more")
        modes = [d.options.performance_mode for d in self.graphs[0].method.delegates if d.options is not None]
        self.mode = next(iter(modes), "burst")
        self.clocks = [ChipTime(require_chip(soc), g.method, self.mode) for g in self.graphs] if soc else []

    @staticmethod
    def fact(module: PteModule, name: str, path: Path) -> Any:
        """A number that a file says of itself; FormatError where it does not."""
        if name not in module.names:
            raise FormatError(f"{path}: has no {name}; it is no decoder of ExecuTorch's llama.py, or an older one's")
        (value,) = module.run(name, [])
        if not isinstance(value, int | float):
            raise FormatError(f"{path}: {name} is {value!r}, not a number")
        return value

    def session(self, several: bool = True, evictor: CacheEvictor | None = None) -> DecoderSession:
        """A sequence that begins; `several`: prompts go through the method for several tokens, where there is one."""
        return DecoderSession(self, several, evictor)


class DecoderSession:
    """One sequence: its tokens, and the caches of all layers; with an evictor it never ends."""

    def __init__(self, decoder: PteDecoder, several: bool, evictor: CacheEvictor | None = None) -> None:
        self.decoder, self.tokens, self.evictor = decoder, list[int](), evictor
        self._graphs = decoder.graphs if several else decoder.graphs[:1]
        self._past = 0
        """Rows of the caches that count: all tokens that were not evicted."""
        graph, layers = decoder.graphs[0], decoder.layers
        caches = graph.method.inputs[2 + graph.masks :]
        self._keys = [self._empty(v, -1) for v in caches[:layers]]
        self._values = [self._empty(v, -2) for v in caches[layers:]]
        self.raw: list[Array] = []
        """The logits of every token of the last `feed`, as the method gives them."""

    def _empty(self, value: TensorValue, axis: int) -> Array:
        shape = list(value.sizes)
        shape[axis] = self.decoder.context
        return np.zeros(shape, value.dtype.numpy)

    @property
    def spent_ms(self) -> float:
        """What all runs took on the chip."""
        clocks = [*self.decoder.clocks, *(self.evictor.clocks if self.evictor else ())]
        return float(sum(clock.now_ns for clock in clocks)) / 1e6

    def feed(self, tokens: Sequence[int]) -> Array:
        """Go on with tokens: the logits behind the last of them, as float32."""
        decoder, left = self.decoder, list(tokens)
        if not left or any(not 0 <= token < decoder.vocabulary for token in left):
            raise CallError(f"tokens are numbers from 0 to {decoder.vocabulary - 1}, and there is at least one")
        if self.evictor is None and len(self.tokens) + len(left) > decoder.context:
            raise CallError(f"{len(self.tokens) + len(left)} tokens are more than the context of {decoder.context}")
        self.raw = []
        while left:
            # Several tokens go through the method for several, one goes through the other; else what has room.
            order = self._graphs[::-1] if len(left) > 1 else self._graphs
            if self.evictor is not None:
                while self._past + order[0].tokens > order[0].room:
                    self._keys, self._values = self.evictor.evicted(self._keys, self._values)
                    self._past -= self.evictor.evicts
            graph = next((g for g in order if self._past <= g.room), None)
            if graph is None:
                most = max(g.room for g in order)
                raise CallError(
                    f"{self._past} tokens were before, the caches have {most} rows; export with a larger --max_seq_len"
                )
            self._step(graph, left[: graph.tokens])
            del left[: graph.tokens]
        codes = self.raw[-1].astype(np.float32)
        return (codes - np.float32(decoder.zero_point)) * np.float32(decoder.scale)

    def _masks(self, graph: DecoderMethod) -> list[Array]:
        """What each of the tokens sees of the rows before and of the others: everything, and what is in the window."""
        own = np.arange(graph.tokens)
        ago = np.empty((graph.tokens, graph.context), np.int64)
        ago[:, : graph.room] = self._past + own[:, None] - np.arange(graph.room)
        ago[:, graph.room :] = own[:, None] - own
        ago[:, self._past : graph.room] = -1
        seen = [ago >= 0, (ago >= 0) & (ago < self.decoder.window)][: graph.masks]
        masks = []
        for value, counts in zip(graph.method.inputs[1 : 1 + graph.masks], seen, strict=True):
            type = value.dtype.numpy
            on, off = (0.0, MASKED) if type.kind == "f" else (np.iinfo(type).max, 0)
            masks.append(np.where(counts, on, off).astype(type).reshape(value.sizes))
        return masks

    def _step(self, graph: DecoderMethod, tokens: Sequence[int]) -> None:
        past, count, room = self._past, graph.tokens, graph.room
        taken, at = graph.method.inputs[0], graph.method.inputs[1 + graph.masks]
        ids = np.zeros(count, np.int64)
        ids[: len(tokens)] = tokens
        feeds: list[Array] = [
            ids.astype(taken.dtype.numpy).reshape(taken.sizes),
            *self._masks(graph),
            (past + np.arange(count)).astype(at.dtype.numpy).reshape(at.sizes),
            *(np.ascontiguousarray(keys[..., :room]) for keys in self._keys),
            *(np.ascontiguousarray(values[..., :room, :]) for values in self._values),
        ]
        clocks = self.decoder.clocks
        clock = clocks[self.decoder.graphs.index(graph)] if clocks else None
        logits, *rows = (np.asarray(a) for a in graph.method.run(feeds, clock))
        here, end = len(tokens), past + len(tokens)
        for keys, new in zip(self._keys, rows[: graph.layers], strict=True):
            keys[..., past:end] = new[..., :here]
        for values, new in zip(self._values, rows[graph.layers :], strict=True):
            values[..., past:end, :] = new[..., :here, :]
        self.raw += list(logits.reshape(-1, self.decoder.vocabulary)[:here])
        self.tokens += tokens
        self._past = end
