# SPDX-License-Identifier: Apache-2.0
"""Hostile files of language models, fuzzed for a moment (`make fuzz` does it for hours), and Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models

from fuzz import language_model_files
from hexforge.addons.llm import LanguageModel, load
from hexforge.addons.llm.bundle_graphs import BundleGraphs
from hexforge.addons.llm.checkpoints.open_checkpoint import open_checkpoint
from hexforge.addons.llm.text_tokens import TextTokens
from hexforge.errors import FormatError, HexforgeError
from tests.addons.llm import REFERENCE
from tests.addons.llm.conftest import Bundled

ALPHABET = np.frombuffer(b'0123456789-[]{}",.\x00\x01\x7f\x80\xff', np.uint8)
TARGETS = ("gguf_file", "checkpoint_files", "peft_adapter", "bundle_description")


def changed(seed: bytes, rng: np.random.Generator, count: int) -> Iterator[bytes]:
    """The file with some bytes of its beginning changed, or with numbers far too large, or cut."""
    for _ in range(count):
        data = np.frombuffer(seed, np.uint8).copy()
        places = rng.integers(0, min(data.size, 1500), rng.integers(1, 6))
        data[places] = rng.choice(ALPHABET, places.size)
        if rng.random() < 0.3:
            at = int(rng.integers(0, max(data.size - 8, 1)))
            data[at : at + 8] = 255 if rng.random() < 0.5 else ord("9")
        yield data[: int(rng.integers(0, data.size)) if rng.random() < 0.2 else data.size].tobytes()


@pytest.mark.parametrize("target", TARGETS)
def test_changed_files_are_refused_or_read(target: str) -> None:
    """Any exception but hexforge's own fails; the seed itself is read to its end."""
    read: Callable[[bytes], None] = getattr(language_model_files, target)
    rng = np.random.default_rng(11)
    for seed in language_model_files.seeds(target):
        read(seed)
        for data in changed(seed, rng, 60 if target == "bundle_description" else 300):
            read(data)


@pytest.mark.parametrize(
    "template",
    [
        "{{ 1/0 }}",
        "{{ '{x}'.format(1) }}",
        "{{ '{}'.format() }}",
        "{{ 'x'.encode('no such encoding') }}",
        "{{ cycler().next() }}",
        "{{ range(3)|slice(0)|list }}",
        "{{ messages[5].content.x }}",
        "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
        "{{ 'abc'.index('z') }}",
        "{% for i in range(999999999) %}{% endfor %}",
        "{% include 'x' %}",
        "{{" * 5000,
    ],
)
def test_templates_that_fail_say_so(template: str) -> None:
    tokens = TextTokens(None, {}, template)  # type: ignore[arg-type]
    with pytest.raises(FormatError, match="the model's chat template fails"):
        tokens.chat([{"role": "user", "content": "hi"}])


@pytest.mark.parametrize("kind", ["WordLevel", "WordPiece", "Unigram"])
def test_a_tokenizer_without_a_token_for_the_unknown_says_so(kind: str, tmp_path: Path) -> None:
    model = models.Unigram([("a", 0.0)], None, False) if kind == "Unigram" else getattr(models, kind)({"a": 0})
    Tokenizer(model).save(str(tmp_path / "tokenizer.json"))
    tokens = TextTokens.of_folder(tmp_path, 100)
    with pytest.raises(FormatError, match=r"tokenizer\.json fails on a text"):
        tokens.encode("hello \ud800")
    with pytest.raises(FormatError, match=r"tokenizer\.json fails on a text"):
        tokens.decode([1 << 40])


@pytest.mark.parametrize("target", ["gguf_file", "checkpoint_files"])
def test_the_seeds_are_whole_files(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A seed that is refused at its first byte would test nothing."""
    opened: list[Any] = []
    plain = language_model_files.open_checkpoint
    monkeypatch.setattr(language_model_files, "open_checkpoint", lambda at: opened.append(plain(at)) or opened[-1])
    (seed,) = language_model_files.seeds(target)
    getattr(language_model_files, target)(seed)
    assert [checkpoint.weight("key", 0).shape for checkpoint in opened] == [(4, 8)]


def test_an_interrupted_session_goes_on(loaded: Callable[..., LanguageModel]) -> None:
    """Ctrl-C in the middle of a run: what was read before is still read, and the next logits are right."""
    model = loaded("w8a16")
    prompt = REFERENCE["generated"][1]["ids"]
    session = model.session()
    graphs = model.graphs
    assert isinstance(graphs, BundleGraphs)
    runs = graphs.runs[1]
    calls: list[int] = []

    def interrupting(*feeds: Any) -> Any:
        calls.append(1)
        if len(calls) == 4:
            os.kill(os.getpid(), signal.SIGINT)
        return runs[0](*feeds)

    graphs.runs = {**graphs.runs, 1: [interrupting]}
    try:
        with pytest.raises(KeyboardInterrupt), closing(session.generate(prompt, 40, past_end=True)) as pieces:
            for _ in pieces:
                pass
    finally:
        graphs.runs = {**graphs.runs, 1: runs}
    kept = list(session.tokens)
    assert len(prompt) <= len(kept) < len(prompt) + 5
    fresh = model.session()
    fresh.feed(kept)
    assert np.array_equal(session.feed([5]), fresh.feed([5]))


def test_ctrl_c_stops_an_answer_and_the_chat_goes_on(bundled: Bundled) -> None:
    command = [sys.executable, "-c", "from hexforge.cli import main; main()", "llm", "chat", str(bundled("w8a16"))]
    options = ["-n", "400", "--temperature", "0.9", "--seed", "1"]
    chat = subprocess.Popen([*command, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert chat.stdin is not None
    assert chat.stdout is not None
    chat.stdin.write(b"What is a list?\n")
    chat.stdin.flush()
    assert chat.stdout.read(1)
    chat.send_signal(signal.SIGINT)
    out, err = chat.communicate(b"/reset\nWhat is a set?\n/end\n", timeout=120)
    assert chat.returncode == 0
    assert b"(stopped)" in err
    assert out.count(b"\n") >= 1
    assert b"Traceback" not in err


def test_caches_of_another_model_are_refused(loaded: Callable[..., LanguageModel], bundled: Bundled) -> None:
    """Of another precision, or of another context: the graph says what it takes, and the session goes on."""
    model = loaded("w8a16")
    session = model.session()
    before = session.feed([5, 6])
    session.rewind(0)
    own = session._caches
    for other in (loaded("float"), load(bundled("w8a16", context=256))):
        session._caches = other.graphs.empty_caches()
        with pytest.raises(HexforgeError, match=r"past_key_values\.0\.key"):
            session.feed([5, 6])
    session._caches = own
    assert np.array_equal(session.feed([5, 6]), before)


def test_gguf_rows_are_turned_back_for_any_number_of_heads(tmp_path: Path) -> None:
    """One head of keys: llama.cpp keeps neighbours together, transformers the halves of a head."""
    (seed,) = language_model_files.seeds("gguf_file")
    keys = np.arange(32, dtype=np.float32).reshape(4, 8)
    (tmp_path / "m.gguf").write_bytes(seed[: -keys.nbytes] + keys.tobytes())
    assert np.array_equal(open_checkpoint(tmp_path / "m.gguf").weight("key", 0), keys[[0, 2, 1, 3]])
