# SPDX-License-Identifier: Apache-2.0
"""ONNX decoders as onnxruntime-genai's builder and optimum write them: exported, run, or refused."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from hexforge.addons.llm import ExportRequest, export, load
from hexforge.addons.llm.checkpoints.decoder_architecture import rotation_of_tables
from hexforge.addons.llm.checkpoints.float_decoder import FloatDecoder
from hexforge.addons.llm.checkpoints.open_checkpoint import open_checkpoint
from hexforge.addons.llm.checkpoints.rotation import Rotation
from hexforge.addons.llm.exporting.evaluate import evaluate_bundle
from hexforge.errors import CallError, FormatError, HexforgeError, UnsupportedError
from tests import ROOT
from tests.addons.llm import REFERENCE, SMALL
from tests.addons.llm.genai_models import write_genai_model

CASE = REFERENCE["generated"][1]
FLOAT = ExportRequest(context=256, tokens=(32, 1), precision="float", compiled=False)
GENAI = ROOT / ".venv-genai" / "bin" / "python"


@pytest.mark.parametrize("neighbours", [False, True])
def test_tokens_of_a_genai_model_are_torchs(neighbours: bool, tmp_path: Path) -> None:
    """Exported from ONNX, with heads of which halves or neighbours turn together: 200 tokens in float32."""
    source = write_genai_model(tmp_path / "genai", neighbours=neighbours)
    bundle = export(source, tmp_path / "bundle", FLOAT)
    assert (bundle.layers, bundle.vocabulary, bundle.end_tokens) == (3, 2048, (0,))
    pieces = load(tmp_path / "bundle", backend="cpu").session().generate(CASE["prompt"], 200, past_end=True)
    assert [piece.token for piece in pieces] == CASE["next"]


def test_four_bit_blocks_are_kept(tmp_path: Path) -> None:
    """A bundle at w4a16 has the integers of MatMulNBits; queries have attention's scale in their scales."""
    source = write_genai_model(tmp_path / "genai", bits=4)
    export(source, tmp_path / "bundle", ExportRequest(context=256, tokens=(1,), precision="w4a16", compiled=False))
    stored = {t.name: t for t in onnx.load(source / "model.onnx").graph.initializer}
    written = {t.name: t for t in onnx.load(tmp_path / "bundle" / "ar1.onnx").graph.initializer}
    packed = numpy_helper.to_array(stored["model.layers.1.attn.qkv_proj.MatMul.weight_Q4"])
    codes = np.stack((packed & 15, packed >> 4), -1).reshape(512, 256).astype(np.int8) - 8
    for name, rows in (("query", slice(256)), ("key", slice(256, 384)), ("value", slice(384, 512))):
        kept = numpy_helper.to_array(written[f"layer.1.{name}.weight.int4"]).astype(np.int8)
        assert np.array_equal(kept, codes[rows].T)
    scales = numpy_helper.to_array(stored["model.layers.1.attn.qkv_proj.MatMul.weight_scales"])
    kept_scales = numpy_helper.to_array(written["layer.1.query.weight.scales"])
    assert np.array_equal(kept_scales, scales[:256].T * np.float32(0.125))


def test_a_bundle_is_judged_by_the_model_it_was_made_of(tmp_path: Path) -> None:
    """`llm eval --checkpoint` takes the ONNX decoder, too; its 4-bit weights are the float model's here."""
    source = write_genai_model(tmp_path / "genai", bits=4)
    export(source, tmp_path / "bundle", ExportRequest(context=256, tokens=(128, 1), precision="w4a16"))
    text = (SMALL / "held_out.txt").read_text()
    given = evaluate_bundle(tmp_path / "bundle", source, text, rows=4)
    assert abs(given.perplexity / given.float_perplexity - 1) < 0.01
    assert given.same_first > 0.95


def test_speeds_follow_from_tables() -> None:
    speeds = tuple(float(v) for v in np.float32(5e5) ** -(np.arange(0, 64, 2, dtype=np.float32) / np.float32(64)))
    rotation = Rotation(64, speeds, 1.25)
    read = rotation_of_tables(*rotation.table(4096), "here")
    assert read.size == 64
    assert abs(read.scale - 1.25) < 1e-6
    assert np.abs(np.array(read.speeds) / speeds - 1).max() < 3e-7
    with pytest.raises(FormatError, match="tables of rotations"):
        rotation_of_tables(np.zeros((1, 4)), np.zeros((1, 4)), "here")


def test_a_model_that_computes_something_else_is_refused(tmp_path: Path) -> None:
    """Names say that it is a Llama; its scores are scaled twice, its epsilon is another, or it adds to its logits."""
    folder = write_genai_model(tmp_path / "genai")
    path = folder / "model.onnx"
    model = onnx.load(path)
    last = model.graph.node[-1]
    last.output[0] = "before"
    model.graph.node.append(onnx.helper.make_node("Sin", ["before"], ["logits"], "/sin"))
    onnx.save(model, path)
    with pytest.raises(UnsupportedError, match=r"logits of its weights in a llama differ by \d+"):
        open_checkpoint(folder)


