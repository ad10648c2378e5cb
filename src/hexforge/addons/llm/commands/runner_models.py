# SPDX-License-Identifier: Apache-2.0
"""What `hexforge llm llama-runner` runs: a bundle, or the decoder in a .pte with its tokenizer, by the same calls."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from hexforge.addons.llm.commands.runner_prompts import PROMPT_FORMS
from hexforge.errors import CallError
from hexforge.ir import Array

if TYPE_CHECKING:
    from hexforge.addons.llm import LanguageModel
    from hexforge.addons.llm.text_tokens import TextTokens
    from hexforge.addons.llm.tokens.pairs import PairTokens

DEFAULT_TOKENIZER = Path("tokenizer.bin")
AS_THEY_ARE = ("llama2", "codegen")
"""Models whose bundles take a prompt without a chat template."""


@dataclass(frozen=True, slots=True)
class RunnerFiles:
    """What the runner is given: a model, its tokenizer, and maybe what evicts tokens."""

    model: Path
    tokenizer: Path = DEFAULT_TOKENIZER
    evictor: Path | None = None


class RunnerModel(Protocol):
    """A language model over one sequence."""

    @property
    def text(self) -> PairTokens | TextTokens:
        """The tokenizer."""
        ...

    @property
    def context(self) -> int:
        """The most tokens of a sequence."""
        ...

    @property
    def endless(self) -> bool:
        """Whether sequences go on past the context."""
        ...

    @property
    def end_tokens(self) -> Collection[int]:
        """Tokens that end an answer."""
        ...

    @property
    def tokens(self) -> Sequence[int]:
        """Those of the sequence so far."""
        ...

    @property
    def raw_logits(self) -> bytes:
        """The logits of the last tokens that were fed, as they are dumped."""
        ...

    def formatted(self, prompt: str, system: str) -> str:
        """A prompt as the model was taught to read it."""
        ...

    def feed(self, tokens: Sequence[int]) -> Array:
        """Go on with tokens: the logits behind the last."""
        ...

    def spent_ms(self, prompt_tokens: int, before: int, generated: int) -> tuple[float, float] | None:
        """What reading a prompt and the answer took on the chip; None where the time is this computer's."""
        ...


class BundleModel:
    """A bundle of `hexforge llm export`; its times are the estimate's."""

    endless = False

    def __init__(self, files: RunnerFiles, version: str, soc: str) -> None:
        from hexforge.addons.llm import load
        from hexforge.addons.llm.serving.answers import device_pace

        path, tokenizer = files.model, files.tokenizer
        if files.evictor is not None:
            raise CallError(f"{files.evictor}: evicts tokens of a .pte; {path} is a bundle")
        model: LanguageModel = load(path if path.is_dir() else path.parent)
        own = model.bundle.folder / "tokenizer.json"
        if tokenizer != DEFAULT_TOKENIZER:
            if not tokenizer.is_file():
                raise CallError(f"{tokenizer}: Failed to load tokenizer: no such file")
            if tokenizer.read_bytes() != own.read_bytes():
                raise CallError(f"{tokenizer}: is another model's tokenizer; the bundle's is {own}")
        self.text: PairTokens | TextTokens = model.text
        self.context, self.end_tokens = model.bundle.context, model.bundle.end_tokens
        self._session, self._version = model.session(), version
        self._pace = device_pace(model.bundle, soc) if soc else None
        self.raw_logits = b""

    @property
    def tokens(self) -> list[int]:
        """The tokens of the session."""
        return self._session.tokens

    def formatted(self, prompt: str, system: str) -> str:
        """By the bundle's own chat template."""
        if self._version in AS_THEY_ARE:
            return prompt
        before = [{"role": "system", "content": system}] if system else []
        return self.text.chat([*before, {"role": "user", "content": prompt}])

    def feed(self, tokens: Sequence[int]) -> Array:
        """Go on with tokens; logits are dumped as float32."""
        logits = self._session.feed(tokens)
        self.raw_logits = logits.tobytes()
        return logits

    def spent_ms(self, prompt_tokens: int, before: int, generated: int) -> tuple[float, float] | None:
        """By the estimate of the bundle on the chip."""
        if self._pace is None:
            return None
        later = (self._pace.token(before + prompt_tokens + i) for i in range(1, generated))
        return 1e3 * self._pace.first_token(prompt_tokens), 1e3 * sum(later)


