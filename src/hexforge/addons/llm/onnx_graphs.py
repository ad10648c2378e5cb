# SPDX-License-Identifier: Apache-2.0
"""OnnxGraphs: an ONNX decoder as it is, run by onnxruntime's CPU or by hexforge's session with the QNN EP.

The QNN EP takes no node whose sizes are open. So sizes are fixed, as free dimensions of a session are: one graph for
one token and one for many, with caches of the whole context in a buffer that past and present share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from hexforge.addons.llm.bundle_graphs import session_run
from hexforge.addons.llm.decoder_graphs import Caches, Run, graph_size
from hexforge.addons.llm.onnx_decoder import BRANCH, OnnxDecoder
from hexforge.errors import CallError, HexforgeError, ModelError, UnsupportedError
from hexforge.ir import Array

CPU, QNN = "CPUExecutionProvider", "QNNExecutionProvider"
PROMPT = 128
"""New tokens of the graph for many."""
CPU_ALONE = "cpu"
"""What --backend calls onnxruntime's own CPU."""
OBEY_EP = "hexforge.obey_ep_limits"


class OnnxGraphs:
    """An ONNX decoder in sessions for any number of tokens, or for each of some sizes."""

    has_quiet_runs = False  # the model always gives logits

    def __init__(self, decoder: OnnxDecoder, run_of: Callable[[int], Run], sizes: Sequence[int], note: str) -> None:
        self._decoder, self._run_of, self._sizes, self.note = decoder, run_of, tuple(sizes), note
        self._pads = not decoder.last_logits_only and not any(cache.window for cache in decoder.caches)

    def empty_caches(self) -> Caches:
        """Caches without a token; those that grow have no row."""
        return {c.past: np.zeros((1, c.heads, c.rows, c.size), c.dtype) for c in self._decoder.caches}

    def size(self, left: int, start: int, every: bool) -> int:
        """As many as are left where sizes are open; logits after each come token by token where only the last has."""
        if every and self._decoder.last_logits_only:
            return 1
        return graph_size(self._sizes, left, self._decoder.context - start, self._pads) if self._sizes else left

    def keeps(self, read: int, count: int) -> bool:
        """Whether no window has lost what was there after `count` tokens."""
        return not count or all(c.evicted(read) == c.evicted(count) for c in self._decoder.caches)

    def run(
        self, size: int, chunk: Sequence[int], start: int, caches: Caches, quiet: bool
    ) -> tuple[Array | None, Caches]:
        """Logits of each token, or of the last alone; new rows are put into the caches where those are buffers."""
        decoder, end = self._decoder, start + size
        ids = np.zeros((1, size))
        ids[0, : len(chunk)] = chunk
        mask = np.arange(decoder.context if self._sizes else end)[None] < end
        given = {"input_ids": ids, "attention_mask": mask, "position_ids": np.arange(start, end)[None]}
        named = {decoder.names[word]: array for word, array in given.items()} | {BRANCH: np.array([start > 0])}
        feeds = {n: np.asarray(a, decoder.inputs[n].dtype) for n, a in named.items() if n in decoder.inputs}
        past = {c.past: caches[c.past] if c.rows else caches[c.past][:, :, :start] for c in decoder.caches}
        targets = {c.present: past[c.past] for c in decoder.caches if c.in_place}
        results = self._run_of(size if self._sizes else 0)(feeds | past, targets, ())
        logits = np.asarray(results[decoder.names["logits"]], np.float32)
        if logits.ndim != 3 or logits.shape[2] != decoder.vocabulary:
            raise ModelError(
                f"{decoder.file}: gives logits of shape {list(logits.shape)}; expected [1, tokens, "
                f"{decoder.vocabulary}]"
            )
        return logits[0], {c.past: results[c.present] for c in decoder.caches}


def open_onnx_graphs(decoder: OnnxDecoder, backend: str = "") -> OnnxGraphs:
    """A decoder, ready to run: as onnxruntime with the QNN EP would run it, all on its "cpu", or on a backend."""
    grows = any(not c.rows for c in decoder.caches)
    if grows and backend not in ("", CPU_ALONE):
        raise CallError(
            f"{decoder.file}: its caches grow token by token, so no size can be fixed for {backend}; leave --backend "
            "out, or export it (`hexforge llm export`)"
        )
    if grows or backend == CPU_ALONE:
        why = "" if backend else "caches grow token by token, and the QNN EP takes no node whose sizes are open: "
        held = all(c.in_place for c in decoder.caches)
        kept = f"caches of {decoder.context:,} tokens are updated in place, " if held else ""
        note = f"{decoder.file.name}: {why}onnxruntime's CPU runs every node; {kept}a prompt is one run"
        run = _cpu_run(decoder)
        return OnnxGraphs(decoder, lambda size: run, (), note)
    sizes = tuple(sorted({min(PROMPT, decoder.context), 1}, reverse=True))
    opened = cache(lambda size: _opened(decoder, backend, size))
    note = _placement(decoder, opened(1), backend, sizes)
    return OnnxGraphs(decoder, cache(lambda size: session_run(opened(size))), sizes, note)


