# SPDX-License-Identifier: Apache-2.0
"""Llama2cTokens: the tokenizer.bin of llama2.c, as ExecuTorch's exporter writes it, with the calls of TextTokens.

u32 tokens, u32 first token of a text, u32 end token, u32 bytes of the longest token; little-endian
for each token: f32 score, u32 bytes, the bytes of its text
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from pathlib import Path

from hexforge.errors import CallError, FormatError
from hexforge.llm.text_tokens import Message

_HEADER, _ENTRY = struct.Struct("<IIII"), struct.Struct("<fI")
_MOST_TOKENS, _MOST_BYTES = 1 << 20, 64 << 20
_BYTE = re.compile(rb"<0x([0-9A-Fa-f]{2})>")


class Llama2cTokens:
    """A tokenizer of scores: neighbours whose joined text has the best score become one token, again and again."""

    def __init__(self, path: Path, vocabulary: int) -> None:
        if not path.is_file():
            raise CallError(f"{path}: Failed to load tokenizer: no such file")
        if path.stat().st_size > _MOST_BYTES:
            raise FormatError(f"{path}: has {path.stat().st_size:,} bytes; a tokenizer has at most {_MOST_BYTES:,}")
        data = path.read_bytes()
        if len(data) < _HEADER.size:
            raise FormatError(f"{path}: is no tokenizer.bin: it has {len(data)} bytes")
        count, self.first, self.end, _ = _HEADER.unpack_from(data)
        if count > min(vocabulary, _MOST_TOKENS):
            raise FormatError(f"{path}: has {count} tokens, and the model knows {vocabulary}; it is another model's")
        self.texts: list[bytes] = []
        self.scores: list[float] = []
        at = _HEADER.size
        for number in range(count):
            if at + _ENTRY.size > len(data):
                raise FormatError(f"{path}: is cut short at token {number} of {count}", at)
            score, size = _ENTRY.unpack_from(data, at)
            at += _ENTRY.size
            if size > len(data) - at:
                raise FormatError(f"{path}: token {number} has {size} bytes, which the file has not", at)
            self.texts.append(data[at : at + size])
            self.scores.append(score)
            at += size
        self._numbers: dict[bytes, int] = {}
        for number, text in enumerate(self.texts):
            self._numbers.setdefault(text, number)
        self._bytes = {int(match[1], 16): i for i, text in enumerate(self.texts) if (match := _BYTE.fullmatch(text))}

    def encode(self, text: str, special: bool = True) -> list[int]:
        """The tokens of a text; `special`: behind the one that begins a text."""
        tokens: list[int] = []
        for letter in f" {text}" if text else "":
            raw = letter.encode("utf-8", "surrogateescape")
            if raw in self._numbers:
                tokens.append(self._numbers[raw])
            else:
                tokens += [self._bytes[byte] for byte in raw if byte in self._bytes]
        while (best := self._best(tokens)) is not None:
            at, number = best
            tokens[at : at + 2] = [number]
        return [self.first] * special + tokens

    def _best(self, tokens: Sequence[int]) -> tuple[int, int] | None:
        """The first pair of neighbours with the best score, and the token that it becomes."""
        best: tuple[float, int, int] | None = None
        for at in range(len(tokens) - 1):
            number = self._numbers.get(self.texts[tokens[at]] + self.texts[tokens[at + 1]])
            if number is not None and (best is None or self.scores[number] > best[0]):
                best = (self.scores[number], at, number)
        return None if best is None else best[1:]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, those that begin and end a text left out."""
        return b"".join(map(self._piece, tokens)).decode("utf-8", "replace").removeprefix(" ")

    def stream(self) -> Llama2cStream:
        """Text that comes token by token."""
        return Llama2cStream(self)

    def chat(self, messages: Sequence[Message]) -> str:
        """A conversation as it is: such models know no roles."""
        return "".join(f"{message['content']}" for message in messages)

    def _piece(self, token: int) -> bytes:
        if token in (self.first, self.end) or not 0 <= token < len(self.texts):
            return b""
        text = self.texts[token]
        match = _BYTE.fullmatch(text)
        return bytes([int(match[1], 16)]) if match else text


class Llama2cStream:
    """Gives the text of each token as soon as it is whole."""

    def __init__(self, tokens: Llama2cTokens) -> None:
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
