# SPDX-License-Identifier: Apache-2.0
"""Llama2cTokens: the tokenizer.bin of llama2.c, as ExecuTorch's exporter writes it.

u32 tokens, u32 first token of a text, u32 end token, u32 bytes of the longest token; little-endian
for each token: f32 score, u32 bytes, the bytes of its text
"""

from __future__ import annotations

import struct
from pathlib import Path

from hexforge.addons.llm.tokens.pairs import PairTokens, check_count, read_tokenizer_file
from hexforge.errors import FormatError

_HEADER, _ENTRY = struct.Struct("<IIII"), struct.Struct("<fI")


class Llama2cTokens(PairTokens):
    """A tokenizer of scores over a whole text, which begins with a space."""

    def __init__(self, path: Path, vocabulary: int) -> None:
        data = read_tokenizer_file(path)
        if len(data) < _HEADER.size:
            raise FormatError(f"{path}: is no tokenizer.bin: it has {len(data)} bytes")
        count, first, end, _ = _HEADER.unpack_from(data)
        check_count(path, count, vocabulary)
        texts: list[bytes] = []
        scores: list[float] = []
        at = _HEADER.size
        for number in range(count):
            if at + _ENTRY.size > len(data):
                raise FormatError(f"{path}: is cut short at token {number} of {count}", at)
            score, size = _ENTRY.unpack_from(data, at)
            at += _ENTRY.size
            if size > len(data) - at:
                raise FormatError(f"{path}: token {number} has {size} bytes, which the file has not", at)
            texts.append(data[at : at + size])
            scores.append(score)
            at += size
        super().__init__(texts, scores, first, end)
