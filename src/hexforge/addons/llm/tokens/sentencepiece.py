# SPDX-License-Identifier: Apache-2.0
"""SentencePieceTokens: the tokenizer.model of SentencePiece, of the kind that Llama 2 and Gemma have.

That is: pairs joined by score (BPE), letters that are no token as bytes, and texts taken as they are.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from hexforge.addons.llm.tokens.pairs import PairTokens, check_count, read_tokenizer_file
from hexforge.errors import FormatError, UnsupportedError
from hexforge.model.wire import message_fields

_PIECE, _TRAINING, _TEXT = 1, 2, 3  # fields of the file: a token, how it was trained, what is done to texts
_NORMAL, _NAMED = 1, 4  # kinds of tokens: one of a text, and one that a text names whole
_PAIRS = 2  # the kind of training: BPE


class SentencePieceTokens(PairTokens):
    """A tokenizer of scores, as Llama2cTokens."""

    def __init__(self, path: Path, vocabulary: int) -> None:
        file = _read(path)
        check_count(path, len(file.texts), vocabulary)
        for number in (file.first, file.end):
            if not 0 <= number < len(file.texts):
                raise FormatError(f"{path}: the token that begins or ends a text is {number} of {len(file.texts)}")
        special = {file.texts[i].decode("utf-8", "replace"): i for i, kind in enumerate(file.kinds) if kind == _NAMED}
        super().__init__(file.texts, file.scores, file.first, file.end, special)
        if len(self._bytes) < 256:
            raise UnsupportedError(
                f"{path}: has no tokens for single bytes (byte_fallback), which hexforge needs; a tokenizer.json works"
            )
        for text, kind in zip(file.texts, file.kinds, strict=True):  # others are never made of letters
            if kind != _NORMAL:
                self._numbers.pop(text, None)
        self.begins_with_space = file.dummy_space


@dataclass
class _File:
    texts: list[bytes]
    scores: list[float]
    kinds: list[int]
    first: int = 1
    end: int = 2
    dummy_space: bool = True


def _read(path: Path) -> _File:
    data = read_tokenizer_file(path)
    file, training, rules, name = _File([], [], []), 1, b"", "nmt_nfkc"
    try:
        for number, _, _, start, stop in message_fields(data, 0, len(data)):
            if number == _PIECE:
                text, score, kind = b"", 0.0, _NORMAL
                for field, wire, _, at, end in message_fields(data, start, stop):
                    if (field, wire) == (1, 2):
                        text = data[at:end]
                    elif (field, wire) == (2, 5):
                        (score,) = struct.unpack_from("<f", data, at)
                    elif (field, wire) == (3, 0):
                        kind = _whole(data[at:end])
                file.texts.append(text.replace("▁".encode(), b" "))
                file.scores.append(score)
                file.kinds.append(kind)
            elif number == _TRAINING:
                said = {f: _whole(data[a:e]) for f, w, _, a, e in message_fields(data, start, stop) if w == 0}
                training, file.first, file.end = said.get(3, 1), said.get(41, 1), said.get(42, 2)
            elif number == _TEXT:
                for field, wire, _, at, end in message_fields(data, start, stop):
                    if (field, wire) == (1, 2):
                        name = data[at:end].decode("utf-8", "replace")
                    elif (field, wire) == (2, 2):
                        rules = data[at:end]
                    elif (field, wire) == (3, 0):
                        file.dummy_space = bool(_whole(data[at:end]))
    except FormatError as error:
        raise FormatError(f"{path}: is cut off or damaged, or is no model of SentencePiece's", error.offset) from None
    if not file.texts:
        raise FormatError(f"{path}: has no tokens")
    if training != _PAIRS or rules:
        what = "its texts are normalized" if training == _PAIRS else "it is no model of pairs (BPE)"
        raise UnsupportedError(f"{path}: {what} ({name}), which hexforge does not do; a tokenizer.json works")
    return file


def _whole(data: bytes) -> int:
    """A number of seven bits a byte; those of 64 bits are signed."""
    value = sum((byte & 0x7F) << 7 * i for i, byte in enumerate(data))
    return value - (1 << 64) if value >> 63 else value
