# SPDX-License-Identifier: Apache-2.0
"""Generation: a bundle's graphs run one after the other over caches that stay, prompts in chunks, then token by token.

model = hexforge.llm.load("bundle")
for piece in model.session().generate("The following functions", 40):
    print(piece.text, end="")
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from hexforge.errors import CallError
from hexforge.formats.hmx_layout import KEY_TILE, VALUE_TILE, to_hmx
from hexforge.ir import Array
from hexforge.llm.bundle import (
    LOGITS,
    PAST,
    POSITIONS,
    PRESENT,
    STATE,
    TOKENS,
    Bundle,
    BundlePart,
    adapted_file,
    read_bundle,
)
from hexforge.llm.lora.context_adapters import ContextAdapters
from hexforge.llm.precision import CACHE_ZERO
from hexforge.llm.sampling import Sampler, Sampling
from hexforge.llm.text_tokens import TextTokens

if TYPE_CHECKING:
    from hexforge.runtime.contexts.context import Context

Run = Callable[[Mapping[str, Array], Mapping[str, Array], Collection[str]], Mapping[str, Array]]
"""Outputs by name for inputs by name; an output is the array given for it where the program can write it there. Those
that are named last are not wanted."""
Runs = Mapping[int, Sequence[Run]]
"""For each number of new tokens the graphs of a bundle's parts."""
PADDED_SHARE = 8
"""A rest of a prompt of at least an eighth of a graph's tokens goes through that graph, padded."""
ROWS_TOGETHER = 32
"""Fewer new tokens than this a run go into a native cache only up to so far from its end."""


@dataclass(frozen=True, slots=True)
class AnswerPiece:
    """One generated token: its number, what it adds to the text, and how it ended the answer, if it did."""

    token: int
    text: str
    end: str = ""
    """"stop" after an end token or a stop text, "length" after the last token that was asked for."""


class LanguageModel:
    """A bundle that is loaded: graphs, tokenizer, and sessions over them."""

    def __init__(self, bundle: Bundle, runs: Runs, select: Callable[[str], Runs] | None = None) -> None:
        self.bundle, self.runs = bundle, runs
        self._select, self._running, self._selected = select, Lock(), ""
        self._text: TextTokens | None = None

    @property
    def text(self) -> TextTokens:
        """The tokenizer."""
        if self._text is None:
            self._text = TextTokens(self.bundle.folder, self.bundle.vocabulary)
        return self._text

    def session(self, adapter: str = "") -> LlmSession:
        """A conversation of its own, with a LoRA adapter or with the base alone."""
        session = LlmSession(self)
        session.use(adapter)
        return session

    def generate(
        self, prompt: str | Sequence[int], count: int = 128, sampling: Sampling | None = None,
        stop: Sequence[str] = (), adapter: str = "",
    ) -> str:  # fmt: skip
        """The text after a prompt, up to `count` tokens."""
        return "".join(piece.text for piece in self.session(adapter).generate(prompt, count, sampling, stop))

    def select(self, adapter: str) -> None:
        """Have the graphs run with an adapter from here on, or ("") as the base; the first time loads it.

        Sessions do this themselves before each run.
        """
        self.bundle.require_adapter(adapter)
        if adapter != self._selected and self._select is not None:
            self.runs = self._select(adapter)
            self._selected = adapter

    def prepare_adapters(self) -> None:
        """Load all adapters now, so that no switch to one takes more than a moment."""
        for adapter in (*self.bundle.adapters, ""):
            self.select(adapter)

    @contextmanager
    def running(self, adapter: str) -> Iterator[Runs]:
        """The graphs with an adapter; sessions with other ones wait meanwhile."""
        if self._select is None:
            yield self.runs
            return
        with self._running:
            self.select(adapter)
            yield self.runs

    def empty_caches(self) -> dict[str, Array]:
        """Caches without a token, by the names of the inputs."""
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