def _opened(decoder: OnnxDecoder, backend: str, size: int) -> Any:
    """A session with QNN for so many new tokens."""
    import hexforge

    options = hexforge.SessionOptions()
    for name, length in _fixed(decoder, size).items():
        options.add_free_dimension_override_by_name(name, length)
    if not backend:
        options.add_session_config_entry(OBEY_EP, "1")
    return hexforge.InferenceSession(decoder.file, options, providers=[(QNN, {"backend_type": backend or "htp"})])


def _fixed(decoder: OnnxDecoder, size: int) -> dict[str, int]:
    """Sizes of the model's open dimensions by their names, for so many new tokens."""
    shapes = {decoder.names["input_ids"]: (1, size), decoder.names["attention_mask"]: (1, decoder.context),
              decoder.names["position_ids"]: (1, size), BRANCH: (1,)}  # fmt: skip
    shapes |= {c.past: (1, c.heads, c.rows, c.size) for c in decoder.caches}
    fixed: dict[str, int] = {}
    for name, value in decoder.inputs.items():
        wanted = shapes[name]
        if value.shape is None or len(value.shape) != len(wanted):
            raise UnsupportedError(
                f"{decoder.file}: input {name!r} is declared as {value.shape}, not as {list(wanted)}"
            )
        for dim, length in zip(value.shape, wanted, strict=True):
            if isinstance(dim, int) and dim == length:
                continue
            if not isinstance(dim, str) or fixed.setdefault(dim, length) != length:
                raise UnsupportedError(
                    f"{decoder.file}: input {name!r} of {list(value.shape)} cannot be {list(wanted)}; "
                    "--backend cpu runs it with open sizes"
                )
    return fixed


def _placement(decoder: OnnxDecoder, session: Any, backend: str, sizes: Sequence[int]) -> str:
    """Which sizes were fixed, and where the nodes run."""
    rows = session.placements
    left = Counter(row.op_type for row in rows if row.where != QNN)
    taker = "the QNN EP, which takes no node whose sizes are open," if not backend else f"the {backend} backend"
    where = f"{taker} takes {len(rows) - left.total()} of {len(rows)} nodes"
    rest = ", ".join(f"{count} {op}" for op, count in left.most_common(4)) + (", …" if len(left) > 4 else "")
    size = " or ".join(map(str, sorted(sizes)))
    return (
        f"{decoder.file.name}: sizes are fixed as free dimensions of a session: {size} new tokens, caches of "
        f"{decoder.context:,}; {where}" + (f", and onnxruntime's CPU runs {rest}" if left else "")
    )


def _cpu_run(decoder: OnnxDecoder) -> Run:
    """What runs a model on onnxruntime's CPU with any number of new tokens; targets are bound as outputs."""
    import hexforge

    try:
        session: Any = hexforge.InferenceSession(decoder.file, providers=[CPU])
    except HexforgeError:
        raise
    except Exception as error:  # onnxruntime's errors have no class in common
        raise UnsupportedError(f"{decoder.file}: onnxruntime does not load it: {error}") from None
    names = [output.name for output in session.get_outputs()]

    def run(feeds: Mapping[str, Array], targets: Mapping[str, Array], unwanted: Collection[str]) -> Mapping[str, Array]:
        binding = session.io_binding()
        dense = {name: np.ascontiguousarray(array) for name, array in feeds.items()}
        for name, array in dense.items():
            binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        wanted = [name for name in names if name not in unwanted]
        for name in wanted:
            if (target := targets.get(name)) is None:
                binding.bind_output(name)
            else:
                binding.bind_output(name, "cpu", 0, target.dtype, target.shape, target.ctypes.data)
        try:
            session.run_with_iobinding(binding)
        except Exception as error:  # onnxruntime's errors have no class in common
            raise ModelError(f"{decoder.file}: onnxruntime failed: {error}") from None
        results = dict(zip(wanted, binding.get_outputs(), strict=True))
        return {name: targets[name] if name in targets else value.numpy() for name, value in results.items()}

    return run
