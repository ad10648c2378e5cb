# SPDX-License-Identifier: Apache-2.0
"""Tiktoken's and SentencePiece's files: what they make of texts, and damaged ones."""

from __future__ import annotations

import base64
import struct
from pathlib import Path

import pytest

from hexforge.addons.llm.tokenizer_files import SPECIAL, read_tokenizer
from hexforge.errors import CallError, FormatError, UnsupportedError

MORE = [b"th", b"the", b" t", b" the", b"he", "ä".encode(), b"1234"]
RANKS = [*(bytes([i]) for i in range(256)), *MORE]


def tiktoken_lines(texts: list[bytes]) -> list[str]:
    return [f"{base64.b64encode(text).decode()} {rank}" for rank, text in enumerate(texts)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "tokenizer.model").write_text("\n".join(tiktoken_lines(RANKS)) + "\n")
    return tmp_path / "tokenizer.model"


def number(text: bytes) -> int:
    return RANKS.index(text)


def test_the_pair_of_lowest_rank_is_joined_first(path: Path) -> None:
    tokens = read_tokenizer(path, 128256)
    first = len(RANKS)
    assert tokens.encode("the") == [first, number(b"the")]
    assert tokens.encode("the other the", special=False) == [
        number(b"the"), number(b" "), number(b"o"), number(b"the"), number(b"r"), number(b" the"),
    ]  # fmt: skip
    # "th" has a lower rank than "he"; digits come in threes, so that 1234 is never one token
    assert tokens.encode("1234", special=False) == [number(b"1"), number(b"2"), number(b"3"), number(b"4")]
    coded = tokens.encode("ä€", special=False)
    assert coded == [number("ä".encode()), *"€".encode()]
    assert tokens.decode([first, *coded]) == "ä€"
    assert tokens.decode(tokens.encode(" the")) == " the"
    stream = tokens.stream()
    assert [stream.text(token) for token in coded] == ["ä", "", "", "€"]


def test_special_tokens_are_named_in_texts(path: Path) -> None:
    tokens = read_tokenizer(path, 128256)
    end = tokens.number("<|eot_id|>")
    assert end == len(RANKS) + 9
    assert tokens.encode("the<|eot_id|>the", special=False) == [number(b"the"), end, number(b"the")]
    assert tokens.decode([number(b"the"), end]) == "the"
    assert tokens.number("<|none|>") is None
    assert (len(SPECIAL), SPECIAL[-1]) == (256, "<|reserved_special_token_245|>")


@pytest.mark.executorch
def test_tokens_are_those_of_tiktoken(tmp_path: Path) -> None:
    """The package's own tokens of the same file, for a text with everything in it."""
    pytest.importorskip("tiktoken")
    tiktoken = pytest.importorskip("pytorch_tokenizers.tiktoken")
    from tests.addons.phone.llama_models import write_tiktoken

    write_tiktoken(tmp_path / "tokenizer.model", Path(__file__), 1200)
    ours = read_tokenizer(tmp_path / "tokenizer.model", 128256)
    theirs = tiktoken.TiktokenTokenizer(str(tmp_path / "tokenizer.model"))
    text = Path(pytest.__file__).read_text() + "\n\n  I'LL don't 12345,67  \t€uro 漢字 \U0001f600\r\n<|eot_id|> end   "
    assert ours.encode(text) == theirs.encode(text, bos=True, eos=False, allowed_special="all")
    assert ours.decode(ours.encode(text)) == text.replace("<|eot_id|>", "")


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda lines: [*lines[:3], "!!!! 3"], "line 4: is no token in base64 with its rank"),
        (lambda lines: [*lines[:3], "YWI"], "line 4: is no token"),
        (lambda lines: [*lines[:3], "YWI= x"], "line 4: is no token"),
        (lambda lines: [*lines[:3], " 3"], "line 4: is no token"),
        (lambda lines: [*lines, lines[5].split()[0] + f" {len(lines)}"], "has the token of rank 5 once more"),
        (lambda lines: [*lines[:3], "YWI= 2"], "line 4: has rank 2, where 3 follows"),
        (lambda lines: [*lines[:3], "YWI= " + "9" * 400], "where 3 follows"),
        (lambda lines: lines[:40], "has no token for the byte 40"),
        (lambda lines: [], "has no tokens"),
    ],
)
def test_damaged_tiktoken_files(path: Path, change: object, fault: str) -> None:
    path.write_text("\n".join(change(tiktoken_lines(RANKS))))  # type: ignore[operator]
    with pytest.raises(FormatError, match=fault):
        read_tokenizer(path, 128256)


