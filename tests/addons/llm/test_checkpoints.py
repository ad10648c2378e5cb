# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: families, shards, GGUF files, random weights, and files that are damaged or hostile."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from hexforge.addons.llm import ExportRequest, export, load
from hexforge.addons.llm.bundle import read_bundle
from hexforge.addons.llm.checkpoints.architecture import architecture_of_config
from hexforge.addons.llm.checkpoints.checkpoint import Checkpoint, RandomCheckpoint
from hexforge.addons.llm.checkpoints.float_decoder import FloatDecoder
from hexforge.addons.llm.checkpoints.open_checkpoint import open_checkpoint
from hexforge.errors import CallError, FormatError, HexforgeError, UnsupportedError
from tests.addons.llm import REFERENCE, SMALL

TEXT = REFERENCE["generated"][1]["next"][:40]
CONFIG: dict[str, Any] = json.loads((SMALL / "config.json").read_text())
SIZES = {
    "vocab_size": 160, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 128, "hidden_act": "silu", "eos_token_id": 2,
}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    "llama3": {"model_type": "llama", "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32}},
    "mistral": {"model_type": "mistral", "sliding_window": 8},
    "qwen2": {"model_type": "qwen2", "tie_word_embeddings": True},
    "qwen3": {"model_type": "qwen3"},
    "phi3": {"model_type": "phi3", "partial_rotary_factor": 0.5},
    "gemma2": {"model_type": "gemma2", "sliding_window": 8, "query_pre_attn_scalar": 32,
               "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
    "gemma3": {"model_type": "gemma3_text", "sliding_window": 8, "layer_types": [
        "sliding_attention", "full_attention", "sliding_attention"],
        "rope_parameters": {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}},
    "granite": {"model_type": "granite", "embedding_multiplier": 3.0, "logits_scaling": 8.0,
                "residual_multiplier": 0.22, "attention_multiplier": 0.09, "attention_bias": True,
                "tie_word_embeddings": True},
    "olmo2": {"model_type": "olmo2"},
    "olmo3": {"model_type": "olmo3", "sliding_window": 8, "rope_scaling": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}},
    "smollm3": {"model_type": "smollm3", "no_rope_layers": [1, 1, 0]},
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_graphs_of_every_family_compute_the_float_model(family: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SIZES | FAMILIES[family]))
    checkpoint = open_checkpoint(tmp_path, random_seed=3)
    export(checkpoint, tmp_path / "b", ExportRequest(context=32, tokens=(8, 1), precision="float", compiled=False))
    tokens = [int(t) for t in np.random.default_rng(0).integers(3, 160, 20)]
    expected = FloatDecoder(checkpoint).logits([tokens])[0]
    given = load(tmp_path / "b", backend="cpu").session().feed(tokens, all_logits=True)
    assert np.abs(given - expected).max() < 2e-4 * np.abs(expected).max()


def _rounding_error(checkpoint: Checkpoint, folder: Path) -> float:
    """How far the logits of a w8a16 bundle are from those of the checkpoint: the share of their mean square."""
    export(checkpoint, folder, ExportRequest(context=32, tokens=(8, 1), precision="w8a16"))
    tokens = [int(t) for t in np.random.default_rng(0).integers(3, 160, 20)]
    expected = FloatDecoder(checkpoint).logits([tokens])[0]
    given = load(folder).session().feed(tokens, all_logits=True)
    return float(np.square(given - expected).mean() / np.square(expected).mean())


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "gemma2", "granite", "olmo2"])
def test_quantized_graphs_stay_near(family: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SIZES | FAMILIES[family]))
    checkpoint = open_checkpoint(tmp_path, random_seed=3)
    assert _rounding_error(checkpoint, tmp_path / "b") < 0.01


class _SmallQueries(RandomCheckpoint):
    """Queries and keys of a hundredth of their size, which a norm makes as large as ever."""

    def _stored(self, name: str, layer: int | None) -> np.ndarray:
        return super()._stored(name, layer) * np.float32(0.01 if name in ("query", "key") else 1)


def test_what_a_norm_makes_large_is_turned_whole(tmp_path: Path) -> None:
    """The steps of turned queries are those of normalized ones."""
    config = SIZES | FAMILIES["qwen3"]
    checkpoint = _SmallQueries(architecture_of_config(config, "small"), config, None, 3)
    assert _rounding_error(checkpoint, tmp_path / "b") < 0.01


def test_scores_and_logits_are_not_cut_before_their_caps(tmp_path: Path) -> None:
    caps = {"attn_logit_softcapping": 1.0, "final_logit_softcapping": 0.5}
    (tmp_path / "config.json").write_text(json.dumps(SIZES | FAMILIES["gemma2"] | caps))
    checkpoint = open_checkpoint(tmp_path, random_seed=3)
    assert _rounding_error(checkpoint, tmp_path / "b") < 0.01


