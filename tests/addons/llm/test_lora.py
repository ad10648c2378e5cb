# SPDX-License-Identifier: Apache-2.0
"""LoRA adapters: as PEFT writes them, over one base, switched between turns, and the base afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from typer.testing import CliRunner

from hexforge.addons.llm import ExportRequest, LanguageModel, Sampling, export, load
from hexforge.addons.llm.checkpoints.architecture import weight_shapes
from hexforge.addons.llm.checkpoints.float_decoder import FloatDecoder
from hexforge.addons.llm.checkpoints.open_checkpoint import open_checkpoint
from hexforge.addons.llm.checkpoints.peft_adapter import adapted_checkpoint, read_adapter
from hexforge.addons.llm.conversation import Conversation
from hexforge.addons.llm.serving.app import application
from hexforge.addons.llm.serving.requests import RequestError, model_names, read_request
from hexforge.cli import app
from hexforge.errors import CallError, FormatError, HexforgeError, UnsupportedError
from tests.addons.llm import REFERENCE, SMALL

ARCHITECTURE = open_checkpoint(SMALL).architecture
TEXT: list[int] = REFERENCE["generated"][1]["next"][:40]
MODULES = {
    "query": "self_attn.q_proj", "key": "self_attn.k_proj", "value": "self_attn.v_proj", "output": "self_attn.o_proj",
    "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj",
}  # fmt: skip
PROMPT = "If the file does not exist,"


def peft_folder(
    folder: Path, seed: int, rank: int, products: tuple[str, ...], layers: tuple[int, ...] = (0, 1, 2), **config: Any
) -> Path:
    """A folder as PEFT's save_pretrained writes it, with random factors large enough to change answers."""
    random = np.random.default_rng(seed)
    tensors = {}
    for layer in layers:
        for name in products:
            outputs, inputs = weight_shapes(ARCHITECTURE)[name]
            at = f"base_model.model.model.layers.{layer}.{MODULES[name]}"
            tensors[f"{at}.lora_A.weight"] = random.normal(0, inputs**-0.5, (rank, inputs)).astype(np.float32)
            tensors[f"{at}.lora_B.weight"] = random.normal(0, 0.25, (outputs, rank)).astype(np.float32)
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    said = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "bias": "none", "target_modules": list(products)}
    (folder / "adapter_config.json").write_text(json.dumps(said | config))
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    at = tmp_path_factory.mktemp("adapters")
    return {
        "plain": peft_folder(at / "plain", 1, 4, ("query", "value")),
        "wide": peft_folder(at / "wide", 2, 8, tuple(MODULES), use_rslora=True),
        "last": peft_folder(at / "last", 3, 2, ("down", "query"), (2,)),
    }


def small_request(folders: Mapping[str, Path], *names: str, **settings: Any) -> ExportRequest:
    """What is quickly exported: little calibration text, few graphs."""
    text = next(iter(folders.values())).parent / "calibration.txt"
    text.write_text((SMALL / "held_out.txt").read_text()[:1500])
    chosen = {name: folders[name] for name in names}
    asked: dict[str, Any] = {"context": 64, "tokens": (1,), "calibration": text, "adapters": chosen}
    return ExportRequest(**asked | settings)


