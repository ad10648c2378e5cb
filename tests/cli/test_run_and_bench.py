# SPDX-License-Identifier: Apache-2.0
"""`run` and `bench`: models, context models and contexts, with times, the largest numbers, and JSON."""

from __future__ import annotations

import json
import threading
import wave
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from PIL import Image

from hexforge.cli.commands.bench import BenchTimes, time_calls
from tests.cli.test_cli import run
from tests.digits import MODEL, held_out


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("context") / "digits.bin"
    assert run("compile", str(MODEL), "-o", str(path), "--wrap") == 0
    return path


def test_the_largest_numbers_and_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pictures, labels = held_out()
    np.save(tmp_path / "in.npy", pictures[0])
    (tmp_path / "names.txt").write_text("\n".join(f"digit {i}" for i in range(10)))
    given = ("-i", f"image={tmp_path / 'in.npy'}", "--top", "3", "--classes", str(tmp_path / "names.txt"))
    assert run("run", str(MODEL), *given, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["run_ms"] > 0
    assert said["load_ms"] > 0
    (logits,) = said["outputs"]
    assert logits["top"][0]["index"] == labels[0]
    assert logits["top"][0]["name"] == f"digit {labels[0]}"
    assert logits["top"][0]["value"] == logits["max"]
    assert run("run", str(MODEL), *given) == 0
    out = capsys.readouterr().out
    assert "ms to run" in out.splitlines()[0]
    assert f"digit {labels[0]}" in out


def test_pictures_sounds_and_raw_bytes_are_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def saved(name: str, shape: str) -> str:
        text = f'<ir_version: 8, opset_import: ["": 17]> g (float{shape} x) => (float{shape} y) {{ y = Identity(x) }}'
        onnx.save(onnx.parser.parse_model(text), tmp_path / name)
        return str(tmp_path / name)

    def output(model: str, file: str) -> np.ndarray:
        assert run("run", model, "--backend", "cpu", "-i", f"x={tmp_path / file}", "-o", str(tmp_path)) == 0
        return np.load(tmp_path / "y.npy")

    pixels = np.random.default_rng(0).integers(0, 256, (8, 6, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "photo.png")
    picture = output(saved("picture.onnx", "[1, 3, 8, 6]"), "photo.png")
    np.testing.assert_allclose(picture[0].transpose(1, 2, 0), pixels / 255, atol=1e-6)
    frames = np.array([[0, 16384], [-32768, -32768], [32767, 32767]], np.int16)  # two channels
    with wave.open(str(tmp_path / "say.wav"), "wb") as recording:
        recording.setparams((2, 2, 16000, 0, "NONE", ""))
        recording.writeframes(frames.tobytes())
    sound = output(saved("sound.onnx", "[1, 4]"), "say.wav")  # one frame of silence is added
    np.testing.assert_allclose(sound, [[0.25, -1, 32767 / 32768, 0]])
    np.testing.assert_array_equal(output(saved("short.onnx", "[2]"), "say.wav"), np.array([0.25, -1], np.float32))
    (tmp_path / "x.raw").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    np.testing.assert_array_equal(output(str(tmp_path / "sound.onnx"), "x.raw"), [[0, 1, 2, 3]])
    capsys.readouterr()
    (tmp_path / "cut.wav").write_bytes((tmp_path / "say.wav").read_bytes()[:20])
    for file, words in (("cut.wav", "cannot be read as wav"), ("photo.png", "no picture fits an input")):
        assert run("run", str(tmp_path / "sound.onnx"), "-i", f"x={tmp_path / file}") == 2
        assert words in capsys.readouterr().err


def test_a_context_and_its_model_run_as_the_model_does(
    context: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pictures, _ = held_out()
    np.save(tmp_path / "in.npy", pictures[0])
    found = []
    for i, path in enumerate([MODEL, context, context.with_name("digits_qnn_ctx.onnx")]):
        given = ("-i", f"image={tmp_path / 'in.npy'}", "-o", str(tmp_path / str(i)))
        assert run("run", str(path), *given) == 0
        found.append(np.load(tmp_path / str(i) / "logits.npy"))
    capsys.readouterr()
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    assert run("run", str(context), "--dim", "batch=1") == 2
    assert "is compiled already" in capsys.readouterr().err


def test_bench(context: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (MODEL, context):
        assert run("bench", str(path), "-n", "20", "--threads", "2", "--warmup", "1", "--json") == 0
        said = json.loads(capsys.readouterr().out)
        assert (said["iterations"], said["threads"]) == (20, 2)
        times = said["latency_ms"]
        assert times["min"] <= times["p50"] <= times["p90"] <= times["p99"] <= times["max"]
        assert said["throughput_per_s"] > 0
        assert 0 < said["chip_estimate_ms"] < 1
    assert run("bench", str(MODEL), "--duration", "0.05", "--backend", "cpu") == 0
    out = capsys.readouterr().out
    assert "per second on this computer: cpu" in out
    assert "as simulated" not in out


def test_percentiles_and_threads() -> None:
    measured = BenchTimes(tuple(float(i) for i in range(1, 101)), 2.0, 1)
    assert [measured.percentile(p) for p in (50, 90, 99)] == [50.0, 90.0, 99.0]
    assert measured.throughput == 50
    seen = set()
    barrier = threading.Barrier(3, timeout=10)

    def call() -> None:
        seen.add(threading.get_ident())
        barrier.wait()

    assert len(time_calls(call, 3, 6, 1.0).times_ms) == 6
    assert len(seen) == 3
    with pytest.raises(ValueError, match="broken"):
        time_calls(lambda: (_ for _ in ()).throw(ValueError("broken")).__next__(), 2, 4, 1.0)
    assert len(time_calls(lambda: None, 1, 0, 0.001).times_ms) >= 1
