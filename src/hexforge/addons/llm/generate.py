# SPDX-License-Identifier: Apache-2.0
"""Generation: a bundle's graphs run over caches that stay, prompts in chunks, then token by token as one is chosen.

model = hexforge.addons.llm.load("bundle")
for piece in model.session().generate("The following functions", 40):
    print(piece.text, end="")
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import Lock

import numpy as np

from hexforge.addons.llm.bundle import BUNDLE, read_bundle
from hexforge.addons.llm.bundle_graphs import BundleAdapters, BundleGraphs, context_graphs, model_graphs
from hexforge.addons.llm.decoder_graphs import Caches, DecoderFacts, DecoderGraphs
from hexforge.addons.llm.text_tokens import TextTokens
from hexforge.errors import CallError
from hexforge.ir import Array
from hexforge.options import did_you_mean
from hexforge.request_fields import spelled

TEMPERATURE = spelled("0: the most likely token always.")
TOP_K = spelled("Only so many of the most likely; 0: all.")
TOP_P = spelled("Only the most likely that have this share together.")
MIN_P = spelled("Only those that have this part of the likeliest one's share.")
PENALTY = spelled("Above 1: what was there is less likely.")
PRESENCE = spelled("Taken from the score of what the answer has.")
FREQUENCY = spelled("The same for each time that it has it.")
SEED = spelled("The same seed chooses the same tokens.")


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen; without a temperature the most likely one always."""

    temperature: float = field(default=0.0, metadata=TEMPERATURE)
    top_k: int = field(default=0, metadata=TOP_K)
    top_p: float = field(default=1.0, metadata=TOP_P)
    repetition_penalty: float = field(default=1.0, metadata=PENALTY)
    """Logits of tokens that were there are divided by it where they are positive, else multiplied."""
    seed: int | None = field(default=None, metadata=SEED)
    min_p: float = field(default=0.0, metadata=MIN_P)
    presence_penalty: float = field(default=0.0, metadata=PRESENCE)
    frequency_penalty: float = field(default=0.0, metadata=FREQUENCY)
    logit_bias: tuple[tuple[int, float], ...] = ()
    """Tokens, and what is added to the score of each."""

    def __post_init__(self) -> None:
        """CallError for numbers that mean nothing."""
        if not 0 <= self.temperature <= 100 or not 0 < self.top_p <= 1 or self.top_k < 0:
            raise CallError("sampling: temperature is 0 to 100, top_p above 0 and at most 1, top_k at least 0")
        if not 0 < self.repetition_penalty <= 100:
            raise CallError("sampling: repetition_penalty is above 0 and at most 100")
        if not 0 <= self.min_p <= 1 or max(abs(self.presence_penalty), abs(self.frequency_penalty)) > 100:
            raise CallError("sampling: min_p is 0 to 1, presence_penalty and frequency_penalty are -100 to 100")
        if self.seed is not None and self.seed < 0:
            raise CallError(f"sampling: the seed {self.seed} is below 0; give a whole number from 0 on")


@dataclass(frozen=True, slots=True)
class ChatSampling(Sampling):
    """How tokens of a conversation are chosen where nobody says it otherwise: with some chance."""

    temperature: float = field(default=0.7, metadata=TEMPERATURE)
    top_k: int = field(default=40, metadata=TOP_K)
    top_p: float = field(default=0.95, metadata=TOP_P)
    repetition_penalty: float = field(default=1.1, metadata=PENALTY)