@pytest.fixture(scope="module")
def adapted(folders: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def at(precision: str) -> Path:
        if precision not in made:
            made[precision] = tmp_path_factory.mktemp("adapted") / "small"
            export(SMALL, made[precision], small_request(folders, *folders, tokens=(8, 1), precision=precision))
        return made[precision]

    return at


def test_float_graphs_compute_what_merged_weights_do(folders: Mapping[str, Path], adapted: Any) -> None:
    checkpoint = open_checkpoint(SMALL)
    model = load(adapted("float"), backend="cpu")
    base = FloatDecoder(checkpoint).logits([TEXT])[0]
    assert model.bundle.adapters == ("plain", "wide", "last")
    for name, folder in folders.items():
        merged = adapted_checkpoint(checkpoint, read_adapter(name, folder, checkpoint.architecture))
        expected = FloatDecoder(merged).logits([TEXT])[0]
        given = model.session(name).feed(TEXT, all_logits=True)
        assert np.abs(given - expected).max() < 2e-4 * np.abs(expected).max()
        assert np.abs(expected - base).max() > 0.5
    assert np.abs(model.session().feed(TEXT, all_logits=True) - base).max() < 2e-4 * np.abs(base).max()


@pytest.mark.parametrize("precision", ["float", "w8a16"])
def test_adapters_are_switched_and_the_base_comes_back(precision: str, folders: Any, adapted: Any) -> None:
    """Each is one file not much larger than its factors; bits of the base and of each adapter are theirs again."""
    folder = adapted(precision)
    model = load(folder)
    base = model.session().feed(TEXT, all_logits=True)
    first = {name: model.session(name).feed(TEXT, all_logits=True) for name in model.bundle.adapters}
    checkpoint = open_checkpoint(SMALL)
    rounding = np.square(base - FloatDecoder(checkpoint).logits([TEXT])[0]).mean()
    for name, logits in first.items():
        merged = adapted_checkpoint(checkpoint, read_adapter(name, folders[name], checkpoint.architecture))
        expected = FloatDecoder(merged).logits([TEXT])[0]
        error, effect = np.square(logits - expected).mean(), np.square(base - expected).mean()
        assert error < 3 * rounding + 0.01 * effect
        assert error < 0.3 * effect
    for name in ("last", "plain", "", "wide", "plain", "last", ""):
        again = model.session(name).feed(TEXT, all_logits=True)
        assert np.array_equal(again, first[name] if name else base)
    stored = sum(a.size for a, _ in read_adapter("wide", folders["wide"], ARCHITECTURE).factors.values())
    stored += sum(b.size for _, b in read_adapter("wide", folders["wide"], ARCHITECTURE).factors.values())
    blob = (folder / "adapter.wide.bin").stat().st_size
    assert blob < 12 * stored  # ranks of 8 are padded to whole tiles
    assert blob < 0.2 * (folder / "context.bin").stat().st_size


def test_a_base_with_branches_is_the_base_without(adapted: Any, tmp_path: Path) -> None:
    """The branches of a base add nothing: in float the logits are those of a bundle without adapters."""
    with_branches = load(adapted("float")).session().feed(TEXT, all_logits=True)
    export(SMALL, tmp_path / "b", ExportRequest(context=64, tokens=(8, 1), precision="float"))
    without = load(tmp_path / "b").session().feed(TEXT, all_logits=True)
    assert np.array_equal(with_branches, without)


def test_sessions_of_several_adapters_take_turns(adapted: Any) -> None:
    model = load(adapted("w8a16"))
    alone = {name: model.generate(PROMPT, 12, adapter=name) for name in ("", *model.bundle.adapters)}
    answers = {name: model.session(name).generate(PROMPT, 12) for name in alone}
    texts = dict.fromkeys(alone, "")
    for _ in range(12):
        for name, pieces in answers.items():
            piece = next(pieces, None)
            texts[name] += "" if piece is None else piece.text
    assert texts == alone
    assert len(set(alone.values())) > 2


def test_a_conversation_goes_on_with_another_adapter(adapted: Any) -> None:
    """What was said is read anew: the next turn is that of a conversation that had the adapter from the start."""
    model = load(adapted("w8a16"))
    talk = Conversation(model)
    list(talk.answer("What is a list?", 5))
    talk.use("wide")
    given = [piece.token for piece in talk.answer("And a set?", 8)]
    other = Conversation(model)
    other.use("wide")
    other.messages = talk.messages[:-2]
    assert given == [piece.token for piece in other.answer("And a set?", 8)]
    with pytest.raises(CallError, match="no adapter 'wid'; it has plain, wide, last; did you mean 'wide'"):
        talk.use("wid")
    talk.use("")
    assert talk.session.adapter == ""


def test_requests_name_an_adapter_as_their_model(adapted: Any) -> None:
    from starlette.testclient import TestClient

    model = load(adapted("w8a16"))
    assert list(model_names(model)) == ["small", "small:plain", "small:wide", "small:last"]
    with pytest.raises(RequestError, match="'small:odd' is not here; 'small' or 'small:plain'"):
        read_request(b'{"prompt": "x", "model": "small:odd"}', model, chat=False)
    link = TestClient(application(model, "a-token-of-the-tests"), base_url="http://127.0.0.1")
    link.headers["Authorization"] = "Bearer a-token-of-the-tests"
    asked = {"prompt": PROMPT, "max_tokens": 8, "temperature": 0}
    for name in ("small:wide", "small", "small:plain"):
        said = link.post("/v1/completions", json={**asked, "model": name}).json()
        assert said["choices"][0]["text"] == model.generate(PROMPT, 8, adapter=name.partition(":")[2])
        assert said["model"] == name
    assert [row["id"] for row in link.get("/v1/models").json()["data"]] == list(model_names(model))


def test_commands_switch_adapters(adapted: Any) -> None:
    folder, command = str(adapted("w8a16")), CliRunner()
    model = load(folder)
    given = command.invoke(app, ["llm", "run", folder, "-p", PROMPT, "-n", "8", "--adapter", "wide", "--json"])
    assert json.loads(given.stdout)["text"] == model.generate(PROMPT, 8, adapter="wide")
    lines = "/adapter wide\nWhat is a list?\n/adapter odd\n/adapter\n/end\n"
    said = command.invoke(app, ["llm", "chat", folder, "-n", "8", "--temperature", "0"], input=lines)
    talk = Conversation(model)
    talk.use("wide")
    options = Sampling(0.0, 40, 0.95, 1.1)
    assert said.stdout == "".join(piece.text for piece in talk.answer("What is a list?", 8, options)) + "\n"
    assert "no adapter 'odd'" in said.stderr
    assert command.invoke(app, ["llm", "run", folder, "-p", "x", "--adapter", "odd"]).exit_code != 0
    wrong = command.invoke(app, ["llm", "export", str(SMALL), "-o", "x", "--adapter", "name"])
    assert "give NAME=FOLDER" in str(wrong.exception)


def test_a_split_model_has_adapters(folders: Any, tmp_path: Path) -> None:
    """Parts whose layers an adapter leaves alone have no file of it."""
    request = small_request(folders, "plain", "last", part_bytes=1_300_000)
    bundle = export(SMALL, tmp_path / "parts", request)
    assert [bool(part.adapters["last"]) for part in bundle.parts] == [False, False, True]
    whole = export(SMALL, tmp_path / "whole", small_request(folders, "plain", "last"))
    models: list[LanguageModel] = [load(at.folder) for at in (bundle, whole)]
    for name in ("plain", "last", "", "plain"):
        first, second = (model.session(name).feed(TEXT, all_logits=True) for model in models)
        assert np.array_equal(first, second)


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        ({"peft_type": "IA3"}, "LORA adapters are read"),
        ({"use_dora": True}, "use_dora changes more than products"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save changes more"),
        ({"lora_alpha": "much"}, "lora_alpha is 'much', no number"),
    ],
)
def test_settings_that_are_not_followed_are_refused(config: Any, fault: str, tmp_path: Path) -> None:
    folder = peft_folder(tmp_path / "a", 1, 2, ("query",), **config)
    with pytest.raises((UnsupportedError, FormatError), match=fault):
        read_adapter("a", folder, ARCHITECTURE)


