# SPDX-License-Identifier: Apache-2.0
"""Tokenizers in other files than tokenizer.json, as tokenizers of the `tokenizers` package.

- tokenizer.bin of llama2.c, as ExecuTorch's exporter writes it: u32 tokens, u32 first token of a text, u32 end token,
  u32 bytes of the longest token; for each token f32 score, u32 bytes and the bytes of its text; little-endian.
- tokenizer.model of SentencePiece, of the kind that Llama 2 and Gemma have: pairs joined by score (BPE), letters that
  are no token as bytes, and texts taken as they are.
- tokenizer.model of Llama 3 (Tiktoken's): a line for each token, its bytes in base64 and its rank; the special tokens
  come behind those of the file, under the names that Llama 3 gives them.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
from codecs import getincrementaldecoder
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hexforge.addons.llm.text_tokens import MOST_BYTES, TOKENIZER, TextStream, TextTokens, require_tokenizers
from hexforge.errors import CallError, FormatError, UnsupportedError
from hexforge.model.wire import message_fields

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_MOST_TOKENS = 1 << 20
_BYTE = re.compile(rb"<0x([0-9A-Fa-f]{2})>")
_HEADER, _ENTRY = struct.Struct("<IIII"), struct.Struct("<fI")
_PIECE, _TRAINING, _TEXT = 1, 2, 3  # fields of SentencePiece's file: a token, how it was trained, what texts become
_NORMAL, _NAMED = 1, 4  # kinds of tokens: one of a text, and one that a text names whole
_PAIRS = 2  # the kind of training: BPE
# How Llama 3 cuts a text into words before it joins bytes.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
_LLAMA3_NAMES = (
    "begin_of_text", "end_of_text", "reserved_special_token_0", "reserved_special_token_1", "finetune_right_pad_id",
    "step_id", "start_header_id", "end_header_id", "eom_id", "eot_id", "python_tag", "image",
)  # fmt: skip
SPECIAL = (
    *(f"<|{name}|>" for name in _LLAMA3_NAMES), *(f"<|reserved_special_token_{i}|>" for i in range(2, 246)),
)  # fmt: skip


class FileTokens(TextTokens):
    """A tokenizer whose file has the bytes of each token, and says which tokens begin and end a text."""

    def __init__(
        self, tokenizer: Tokenizer, pieces: Sequence[bytes], first: int, end: int, begins_with_space: bool
    ) -> None:
        super().__init__(tokenizer)
        self._pieces, self._first, self._space = pieces, first, begins_with_space
        self.end_tokens = frozenset({end})

    def encode(self, text: str, special: bool = True) -> list[int]:
        """The tokens of a text; `special`: behind the one that begins a text."""
        text = f" {text}" if text and self._space else text
        return [self._first] * special + super().encode(text, special=False)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, those that begin and end a text left out."""
        text = b"".join(map(self.piece, tokens)).decode("utf-8", "replace")
        return text.removeprefix(" ") if self._space else text

    def stream(self) -> TextStream:
        """Text that comes token by token."""
        return FileTextStream(self)

    def piece(self, token: int) -> bytes:
        """The bytes of a token; none of one that begins or ends a text, or is special."""
        around = token == self._first or token in self.end_tokens
        return b"" if around or not 0 <= token < len(self._pieces) else self._pieces[token]


class FileTextStream(TextStream):
    """Gives the text of each token as soon as it is whole; bytes that are no letter's are replaced."""

    def __init__(self, tokens: FileTokens) -> None:
        self._tokens, self._letters = tokens, getincrementaldecoder("utf-8")("replace")

    def text(self, token: int) -> str:
        """What one more token adds; nothing while a letter is not whole."""
        return self._letters.decode(self._tokens.piece(token))


