# SPDX-License-Identifier: Apache-2.0
"""Decoder: the language model in a .pte of ExecuTorch's `llama.py`: tokens in, logits out.

Such a file has the methods `kv_forward` (a token at a time) and maybe `prefill_forward` (several), which take tokens, a
mask, positions and the caches of all layers, and give logits and the new rows of the caches; `get_...` are its facts.
The caches stay with who runs it: new rows are put where the sequence ends, and the mask says which rows count. A model
with local layers takes a second mask, which leaves out what is farther back than its window (`get_sliding_window`).
`PteGraphs` is what sessions of `hexforge.llm` run.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hexforge.addons.executorch.formats.pte import TensorValue
from hexforge.addons.executorch.running.chip_time import ChipTime
from hexforge.addons.executorch.running.method import Method
from hexforge.addons.executorch.running.pte_loading import PteModule, load
from hexforge.chips.soc import require_chip
from hexforge.errors import CallError, FormatError
from hexforge.ir import Array

KV, PREFILL = "kv_forward", "prefill_forward"
MASKED = -255.0
"""What ExecuTorch's float masks have for a row that does not count."""
KEY, VALUE, EVICTED = "key.{}", "value.{}", "evicted"
"""Caches of a session: keys and values of each layer, and how many tokens left them."""
_FACTS = ("vocab_size", "max_context_len", "n_layers", "kv_io_bit_width")


class CacheEvictor(Protocol):
    """What makes room in full caches (attention_sink.py)."""

    evicts: int
    """Tokens that leave at a time."""
    clocks: list[ChipTime]

    def evicted(self, caches: dict[str, Array]) -> dict[str, Array]:
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
    clock: ChipTime | None
    """The device whose time runs take."""

    @property
    def room(self) -> int:
        """The rows of its caches: the most tokens that can have been before."""
        return self.context - self.tokens

    @property
    def caches(self) -> dict[str, TensorValue]:
        """The caches that it takes, in its order."""
        names = [kind.format(layer) for kind in (KEY, VALUE) for layer in range(self.layers)]
        return dict(zip(names, self.method.inputs[2 + self.masks :], strict=True))

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
        return cls(method, count, context, layers, masks, None)


@dataclass(frozen=True, slots=True, eq=False)
class PteDecoder:
    """What a file says of its decoder, and its methods; with a chip their time is that of its simulated device."""

    folder: Path
    name: str
    context: int
    vocabulary: int
    layers: int
    end_tokens: Collection[int]
    methods: tuple[DecoderMethod, ...]
    mode: str
    """The performance mode that it was compiled for."""
    scale: float = 1.0
    zero_point: int = 0
    window: int = 0
    """How far local layers look back; 0: there are none."""


def read_decoder(path: Path, soc: str = "") -> PteDecoder:
    """The decoder in a file; CallError where there is none, FormatError where it is no sound one."""
    module = load(path)
    if KV not in module.names:
        raise CallError(f"{path}: has the methods {', '.join(module.names)}, not {KV}; it is no decoder of llama.py's")
    vocabulary, context, layers, bits = (int(fact(module, f"get_{name}", path)) for name in _FACTS)
    end = int(fact(module, "get_eos_id", path))
    scale, zero_point, window = 1.0, 0, 0
    if bits != 32:
        scale = float(fact(module, "get_logits_scale", path))
        zero_point = int(fact(module, "get_logits_zero_point", path))
    methods = [DecoderMethod.of(module, name, context, layers) for name in (KV, PREFILL) if name in module.names]
    if any(method.masks == 2 for method in methods):
        window = int(fact(module, "get_sliding_window", path))
        if window < 1:
            raise FormatError(f"{path}: get_sliding_window is {window}; a window is of one token or more")
    modes = [d.options.performance_mode for d in methods[0].method.delegates if d.options is not None]
    mode = next(iter(modes), "burst")
    if soc:
        methods = [replace(m, clock=ChipTime(require_chip(soc), m.method, mode)) for m in methods]
    return PteDecoder(
        path.parent, path.stem, context, vocabulary, layers, (end,), tuple(methods), mode, scale, zero_point, window
    )


def fact(module: PteModule, name: str, path: Path) -> Any:
    """A number that a file says of itself; FormatError where it does not."""
    if name not in module.names:
        raise FormatError(f"{path}: has no {name}; it is no decoder of ExecuTorch's llama.py, or an older one's")
    (value,) = module.run(name, [])
    if not isinstance(value, int | float):
        raise FormatError(f"{path}: {name} is {value!r}, not a number")
    return value


