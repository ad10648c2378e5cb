# SPDX-License-Identifier: Apache-2.0
"""Decoder: the language model in a .pte of ExecuTorch's `llama.py`: tokens in, logits out.

Such a file has the methods `kv_forward` (a token at a time) and maybe `prefill_forward` (several), which take tokens, a
mask, positions and the caches of all layers, and give logits and the new rows of the caches; `get_...` are its facts.
The caches stay with who runs it: new rows are put where the sequence ends, and the mask says which rows count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hexforge.chips.soc import require_chip
from hexforge.errors import CallError, FormatError
from hexforge.executorch.running.chip_time import ChipTime
from hexforge.executorch.running.loading import PteModule, load
from hexforge.executorch.running.method import Method
from hexforge.formats.executorch.pte import TensorValue
from hexforge.ir import Array

KV, PREFILL = "kv_forward", "prefill_forward"
MASKED = -255.0
"""What ExecuTorch's float masks have for a row that does not count."""
_FACTS = ("vocab_size", "max_context_len", "n_layers", "kv_io_bit_width")


@dataclass(frozen=True, slots=True, eq=False)
class DecoderMethod:
    """A method that takes so many tokens at once."""

    method: Method
    tokens: int
    context: int
    layers: int

    @classmethod
    def of(cls, module: PteModule, name: str, context: int, layers: int) -> DecoderMethod:
        """A method of a file; FormatError where it has not the inputs and outputs of a decoder."""
        method = module.method(name)
        ins, outs = method.inputs, method.outputs
        tensors = all(isinstance(value, TensorValue) for value in (*ins, *outs))
        if not tensors or len(ins) != 3 + 2 * layers or len(outs) != 1 + 2 * layers:
            raise FormatError(
                f"{method.where}: has {len(ins)} inputs and {len(outs)} outputs; a decoder of {layers} layers takes "
                f"tokens, a mask, positions and {2 * layers} caches, and gives logits and {2 * layers} rows of caches"
            )
        count = int(ins[0].sizes[-1])
        wanted = [
            np.prod(ins[1].sizes) == count * context,
            ins[2].sizes[-1] == count,
            all(k.sizes[-1] == context - count for k in ins[3 : 3 + layers]),
            all(v.sizes[-2] == context - count for v in ins[3 + layers :]),
            all(k.sizes[-1] == count for k in outs[1 : 1 + layers]),
            all(v.sizes[-2] == count for v in outs[1 + layers :]),
        ]
        if not 0 < count <= context or not all(wanted):
            raise FormatError(f"{method.where}: its inputs are not those of {count} tokens in a context of {context}")
        return cls(method, count, context, layers)


class PteDecoder:
    """A decoder, ready for sessions; with a chip their time is that of its simulated device."""

    def __init__(self, path: Path, soc: str = "") -> None:
        module = load(path)
        if KV not in module.names:
            raise CallError(
                f"{path}: has the methods {', '.join(module.names)}, not {KV}; it is no decoder of llama.py's"
            )
        facts = {name: self._fact(module, f"get_{name}", path) for name in _FACTS}
        self.vocabulary, self.context, self.layers, self.cache_bits = (int(facts[name]) for name in _FACTS)
        self.end_token = int(self._fact(module, "get_eos_id", path))
        self.scale, self.zero_point = 1.0, 0
        if self.cache_bits != 32:
            self.scale = float(self._fact(module, "get_logits_scale", path))
            self.zero_point = int(self._fact(module, "get_logits_zero_point", path))
        names = [name for name in (KV, PREFILL) if name in module.names]
        self.graphs = [DecoderMethod.of(module, name, self.context, self.layers) for name in names]
        modes = [d.options.performance_mode for d in self.graphs[0].method.delegates if d.options is not None]
        chip = None if not soc else require_chip(soc)
        self.clocks = (
            [] if chip is None else [ChipTime(chip, g.method, next(iter(modes), "burst")) for g in self.graphs]
        )

    @staticmethod
    def _fact(module: PteModule, name: str, path: Path) -> Any:
        if name not in module.names:
            raise FormatError(f"{path}: has no {name}; it is no decoder of ExecuTorch's llama.py, or an older one's")
        (value,) = module.run(name, [])
        if not isinstance(value, int | float):
            raise FormatError(f"{path}: {name} is {value!r}, not a number")
        return value

    @property
    def spent_ms(self) -> float:
        """What all runs took on the chip."""
        return sum(clock.now_ns for clock in self.clocks) / 1e6

    def session(self, several: bool = True) -> DecoderSession:
        """A sequence that begins; `several`: prompts go through the method for several tokens, where there is one."""
        return DecoderSession(self, several)


class DecoderSession:
    """One sequence: its tokens, and the caches of all layers."""

    def __init__(self, decoder: PteDecoder, several: bool) -> None:
        self.decoder, self.tokens = decoder, list[int]()
        self._graphs = sorted(decoder.graphs if several else decoder.graphs[:1], key=lambda graph: -graph.tokens)
        graph, layers = decoder.graphs[0], decoder.layers
        caches = graph.method.inputs[3:]
        self._keys = [self._empty(v, -1) for v in caches[:layers]]
        self._values = [self._empty(v, -2) for v in caches[layers:]]
        self.raw: list[Array] = []
        """The logits of every token of the last `feed`, as the method gives them."""

    def _empty(self, value: TensorValue, axis: int) -> Array:
        shape = list(value.sizes)
        shape[axis] = self.decoder.context
        return np.zeros(shape, value.dtype.numpy)

    def feed(self, tokens: Sequence[int]) -> Array:
        """Go on with tokens: the logits behind the last of them, as float32."""
        decoder, left = self.decoder, list(tokens)
        if not left or any(not 0 <= token < decoder.vocabulary for token in left):
            raise CallError(f"tokens are numbers from 0 to {decoder.vocabulary - 1}, and there is at least one")
        if len(self.tokens) + len(left) > decoder.context:
            raise CallError(f"{len(self.tokens) + len(left)} tokens are more than the context of {decoder.context}")
        self.raw = []
        while left:
            room = decoder.context - len(self.tokens)
            graph = next(g for g in self._graphs if g.tokens <= room and (g.tokens == 1 or len(left) > 1))
            self._step(graph, left[: graph.tokens])
            del left[: graph.tokens]
        codes = self.raw[-1].astype(np.float32)
        return (codes - np.float32(decoder.zero_point)) * np.float32(decoder.scale)

    def _step(self, graph: DecoderMethod, tokens: Sequence[int]) -> None:
        past, count, room = len(self.tokens), graph.tokens, graph.context - graph.tokens
        ins = graph.method.inputs
        ids = np.zeros(count, np.int64)
        ids[: len(tokens)] = tokens
        counts = np.zeros((count, graph.context), bool)
        counts[:, :past] = True
        counts[:, room:] = np.tril(np.ones((count, count), bool))
        mask = ins[1].dtype.numpy
        on, off = (0.0, MASKED) if mask.kind == "f" else (np.iinfo(mask).max, 0)
        feeds: list[Array] = [
            ids.astype(ins[0].dtype.numpy).reshape(ins[0].sizes),
            np.where(counts, on, off).astype(mask).reshape(ins[1].sizes),
            (past + np.arange(count)).astype(ins[2].dtype.numpy).reshape(ins[2].sizes),
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