class Sampler:
    """Chooses one token after another; the same seed chooses the same."""

    def __init__(self, sampling: Sampling) -> None:
        self.sampling = sampling
        self.answer_begins = 0
        """How many of the tokens that were read are no part of the answer."""
        self._random = np.random.default_rng(sampling.seed)

    def shares(self, logits: Array, before: Sequence[int] = ()) -> Array:
        """The share of each token [vocabulary] in float64; one token has all of it without a temperature."""
        sampling = self.sampling
        scores: Array = self._biased(np.asarray(logits, np.float64), before[self.answer_begins :])
        if sampling.repetition_penalty != 1.0 and before:
            seen = np.unique(np.asarray(before))
            scores = scores.copy()
            scores[seen] = np.where(
                scores[seen] > 0, scores[seen] / sampling.repetition_penalty, scores[seen] * sampling.repetition_penalty
            )
        if sampling.temperature == 0:
            shares: Array = np.zeros(scores.shape)
            shares[int(scores.argmax())] = 1.0
            return shares
        scores = scores / sampling.temperature
        if sampling.top_k and sampling.top_k < scores.size:
            scores = np.where(scores >= np.partition(scores, -sampling.top_k)[-sampling.top_k], scores, -np.inf)
        shares = np.exp(scores - scores.max())
        if sampling.min_p:
            shares = np.where(shares >= sampling.min_p, shares, 0.0)
        shares = shares / shares.sum()
        if sampling.top_p < 1:
            order = np.argsort(-shares, kind="stable")
            kept = order[: int(np.searchsorted(np.cumsum(shares[order]), sampling.top_p)) + 1]
            few = np.zeros(shares.shape)
            few[kept] = shares[kept]
            shares = few / few.sum()
        return shares

    def _biased(self, scores: Array, answer: Sequence[int]) -> Array:
        """The scores with what is added for single tokens, and taken for those that the answer has."""
        sampling = self.sampling
        if sampling.logit_bias or (answer and (sampling.presence_penalty or sampling.frequency_penalty)):
            scores = scores.copy()
        for token, bias in sampling.logit_bias:
            scores[token] += bias
        if answer and (sampling.presence_penalty or sampling.frequency_penalty):
            tokens, counts = np.unique(np.asarray(answer), return_counts=True)
            scores[tokens] -= sampling.presence_penalty + sampling.frequency_penalty * counts
        return scores

    def choose(self, shares: Array) -> int:
        """A token, drawn by the shares."""
        if self.sampling.temperature == 0:
            return int(shares.argmax())
        return min(int(np.searchsorted(np.cumsum(shares), self._random.random(), side="right")), shares.size - 1)

    def accepts(self, probability: float) -> bool:
        """True with a probability."""
        return bool(self._random.random() < probability)


@dataclass(frozen=True, slots=True)
class AnswerPiece:
    """One generated token: its number, what it adds to the text, and how it ended the answer, if it did."""

    token: int
    text: str
    end: str = ""
    """"stop" after an end token or a stop text, "length" after the last token that was asked for."""
    logits: Array | None = None
    """The scores [vocabulary] that it was chosen by, as the model gave them; nothing in a piece without a token."""


READING = AnswerPiece(-1, "")
"""Given in place of a token while a prompt is read, after each piece of it."""


class LanguageModel:
    """A bundle, or a decoder of others, that is loaded: graphs, tokenizer, and sessions over them."""

    def __init__(
        self,
        bundle: DecoderFacts,
        graphs: DecoderGraphs,
        select: Callable[[str], DecoderGraphs] | None = None,
        notes: Sequence[str] = (),
        text: TextTokens | None = None,
    ) -> None:
        self.bundle, self.graphs, self.notes = bundle, graphs, tuple(notes)
        """What `notes` say: where the nodes of an ONNX decoder run, and with which sizes."""
        self._select, self._running, self._selected = select, Lock(), ""
        self._text = text

    @property
    def text(self) -> TextTokens:
        """The model's tokenizer, read when it is first needed."""
        if self._text is None:
            self._text = TextTokens.of_folder(self.bundle.folder, self.bundle.vocabulary)
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
        self.require_adapter(adapter)
        if adapter != self._selected and self._select is not None:
            self.graphs = self._select(adapter)
            self._selected = adapter

    def require_adapter(self, name: str) -> None:
        """CallError for an adapter that the model does not have; the base is called ""."""
        known = self.bundle.adapters
        if name and name not in known:
            have = f"it has {', '.join(known)}" if known else "it has none"
            raise CallError(f"{self.bundle.folder}: no adapter {name!r}; {have}{did_you_mean(name, known)}")

    def prepare_adapters(self) -> None:
        """Load all adapters now, so that no switch to one takes more than a moment."""
        for adapter in (*self.bundle.adapters, ""):
            self.select(adapter)

    @contextmanager
    def running(self, adapter: str) -> Iterator[DecoderGraphs]:
        """The graphs with an adapter; sessions with other ones wait meanwhile."""
        if self._select is None:
            yield self.graphs
            return
        with self._running:
            self.select(adapter)
            yield self.graphs


