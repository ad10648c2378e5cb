# SPDX-License-Identifier: Apache-2.0
"""ONNX decoders of others, run as they are: tokens, turns, caches in place, windows, commands, broken folders."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

from hexforge.addons.llm import LanguageModel, Sampling, load
from hexforge.addons.llm.onnx_graphs import OnnxGraphs
from hexforge.cli import app
from hexforge.errors import CallError, HexforgeError
from tests import ROOT
from tests.addons.llm import REFERENCE, SMALL
from tests.addons.llm.genai_models import write_genai_model
from tests.addons.llm.test_serve import Running

CASES = REFERENCE["generated"]
CASE = CASES[1]
TEXT = (SMALL / "held_out.txt").read_text()
BACKENDS = ("cpu", "", "htp")
GENAI = ROOT / ".venv-genai" / "bin" / "python"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_genai_model(tmp_path_factory.mktemp("genai") / "small")


@pytest.fixture(scope="module")
def opened(folder: Path) -> Callable[[str], LanguageModel]:
    return cache(lambda backend: load(folder, backend=backend))


def generated(model: LanguageModel, prompt: str, count: int = 200) -> list[int]:
    return [piece.token for piece in model.session().generate(prompt, count, past_end=True)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["prompt"][:12])
def test_tokens_on_the_cpu_are_torchs(case: dict[str, Any], opened: Callable[[str], LanguageModel]) -> None:
    """200 tokens after each prompt."""
    assert generated(opened("cpu"), case["prompt"]) == case["next"]


def test_the_line_says_where_nodes_run_and_which_sizes_are_fixed(opened: Callable[[str], LanguageModel]) -> None:
    lines = {backend: opened(backend).notes[0] for backend in BACKENDS}
    assert (
        "onnxruntime's CPU runs every node; caches of 1,024 tokens are updated in place, a prompt is one run"
        in lines["cpu"]
    )
    assert "1 or 128 new tokens, caches of 1,024; the QNN EP, which takes no node whose sizes are open" in lines[""]
    assert "3 GroupQueryAttention" in lines[""]
    assert "the htp backend takes" in lines["htp"]
    assert "GroupQueryAttention" not in lines["htp"]


@pytest.mark.parametrize("backend", ["", "htp"])
def test_numbers_of_the_npu_are_near(backend: str, opened: Callable[[str], LanguageModel]) -> None:
    """Half precision over a text that goes through the graphs for 128 and for one token: the same text but for ties."""
    tokens = opened("cpu").text.encode(TEXT)[:200]
    want = opened("cpu").session().feed(tokens, all_logits=True)
    got = opened(backend).session().feed(tokens, all_logits=True)
    assert got.shape == want.shape == (200, 2048)
    assert np.abs(got - want).max() < 0.15
    assert (got.argmax(-1) == want.argmax(-1)).mean() > 0.97


@pytest.mark.parametrize("backend", BACKENDS)
def test_caches_are_updated_in_place(backend: str, opened: Callable[[str], LanguageModel]) -> None:
    session = opened(backend).session()
    before = {name: array.ctypes.data for name, array in session._caches.items()}
    assert len(before) == 6
    for _ in session.generate(CASE["prompt"], 5, past_end=True):
        pass
    assert {name: array.ctypes.data for name, array in session._caches.items()} == before
    assert all(array[:, :, : len(session.tokens)].any() for array in session._caches.values())


@pytest.mark.parametrize("backend", BACKENDS)
def test_turns_and_steps_back_leave_what_a_fresh_session_has(
    backend: str, opened: Callable[[str], LanguageModel]
) -> None:
    """A prompt in one piece, in several, and after others were forgotten; logits of the chosen way are near."""
    model, tokens = opened(backend), CASE["ids"] + CASE["next"][:60]
    want = model.session().feed(tokens)
    session = model.session()
    session.feed(tokens[:40])
    session.feed([7, 8, 9] * 10)
    session.rewind(25)
    for start in range(25, len(tokens), 9):
        got = session.feed(tokens[start : start + 9])
    assert session.tokens == tokens
    assert np.abs(got - want).max() < (1e-3 if backend == "cpu" else 0.1)
    with pytest.raises(CallError, match="it cannot go back to 500"):
        session.rewind(500)


def test_sampling_stop_texts_and_ends_work_as_with_bundles(opened: Callable[[str], LanguageModel]) -> None:
    model = opened("cpu")
    sampling = Sampling(temperature=0.8, top_k=20, seed=5)
    assert model.generate("The file", 30, sampling) == model.generate("The file", 30, sampling)
    assert model.generate("The file", 30, sampling) != model.generate("The file", 30, Sampling(0.8, 20, seed=6))
    whole = model.generate(CASE["prompt"], 40)
    stop = whole[12:16]
    assert model.generate(CASE["prompt"], 40, stop=[stop]) == whole[: whole.index(stop)]
    ended = list(model.session().generate(CASES[0]["prompt"], 200))
    assert (ended[-1].token, ended[-1].end) == (0, "stop")
    with pytest.raises(CallError, match="do not fit the context of 1024"):
        model.session().feed([5] * 1025)
    with pytest.raises(CallError, match="it has none"):
        model.session("poet")


def test_a_draft_guesses_for_another(opened: Callable[[str], LanguageModel]) -> None:
    """The decoder in half precision guesses for itself in float32: the tokens are those without it."""
    pieces = opened("cpu").session().generate(CASE["prompt"], 60, past_end=True, draft=opened("htp"))
    assert [piece.token for piece in pieces] == CASE["next"][:60]


@pytest.mark.parametrize("backend", BACKENDS)
def test_windows(backend: str, tmp_path: Path) -> None:
    """Caches that hold a window give the tokens of caches that hold all, also after tokens were forgotten."""
    whole = load(write_genai_model(tmp_path / "whole", local_window_size=20), backend=backend)
    source = write_genai_model(tmp_path / "window", local_window_size=20, sliding_window_cache=1)
    settings = json.loads((source / "genai_config.json").read_text())
    settings["model"]["decoder"]["sliding_window"] = {"window_size": 20, "layers": [0, 1, 2], "cache_slack": 12}
    (source / "genai_config.json").write_text(json.dumps(settings))
    model = load(source, backend=backend)
    tokens = CASE["ids"] + CASE["next"]
    session = model.session()
    assert {array.shape for array in session._caches.values()} == {(1, 2, 32, 64)}
    near = 1e-3 if backend == "cpu" else 0.1
    for count, back in ((70, 66), (10, 30), (90, 89), (60, 12), (5, 17), (50, 0), (40, 40)):
        session.feed(tokens[len(session.tokens) :][:count])
        session.rewind(back)
        want = whole.session().feed(tokens[: back + 3])
        assert np.abs(session.feed(tokens[back : back + 3]) - want).max() < near, (count, back)
        assert session.tokens == tokens[: back + 3]


def test_a_window_that_was_interrupted_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that moved a window and then failed: the session reads its tokens anew."""
    source = write_genai_model(tmp_path / "window", local_window_size=4, sliding_window_cache=1)
    model = load(source, backend="cpu", context=256)
    tokens = CASE["next"][:120]
    session, fresh = model.session(), model.session()
    session.feed(tokens[:60])
    real = OnnxGraphs.run

    def interrupted(*given: Any) -> Any:
        real(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(OnnxGraphs, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            session.feed(tokens[60:])
    assert session.tokens == tokens[:60]
    assert np.abs(session.feed([5]) - fresh.feed([*tokens[:60], 5])).max() < 1e-4


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("bits", [8, 4])
def test_caches_of_few_bits(
    bits: int, backend: str, folder: Path, opened: Callable[[str], LanguageModel], tmp_path: Path
) -> None:
    """Quantized caches are updated in place, too; 8 bits leave most choices as they are."""
    source = tmp_path / "coded"
    shutil.copytree(folder, source)
    written = onnx.load(source / "model.onnx")
    for name, step in (("k_scale", 0.15), ("v_scale", 0.03)):
        scale = np.array([step * (1 if bits == 8 else 16)], np.float32)
        written.graph.initializer.append(onnx.numpy_helper.from_array(scale, name))
    for node in written.graph.node:
        if node.op_type == "GroupQueryAttention":
            node.input.extend(["", "", "", "k_scale", "v_scale"])
            kinds = {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR", "kv_cache_bit_width": bits}
            node.attribute.extend(onnx.helper.make_attribute(name, value) for name, value in kinds.items())
    for value in (*written.graph.input, *written.graph.output):
        if value.name.startswith(("past", "present")):
            tensor = value.type.tensor_type
            tensor.elem_type = onnx.TensorProto.INT8 if bits == 8 else onnx.TensorProto.UINT8
            tensor.shape.dim[3].dim_value = 64 * bits // 8
    onnx.save(written, source / "model.onnx")
    session = load(source, backend=backend).session()
    assert {array.dtype for array in session._caches.values()} == {np.dtype(np.int8 if bits == 8 else np.uint8)}
    before = {name: array.ctypes.data for name, array in session._caches.items()}
    tokens = CASE["ids"] + CASE["next"][:100]
    got = np.concatenate([session.feed(tokens[:50], all_logits=True), *(session.feed([t])[None] for t in tokens[50:])])
    assert {name: array.ctypes.data for name, array in session._caches.items()} == before
    agreed = [
        float((got.argmax(-1) == model.session().feed(tokens, all_logits=True).argmax(-1)).mean())
        for model in (opened("cpu"), load(source, backend="cpu"))
    ]
    assert agreed[0] > (0.95 if bits == 8 else 0.7)
    assert agreed[1] > 0.95  # the same model on onnxruntime's CPU, in one run


def test_caches_that_grow(folder: Path, tmp_path: Path) -> None:
    """As a config without shared buffers, and config.json of optimum, have them: on the CPU, and so it is said."""
    grows = tmp_path / "grows"
    shutil.copytree(folder, grows)
    settings = json.loads((grows / "genai_config.json").read_text())
    settings["search"] = {"past_present_share_buffer": False}
    (grows / "genai_config.json").write_text(json.dumps(settings))
    model = load(grows)
    assert "caches grow token by token, and the QNN EP takes no node whose sizes are open" in model.notes[0]
    assert generated(model, CASE["prompt"], 80) == CASE["next"][:80]
    session = model.session()
    session.feed(CASE["next"][:50])
    session.rewind(20)
    want = model.session().feed(CASE["next"][:21])
    assert np.abs(session.feed(CASE["next"][20:21]) - want).max() < 1e-4
    with pytest.raises(CallError, match="no size can be fixed for htp"):
        load(grows, backend="htp")
    (grows / "genai_config.json").unlink()
    (grows / "config.json").write_text((SMALL / "config.json").read_text())
    assert generated(load(grows, backend="cpu"), CASE["prompt"], 80) == CASE["next"][:80]


def test_commands(folder: Path, opened: Callable[[str], LanguageModel], tmp_path: Path) -> None:
    runner = CliRunner()

    def said(*arguments: str, **more: Any) -> Any:
        result = runner.invoke(app, ["llm", *arguments], **more)
        assert result.exit_code == 0, result.stderr
        return result

    ran = said("run", str(folder), "-p", CASE["prompt"], "-n", "20", "--json", "--backend", "cpu")
    assert json.loads(ran.stdout)["tokens"] == CASE["next"][:20]
    assert "onnxruntime's CPU runs every node" in ran.stderr.replace("\n", " ")
    ran = said("run", str(folder), "-p", CASE["prompt"], "-n", "20", "--context", "64")
    assert "caches of 64;" in ran.stderr.replace("\n", " ")
    assert ran.stdout.strip() == opened("").generate(CASE["prompt"], 20).strip()
    chatted = said(
        "chat", str(folder), "-n", "8", "--seed", "1", input="What is a list?\n/undo\nWhat is a set?\n/end\n"
    )
    assert len(chatted.stdout.splitlines()) >= 2
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    given = ("--checkpoint", str(SMALL), "--text", str(text), "--rows", "2", "--length", "64")
    judged = json.loads(said("eval", str(folder), *given, "--json", "--backend", "cpu").stdout)
    assert abs(judged["perplexity"] / judged["float_perplexity"] - 1) < 1e-4
    assert judged["same_first"] == 1
    for arguments, fault in (
        (("eval", str(folder), *given, "--blame"), "what rounding costs is told of bundles"),
        (("serve", str(folder), "--at-device-speed"), "the pace of a chip is that of a bundle"),
        (("run", str(folder), "-p", "a", "--context", "4096"), "made for texts of 1024 tokens"),
    ):
        refused = runner.invoke(app, ["llm", *arguments])
        assert refused.exit_code != 0
        assert fault in str(refused.exception) + refused.stderr


def test_the_endpoint_answers(opened: Callable[[str], LanguageModel]) -> None:
    from hexforge.addons.llm.serving.app import application
    from tests.addons.llm.test_serve import TOKEN

    model = opened("cpu")
    running = Running(application(model, TOKEN))
    try:
        asked = {"prompt": CASE["prompt"], "max_tokens": 10, "temperature": 0}
        status, answer = running.ask("/v1/completions", asked)
    finally:
        running.stop()
    assert (status, answer["choices"][0]["text"]) == (200, model.generate(CASE["prompt"], 10))


def test_broken_folders_are_refused(folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"

    def fault(match: str, change: Callable[[], Any], backend: str = "cpu") -> None:
        shutil.rmtree(broken, ignore_errors=True)
        shutil.copytree(folder, broken)
        change()
        with pytest.raises(HexforgeError, match=match):
            load(broken, backend=backend)

    def configured(change: dict[str, Any]) -> Callable[[], Any]:
        def write() -> None:
            settings = json.loads((broken / "genai_config.json").read_text())
            model = settings["model"]
            decoder = model["decoder"] | {k: v for k, v in change.items() if k not in model}
            model |= {k: v for k, v in change.items() if k in model} | {"decoder": decoder}
            (broken / "genai_config.json").write_text(json.dumps(settings))

        return write

    def edited(edit: Callable[[onnx.ModelProto], Any]) -> Callable[[], Any]:
        def write() -> None:
            model = onnx.load(broken / "model.onnx")
            edit(model)
            onnx.save(model, broken / "model.onnx")

        return write

    fault("no file of the folder", configured({"filename": "absent.onnx"}))
    fault("context_length is 'many'", configured({"context_length": "many"}))
    fault("decoder.inputs is no object of names", configured({"inputs": [1]}))
    fault("has no input 'past.0.value'", configured({"inputs": {"past_value_names": "past.%d.value"}}))
    fault("has no input 'past.0.key'; decoders with past", configured({"inputs": {"past_key_names": "past.%d.key"}}))
    fault("no output 'scores'", configured({"outputs": {"logits": "scores"}}))
    fault("line 1", lambda: (broken / "genai_config.json").write_text("{"))
    fault("model.onnx", lambda: (broken / "model.onnx").write_bytes((broken / "model.onnx").read_bytes()[:5000]))
    more = onnx.helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, [1, 3, 8, 8])
    fault(r"input 'image' of \[1, 3, 8, 8\] is not known", edited(lambda m: m.graph.input.append(more)))

    def without_names(model: onnx.ModelProto) -> None:
        model.graph.input[0].type.tensor_type.shape.dim[1].ClearField("dim_param")

    fault("--backend cpu runs it with open sizes", edited(without_names), backend="")
    fault("onnxruntime does not load it", edited(lambda m: setattr(m.graph.node[3], "op_type", "Nothing")))


@pytest.mark.genai
@pytest.mark.skipif(not GENAI.exists(), reason="make genai")
@pytest.mark.parametrize("kind", ["fp32", "int4", "windows"])
def test_tokens_are_onnxruntime_genais(kind: str, tmp_path: Path) -> None:
    """Of its own builder's models: 200 tokens after each of four prompts, also with caches that hold a window."""
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(SMALL, checkpoint)
    config = json.loads((SMALL / "config.json").read_text())
    if kind == "windows":
        config |= {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 24,
                   "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}  # fmt: skip
    (checkpoint / "config.json").write_text(json.dumps(config))
    source = tmp_path / "genai"
    command = [str(GENAI), "-m", "onnxruntime_genai.models.builder", "-i", str(checkpoint), "-o", str(source),
               "-p", "int4" if kind == "int4" else "fp32", "-e", "cpu", "-c", str(tmp_path / "cache")]  # fmt: skip
    ran = subprocess.run(command, env=os.environ | {"HF_HUB_OFFLINE": "1"}, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-2000:]
    settings = json.loads((source / "genai_config.json").read_text())
    settings["model"]["eos_token_id"] = 2047  # which does not come, so that nothing ends before 200 tokens
    (source / "genai_config.json").write_text(json.dumps(settings))
    arguments = [GENAI, ROOT / "tests" / "addons" / "llm" / "with_genai.py", source, SMALL / "reference.json"]
    given = json.loads(subprocess.run(arguments, capture_output=True, text=True, check=True).stdout)
    model = load(source, backend="cpu")
    assert any("sliding_window_cache" in str(n.attribute) for n in onnx.load(source / "model.onnx").graph.node) == (
        kind == "windows"
    )
    for case, theirs in zip(CASES, given, strict=True):
        assert len(theirs["next"]) == 200
        assert generated(model, case["prompt"]) == theirs["next"]
    near = load(source)
    assert "the QNN EP" in near.notes[0]
    assert sum(generated(near, c["prompt"], 8) == t["next"][:8] for c, t in zip(CASES, given, strict=True)) >= 3
