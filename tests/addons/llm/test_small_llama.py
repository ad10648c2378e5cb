# SPDX-License-Identifier: Apache-2.0
"""The small Llama: exported, run, and compared with what torch computed."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hexforge.addons.llm import ExportRequest, LanguageModel, Sampling, export, load
from hexforge.addons.llm.bundle_graphs import BundleGraphs
from hexforge.addons.llm.checkpoints.float_decoder import FloatDecoder
from hexforge.addons.llm.checkpoints.open_checkpoint import open_checkpoint
from hexforge.addons.llm.generate import HeldText
from hexforge.errors import CallError
from tests import ROOT
from tests.addons.llm import REFERENCE, SMALL
from tests.addons.llm.conftest import Bundled

Loaded = Callable[..., LanguageModel]
PROMPT = "If the file does not exist,"


def test_the_float_model_is_torchs() -> None:
    decoder = FloatDecoder(open_checkpoint(SMALL))
    case = REFERENCE["generated"][1]
    tokens = [*case["ids"], *case["next"]]
    logits = decoder.logits([tokens[:-1]])[0][len(case["ids"]) - 1 :]
    assert logits.argmax(-1).tolist() == case["next"]


@pytest.mark.parametrize("case", REFERENCE["generated"], ids=lambda case: case["prompt"])
def test_float_tokens_are_torchs(case: dict, loaded: Loaded) -> None:
    """200 tokens after each prompt, in float32."""
    session = loaded("float", backend="cpu").session()
    pieces = list(session.generate(case["prompt"], 200, past_end=True))
    assert [piece.token for piece in pieces] == case["next"]
    assert len(session.tokens) == len(case["ids"]) + 200


def test_half_precision_follows_torch_but_for_near_ties(loaded: Loaded) -> None:
    """HTP computes floats in half precision: given torch's tokens, it prefers the same next one nearly always."""
    model = loaded("float")
    alike, total = 0, 0
    for case in REFERENCE["generated"]:
        logits = model.session().feed([*case["ids"], *case["next"]][:-1], all_logits=True)[len(case["ids"]) - 1 :]
        alike += int((logits.argmax(-1) == case["next"]).sum())
        total += len(case["next"])
    assert alike >= 0.99 * total
    assert total == 800


@pytest.mark.parametrize("precision", ["float", "w8a16", "w4a16"])
def test_chunks_of_a_prompt_change_no_bit(precision: str, loaded: Loaded) -> None:
    """128 tokens at once and a padded rest, or one after the other."""
    model = loaded(precision)
    tokens = REFERENCE["generated"][1]["next"][:150]
    whole = model.session().feed(tokens, all_logits=True)
    single = model.session()
    alone = np.stack([single.feed([token]) for token in tokens])
    assert np.array_equal(whole, alone)


def test_native_caches_give_the_bits_of_flat_ones(loaded: Loaded) -> None:
    """256 tokens, of which 128 come through the graph for 128."""
    tokens = (REFERENCE["generated"][1]["next"] + REFERENCE["generated"][2]["next"])[:256]
    given = []
    for native in (False, True):
        session = loaded("w8a16", native).session()
        rows = [session.feed(tokens[:128], all_logits=True)]
        rows += [session.feed([token])[None] for token in tokens[128:]]
        given.append(np.concatenate(rows))
    assert given[0].shape == (256, 2048)
    assert np.array_equal(given[0], given[1])


def test_a_session_goes_back(loaded: Loaded) -> None:
    session = loaded("w8a16").session()
    first = session.feed([5, 6, 7])
    session.feed([8, 9])
    session.rewind(2)
    assert np.array_equal(session.feed([7]), first)
    assert session.tokens == [5, 6, 7]
    with pytest.raises(CallError, match="cannot go back to 4"):
        session.rewind(4)


def test_a_seed_chooses_the_same_tokens(loaded: Loaded) -> None:
    model = loaded("w8a16")
    texts = {seed: model.generate(PROMPT, 30, Sampling(0.9, 50, 0.95, seed=seed)) for seed in (1, 1, 2)}
    assert texts[1] == model.generate(PROMPT, 30, Sampling(0.9, 50, 0.95, seed=1))
    assert texts[1] != texts[2]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_draft_model_changes_no_choice(temperature: float, loaded: Loaded, tmp_path_factory: Any) -> None:
    """4-bit weights guess for 8-bit ones: the same text without a temperature, fewer runs, a right session."""
    folder = tmp_path_factory.mktemp("speculative") / "b"
    export(SMALL, folder, ExportRequest(context=128, tokens=(8, 1), precision="w8a16"))
    model, draft = load(folder), loaded("w4a16")
    runs: list[int] = []

    def counted(run: Any, size: int) -> Any:
        def both(*given: Any) -> Any:
            runs.append(size)
            return run(*given)

        return both

    graphs = model.graphs
    assert isinstance(graphs, BundleGraphs)
    graphs.runs = {size: [counted(run, size) for run in parts] for size, parts in graphs.runs.items()}
    session = model.session()
    sampling = Sampling(temperature, seed=4)
    pieces = list(session.generate(PROMPT, 40, sampling, past_end=True, draft=draft, ahead=4))
    given = [piece.token for piece in pieces]
    assert len(given) == 40
    assert session.tokens == [*model.text.encode(PROMPT), *given]
    assert len(runs) < 35
    if not temperature:
        plain = [piece.token for piece in model.session().generate(PROMPT, 40, past_end=True)]
        assert given == plain
    fresh = model.session()
    fresh.feed(session.tokens)
    assert np.array_equal(session.feed([5]), fresh.feed([5]))


