# SPDX-License-Identifier: Apache-2.0
"""Shapes of language models: from config.json in its many spellings, and from the table of names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hexforge.addons.llm import named_shapes, read_shape
from hexforge.addons.llm.shape import shape_of_config
from hexforge.errors import CallError, FormatError

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 24,
    "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 8192, "vocab_size": 128256,
    "tie_word_embeddings": True,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("llama_v3_1_8b_instruct", 8.03), ("llama_v3_2_1b_instruct", 1.24), ("llama_v3_2_3b_instruct", 3.21),
        ("falcon_v3_7b_instruct", 7.46), ("qwen2_5_7b_instruct", 7.62), ("qwen3_0_6b", 0.60), ("qwen3_4b", 4.02),
        ("qwen3_8b", 8.19), ("phi_3_5_mini_instruct", 3.82), ("phi_4_mini_instruct", 3.84), ("gemma_2_2b", 2.61),
        ("gemma_3_1b", 1.00), ("mistral_7b_instruct_v0_3", 7.25), ("smollm2_1_7b_it", 1.71), ("gpt_oss_20b", 20.9),
        ("granite_4_0_micro", 3.40), ("ibm_granite_v3_1_8b_instruct", 8.17), ("lfm2_5_1_2b_instruct", 1.17),
        ("smollm3_3b", 3.08), ("baichuan2_7b", 7.51),
    ],
)  # fmt: skip
def test_a_named_shape_has_the_published_count_of_parameters(name: str, billions: float) -> None:
    assert named_shapes()[name].parameters / 1e9 == pytest.approx(billions, rel=0.012)


def test_names_are_found_as_people_write_them() -> None:
    assert read_shape("Llama-v3.2-3B-Instruct") == named_shapes()["llama_v3_2_3b_instruct"]
    assert read_shape("qwen/Qwen3-4B").name == "qwen3_4b"
    with pytest.raises(CallError, match="did you mean 'qwen3_4b'"):
        read_shape("qwen3_4bb")


def test_a_folder_a_file_and_a_name_give_one_shape(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    named = named_shapes()["llama_v3_2_3b_instruct"]
    for source in (tmp_path, tmp_path / "config.json"):
        shape = read_shape(source)
        assert shape.parameters == named.parameters
        assert shape.cached_values(4096) == named.cached_values(4096) == 2 * 28 * 8 * 128 * 4096


def test_the_text_part_of_a_model_that_sees_pictures_is_read() -> None:
    shape = shape_of_config({"model_type": "internvl", "llm_config": LLAMA}, "x")
    assert shape.vision
    assert shape.parameters == named_shapes()["llama_v3_2_3b_instruct"].parameters


def test_windows_experts_and_short_convolutions() -> None:
    gemma = shape_of_config(LLAMA | {"model_type": "gemma3_text", "sliding_window": 512, "num_hidden_layers": 12}, "g")
    assert (gemma.windowed_layers, gemma.window) == (10, 512)
    assert gemma.cached_values(4096) == 2 * 8 * 128 * (2 * 4096 + 10 * 512)
    unused = shape_of_config(LLAMA | {"sliding_window": 512, "use_sliding_window": False}, "q")
    assert unused.windowed_layers == 0
    experts = shape_of_config(LLAMA | {"num_local_experts": 8, "num_experts_per_tok": 2}, "m")
    feed_forward = 3 * 3072 * 8192 * 28
    assert experts.layer_parameters - experts.active_parameters == 6 * feed_forward
    mixed = shape_of_config(LLAMA | {"layer_types": ["conv"] * 20 + ["full_attention"] * 8}, "l")
    assert mixed.spans(1000) == 8000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": None}, "has no hidden_size"),
        ({"vocab_size": -1}, "vocab_size is -1"),
        ({"num_hidden_layers": True}, "num_hidden_layers is True"),
        ({"num_key_value_heads": 7}, "cannot share 7"),
        ({"intermediate_size": 1 << 40}, "whole number from 1"),
        ({"head_dim": "128"}, "head_dim is '128'"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"num_attention_heads": None}, "models without attention are not timed"),
        ({"num_local_experts": 2, "num_experts_per_tok": 8}, "asks 8 experts for a token and has 2"),
        ({"tie_word_embeddings": "false"}, "tie_word_embeddings is 'false'; it is true or false"),
        ({"sliding_window": "4096"}, "sliding_window is '4096'"),
        ({"layer_types": ["conv"]}, "layer_types has 1 entries for 28 layers"),
        ({"layer_types": 3}, "layer_types has 3 entries"),
        ({"layer_types": ["conv"] * 28}, "no entry of layer_types is an attention"),
        ({"is_encoder_decoder": True}, "an encoder and a decoder"),
        ({"hidden_size": 1 << 24, "num_hidden_layers": 1 << 24}, "parameters, which no model has"),
    ],
)
def test_a_bad_config_is_refused_with_what_is_wrong(change: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        shape_of_config(LLAMA | change, "bad", "config.json")


def test_a_config_that_is_no_object_and_a_folder_without_one(tmp_path: Path) -> None:
    with pytest.raises(CallError, match=r"has no config\.json"):
        read_shape(tmp_path)
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(FormatError, match="is no object"):
        read_shape(tmp_path)


def test_sizes_that_published_configs_leave_out_are_known() -> None:
    """Gemma 3 4B's config.json says no heads and no vocabulary."""
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34, "intermediate_size": 10240}
    shape = shape_of_config({"model_type": "gemma3", "text_config": text | {"sliding_window": 1024}}, "gemma")
    assert shape.parameters == named_shapes()["gemma_3_4b"].parameters
    assert (shape.windowed_layers, shape.vision) == (29, True)


def test_pictures_and_wide_attention_follow_from_a_config_that_nests_nothing() -> None:
    config = LLAMA | {"model_type": "qwen2_5_vl", "vision_config": {"depth": 32}}
    shape = shape_of_config(config, "vl")
    assert (shape.vision, shape.wide_attention) == (True, True)
    assert not shape_of_config(LLAMA, "text").wide_attention


def test_what_is_taken_for_granted_is_said() -> None:
    assert shape_of_config(LLAMA, "known").assumed == ()
    unknown = shape_of_config(LLAMA | {"model_type": "frobnicator"}, "x").assumed
    assert unknown == ("the model type 'frobnicator' is not known here: counted as a decoder with layers like Llama's",)
    compressed = shape_of_config(LLAMA | {"kv_lora_rank": 512, "n_shared_experts": 2}, "x").assumed
    assert [said.split(" (")[1].split(")")[0] for said in compressed] == ["kv_lora_rank", "n_shared_experts"]
