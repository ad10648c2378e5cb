# SPDX-License-Identifier: Apache-2.0
"""A .tflite goes through every command as an ONNX model does, keeps its names, and is refused in words."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import hexforge
from hexforge.addons.tflite.bundle import models_in
from hexforge.addons.tflite.convert import onnx_model
from hexforge.addons.tflite.model_file import parse
from hexforge.cli import main
from hexforge.errors import CallError, FormatError, UnsupportedError
from tests.addons.tflite.tflite_files import Made, MadeModel, MadeOperator, MadeSubgraph, litertlm

_CONV = [("b", 0), ("i", 2), ("i", 2), ("b", 1)]
FILTER = np.random.default_rng(3).normal(0, 0.3, (4, 3, 3, 2)).astype(np.float32)
BIAS = np.array([0.1, -0.2, 0.3, 0.0], np.float32)


def net(extra: list[MadeOperator] | None = None) -> MadeModel:
    """An image, a convolution with a ReLU, and what is added to itself."""
    tensors = [
        Made((1, 8, 6, 2), name="image"),
        Made(FILTER.shape, data=FILTER, name="filter"),
        Made((4,), data=BIAS, name="bias"),
        Made((1, 4, 3, 4), name="net/conv"),
        Made((1, 4, 3, 4), name="twice"),
    ]
    operators = [MadeOperator("CONV_2D", [0, 1, 2], [3], _CONV), MadeOperator("ADD", [3, 3], [4], [("b", 0)])]
    graph = MadeSubgraph(tensors, operators + (extra or []), [0], [4])
    return MadeModel([graph], signatures=[("serving_default", 0, {"x": 0}, {"y": 4})])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "net.tflite").write_bytes(net().content())
    return tmp_path / "net.tflite"


Command = Callable[..., str]


@pytest.fixture
def run_command(capsys: pytest.CaptureFixture[str]) -> Command:
    """A command of hexforge, which ends well, and what it prints."""

    def run(*words: object) -> str:
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        assert not ended.value.code
        return capsys.readouterr().out

    return run


def expected(image: np.ndarray) -> np.ndarray:
    """The net by hand: SAME padding puts the odd row and column behind."""
    padded = np.pad(image, ((0, 0), (0, 1), (0, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))[:, ::2, ::2]
    result: np.ndarray = 2 * np.maximum(np.einsum("nyxchw,ohwc->nyxo", windows, FILTER) + BIAS, 0)
    return result


def test_names_stay() -> None:
    made = onnx_model(parse(net().content(), "net.tflite"))
    onnx.checker.check_model(made, full_check=True)
    assert [value.name for value in made.graph.input] == ["image"]
    assert [value.name for value in made.graph.output] == ["twice"]
    assert {"net/conv"} <= {name for node in made.graph.node for name in node.output}
    assert {p.key: p.value for p in made.metadata_props}["signature serving_default inputs"] == "x=image"


@pytest.mark.parametrize("backend", ["cpu", "htp"])
def test_a_session_runs_it(file: Path, backend: str) -> None:
    session = hexforge.InferenceSession(
        file, providers=["QNNExecutionProvider"], provider_options=[{"backend_type": backend}]
    )
    image = np.random.default_rng(0).random((1, 8, 6, 2), np.float32)
    (got,) = session.run(None, {"image": image})
    assert np.abs(got - expected(image)).max() < (1e-5 if backend == "cpu" else 2e-3)


def test_transposes_cancel(file: Path, run_command: Command) -> None:
    checked = hexforge.check(file)
    assert checked.totals["refused"] == 0
    assert run_command("show", file).count("Transpose") == 0


@pytest.mark.parametrize("command", ["check", "estimate", "advise"])
def test_commands_take_it(command: str, file: Path, run_command: Command) -> None:
    json.loads(run_command(command, file, "--json"))


def test_convert_writes_onnx(file: Path, tmp_path: Path, run_command: Command) -> None:
    run_command("convert", file, "-o", tmp_path / "net.onnx")
    onnx.checker.check_model(onnx.load(tmp_path / "net.onnx"))


def test_what_is_not_translated_is_named_at_once() -> None:
    unknown = [MadeOperator("HASHTABLE_SIZE", [3], [4]), MadeOperator("MyOwn", [3], [4])]
    with pytest.raises(UnsupportedError) as caught:
        onnx_model(parse(net(unknown).content(), "net.tflite"))
    assert "2 of 4 operators" in str(caught.value)
    assert "HASHTABLE_SIZE" in str(caught.value)
    assert "custom operator" in str(caught.value)


def test_what_litert_leaves_to_the_cpu_is_said_with_reasons(tmp_path: Path, run_command: Command) -> None:
    more = [
        MadeOperator("EXPAND_DIMS", [3], [4]),
        MadeOperator("EXPAND_DIMS", [3], [4]),
        MadeOperator("MyOwn", [3], [4]),
    ]
    (tmp_path / "more.tflite").write_bytes(net(more).content())
    (model,) = json.loads(run_command("info", tmp_path / "more.tflite", "--json"))["models"]
    assert [(row["operator"], row["count"]) for row in model["left_to_the_cpu_by_litert"]] == [
        ("EXPAND_DIMS", 2),
        ("MyOwn", 1),
    ]
    said = " ".join(run_command("info", tmp_path / "more.tflite").split())
    assert "has no QNN op for it" in said
    assert "QNN op package" in said


def test_a_bundle_names_its_models(tmp_path: Path, run_command: Command) -> None:
    bundle = tmp_path / "two.task"
    with zipfile.ZipFile(bundle, "w") as archive:
        archive.writestr("detector.tflite", net().content())
        archive.writestr("landmarks.tflite", net().content())
    assert [m["name"] for m in json.loads(run_command("info", bundle, "--json"))["models"]] == [
        "detector.tflite",
        "landmarks.tflite",
    ]
    with pytest.raises(CallError, match="two.task#detector, two.task#landmarks".replace(".", r"\.")):
        hexforge.check(bundle)
    assert hexforge.check(tmp_path / "two.task#detector").totals["refused"] == 0
    with pytest.raises(CallError, match="no model 'nose'"):
        hexforge.check(tmp_path / "two.task#nose")


def test_sections_of_a_bundle_are_models(tmp_path: Path) -> None:
    content = litertlm({"prefill_decode": net().content(), "embedder": net().content()})
    (tmp_path / "llm.litertlm").write_bytes(content)
    assert list(models_in(content, "llm.litertlm")) == ["prefill_decode", "embedder"]
    assert hexforge.check(tmp_path / "llm.litertlm#embedder").totals["refused"] == 0
    for end in (8, 40, 60, 1100):
        with pytest.raises((FormatError, UnsupportedError)):
            models_in(content[:end], "llm.litertlm")


@pytest.mark.parametrize("end", [8, 40, 200, 700])
def test_a_cut_file_is_damaged(end: int) -> None:
    with pytest.raises((FormatError, UnsupportedError)):
        onnx_model(parse(net().content()[:end], "net.tflite"))


def test_an_old_version_is_said() -> None:
    model = net()
    model.version = 2
    with pytest.raises(FormatError, match="version 2 of the schema"):
        parse(model.content(), "net.tflite")
