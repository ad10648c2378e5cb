# SPDX-License-Identifier: Apache-2.0
"""TiktokenTokens: the tokenizer.model of Llama 3: a line for each token, its bytes in base64 and its rank.

The special tokens come behind those of the file, under the names that Llama 3 gives them.
"""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import TYPE_CHECKING

from hexforge.addons.llm.text_tokens import INSTALL
from hexforge.addons.llm.tokens.pairs import PairTokens, check_count, read_tokenizer_file
from hexforge.errors import CallError, FormatError

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import Split

# How Llama 3 cuts a text into words before it joins bytes.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
_NAMED = (
    "begin_of_text", "end_of_text", "reserved_special_token_0", "reserved_special_token_1", "finetune_right_pad_id",
    "step_id", "start_header_id", "end_header_id", "eom_id", "eot_id", "python_tag", "image",
)  # fmt: skip
SPECIAL = tuple(f"<|{name}|>" for name in _NAMED) + tuple(f"<|reserved_special_token_{i}|>" for i in range(2, 246))


class TiktokenTokens(PairTokens):
    """A tokenizer of ranks: within each word, the pair of lowest rank is joined first."""

    begins_with_space = False

    def __init__(self, path: Path, vocabulary: int) -> None:
        texts = _read(path)
        check_count(path, len(texts) + len(SPECIAL), vocabulary)
        special = {name: len(texts) + i for i, name in enumerate(SPECIAL)}
        scores = [-float(rank) for rank in range(len(texts))]
        super().__init__(texts, scores, special[SPECIAL[0]], special[SPECIAL[1]], special)
        absent = [byte for byte in range(256) if bytes([byte]) not in self._numbers]
        if absent:
            raise FormatError(f"{path}: has no token for the byte {absent[0]}; texts with it could not be read")
        self._words = _word_splitter(path)

    def _plain(self, text: str) -> list[int]:
        valid = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        return [token for word, _ in self._words.pre_tokenize_str(valid) for token in self._word(word.encode())]

    def _word(self, word: bytes) -> list[int]:
        if (whole := self._numbers.get(word)) is not None:
            return [whole]
        return self._joined([self._numbers[word[i : i + 1]] for i in range(len(word))])

    def _piece(self, token: int) -> bytes:
        return self.texts[token] if 0 <= token < len(self.texts) else b""


def _read(path: Path) -> list[bytes]:
    """The bytes of all tokens, by rank."""
    texts: dict[bytes, int] = {}
    for number, line in enumerate(read_tokenizer_file(path).splitlines(), 1):
        if not line:
            continue
        where = f"{path}: line {number}"
        coded, _, rank = line.partition(b" ")
        try:
            text = base64.b64decode(coded, validate=True)
        except binascii.Error:
            raise FormatError(f"{where}: is no token in base64 with its rank") from None
        if not text or not rank.isdigit():
            raise FormatError(f"{where}: is no token in base64 with its rank")
        if text in texts:
            raise FormatError(f"{where}: has the token of rank {texts[text]} once more")
        if len(rank) > 9 or int(rank) != len(texts):
            raise FormatError(f"{where}: has rank {rank[:20].decode()}, where {len(texts)} follows; ranks go up by one")
        texts[text] = len(texts)
    if not texts:
        raise FormatError(f"{path}: has no tokens")
    return list(texts)


def _word_splitter(path: Path) -> Split:
    try:
        from tokenizers import Regex, pre_tokenizers
    except ImportError:
        raise CallError(f"{path}: needs the tokenizers package: {INSTALL}") from None
    return pre_tokenizers.Split(Regex(_WORDS), "isolated")