@dataclass
class LlmSession:
    """Tokens that a model has read, with their keys and values."""

    model: LanguageModel
    tokens: list[int] = field(default_factory=list)
    """Read so far."""
    adapter: str = ""
    """The LoRA adapter that it reads with; the base alone where it is empty."""
    _caches: dict[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Empty caches."""
        self._caches = self.model.empty_caches()

    def rewind(self, count: int) -> None:
        """Forget all but the first `count` tokens; what the caches hold of the others is written over."""
        if not 0 <= count <= len(self.tokens):
            raise CallError(f"{len(self.tokens)} tokens were read; it cannot go back to {count}")
        del self.tokens[count:]

    def use(self, adapter: str) -> None:
        """Go on with another adapter, or ("") with the base; what was read is forgotten, because it read otherwise."""
        self.model.bundle.require_adapter(adapter)
        if adapter != self.adapter:
            self.rewind(0)
            self.adapter = adapter

    def feed(self, tokens: Sequence[int], *, all_logits: bool = False) -> Array:
        """Read tokens; the logits after the last of them, or [tokens, vocabulary] after each.

        The last token of several is read by itself, so that the others need no logits.
        """
        bundle = self.model.bundle
        new = np.asarray(tokens)
        if new.ndim != 1 or not new.size:
            raise CallError("there is nothing to read: give at least one token")
        if new.min() < 0 or new.max() >= bundle.vocabulary:
            raise CallError(f"a token is below 0 or above {bundle.vocabulary - 1}, the model's last")
        if len(self.tokens) + len(new) > bundle.context:
            raise CallError(
                f"{len(self.tokens)} tokens and {len(new)} more do not fit the context of {bundle.context}; "
                "shorten the text, or export with a longer --context"
            )
        every: list[Array] = []
        done = 0
        while done < len(new):
            quiet = not all_logits and done + 1 < len(new)
            end = len(new) - 1 if quiet else len(new)
            size = self._graph_size(end - done)
            chunk = [int(token) for token in new[done : min(done + size, end)]]
            logits = self._run(size, chunk, quiet)
            if logits is not None:
                every.append(logits[: len(chunk)] if all_logits else logits[len(chunk) - 1])
            self.tokens += chunk
            done += len(chunk)
        return np.concatenate(every) if all_logits else every[-1]

    def _graph_size(self, left: int) -> int:
        """New tokens of the graph that reads the next chunk; padding may not go beyond the context."""
        room = self.model.bundle.context - len(self.tokens)
        for size in self.model.bundle.tokens:
            if size <= room and (left >= size or left * PADDED_SHARE >= size):
                return size
        return 1

    def _run(self, size: int, chunk: Sequence[int], quiet: bool) -> Array | None:
        """Logits [size, vocabulary], or none; the session changes only where every part has run.

        New rows are put into the caches themselves. Of a run that failed they lie behind what was read, where the next
        one puts its own.
        """
        start = len(self.tokens)
        ids = np.zeros((1, size), np.int32)
        ids[0, : len(chunk)] = chunk
        feeds: dict[str, Array] = {TOKENS: ids, POSITIONS: np.arange(start, start + size, dtype=np.int32)[None]}
        caches = dict(self._caches)
        with self.model.running(self.adapter) as runs:
            for run, part in zip(runs[size], self.model.bundle.parts, strict=True):
                names = [(layer, kind) for layer in range(part.first, part.last) for kind in ("key", "value")]
                past = {PAST.format(*name): caches[PAST.format(*name)] for name in names}
                targets = {PRESENT.format(*name): past[PAST.format(*name)] for name in names}
                given = run(feeds | past, targets, (LOGITS,) if quiet else ())
                caches |= {PAST.format(*name): given[PRESENT.format(*name)] for name in names}
                feeds = {POSITIONS: feeds[POSITIONS]}
                if f"{STATE}_out" in given:
                    feeds[STATE] = given[f"{STATE}_out"]
        self._caches = caches
        return None if quiet else given[LOGITS][0]

    def generate(
        self,
        prompt: str | Sequence[int],
        count: int = 128,
        sampling: Sampling | None = None,
        stop: Sequence[str] = (),
        *,
        past_end: bool = False,
        draft: LanguageModel | None = None,
        ahead: int = 4,
    ) -> Generator[AnswerPiece]:
        """Read a prompt and give one token after another, up to `count`, an end token or a stop text.

        The session then holds what was read and given, and the next prompt goes on from there. With `past_end` an end
        token is one like others. A `draft` model guesses `ahead` tokens, which are then read at once: the tokens are
        chosen as without it, faster where it guesses well and there is a graph for so few tokens (`--ar 128,8,1`).
        """
        tokens = self.model.text.encode(prompt, not self.tokens) if isinstance(prompt, str) else list(prompt)
        sampler = Sampler(sampling or Sampling())
        if count < 1:
            raise CallError(f"{count} tokens cannot be given; ask for one or more")
        logits = self.feed(tokens)
        start = len(self.tokens)
        held, stream = HeldText(stop), self.model.text.stream()
        chosen = self._chosen(sampler, logits) if draft is None else self._guessed(sampler, logits, draft, ahead)
        with closing(chosen):
            for index, token in enumerate(chosen):
                if token in self.model.bundle.end_tokens and not past_end:
                    yield AnswerPiece(token, held.rest(), "stop")
                    return
                text = held.add(stream.text(token))
                if held.stopped:
                    yield AnswerPiece(token, text, "stop")
                    return
                if index + 1 == count or start + index + 1 >= self.model.bundle.context:
                    chosen.close()
                    self.tokens_given(token)
                    yield AnswerPiece(token, text + held.rest(), "length")
                    return
                yield AnswerPiece(token, text)

    def _chosen(self, sampler: Sampler, logits: Array) -> Generator[int]:
        """Tokens one by one; a token is read when the next one is asked for."""
        while True:
            token = sampler.choose(sampler.shares(logits, self.tokens))
            yield token
            logits = self.feed([token])

    def _guessed(self, sampler: Sampler, logits: Array, draft: LanguageModel, ahead: int) -> Generator[int]:
        """The same tokens where another model guesses some of them, which are then judged together."""
        if draft.bundle.vocabulary != self.model.bundle.vocabulary or ahead < 1:
            raise CallError("a draft model has the tokens of the model, and guesses at least one ahead")
        guesser = draft.session()
        token = sampler.choose(sampler.shares(logits, self.tokens))
        before = len(self.tokens)
        try:
            while True:
                yield token
                room = min(self.model.bundle.context, draft.bundle.context) - before - 1
                guesses, beliefs = guesser.guess([*self.tokens[:before], token], sampler, min(ahead, room))
                rows = self.feed([token, *guesses], all_logits=True)
                for index, row in enumerate(rows):
                    before += 1
                    shares = sampler.shares(row, self.tokens[:before])
                    guess = guesses[index] if index < len(guesses) else None
                    if guess is not None and sampler.accepts(shares[guess] / max(beliefs[index][guess], 1e-300)):
                        yield guess
                        continue
                    if guess is not None:  # what the guesses had too little of
                        left = np.maximum(shares - beliefs[index], 0)
                        shares = left / left.sum() if left.sum() > 0 else shares
                    self.rewind(before)
                    token = sampler.choose(shares)
                    break
        finally:
            self.rewind(min(before, len(self.tokens)))

    def guess(self, tokens: list[int], sampler: Sampler, count: int) -> tuple[list[int], list[Array]]:
        """Tokens that may come after some, and the shares that each was chosen by; what was read before is kept."""
        known = 0
        while known < min(len(self.tokens), len(tokens) - 1) and self.tokens[known] == tokens[known]:
            known += 1
        self.rewind(known)
        guesses: list[int] = []
        beliefs: list[Array] = []
        new = tokens[known:]
        while len(guesses) < count:
            shares = sampler.shares(self.feed(new), self.tokens)
            guesses.append(sampler.choose(shares))
            beliefs.append(shares)
            new = guesses[-1:]
        return guesses, beliefs

    def tokens_given(self, token: int) -> None:
        """Read the last token of an answer, so that the next prompt comes after it, if the context has room."""
        if len(self.tokens) < self.model.bundle.context:
            self.feed([token])


class HeldText:
    """Text that is held back while it may be the beginning of a stop text."""

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = [text for text in stop if text]
        self._held, self.stopped = "", False

    def add(self, text: str) -> str:
        """What can be shown after more text has come."""
        self._held += text
        places = [at for word in self._stop if (at := self._held.find(word)) >= 0]
        if places:
            self.stopped = True
            shown, self._held = self._held[: min(places)], ""
            return shown
        keep = max(
            (n for word in self._stop for n in range(1, len(word)) if self._held.endswith(word[:n])), default=0
        )  # fmt: skip
        shown, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return shown

    def rest(self) -> str:
        """What was held back and is no stop text after all."""
        shown, self._held = self._held, ""
        return shown


def load(folder: str | Path, *, backend: str = "") -> LanguageModel:
    """A bundle, ready to run: its compiled contexts, or its ONNX models on a `backend` ("cpu", "htp", "gpu")."""
    bundle = read_bundle(folder)
    compiled = all(part.context for part in bundle.parts)
    if compiled and not backend:
        contexts, runs = _context_runs(bundle)
        adapters = ContextAdapters(bundle, contexts)

        def select(adapter: str) -> Runs:
            adapters.apply(adapter)
            return runs

        return LanguageModel(bundle, runs, select if bundle.adapters else None)
    models = cache(lambda adapter: _model_runs(bundle, backend or "htp", adapter))
    return LanguageModel(bundle, models(""), models if bundle.adapters else None)


def _context_runs(bundle: Bundle) -> tuple[list[Context], Runs]:
    import hexforge

    contexts, runs = [], {size: list[Run]() for size in bundle.tokens}
    for part in bundle.parts:
        loaded = hexforge.load_context(bundle.folder / part.context)
        contexts.append(loaded.context)
        for size in bundle.tokens:
            run = loaded.programs[graph_name(size)].run_into
            runs[size].append(_laid_out(run, part) if bundle.native and size % ROWS_TOGETHER else run)
    return contexts, runs


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


def _model_runs(bundle: Bundle, backend: str, adapter: str) -> Runs:
    import hexforge

    def run_of(path: Path) -> Run:
        providers = [("QNNExecutionProvider", {"backend_type": backend})]
        session = hexforge.InferenceSession(path, providers=providers)
        names = [output.name for output in session.get_outputs()]

        def run(
            feeds: Mapping[str, Array], targets: Mapping[str, Array], unwanted: Collection[str]
        ) -> Mapping[str, Array]:
            wanted = [name for name in names if name not in unwanted]
            return dict(zip(wanted, session.run_into(wanted, feeds, targets, None), strict=True))

        return run

    return {
        size: [run_of(bundle.folder / adapted_file(part.graphs[size], adapter)) for part in bundle.parts]
        for size in bundle.tokens
    }


def graph_name(tokens: int) -> str:
    """What the graph for so many new tokens is called in a context."""
    return f"ar{tokens}"
