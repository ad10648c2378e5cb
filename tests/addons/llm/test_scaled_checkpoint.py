# SPDX-License-Identifier: Apache-2.0
"""Scales of inputs: the model stays the same in floats, and channels that are large lose less when it is rounded."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

from hexforge.addons.llm import ExportRequest, export, load
from hexforge.addons.llm.checkpoints.checkpoint import Checkpoint
from hexforge.addons.llm.checkpoints.float_decoder import FloatDecoder
from hexforge.addons.llm.checkpoints.open_checkpoint import open_checkpoint
from hexforge.addons.llm.checkpoints.peft_adapter import adapted_checkpoint, read_adapter
from hexforge.addons.llm.exporting.evaluate import evaluate_bundle
from hexforge.addons.llm.exporting.precision import PRECISIONS
from hexforge.addons.llm.exporting.scaled_checkpoint import InputScales, ScaledCheckpoint, searched_scales
from hexforge.addons.llm.exporting.weight_rounding import InputCorrelations
from hexforge.cli import app
from hexforge.errors import UnsupportedError
from tests.addons.llm import REFERENCE, SMALL
from tests.addons.llm.genai_models import write_genai_model
from tests.addons.llm.test_checkpoints import FAMILIES, SIZES
from tests.addons.llm.test_lora import MODULES, peft_folder

TEXT = REFERENCE["generated"][1]["next"][:40]
HELD_OUT = (SMALL / "held_out.txt").read_text()


def short_text(folder: Path) -> Path:
    """What is quickly calibrated with."""
    (folder / "text.txt").write_text(HELD_OUT[:1500])
    return folder / "text.txt"


def drawn_scales(checkpoint: Checkpoint) -> InputScales:
    """Scales of every value that can have some, from a tenth to ten."""
    shape, random = checkpoint.architecture.shape, np.random.default_rng(5)
    scales = {"normalized": random.uniform(-1, 1, shape.hidden)}
    for at in (f"layer.{layer}." for layer in range(shape.layers)):
        values = random.uniform(-1, 1, (shape.kv_heads, 1, shape.head_dim))
        scales[at + "mixed"] = np.repeat(values, shape.heads // shape.kv_heads, 1).reshape(-1)
        scales[at + "gated"] = random.uniform(-1, 1, shape.ffn)
        norms = ("attention_norm", "feed_norm") if checkpoint.architecture.inner_norms else ()
        scales |= {at + name: random.uniform(-1, 1, shape.hidden) for name in norms}
    return InputScales(checkpoint.architecture, {k: (10**v).astype(np.float32) for k, v in scales.items()})


def outlier_model(folder: Path, channels: int = 6) -> Path:
    """The small Llama with norms that make some channels 30 times as large, and weights that are so much smaller."""
    shutil.copytree(SMALL, folder)
    arrays = {name: array.astype(np.float32) for name, array in load_file(SMALL / "model.safetensors").items()}
    random = np.random.default_rng(0)
    attention, feed = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), ("mlp.gate_proj", "mlp.up_proj")
    for layer in range(3):
        for norm, products in (("input_layernorm", attention), ("post_attention_layernorm", feed)):
            sizes = np.ones(256, np.float32)
            sizes[random.choice(256, channels, replace=False)] = 30
            arrays[f"model.layers.{layer}.{norm}.weight"] *= sizes
            for product in products:
                arrays[f"model.layers.{layer}.{product}.weight"] /= sizes
    save_file(arrays, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("family", FAMILIES)
def test_a_scaled_model_computes_the_same(family: str, tmp_path: Path) -> None:
    settings = SIZES | FAMILIES[family]
    settings |= {"attention_bias": True, "mlp_bias": True} if family == "llama3" else {}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    checkpoint = open_checkpoint(tmp_path, random_seed=3)
    tokens = [int(t) for t in np.random.default_rng(0).integers(3, 160, 30)]
    expected = FloatDecoder(checkpoint).logits([tokens])[0]
    scaled = ScaledCheckpoint(checkpoint, drawn_scales(checkpoint))
    assert not np.allclose(scaled.weight("value", 0), checkpoint.weight("value", 0))
    given = FloatDecoder(scaled).logits([tokens])[0]
    assert np.abs(given - expected).max() < 1e-4 * np.abs(expected).max()


def test_adapters_of_a_scaled_model_change_it_as_before(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(SMALL)
    adapter = read_adapter("a", peft_folder(tmp_path / "a", 2, 8, tuple(MODULES)), checkpoint.architecture)
    scales = drawn_scales(checkpoint)
    expected = FloatDecoder(adapted_checkpoint(checkpoint, adapter)).logits([TEXT])[0]
    scaled = adapted_checkpoint(ScaledCheckpoint(checkpoint, scales), scales.scaled(adapter))
    assert np.abs(FloatDecoder(scaled).logits([TEXT])[0] - expected).max() < 1e-4 * np.abs(expected).max()
    asked = ExportRequest(
        context=64, tokens=(1,), scaled=True, adapters={"a": tmp_path / "a"}, calibration=short_text(tmp_path)
    )
    export(checkpoint, tmp_path / "b", asked)
    given = load(tmp_path / "b").session("a").feed(TEXT, all_logits=True)
    assert np.square(given - expected).mean() < 0.01 * np.square(expected).mean()


def test_the_search_finds_what_was_made_large(tmp_path: Path) -> None:
    checkpoint, seen = open_checkpoint(outlier_model(tmp_path / "m")), InputCorrelations()
    FloatDecoder(checkpoint).states([TEXT], seen.observe)
    scales = searched_scales(checkpoint, PRECISIONS["w4a16_channel"], seen).by_value["layer.1.feed_norm"]
    plain = open_checkpoint(SMALL).weight("feed_norm", 1)
    made_large = checkpoint.weight("feed_norm", 1) > 20 * plain
    assert made_large.sum() == 6
    assert scales[made_large].min() > 4 * np.median(scales)


def test_scaling_pays_where_channels_stick_out(tmp_path: Path) -> None:
    """The whole text and other precisions are in docs/language_models.md."""
    model, lost, kinds = outlier_model(tmp_path / "m"), [], []
    for scaled in (False, True):
        export(model, tmp_path / "b", ExportRequest(context=256, precision="w4a16", scaled=scaled))
        lost.append(evaluate_bundle(tmp_path / "b", model, HELD_OUT, rows=8).divergence)
        kinds.append([node.op_type for node in onnx.load(tmp_path / "b" / "ar1.onnx").graph.node])
    assert lost[1] < 0.5 * lost[0]
    assert kinds[0] == kinds[1]


@pytest.mark.parametrize("way", ["scaled", "compensated"])
def test_integers_that_are_kept_are_not_rounded_otherwise(tmp_path: Path, way: str) -> None:
    source = write_genai_model(tmp_path / "genai", bits=4)
    asked = ExportRequest(
        context=64, tokens=(1,), precision="w4a16", compiled=False, scaled=way == "scaled",
        compensated=way == "compensated",
    )  # fmt: skip
    with pytest.raises(
        UnsupportedError, match=r"4-bit integers are kept as they are at w4a16, .* leave out --rounding"
    ):
        export(source, tmp_path / "b", asked)
    export(source, tmp_path / "b", replace(asked, precision="w4a16_lpbq"))


def test_the_command_names_the_rounding(tmp_path: Path) -> None:
    def run(*words: str) -> tuple[int, str]:
        command = [
            "llm",
            "export",
            str(SMALL),
            "-o",
            str(tmp_path / "b"),
            "--context",
            "64",
            "--ar",
            "1",
            "--no-context",
        ]
        done = CliRunner().invoke(app, [*command, "--precision", "w4a16", *words])
        return done.exit_code, done.output + str(done.exception)

    made = {}
    for name, words in {
        "plain": (), "nearest": ("--rounding", "nearest"), "old": ("--compensate",),
        "new": ("--rounding", "compensate"), "both": ("--rounding", "scale,compensate"),
        "scale": ("--rounding", "scale"),
    }.items():  # fmt: skip
        assert run(*words)[0] == 0
        made[name] = (tmp_path / "b" / "weights.bin").read_bytes()
    assert made["plain"] == made["nearest"]
    assert made["old"] == made["new"]
    assert len({made[name] for name in ("plain", "old", "both", "scale")}) == 4
    code, said = run("--rounding", "scaled")
    assert code != 0
    assert "'scaled' is none of nearest, scale, compensate" in said
    code, said = run("--rounding", "scale", "--precision", "float")
    assert code != 0
    assert "floats are not rounded" in said
