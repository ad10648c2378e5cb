# SPDX-License-Identifier: Apache-2.0
"""tokenizer.bin of llama2.c: pairs with the best score first, bytes of letters it has not, and damaged files."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from hexforge.addons.llm.tokenizer_files import read_tokenizer
from hexforge.errors import CallError, FormatError

WORDS = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), " ", "a", "b", "ab", " a", " ab", "ba"]
SCORES = [0.0] * 259 + [-7.0, -8.0, -9.0, -2.0, -1.0, -3.0, -4.0]
NUMBER = {word: number for number, word in enumerate(WORDS)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = struct.pack("<IIII", len(WORDS), 1, 2, 6)
    for word, score in zip(WORDS, SCORES, strict=True):
        made += struct.pack("<fI", score, len(word.encode())) + word.encode()
    (tmp_path / "tokenizer.bin").write_bytes(made)
    return tmp_path / "tokenizer.bin"


def test_the_pair_with_the_best_score_is_joined_first(path: Path) -> None:
    tokens = read_tokenizer(path, 1000)
    assert tokens.encode("ab") == [1, NUMBER[" ab"]]
    assert tokens.encode("abab", special=False) == [NUMBER[" ab"], NUMBER["ab"]]  # " a", then "ab", then " ab"
    assert tokens.encode("ba", special=False) == [NUMBER[" "], NUMBER["ba"]]
    assert tokens.encode("") == [1]


def test_letters_that_are_no_token_are_bytes(path: Path) -> None:
    tokens = read_tokenizer(path, 1000)
    coded = tokens.encode("aä€", special=False)
    assert coded == [NUMBER[" a"], *(byte + 3 for byte in "ä€".encode())]
    assert tokens.decode([1, *coded, 2]) == "aä€"
    stream = tokens.stream()
    assert [stream.text(token) for token in coded] == [" a", "", "ä", "", "", "€"]


def test_damaged_files(path: Path) -> None:
    whole = path.read_bytes()
    with pytest.raises(FormatError, match="another model's"):
        read_tokenizer(path, 100)
    for end in (0, 8, 16, 20, 500, len(whole) - 1):
        path.write_bytes(whole[:end])
        with pytest.raises(FormatError, match=r"is no tokenizer.bin|cut short|which the file has not"):
            read_tokenizer(path, 1000)
    path.write_bytes(whole[:20] + b"\xff\xff\xff\xff" + whole[24:])
    with pytest.raises(FormatError, match="which the file has not"):
        read_tokenizer(path, 1000)
    with pytest.raises(CallError, match="no such file"):
        read_tokenizer(path.with_name("other.bin"), 1000)