class PteGraphs:
    """The methods of a decoder over caches; `several`: prompts go through the method for several tokens, if there is
    one. With an evictor sequences never end.
    """

    has_quiet_runs = False  # the methods always give logits

    def __init__(self, decoder: PteDecoder, several: bool = True, evictor: CacheEvictor | None = None) -> None:
        self.decoder, self.evictor = decoder, evictor
        self.methods = decoder.methods if several else decoder.methods[:1]
        self.raw: Array = np.zeros(0)
        """The logits of the last run's tokens, as its method gives them."""

    @property
    def spent_ms(self) -> float:
        """What all runs took on the chip."""
        clocks = [*(method.clock for method in self.decoder.methods), *(self.evictor.clocks if self.evictor else ())]
        return float(sum(clock.now_ns for clock in clocks if clock is not None)) / 1e6

    def empty_caches(self) -> dict[str, Array]:
        """Caches without a token, with rows for the whole context."""
        caches = {EVICTED: np.zeros((), np.int64)}
        for name, value in self.decoder.methods[0].caches.items():
            shape = list(value.sizes)
            shape[_axis(name)] = self.decoder.context
            caches[name] = np.zeros(shape, value.dtype.numpy)
        return caches

    def size(self, left: int, start: int, every: bool) -> int:
        """Several tokens go through the method for several, one goes through the other; else what has room."""
        del every  # logits come after each token
        order = self.methods[::-1] if left > 1 else self.methods
        fitting = [method for method in order if self.evictor is not None or start <= method.room]
        if not fitting:
            most = max(method.room for method in order)
            raise CallError(
                f"{start} tokens were before, the caches have {most} rows; export with a larger --max_seq_len"
            )
        return fitting[0].tokens

    def keeps(self, read: int, count: int) -> bool:
        """Rows stay where they are until others are put there, but for those that were evicted."""
        return self.evictor is None or read == count

    def run(
        self, size: int, chunk: Sequence[int], start: int, caches: dict[str, Array], quiet: bool
    ) -> tuple[Array | None, dict[str, Array]]:
        """Logits after each token, and the caches."""
        del quiet
        method = next(method for method in self.methods if method.tokens == size)
        while self.evictor is not None and start - int(caches[EVICTED]) > method.room - size:
            caches = {**self.evictor.evicted(caches), EVICTED: caches[EVICTED] + self.evictor.evicts}
        past, count = start - int(caches[EVICTED]), len(chunk)
        taken, at = method.method.inputs[0], method.method.inputs[1 + method.masks]
        ids = np.zeros(size, np.int64)
        ids[:count] = chunk
        feeds: list[Array] = [
            ids.astype(taken.dtype.numpy).reshape(taken.sizes),
            *self._masks(method, past),
            (past + np.arange(size)).astype(at.dtype.numpy).reshape(at.sizes),
            *(np.ascontiguousarray(rows(name, caches[name], 0, method.room)) for name in method.caches),
        ]
        logits, *new = (np.asarray(a) for a in method.method.run(feeds, method.clock))
        for name, given in zip(method.caches, new, strict=True):
            rows(name, caches[name], past, past + count)[...] = rows(name, given, 0, count)
        self.raw = logits.reshape(-1, self.decoder.vocabulary)[:count]
        codes = self.raw.astype(np.float32)
        return (codes - np.float32(self.decoder.zero_point)) * np.float32(self.decoder.scale), caches

    def _masks(self, method: DecoderMethod, past: int) -> list[Array]:
        """What each of the tokens sees of the rows before and of the others: everything, and what is in the window."""
        own = np.arange(method.tokens)
        ago = np.empty((method.tokens, method.context), np.int64)
        ago[:, : method.room] = past + own[:, None] - np.arange(method.room)
        ago[:, method.room :] = own[:, None] - own
        ago[:, past : method.room] = -1
        seen = [ago >= 0, (ago >= 0) & (ago < self.decoder.window)][: method.masks]
        masks = []
        for value, counts in zip(method.method.inputs[1 : 1 + method.masks], seen, strict=True):
            type = value.dtype.numpy
            on, off = (0.0, MASKED) if type.kind == "f" else (np.iinfo(type).max, 0)
            masks.append(np.where(counts, on, off).astype(type).reshape(value.sizes))
        return masks


def rows(name: str, cache: Array, start: int, end: int) -> Array:
    """A view of some tokens' rows of a cache."""
    return cache[..., start:end] if _axis(name) == -1 else cache[..., start:end, :]


def _axis(name: str) -> int:
    """Where the tokens of a cache are: keys lie [head, token], values [token, head]."""
    return -1 if name.startswith(KEY.partition(".")[0]) else -2