@dataclass
class LlmSession:
    """Tokens that a model has read, with their keys and values."""

    model: LanguageModel
    tokens: list[int] = field(default_factory=list)
    """Read so far."""
    adapter: str = ""
    """The LoRA adapter that it reads with; the base alone where it is empty."""
    _caches: Caches = field(default_factory=dict)
    _stale: bool = False
    """Whether the caches no longer hold what the tokens put there, which are read again then."""

    def __post_init__(self) -> None:
        """Begin with empty caches."""
        self._caches = self.model.graphs.empty_caches()

    def rewind(self, count: int) -> None:
        """Forget all but the first `count` tokens; what the caches hold of the others is written over."""
        if not 0 <= count <= len(self.tokens):
            raise CallError(f"{len(self.tokens)} tokens were read; it cannot go back to {count}")
        self._stale |= not self.model.graphs.keeps(len(self.tokens), count)
        del self.tokens[count:]

    def keep_start_of(self, tokens: Sequence[int]) -> int:
        """Forget what some tokens do not begin with, and say how many they have in common with what was read."""
        pairs = enumerate(zip(self.tokens, tokens, strict=False))
        known = next((i for i, (read, other) in pairs if read != other), min(len(self.tokens), len(tokens)))
        self.rewind(known)
        return known

    def use(self, adapter: str) -> None:
        """Go on with another adapter, or ("") with the base; what was read is forgotten, because it read otherwise."""
        self.model.require_adapter(adapter)
        if adapter != self.adapter:
            self.rewind(0)
            self.adapter = adapter

    def feed(self, tokens: Sequence[int], *, all_logits: bool = False) -> Array:
        """Read tokens; the logits after the last of them, or [tokens, vocabulary] after each.

        The last token of several is read by itself, so that the others need no logits.
        """
        *_, logits = self._feeding(self._readable(tokens), all_logits)
        return logits

    def _readable(self, tokens: Sequence[int]) -> Array:
        """Tokens that the model knows and its context has room for; CallError for others."""
        bundle = self.model.bundle
        new = np.asarray(tokens)
        if new.ndim != 1 or not new.size:
            raise CallError("there is nothing to read: give at least one token")
        if new.min() < 0 or new.max() >= bundle.vocabulary:
            raise CallError(f"a token is below 0 or above {bundle.vocabulary - 1}, the model's last")
        if len(self.tokens) + len(new) > bundle.context:
            raise CallError(
                f"{len(self.tokens)} tokens and {len(new)} more do not fit the context of {bundle.context}; "
                "shorten the text, or take a longer --context"
            )
        return new

    def _feeding(self, new: Array, all_logits: bool = False) -> Iterator[Array]:
        """Read tokens run by run; what comes last are their logits, before it an empty array after each other run."""
        if self._stale:
            self._read_again()
        graphs, every, done = self.model.graphs, list[Array](), 0
        while done < len(new):
            quiet = graphs.has_quiet_runs and not all_logits and done + 1 < len(new)
            end = len(new) - 1 if quiet else len(new)
            size = graphs.size(end - done, len(self.tokens), all_logits)
            chunk = [int(token) for token in new[done : min(done + size, end)]]
            logits = self._run(size, chunk, quiet)
            if logits is not None:
                every.append(logits[: len(chunk)] if all_logits else logits[min(len(chunk), len(logits)) - 1])
            self.tokens += chunk
            done += len(chunk)
            if done < len(new):
                yield np.empty(0)
        yield np.concatenate(every) if all_logits else every[-1]

    def _run(self, size: int, chunk: Sequence[int], quiet: bool) -> Array | None:
        """Logits, or none; the session changes only where every part has run.

        New rows are put into the caches themselves. Of a run that failed they lie behind what was read, where the next
        one puts its own.
        """
        start = len(self.tokens)
        try:
            with self.model.running(self.adapter) as graphs:
                logits, self._caches = graphs.run(size, chunk, start, self._caches, quiet)
        except BaseException:
            self._stale |= not self.model.graphs.keeps(start + size, start)
            raise
        return logits

    def _read_again(self) -> None:
        """Fill the caches anew."""
        read, self.tokens, self._stale = self.tokens, [], False
        self._caches = self.model.graphs.empty_caches()
        if read:
            self.feed(read)

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
        in_steps: bool = False,
    ) -> Generator[AnswerPiece]:
        """Read a prompt and give one token after another, up to `count`, an end token or a stop text.

        The session then holds what was read and given, and the next prompt goes on from there. With `past_end` an end
        token is one like others. A `draft` model guesses `ahead` tokens, which are then read at once: the tokens are
        chosen as without it, faster where it guesses well and there is a graph for so few tokens (`--ar 128,8,1`).
        With `in_steps` READING is given after each piece of the prompt, so that others can go on in between.
        """
        tokens = self.model.text.encode(prompt, not self.tokens) if isinstance(prompt, str) else list(prompt)
        sampler = Sampler(sampling or Sampling())
        if count < 1:
            raise CallError(f"{count} tokens cannot be given; ask for one or more")
        logits: Array = np.empty(0)
        for logits in self._feeding(self._readable(tokens)):
            if in_steps and not logits.size:
                yield READING
        start = sampler.answer_begins = len(self.tokens)
        held, stream = HeldText(stop), self.model.text.stream()
        chosen = self._chosen(sampler, logits) if draft is None else self._guessed(sampler, logits, draft, ahead)
        with closing(chosen):
            for index, (token, row) in enumerate(chosen):
                if token in self.model.bundle.end_tokens and not past_end:
                    yield AnswerPiece(token, held.rest(), "stop", row)
                    return
                text = held.add(stream.text(token))
                if held.stopped:
                    yield AnswerPiece(token, text, "stop", row)
                    return
                if index + 1 == count or start + index + 1 >= self.model.bundle.context:
                    chosen.close()
                    self.tokens_given(token)
                    yield AnswerPiece(token, text + held.rest(), "length", row)
                    return
                yield AnswerPiece(token, text, logits=row)

    def _chosen(self, sampler: Sampler, logits: Array) -> Generator[tuple[int, Array]]:
        """Tokens one by one, each with its logits; a token is read when the next one is asked for."""
        while True:
            token = sampler.choose(sampler.shares(logits, self.tokens))
            yield token, logits
            logits = self.feed([token])

    def _guessed(
        self, sampler: Sampler, logits: Array, draft: LanguageModel, ahead: int
    ) -> Generator[tuple[int, Array]]:
        """The same tokens where another model guesses some of them, which are then judged together."""
        if draft.bundle.vocabulary != self.model.bundle.vocabulary or ahead < 1:
            raise CallError("a draft model has the tokens of the model, and guesses at least one ahead")
        guesser = draft.session()
        token = sampler.choose(sampler.shares(logits, self.tokens))
        before = len(self.tokens)
        try:
            while True:
                yield token, logits
                room = min(self.model.bundle.context, draft.bundle.context) - before - 1
                guesses, beliefs = guesser.guess([*self.tokens[:before], token], sampler, min(ahead, room))
                rows = self.feed([token, *guesses], all_logits=True)
                for index, row in enumerate(rows):
                    before += 1
                    shares = sampler.shares(row, self.tokens[:before])
                    guess = guesses[index] if index < len(guesses) else None
                    if guess is not None and sampler.accepts(shares[guess] / max(beliefs[index][guess], 1e-300)):
                        yield guess, row
                        continue
                    if guess is not None:  # what the guesses had too little of
                        left = np.maximum(shares - beliefs[index], 0)
                        shares = left / left.sum() if left.sum() > 0 else shares
                    self.rewind(before)
                    token, logits = sampler.choose(shares), row
                    break
        finally:
            self.rewind(min(before, len(self.tokens)))

    def guess(self, tokens: list[int], sampler: Sampler, count: int) -> tuple[list[int], list[Array]]:
        """Tokens that may come after some, and the shares that each was chosen by; what was read before is kept."""
        known = self.keep_start_of(tokens[:-1])
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
        keep = max(map(self._begun, self._stop), default=0)
        shown, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return shown

    def _begun(self, word: str) -> int:
        """How much of the end of the held text is a beginning of `word`; its cost does not grow with `word`."""
        most = min(len(word) - 1, len(self._held))
        return next((n for n in range(most, 0, -1) if word.startswith(self._held[-n:])), 0)

    def rest(self) -> str:
        """What was held back and is no stop text after all."""
        shown, self._held = self._held, ""
        return shown