def read_tokenizer(path: Path, vocabulary: int) -> TextTokens:
    """The tokenizer in a file: tokenizer.bin of llama2.c, tokenizer.json, or Tiktoken's or SentencePiece's .model."""
    if path.suffix == ".json":
        if path.name != TOKENIZER:
            raise CallError(f"{path}: a tokenizer in JSON is called {TOKENIZER}")
        return TextTokens.of_folder(path.parent, vocabulary)
    if not path.is_file():
        raise CallError(f"{path}: Failed to load tokenizer: no such file")
    if path.stat().st_size > MOST_BYTES:
        raise FormatError(f"{path}: has {path.stat().st_size:,} bytes; a tokenizer has at most {MOST_BYTES:,}")
    require_tokenizers(path)
    data = path.read_bytes()
    if path.suffix != ".model":
        return _scored_tokens(path, _llama2c(path, data, vocabulary))
    # SentencePiece's files begin with the field of a token, which is no letter of base64.
    if data[:1] == b"\n":
        return _scored_tokens(path, _sentencepiece(path, data, vocabulary))
    return _tiktoken(path, data, vocabulary)


def _require_count(path: Path, count: int, vocabulary: int) -> None:
    if count > min(vocabulary, _MOST_TOKENS):
        raise FormatError(f"{path}: has {count} tokens, and the model knows {vocabulary}; it is another model's")


# -- tokens with scores ------------------------------------------------------------------------------------------------


@dataclass
class _ScoredTokens:
    """Tokens by number: texts, scores and kinds, and those that begin and end a text."""

    texts: list[bytes] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    first: int = 1
    end: int = 2
    begins_with_space: bool = True

    def add(self, text: bytes, score: float, kind: int = _NORMAL) -> None:
        self.texts.append(text)
        self.scores.append(score)
        self.kinds.append(kind)


def _scored_tokens(path: Path, file: _ScoredTokens) -> FileTokens:
    """A tokenizer that joins the pair of neighbours whose joined text has the best score, again and again."""
    from tokenizers import AddedToken, Tokenizer, models

    numbers: dict[str, int] = {}
    for number, text in enumerate(file.texts):
        word = text.decode("utf-8", "replace")
        # Of tokens with one text the first counts; the others keep their number under another name.
        numbers[word if word not in numbers else f"{word}\0{number}"] = number
    joined = [word for word, number in numbers.items() if file.kinds[number] == _NORMAL]
    pairs = _pairs(sorted(joined, key=lambda word: -file.scores[numbers[word]]), numbers)
    tokenizer = Tokenizer(models.BPE(vocab=numbers, merges=pairs, byte_fallback=True))
    named = [word for word, number in numbers.items() if file.kinds[number] == _NAMED]
    tokenizer.add_tokens([AddedToken(word, normalized=False) for word in named])
    pieces = [bytes([int(byte[1], 16)]) if (byte := _BYTE.fullmatch(text)) else text for text in file.texts]
    return FileTokens(tokenizer, pieces, file.first, file.end, file.begins_with_space)


def _pairs(words: Iterable[str], numbers: dict[str, int]) -> list[tuple[str, str]]:
    """The pairs of tokens that make words, those of the first word first."""
    return [
        (word[:at], word[at:])
        for word in words
        for at in range(1, len(word))
        if word[:at] in numbers and word[at:] in numbers
    ]


def _llama2c(path: Path, data: bytes, vocabulary: int) -> _ScoredTokens:
    if len(data) < _HEADER.size:
        raise FormatError(f"{path}: is no tokenizer.bin: it has {len(data)} bytes")
    count, first, end, _ = _HEADER.unpack_from(data)
    _require_count(path, count, vocabulary)
    file, at = _ScoredTokens(first=first, end=end), _HEADER.size
    for number in range(count):
        if at + _ENTRY.size > len(data):
            raise FormatError(f"{path}: is cut short at token {number} of {count}", at)
        score, size = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size
        if size > len(data) - at:
            raise FormatError(f"{path}: token {number} has {size} bytes, which the file has not", at)
        file.add(data[at : at + size], score)
        at += size
    return file


