# SPDX-License-Identifier: Apache-2.0
"""PairTokens: tokenizers that join neighbours, the pair whose joined text has the best score first, again and again.

llama2.c's files, Tiktoken's and SentencePiece's are read into it; it has the calls of TextTokens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from hexforge.addons.llm.text_tokens import MOST_BYTES, Message
from hexforge.errors import CallError, FormatError

_MOST_TOKENS = 1 << 20
_BYTE = re.compile(rb"<0x([0-9A-Fa-f]{2})>")


def read_tokenizer_file(path: Path) -> bytes:
    """The bytes of a tokenizer's file; an error where it is missing or far too large."""
    if not path.is_file():
        raise CallError(f"{path}: Failed to load tokenizer: no such file")
    if path.stat().st_size > MOST_BYTES:
        raise FormatError(f"{path}: has {path.stat().st_size:,} bytes; a tokenizer has at most {MOST_BYTES:,}")
    return path.read_bytes()


def check_count(path: Path, count: int, vocabulary: int) -> None:
    """FormatError where a tokenizer has more tokens than its model knows."""
    if count > min(vocabulary, _MOST_TOKENS):
        raise FormatError(f"{path}: has {count} tokens, and the model knows {vocabulary}; it is another model's")


class PairTokens:
    """The tokens of a model by number: their bytes and scores, and those that begin and end a text.

    `special`: tokens that a text names whole, and which are never made of pairs.
    """

    begins_with_space = True
    """Whether a text is read as if a space stood before it."""

    def __init__(
        self, texts: list[bytes], scores: list[float], first: int, end: int, special: Mapping[str, int] | None = None
    ) -> None:
        self.texts, self.scores, self.first, self.end = texts, scores, first, end
        self._special = dict(special or {})
        self._names = re.compile("(" + "|".join(map(re.escape, self._special)) + ")") if special else None
        self._numbers: dict[bytes, int] = {}
        for number, text in enumerate(texts):
            self._numbers.setdefault(text, number)
        self._bytes = {int(match[1], 16): i for i, text in enumerate(texts) if (match := _BYTE.fullmatch(text))}

    def encode(self, text: str, special: bool = True) -> list[int]:
        """The tokens of a text; `special`: behind the one that begins a text."""
        tokens = [self.first] if special else []
        text = f" {text}" if text and self.begins_with_space else text
        for part in self._names.split(text) if self._names else (text,):
            tokens += [self._special[part]] if part in self._special else self._plain(part) if part else []
        return tokens

    def _plain(self, text: str) -> list[int]:
        """The tokens of a text that names no special one."""
        return self._joined(self._letters(text))

    def number(self, word: str) -> int | None:
        """The token of exactly this text, where there is one."""
        return self._special.get(word, self._numbers.get(word.encode()))

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, those that begin and end a text left out."""
        text = b"".join(map(self._piece, tokens)).decode("utf-8", "replace")
        return text.removeprefix(" ") if self.begins_with_space else text

    def stream(self) -> PairStream:
        """Text that comes token by token."""
        return PairStream(self)

    def chat(self, messages: Sequence[Message]) -> str:
        """A conversation as it is: these files know no roles."""
        return "".join(f"{message['content']}" for message in messages)

    def _letters(self, text: str) -> list[int]:
        """A token for each letter, or for each byte of a letter that is none."""
        tokens: list[int] = []
        for letter in text:
            raw = letter.encode("utf-8", "surrogateescape")
            if raw in self._numbers:
                tokens.append(self._numbers[raw])
            else:
                tokens += [self._bytes[byte] for byte in raw if byte in self._bytes]
        return tokens

    def _joined(self, tokens: list[int]) -> list[int]:
        """Tokens whose neighbours are joined for as long as any can be."""
        while (best := self._best(tokens)) is not None:
            at, number = best
            tokens[at : at + 2] = [number]
        return tokens

    def _best(self, tokens: Sequence[int]) -> tuple[int, int] | None:
        """The first pair of neighbours with the best score, and the token that it becomes."""
        best: tuple[float, int, int] | None = None
        for at in range(len(tokens) - 1):
            number = self._numbers.get(self.texts[tokens[at]] + self.texts[tokens[at + 1]])
            if number is not None and (best is None or self.scores[number] > best[0]):
                best = (self.scores[number], at, number)
        return None if best is None else best[1:]

    def _piece(self, token: int) -> bytes:
        if token in (self.first, self.end) or not 0 <= token < len(self.texts):
            return b""
        text = self.texts[token]
        match = _BYTE.fullmatch(text)
        return bytes([int(match[1], 16)]) if match else text


class PairStream:
    """Gives the text of each token as soon as it is whole."""

    def __init__(self, tokens: PairTokens) -> None:
        self._tokens, self._left = tokens, b""

    def text(self, token: int) -> str:
        """What one more token adds; nothing while a letter is not whole."""
        self._left += self._tokens._piece(token)
        for end in range(len(self._left), max(len(self._left) - 4, -1), -1):
            try:
                whole = self._left[:end].decode()
            except UnicodeDecodeError:
                continue
            self._left = self._left[end:]
            return whole
        whole, self._left = self._left.decode("utf-8", "replace"), b""
        return whole