def test_guessing_keeps_the_shares(loaded: Loaded) -> None:
    """A draft of other beliefs: over many seeds the first two tokens come as often as without it."""
    model, draft = loaded("w8a16"), loaded("w4a16")
    prompt = model.text.encode(PROMPT)
    counts = []
    for guesser in (None, draft):
        seconds = [
            list(model.session().generate(prompt, 3, Sampling(2.0, top_k=3, seed=seed), past_end=True, draft=guesser))
            for seed in range(150)
        ]
        counts.append(np.bincount([pieces[1].token for pieces in seconds], minlength=2048) / 150)
    assert 0.5 * np.abs(counts[0] - counts[1]).sum() < 0.25


def test_a_stop_text_ends_before_it(loaded: Loaded) -> None:
    model = loaded("w8a16")
    text = model.generate(PROMPT, 60)
    word = text[10:16]
    pieces = list(model.session().generate(PROMPT, 60, stop=[word]))
    assert "".join(piece.text for piece in pieces) == text[: text.index(word)]
    assert pieces[-1].end == "stop"


def test_a_stop_text_costs_nothing_by_its_length() -> None:
    held, spent = HeldText(["a" * 1_000_000, "xyz"]), time.process_time()
    assert "".join(held.add("ab") for _ in range(200)) == "ab" * 200
    assert held.add("a") + held.add("xy") == "a"
    assert held.add("zq") == ""
    assert held.stopped
    assert time.process_time() - spent < 1


def test_an_end_token_ends(loaded: Loaded) -> None:
    pieces = list(loaded("float").session().generate("Return the", 50))
    assert pieces[-1].end == "stop"
    assert pieces[-1].token == 0
    assert len(pieces) < 50


@pytest.mark.parametrize(
    ("tokens", "fault"),
    [([0] * 513, "513 more do not fit the context of 512"), ([], "nothing to read"), ([2048], "above 2047")],
)
def test_what_cannot_be_read_is_refused(tokens: list[int], fault: str, loaded: Loaded) -> None:
    session = loaded("w8a16").session()
    with pytest.raises(CallError, match=fault):
        session.feed(tokens)
    session.feed([1])


def test_a_full_context_ends_the_answer(loaded: Loaded) -> None:
    session = loaded("w8a16").session()
    session.feed(list(np.arange(505) % 2000 + 1))
    pieces = list(session.generate([3, 4], 50, past_end=True))
    assert pieces[-1].end == "length"
    assert len(session.tokens) == 512
    with pytest.raises(CallError, match="do not fit"):
        session.feed([1])


def test_weights_are_stored_once(bundled: Bundled) -> None:
    folder = bundled("w8a16")
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    assert sizes["weights.bin"] < 1.1 * (1_926_912 + 2 * 2048 * 256 + 4 * 512 * 32)
    assert max(sizes[name] for name in ("ar128.onnx", "ar1.onnx", "model.onnx")) < 200_000
    assert sizes["context.bin"] < 2 * sizes["weights.bin"]


TORCH, GENAI = (ROOT / name / "bin" / "python" for name in (".venv-torch", ".venv-genai"))


@pytest.mark.torch
@pytest.mark.skipif(not TORCH.exists(), reason="make small-llama")
def test_torch_gives_what_was_recorded() -> None:
    code = (
        "import json, pathlib, sys; from examples.small_llama.train import reference; "
        "print(json.dumps(reference(pathlib.Path(sys.argv[1]))))"
    )
    single = {**os.environ, "OMP_NUM_THREADS": "1"}
    made = subprocess.run([TORCH, "-c", code, SMALL], cwd=ROOT, env=single, capture_output=True, text=True, check=True)
    again = json.loads(made.stdout)
    assert again["generated"] == REFERENCE["generated"]
    assert again["perplexity"]["value"] == pytest.approx(REFERENCE["perplexity"]["value"], rel=1e-5)


@pytest.mark.genai
@pytest.mark.skipif(not GENAI.exists(), reason="make genai")
@pytest.mark.parametrize("parts", [1, 3])
def test_onnxruntime_genai_runs_the_bundle(parts: int, bundled: Bundled, tmp_path: Path) -> None:
    """As one model, and as a pipeline of three stages."""
    folder, script = bundled("float"), ROOT / "tests" / "addons" / "llm" / "with_genai.py"
    if parts > 1:
        folder = tmp_path / "parts"
        request = ExportRequest(context=512, tokens=(1,), precision="float", compiled=False, part_bytes=4_500_000)
        assert len(export(SMALL, folder, request).parts) == parts
    made = subprocess.run([GENAI, script, folder, SMALL / "reference.json"], capture_output=True, text=True, check=True)
    for case, given in zip(REFERENCE["generated"], json.loads(made.stdout), strict=True):
        end = case["next"].index(0) if 0 in case["next"] else len(case["next"])
        assert given["ids"] == case["ids"]
        assert given["next"][:end] == case["next"][:end]


@pytest.mark.parametrize("precision", ["float", "w8a16"])
def test_caches_are_updated_in_place(precision: str, loaded: Loaded) -> None:
    """After the first run, prompts and tokens are put into the arrays that a session has."""
    session, tokens = loaded(precision).session(), REFERENCE["generated"][1]["next"][:150]
    first = session.feed([tokens[0]])
    addresses = {name: array.ctypes.data for name, array in session._caches.items()}
    session.feed(tokens[1:])
    assert len(addresses) == 6
    assert {name: array.ctypes.data for name, array in session._caches.items()} == addresses
    session.rewind(0)
    assert np.array_equal(session.feed([tokens[0]]), first)