def _sentencepiece(path: Path, data: bytes, vocabulary: int) -> _ScoredTokens:
    file, training, rules, name = _ScoredTokens(), 1, b"", "nmt_nfkc"
    try:
        for number, _, _, start, stop in message_fields(data, 0, len(data)):
            if number not in (_PIECE, _TRAINING, _TEXT):
                continue
            said = {(f, wire): data[at:end] for f, wire, _, at, end in message_fields(data, start, stop)}
            if number == _PIECE:
                text, kind = said.get((1, 2), b"").replace("▁".encode(), b" "), said.get((3, 0))
                (score,) = struct.unpack("<f", said.get((2, 5), bytes(4)))
                file.add(text, score, _NORMAL if kind is None else _whole(kind))
            elif number == _TRAINING:
                numbers = {f: _whole(value) for (f, wire), value in said.items() if wire == 0}
                training, file.first, file.end = numbers.get(3, 1), numbers.get(41, 1), numbers.get(42, 2)
            elif number == _TEXT:
                name, rules = said.get((1, 2), name.encode()).decode("utf-8", "replace"), said.get((2, 2), b"")
                file.begins_with_space = bool(_whole(said.get((3, 0), b"\1")))
    except FormatError as error:
        raise FormatError(f"{path}: is cut off or damaged, or is no model of SentencePiece's", error.offset) from None
    if not file.texts:
        raise FormatError(f"{path}: has no tokens")
    if training != _PAIRS or rules:
        what = "its texts are normalized" if training == _PAIRS else "it is no model of pairs (BPE)"
        raise UnsupportedError(f"{path}: {what} ({name}), which hexforge does not do; a tokenizer.json works")
    _require_count(path, len(file.texts), vocabulary)
    for number in (file.first, file.end):
        if not 0 <= number < len(file.texts):
            raise FormatError(f"{path}: the token that begins or ends a text is {number} of {len(file.texts)}")
    if not {b"<0x%02X>" % byte for byte in range(256)} <= set(file.texts):
        raise UnsupportedError(
            f"{path}: has no tokens for single bytes (byte_fallback), which hexforge needs; a tokenizer.json works"
        )
    return file


def _whole(data: bytes) -> int:
    """A number of seven bits a byte; those of 64 bits are signed."""
    value = sum((byte & 0x7F) << 7 * i for i, byte in enumerate(data))
    return value - (1 << 64) if value >> 63 else value


# -- tokens with ranks -------------------------------------------------------------------------------------------------


def _tiktoken(path: Path, data: bytes, vocabulary: int) -> FileTokens:
    """A tokenizer of ranks: within each word, the pair of lowest rank is joined first."""
    from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers

    texts = _ranked(path, data)
    _require_count(path, len(texts) + len(SPECIAL), vocabulary)
    absent = [byte for byte in range(256) if bytes([byte]) not in texts]
    if absent:
        raise FormatError(f"{path}: has no token for the byte {absent[0]}; texts with it could not be read")
    letters = _byte_letters()
    numbers = {text.decode("latin-1").translate(letters): rank for text, rank in texts.items()}
    tokenizer = Tokenizer(models.BPE(vocab=numbers, merges=_pairs(numbers, numbers), ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(_WORDS), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    tokenizer.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in SPECIAL])
    return FileTokens(tokenizer, list(texts), len(texts), len(texts) + 1, begins_with_space=False)


def _byte_letters() -> dict[int, str]:
    """The letter that stands for each byte in vocabularies of bytes: its own where it can be seen, else one above."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    unseen = (byte for byte in range(256) if byte not in seen)
    return {byte: chr(byte) for byte in seen} | {byte: chr(256 + i) for i, byte in enumerate(unseen)}


def _ranked(path: Path, data: bytes) -> dict[bytes, int]:
    """The bytes of all tokens, and their ranks."""
    texts: dict[bytes, int] = {}
    for number, line in enumerate(data.splitlines(), 1):
        if not line:
            continue
        where = f"{path}: line {number}"
        coded, _, rank = line.partition(b" ")
        try:
            text = base64.b64decode(coded, validate=True)
        except binascii.Error:
            text = b""
        if not text or not rank.isdigit():
            raise FormatError(f"{where}: is no token in base64 with its rank")
        if text in texts:
            raise FormatError(f"{where}: has the token of rank {texts[text]} once more")
        if len(rank) > 9 or int(rank) != len(texts):
            raise FormatError(f"{where}: has rank {rank[:20].decode()}, where {len(texts)} follows; ranks go up by one")
        texts[text] = len(texts)
    if not texts:
        raise FormatError(f"{path}: has no tokens")
    return texts