def test_attention_that_is_not_exported_is_refused(tmp_path: Path) -> None:
    folder = write_genai_model(tmp_path / "genai", smooth_softmax=1)
    with pytest.raises(UnsupportedError, match=r"layers\.0/attn/GroupQueryAttention: a bias, a head sink"):
        open_checkpoint(folder)


def test_windows_and_caps_come_from_attention(tmp_path: Path) -> None:
    """The numbers are those of onnxruntime, or opening it would have failed."""
    folder = write_genai_model(tmp_path / "genai", local_window_size=8, softcap=20.0)
    arch = open_checkpoint(folder).architecture
    assert (arch.windows, arch.score_cap, arch.shape.window) == ((8, 8, 8), 20.0, 8)


def test_a_folder_as_optimum_writes_it(tmp_path: Path) -> None:
    """config.json says what it is; constants of products have numbers for names, and their nodes the modules'."""
    folder = write_genai_model(tmp_path / "model")
    (folder / "genai_config.json").unlink()
    (folder / "config.json").write_text((SMALL / "config.json").read_text())
    model = onnx.load(folder / "model.onnx")
    names = {t.name: f"onnx::MatMul_{i}" for i, t in enumerate(model.graph.initializer) if "MatMul" in t.name}
    for tensor in model.graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    for node in model.graph.node:
        for index, name in enumerate(node.input):
            node.input[index] = names.get(name, name)
    onnx.save(model, folder / "model.onnx")
    expected = FloatDecoder(open_checkpoint(SMALL)).logits([CASE["next"][:40]])[0]
    for source in (folder, folder / "model.onnx"):
        assert np.array_equal(FloatDecoder(open_checkpoint(source)).logits([CASE["next"][:40]])[0], expected)


def test_wrong_folders_are_refused(tmp_path: Path) -> None:
    folder = write_genai_model(tmp_path / "genai")
    settings = json.loads((folder / "genai_config.json").read_text())

    def fault(match: str, change: dict, kind: type[HexforgeError] = FormatError) -> None:
        model = settings["model"] | {"decoder": settings["model"]["decoder"] | change}
        (folder / "genai_config.json").write_text(json.dumps({"model": model}))
        with pytest.raises(kind, match=match):
            open_checkpoint(folder)

    fault("which is no file of the folder", {"filename": "../model.onnx"})
    fault("which is no file of the folder", {"filename": "absent.onnx"})
    fault("in several stages", {"pipeline": []}, UnsupportedError)
    fault("head_dim is 'x'", {"head_size": "x"})
    (folder / "genai_config.json").write_text("[]")
    with pytest.raises(FormatError, match=r"has no model\.decoder"):
        open_checkpoint(folder)
    (folder / "genai_config.json").unlink()
    with pytest.raises(CallError, match=r"has neither genai_config\.json nor config\.json"):
        open_checkpoint(folder)
    data = (folder / "model.onnx").read_bytes()
    (folder / "model.onnx").write_bytes(data[:1000])
    with pytest.raises(HexforgeError):
        open_checkpoint(folder)


@pytest.mark.genai
@pytest.mark.skipif(not GENAI.exists(), reason="make genai")
@pytest.mark.parametrize("precision", ["fp32", "int4"])
def test_models_of_the_builder_itself(precision: str, tmp_path: Path) -> None:
    """Built by onnxruntime-genai's own builder from the small Llama; float tokens are torch's, 4 bits are its own."""
    command = [str(GENAI), "-m", "onnxruntime_genai.models.builder", "-i", str(SMALL), "-o", str(tmp_path / "genai"),
               "-p", precision, "-e", "cpu", "-c", str(tmp_path / "cache")]  # fmt: skip
    ran = subprocess.run(command, env=os.environ | {"HF_HUB_OFFLINE": "1"}, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-2000:]
    export(tmp_path / "genai", tmp_path / "bundle", FLOAT)
    expected = [CASE["next"]]
    if precision == "int4":
        script = ROOT / "tests" / "addons" / "llm" / "with_genai.py"
        arguments = [GENAI, script, tmp_path / "genai", SMALL / "reference.json"]
        given = subprocess.run(arguments, capture_output=True, text=True, check=True)
        expected = [json.loads(given.stdout)[1]["next"]]
    pieces = load(tmp_path / "bundle", backend="cpu").session().generate(CASE["prompt"], 200, past_end=True)
    tokens = [piece.token for piece in pieces]
    if precision == "fp32":
        assert [tokens] == expected
    else:  # MatMulNBits rounds what it reads to 8 bits here, so near ties go apart after a while
        assert tokens[:8] == expected[0][:8]