class PteModel:
    """A decoder of ExecuTorch's llama.py; its times are those of its delegates on the simulated device."""

    def __init__(self, files: RunnerFiles, version: str, soc: str, several: bool) -> None:
        from hexforge.addons.executorch.running.attention_sink import SinkEvictor
        from hexforge.addons.executorch.running.decoder import PteDecoder

        self._decoder = PteDecoder(files.model, soc)
        evictor = None if files.evictor is None else SinkEvictor(files.evictor, self._decoder, soc)
        self.text, self._form = read_tokenizer(files.tokenizer, self._decoder.vocabulary), PROMPT_FORMS[version]
        used = self._decoder.graphs if several else self._decoder.graphs[:1]
        # Where every method takes several tokens, caches are full before the context is; the last token is not fed.
        self.context = min(self._decoder.context, max(graph.room for graph in used) + 2)
        self.endless = evictor is not None
        self.end_tokens = self._ends()
        self._session = self._decoder.session(several, evictor)
        self._fed: list[tuple[int, float]] = []
        self._told = 0.0
        self.raw_logits = b""

    @property
    def tokens(self) -> list[int]:
        """The tokens of the session."""
        return self._session.tokens

    def _ends(self) -> frozenset[int]:
        """What the tokenizer says, and the words of the version that are tokens; else what the file says."""
        named = {number for word in self._form.ends if (number := self.text.number(word)) is not None}
        from hexforge.addons.llm.tokens.pairs import PairTokens

        own = {self.text.end} if isinstance(self.text, PairTokens) else set()
        return frozenset(named | own) or frozenset({self._decoder.end_token})

    def formatted(self, prompt: str, system: str) -> str:
        """With the words that qnn_llama_runner puts around it."""
        return self._form.formatted(prompt, system)

    def feed(self, tokens: Sequence[int]) -> Array:
        """Go on with tokens; logits are dumped in the type that the method gives."""
        logits = self._session.feed(tokens)
        self.raw_logits = b"".join(row.tobytes() for row in self._session.raw)
        self._fed.append((len(self._session.tokens), self._session.spent_ms))
        return logits

    def spent_ms(self, prompt_tokens: int, before: int, generated: int) -> tuple[float, float] | None:
        """By the clock of the device."""
        if not self._decoder.clocks:
            return None
        read = next(ms for count, ms in self._fed if count >= before + prompt_tokens)
        spent, self._told = (read - self._told, self._fed[-1][1] - read), self._fed[-1][1]
        return spent


def load_model(files: RunnerFiles, version: str, soc: str, several: bool) -> RunnerModel:
    """The model of a path: a .pte, or a bundle; `several`: prompts are read in pieces where the file can."""
    if files.model.suffix == ".pte" and not (files.model.parent / "bundle.json").is_file():
        return PteModel(files, version, soc, several)
    return BundleModel(files, version, soc)


def read_tokenizer(path: Path, vocabulary: int) -> PairTokens | TextTokens:
    """The tokenizer in a file: tokenizer.bin of llama2.c, tokenizer.json, or Tiktoken's or SentencePiece's .model."""
    from hexforge.addons.llm.text_tokens import TOKENIZER, TextTokens

    if path.suffix == ".json":
        if path.name != TOKENIZER:
            raise CallError(f"{path}: a tokenizer in JSON is called {TOKENIZER}")
        return TextTokens(path.parent, vocabulary)
    if path.suffix == ".model":
        from hexforge.addons.llm.tokens.pairs import read_tokenizer_file
        from hexforge.addons.llm.tokens.sentencepiece import SentencePieceTokens
        from hexforge.addons.llm.tokens.tiktoken import TiktokenTokens

        # SentencePiece's files begin with the field of a token, which is no letter of base64.
        kind = SentencePieceTokens if read_tokenizer_file(path)[:1] == b"\n" else TiktokenTokens
        return kind(path, vocabulary)
    from hexforge.addons.llm.tokens.llama2c import Llama2cTokens

    return Llama2cTokens(path, vocabulary)
