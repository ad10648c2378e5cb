# SPDX-License-Identifier: Apache-2.0
"""What `hexforge llm llama-runner` runs: a bundle, or the decoder in a .pte with its tokenizer, by the same calls."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from hexforge.errors import CallError
from hexforge.ir import Array

if TYPE_CHECKING:
    from hexforge.llm import LanguageModel
    from hexforge.llm.llama2c_tokens import Llama2cTokens
    from hexforge.llm.text_tokens import TextTokens


class RunnerModel(Protocol):
    """A language model over one sequence."""

    @property
    def text(self) -> Llama2cTokens | TextTokens:
        """The tokenizer."""
        ...

    @property
    def context(self) -> int:
        """The most tokens of a sequence."""
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

    def feed(self, tokens: Sequence[int]) -> Array:
        """Go on with tokens: the logits behind the last."""
        ...

    def spent_ms(self, prompt_tokens: int, before: int, generated: int) -> tuple[float, float] | None:
        """What reading a prompt and the answer took on the chip; None where the time is this computer's."""
        ...


class BundleModel:
    """A bundle of `hexforge llm export`; its times are the estimate's."""

    def __init__(self, path: Path, tokenizer: Path | None, soc: str) -> None:
        from hexforge.llm import load
        from hexforge.llm.serving.answers import device_pace

        model: LanguageModel = load(path if path.is_dir() else path.parent)
        own = model.bundle.folder / "tokenizer.json"
        if tokenizer is not None:
            if not tokenizer.is_file():
                raise CallError(f"{tokenizer}: Failed to load tokenizer: no such file")
            if tokenizer.read_bytes() != own.read_bytes():
                raise CallError(f"{tokenizer}: is another model's tokenizer; the bundle's is {own}")
        self.text: Llama2cTokens | TextTokens = model.text
        self.context, self.end_tokens = model.bundle.context, model.bundle.end_tokens
        self._session = model.session()
        self._pace = device_pace(model.bundle, soc) if soc else None
        self.raw_logits = b""

    @property
    def tokens(self) -> list[int]:
        """The tokens of the session."""
        return self._session.tokens

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

    def __init__(self, path: Path, tokenizer: Path, soc: str, several: bool) -> None:
        from hexforge.executorch.running.decoder import PteDecoder

        self._decoder = PteDecoder(path, soc)
        self.text = read_tokenizer(tokenizer, self._decoder.vocabulary)
        self.context, self.end_tokens = self._decoder.context, (self._decoder.end_token,)
        self._session = self._decoder.session(several)
        self._fed: list[tuple[int, float]] = []
        self._told = 0.0
        self.raw_logits = b""

    @property
    def tokens(self) -> list[int]:
        """The tokens of the session."""
        return self._session.tokens

    def feed(self, tokens: Sequence[int]) -> Array:
        """Go on with tokens; logits are dumped in the type that the method gives."""
        logits = self._session.feed(tokens)
        self.raw_logits = b"".join(row.tobytes() for row in self._session.raw)
        self._fed.append((len(self._session.tokens), self._decoder.spent_ms))
        return logits

    def spent_ms(self, prompt_tokens: int, before: int, generated: int) -> tuple[float, float] | None:
        """By the clock of the device."""
        if not self._decoder.clocks:
            return None
        read = next(ms for count, ms in self._fed if count >= before + prompt_tokens)
        spent, self._told = (read - self._told, self._fed[-1][1] - read), self._fed[-1][1]
        return spent


def read_tokenizer(path: Path, vocabulary: int) -> Llama2cTokens | TextTokens:
    """The tokenizer in a file: tokenizer.bin of llama2.c, or a tokenizer.json."""
    if path.suffix != ".json":
        from hexforge.llm.llama2c_tokens import Llama2cTokens

        return Llama2cTokens(path, vocabulary)
    from hexforge.llm.text_tokens import TOKENIZER, TextTokens

    if path.name != TOKENIZER:
        raise CallError(f"{path}: a tokenizer in JSON is called {TOKENIZER}")
    return TextTokens(path.parent, vocabulary)