def test_another_models_tokenizer(path: Path) -> None:
    with pytest.raises(FormatError, match="another model's"):
        read_tokenizer(path, 300)
    with pytest.raises(CallError, match="no such file"):
        read_tokenizer(path.with_name("other.model"), 300)


PIECES = [
    ("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3), *((f"<0x{i:02X}>", 0.0, 6) for i in range(256)),
    ("<turn>", 0.0, 4), ("▁", -7.0, 1), ("a", -8.0, 1), ("b", -9.0, 1), ("ab", -2.0, 1), ("▁a", -1.0, 1),
    ("▁ab", -3.0, 1),
]  # fmt: skip
NUMBER = {text: i for i, (text, _, _) in enumerate(PIECES)}


def field(number: int, data: bytes) -> bytes:
    sizes, size = b"", len(data)
    while size > 0x7F:
        sizes, size = sizes + bytes([size & 0x7F | 0x80]), size >> 7
    return bytes([number << 3 | 2]) + sizes + bytes([size]) + data


def sentencepiece_file(kind: int = 2, rules: bytes = b"", pieces: list[tuple[str, float, int]] = PIECES) -> bytes:
    made = b""
    for text, score, type in pieces:
        made += field(1, field(1, text.encode()) + b"\x15" + struct.pack("<f", score) + bytes([0x18, type]))
    return made + field(2, bytes([0x18, kind])) + field(3, field(1, b"identity") + (field(2, rules) if rules else b""))


def test_sentencepieces_files(path: Path) -> None:
    path.write_bytes(sentencepiece_file())
    tokens = read_tokenizer(path, 300)
    assert tokens.encode("ab") == [1, NUMBER["▁ab"]]
    assert tokens.encode("abab", special=False) == [NUMBER["▁ab"], NUMBER["ab"]]
    assert tokens.encode("a<turn>", special=False) == [NUMBER["▁a"], NUMBER["<turn>"]]
    assert tokens.encode("<s>", special=False)[0] != 1  # a control token is never made of a text
    assert tokens.encode("ä", special=False) == [NUMBER["▁"], *(byte + 3 for byte in "ä".encode())]
    assert tokens.decode([1, *tokens.encode("ab aä", special=False), 2]) == "ab aä"


@pytest.mark.executorch
def test_tokens_are_those_of_sentencepiece(tmp_path: Path) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    sentencepiece.SentencePieceTrainer.train(
        input=pytest.__file__, model_prefix=str(tmp_path / "tokenizer"), vocab_size=500, model_type="bpe",
        byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, minloglevel=2,
        user_defined_symbols=["<turn>"], bos_id=1, eos_id=2, unk_id=0,
    )  # fmt: skip
    ours = read_tokenizer(tmp_path / "tokenizer.model", 500)
    theirs = sentencepiece.SentencePieceProcessor(str(tmp_path / "tokenizer.model"))
    for text in ("import pytest  and more", "ä€ 漢字", "from <turn> to"):
        assert ours.encode(text, special=False) == theirs.encode(text)


def test_damaged_sentencepiece_files(path: Path) -> None:
    whole = sentencepiece_file()
    for end in (1, 2, 9, 500, len(whole) - 20):
        path.write_bytes(whole[:end])
        with pytest.raises(
            (FormatError, UnsupportedError), match=r"is cut off or damaged|has no tokens|byte_fallback|BPE"
        ):
            read_tokenizer(path, 300)
    for data, fault in (
        (sentencepiece_file(kind=1), r"no model of pairs \(BPE\)"),
        (sentencepiece_file(rules=b"abc"), "its texts are normalized"),
        (sentencepiece_file(pieces=PIECES[:100]), "byte_fallback"),
        (sentencepiece_file(pieces=PIECES[:1]), "begins or ends a text"),
    ):
        path.write_bytes(data)
        with pytest.raises((FormatError, UnsupportedError), match=fault):
            read_tokenizer(path, 300)