@pytest.mark.parametrize(
    ("tensors", "fault"),
    [
        ({}, "holds no factors"),
        ({"x.layers.0.self_attn.q_proj.lora_A.weight": (4, 256)}, r"has {'A': \[4, 256\]}, not A"),
        ({"base_model.model.lm_head.lora_A.weight": (4, 256)}, "is no factor of a product of a layer"),
        (
            {"layers.0.self_attn.q_proj.lora_A.weight": (4, 64), "layers.0.self_attn.q_proj.lora_B.weight": (64, 4)},
            r"q_proj of layer 0 is \[64, 64\]; the model has 3 layers, and there query is \[256, 256\]: it is another",
        ),
        (
            {"layers.7.mlp.up_proj.lora_A.weight": (4, 256), "layers.7.mlp.up_proj.lora_B.weight": (640, 4)},
            "up_proj of layer 7 .* it is another model's adapter",
        ),
    ],
)
def test_adapters_of_another_model_are_refused(tensors: dict, fault: str, tmp_path: Path) -> None:
    folder = peft_folder(tmp_path / "a", 1, 2, ("query",))
    made = {name: np.ones(shape, np.float32) for name, shape in tensors.items()}
    save_file(made, folder / "adapter_model.safetensors")
    with pytest.raises(FormatError, match=fault):
        read_adapter("a", folder, ARCHITECTURE)


def test_files_that_are_missing_or_damaged(tmp_path: Path) -> None:
    folder = peft_folder(tmp_path / "a", 1, 2, ("query",))
    with pytest.raises(CallError, match="begins with a letter"):
        read_adapter("../x", folder, ARCHITECTURE)
    weights = folder / "adapter_model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-9])
    with pytest.raises(FormatError, match="lies outside the file"):
        read_adapter("a", folder, ARCHITECTURE)
    weights.unlink()
    (folder / "adapter_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(CallError, match="may run code"):
        read_adapter("a", folder, ARCHITECTURE)
    (folder / "adapter_config.json").write_text("[]")
    with pytest.raises(FormatError, match="no object"):
        read_adapter("a", folder, ARCHITECTURE)
    (folder / "adapter_config.json").unlink()
    with pytest.raises(CallError, match=r"has no adapter_config\.json"):
        read_adapter("a", folder, ARCHITECTURE)


def test_an_adapter_of_another_bundle_is_refused(adapted: Any, folders: Any, tmp_path: Path) -> None:
    """The same adapter compiled for another base: its file does not fit, and the base goes on."""
    export(SMALL, tmp_path / "b", small_request(folders, "plain", context=32, tokens=(8, 1)))
    file = tmp_path / "b" / "adapter.plain.bin"
    file.write_bytes((adapted("w8a16") / "adapter.plain.bin").read_bytes())
    said = json.loads((tmp_path / "b" / "bundle.json").read_text())
    said["sizes"][file.name] = file.stat().st_size
    (tmp_path / "b" / "bundle.json").write_text(json.dumps(said))
    model = load(tmp_path / "b")
    before = model.session().feed(TEXT[:20])
    with pytest.raises(HexforgeError, match="was made for another base"):
        model.session("plain").feed(TEXT[:20])
    assert np.array_equal(model.session().feed(TEXT[:20]), before)