def load(folder: str | Path, *, backend: str = "", context: int = 0) -> LanguageModel:
    """A bundle, or an ONNX decoder that onnxruntime-genai's builder or optimum wrote, ready to run.

    A bundle's compiled contexts run, or its ONNX models on a `backend` ("cpu", "htp", "gpu"). An ONNX decoder runs as
    onnxruntime with the QNN EP would run it; on "cpu" all of it runs on onnxruntime's CPU, on "htp" or "gpu" that
    backend takes whatever it can. Its caches hold `context` tokens.
    """
    at = Path(folder)
    if not (at / BUNDLE).is_file() and (decoder := _onnx_decoder(at, backend, context)) is not None:
        return decoder
    bundle = read_bundle(at)
    if context not in (0, bundle.context):
        raise CallError(f"{at}: was exported with --context {bundle.context}; export it again for {context}")
    compiled = all(part.context for part in bundle.parts)
    if compiled and not backend:
        contexts, graphs = context_graphs(bundle)
        adapters = BundleAdapters(bundle, contexts)

        def select(adapter: str) -> BundleGraphs:
            adapters.apply(adapter)
            return graphs

        return LanguageModel(bundle, graphs, select if bundle.adapters else None)
    models = cache(lambda adapter: model_graphs(bundle, backend or "htp", adapter))
    return LanguageModel(bundle, models(""), models if bundle.adapters else None)


def _onnx_decoder(at: Path, backend: str, context: int) -> LanguageModel | None:
    """The ONNX decoder of a folder, if it has one; only that imports what reads ONNX, which takes 40 MB."""
    from hexforge.addons.llm.checkpoints.onnx_checkpoint import find_decoder
    from hexforge.addons.llm.onnx_decoder import read_onnx_decoder
    from hexforge.addons.llm.onnx_graphs import open_onnx_graphs

    file = find_decoder(at)
    if file is None:
        return None
    decoder = read_onnx_decoder(at, file, context)
    graphs = open_onnx_graphs(decoder, backend)
    return LanguageModel(decoder, graphs, notes=[graphs.note])