@pytest.mark.parametrize(
    ("name", "array", "fault"),
    [
        ("model.layers.1.self_attn.q_proj.bias", np.zeros(256, np.float16), "which no llama has"),
        ("model.layers.1.mlp.experts.gate_up_proj", np.zeros(2, np.float16), "which no llama has"),
        ("model.layers.1.mlp.up_proj.weight", np.zeros((688, 256), np.int8), "up is of int8: a quantized checkpoint"),
    ],
)
def test_weights_that_nothing_is_computed_with_are_refused(
    name: str, array: np.ndarray, fault: str, tmp_path: Path
) -> None:
    arrays = load_file(SMALL / "model.safetensors")
    like = arrays.get(name)
    arrays[name] = array if like is None else np.zeros(like.shape, array.dtype)
    arrays["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.zeros(32, np.float32)  # of early Llamas, not needed
    save_file(arrays, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    with pytest.raises(UnsupportedError, match=fault):
        FloatDecoder(open_checkpoint(tmp_path)).logits([TEXT])


def test_a_split_model_computes_the_same(tmp_path: Path) -> None:
    """Three parts of a layer each, as a model of more than 3.75 GB has them."""
    request = ExportRequest(context=64, tokens=(32, 1), precision="w8a16")
    whole = export(SMALL, tmp_path / "whole", request)
    parts = export(SMALL, tmp_path / "parts", ExportRequest(context=64, tokens=(32, 1), part_bytes=1_300_000))
    assert (len(whole.parts), len(parts.parts)) == (1, 3)
    settings = json.loads((tmp_path / "parts" / "genai_config.json").read_text())["model"]
    stages = [stage for named in settings["decoder"]["pipeline"] for stage in named.values()]
    assert (settings["type"], [stage["filename"] for stage in stages]) == (
        "decoder-pipeline",
        ["model.1.onnx", "model.2.onnx", "model.3.onnx"],
    )
    assert [list(stage.get("output_names_forwarder", ())) for stage in stages] == [["hidden_states_out"]] * 2 + [[]]
    first, second = (load(tmp_path / name).session().feed(TEXT, all_logits=True) for name in ("whole", "parts"))
    assert np.array_equal(first, second)


def test_shards_are_read_where_the_index_says(tmp_path: Path) -> None:
    arrays = load_file(SMALL / "model.safetensors")
    names = sorted(arrays)
    places = {}
    for index, part in enumerate((names[::2], names[1::2]), 1):
        file = f"model-{index:05}-of-00002.safetensors"
        save_file({name: arrays[name] for name in part}, tmp_path / file)
        places |= dict.fromkeys(part, file)
    shutil.copy(SMALL / "config.json", tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    logits = [FloatDecoder(open_checkpoint(at)).logits([TEXT])[0] for at in (SMALL, tmp_path)]
    assert np.array_equal(logits[0], logits[1])
    last = tmp_path / "model-00002-of-00002.safetensors"
    last.write_bytes(last.read_bytes()[:-100])
    with pytest.raises(FormatError, match="lies outside the file"):
        open_checkpoint(tmp_path)
    last.unlink()
    with pytest.raises(FormatError, match="which is not in the folder"):
        open_checkpoint(tmp_path)


def gguf_of_small(path: Path, kind: gguf.GGMLQuantizationType) -> Path:
    """The small Llama as llama.cpp's converter writes it."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(CONFIG["num_hidden_layers"])
    writer.add_context_length(CONFIG["max_position_embeddings"])
    writer.add_embedding_length(CONFIG["hidden_size"])
    writer.add_feed_forward_length(CONFIG["intermediate_size"])
    writer.add_head_count(CONFIG["num_attention_heads"])
    writer.add_head_count_kv(CONFIG["num_key_value_heads"])
    writer.add_key_length(CONFIG["head_dim"])
    writer.add_layer_norm_rms_eps(CONFIG["rms_norm_eps"])
    writer.add_rope_freq_base(CONFIG["rope_theta"])
    writer.add_token_list([f"t{i}" for i in range(CONFIG["vocab_size"])])
    writer.add_eos_token_id(0)
    spelled = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, CONFIG["num_hidden_layers"])
    for name, stored in load_file(SMALL / "model.safetensors").items():
        array = stored.astype(np.float32)
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            halves = array.reshape(-1, 2, CONFIG["head_dim"] // 2, array.shape[1])
            array = np.ascontiguousarray(halves.swapaxes(1, 2).reshape(array.shape))
        own = kind if array.ndim == 2 else gguf.GGMLQuantizationType.F32
        target = spelled.get_name(name, try_suffixes=(".weight",))
        assert target is not None
        writer.add_tensor(target, gguf.quants.quantize(array, own), raw_dtype=own)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_gguf_files_are_read(tmp_path: Path) -> None:
    expected = FloatDecoder(open_checkpoint(SMALL)).logits([TEXT])[0]
    same = FloatDecoder(open_checkpoint(gguf_of_small(tmp_path / "a.gguf", gguf.GGMLQuantizationType.F16)))
    assert np.array_equal(same.logits([TEXT])[0], expected)
    near = FloatDecoder(open_checkpoint(gguf_of_small(tmp_path / "b.gguf", gguf.GGMLQuantizationType.Q8_0)))
    assert 0 < np.abs(near.logits([TEXT])[0] - expected).max() < 0.3


def damaged(data: bytes, random: np.random.Generator) -> bytes:
    """Some bytes of the header changed, or the file cut."""
    made = bytearray(data)
    for _ in range(int(random.integers(1, 6))):
        made[int(random.integers(0, min(len(made), 3000)))] = int(
            random.choice(np.array([0, 1, 127, 255, int(random.integers(256))]))
        )
    return bytes(made[: int(random.integers(0, len(made)))] if random.random() < 0.3 else made)


@pytest.mark.parametrize("kind", ["gguf", "safetensors"])
def test_hostile_headers_are_errors_and_no_crashes(kind: str, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    if kind == "gguf":
        target = gguf_of_small(tmp_path / "a.gguf", gguf.GGMLQuantizationType.F16)
        source: Path = target
    else:
        shutil.copy(SMALL / "config.json", tmp_path)
        target, source = tmp_path / "model.safetensors", tmp_path
        shutil.copy(SMALL / "model.safetensors", target)
    data = target.read_bytes()
    refused = 0
    for _ in range(60):
        target.unlink()
        target.write_bytes(damaged(data, random))
        try:
            checkpoint = open_checkpoint(source)
            checkpoint.weight("query", 0)
        except HexforgeError:
            refused += 1
    assert refused > 12


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"model_type": "bert"}, "model_type 'bert' is not exported here; llama"),
        ({"hidden_size": 128}, r"embedding is \[2048, 256\]; config.json says \[2048, 128\]"),
        ({"num_hidden_layers": 9}, "no file holds 'model.layers.3"),
        ({"hidden_size": "x"}, "hidden_size is 'x'"),
        ({"rope_scaling": {"rope_type": "ntk"}}, "rope_scaling of type 'ntk' is not known; default, linear"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "rope_scaling of type 'yarn' is malformed: 'factor'"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "is malformed"),
        ({"num_local_experts": 8}, "experts"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps is 'small'; it is a number above 0"),
        ({"rms_norm_eps": -1e-6}, "rms_norm_eps is -1e-06"),
        ({"rope_theta": True}, "rope_theta is True"),
        ({"rope_theta": 1e300}, "rope_theta is 1e"),
        ({"rope_theta": 1e-300}, "rope_theta is 1e-300"),
        ({"rope_theta": float("nan")}, "NaN is no JSON number"),
        ({"partial_rotary_factor": [1]}, "partial_rotary_factor is"),
        ({"partial_rotary_factor": 2.0}, "turning elements of 64"),
        ({"rope_scaling": [1]}, "rope_scaling is no object"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 0}}, "factor is 0"),
        ({"rope_scaling": {"rope_type": "longrope", "short_factor": [1.0]}}, "has not 32 numbers above 0"),
        ({"attn_logit_softcapping": {}}, "attn_logit_softcapping is"),
        ({"attention_bias": "no"}, "attention_bias is 'no'; it is true or false"),
        ({"hidden_act": "relu"}, "hidden_act 'relu' is not exported; silu"),
        ({"hidden_act": ["silu"]}, "hidden_act .* is not exported"),
        ({"layer_types": ["full_attention", "chunked_attention", "full_attention"]}, "'chunked_attention'; full_att"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantization_config is not followed"),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention is not followed"),
        ({"model_type": "paligemma", "text_config": CONFIG}, "model_type 'paligemma' around a llama"),
        ({"sliding_window": 1 << 60}, "sliding_window is"),
        ({"model_type": "smollm3", "no_rope_layers": [1]}, "no_rope_layers has not a 0 or 1 for each of 3 layers"),
    ],
)
def test_wrong_configs_are_refused(change: dict, fault: str, tmp_path: Path) -> None:
    shutil.copy(SMALL / "model.safetensors", tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | change))
    with pytest.raises((FormatError, UnsupportedError), match=fault):
        export(tmp_path, tmp_path / "b", ExportRequest(context=256, precision="float"))
    assert not (tmp_path / "b").exists()


def test_damaged_bundles_are_refused(tmp_path: Path) -> None:
    from hexforge.addons.llm import read_bundle

    whole = tmp_path / "whole"
    export(SMALL, whole, ExportRequest(context=64, tokens=(1,), precision="float", compiled=False))

    def fault(match: str, change: Any) -> None:
        folder = tmp_path / "damaged"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(whole, folder)
        change(folder)
        with pytest.raises(HexforgeError, match=match):
            read_bundle(folder)

    def described(**change: Any) -> Any:
        def write(folder: Path) -> None:
            said = json.loads((folder / "bundle.json").read_text())
            (folder / "bundle.json").write_text(json.dumps(said | change))

        return write

    other = (SMALL / "tokenizer.json").read_text().replace("the", "teh")
    fault("it is truncated", lambda f: (f / "weights.bin").write_bytes((f / "weights.bin").read_bytes()[:-1]))
    fault("is missing", lambda f: (f / "ar1.onnx").unlink())
    fault("is not the file that was exported", lambda f: (f / "tokenizer.json").write_text(other))
    fault("has no bundle.json", lambda f: (f / "bundle.json").unlink())
    fault("of version 1", described(version=9))
    fault("context is 'many': expected a whole number", described(context="many"))
    fault("each of 4 layers once", described(layers=4))
    fault("is no file of the bundle", described(sizes={"../x": 1}))
    fault("line 1", lambda f: (f / "bundle.json").write_text("{"))
    assert read_bundle(whole).tokens == (1,)


def test_another_models_tokenizer_is_refused(tmp_path: Path) -> None:
    for name in ("model.safetensors", "tokenizer.json"):
        shutil.copy(SMALL / name, tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"vocab_size": 2000}))
    with pytest.raises(FormatError, match=r"has 2048 tokens, and the model knows 2000; it is another model's"):
        export(tmp_path, tmp_path / "b", ExportRequest(context=256))
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(FormatError, match="is no tokenizer"):
        export(tmp_path, tmp_path / "b", ExportRequest(context=256))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[]", r"generation_config\.json: is no object of settings"),
        ('{"eos_token_id": [0, -4]}', "eos_token_id -4 is no token"),
        ('{"eos_token_id": 99999}', "eos_token_id 99999 is no token"),
        ('{"eos_token_id": "</s>"}', "eos_token_id '</s>' is no token"),
    ],
)
def test_wrong_generation_configs_are_refused(text: str, fault: str, tmp_path: Path) -> None:
    for name in ("model.safetensors", "config.json"):
        shutil.copy(SMALL / name, tmp_path)
    (tmp_path / "generation_config.json").write_text(text)
    with pytest.raises(FormatError, match=fault):
        export(tmp_path, tmp_path / "b", ExportRequest(context=64, tokens=(1,), precision="float", compiled=False))


@pytest.mark.parametrize(
    ("request_", "fault"),
    [
        (ExportRequest(context=4096), "made for 2 to 1024 tokens"),
        (ExportRequest(context=64, tokens=(32,)), "1 among them"),
        (ExportRequest(context=64, tokens=(128, 1)), "up to the context"),
        (ExportRequest(context=64, precision="w3a16"), "w3a16' is not exported"),
        (ExportRequest(context=256, precision="float", native=True), "native caches are 8-bit"),
    ],
)
def test_requests_that_cannot_be_met(request_: ExportRequest, fault: str, tmp_path: Path) -> None:
    with pytest.raises((CallError, UnsupportedError), match=fault):
        export(SMALL, tmp_path / "b", request_)


def test_two_rotations_are_exported_up_to_the_first_ones_length(tmp_path: Path) -> None:
    """longrope turns heads otherwise in texts that are longer than those it was trained on first."""
    scaling = {"rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    config = SIZES | {"model_type": "phi3", "rope_scaling": scaling, "original_max_position_embeddings": 32}
    (tmp_path / "config.json").write_text(json.dumps(config))
    checkpoint = open_checkpoint(tmp_path, random_seed=3)
    assert checkpoint.architecture.positions == 32
    with pytest.raises(CallError, match="made for 2 to 32 tokens"):
        export(checkpoint, tmp_path / "b", ExportRequest(context=64, tokens=(1,), precision="float"))
    same = config | {"rope_scaling": scaling | {"long_factor": [1.0] * 8}}
    (tmp_path / "config.json").write_text(json.dumps(same))
    assert open_checkpoint(tmp_path, random_seed=3).architecture.positions == 128


@pytest.mark.parametrize("config", ["genai_config.json", "config.json"])
def test_a_model_that_is_no_bundle_yet_is_told_its_export_command(tmp_path: Path, config: str) -> None:
    """Where a folder as onnxruntime-genai or transformers writes it is given as a bundle."""
    folder = tmp_path / "a model"
    folder.mkdir()
    (folder / config).write_text("{}")
    with pytest.raises(CallError, match=r"hexforge llm export '.*a model' -o '.*a model-bundle'"):
        read_bundle(folder)
