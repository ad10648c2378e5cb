# SPDX-License-Identifier: Apache-2.0
"""Evaluating: metrics, labels of every kind, several processes, and what goes wrong with a message."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hexforge
from hexforge.analysis.quality.labels import class_numbers, read_labels
from hexforge.analysis.quality.metrics import TopK
from hexforge.errors import CallError, FormatError, ModelError
from tests.digits import MODEL, held_out
from tests.models.quantize import quantized
from tests.ort.models import FLOAT, model, node

PICTURES, LABELS = held_out()
DATA = [{"image": picture} for picture in PICTURES[:40]]


@pytest.fixture(scope="module")
def qdq(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("digits") / "digits.qdq.onnx"
    quantized(MODEL, path, "a8w8", DATA[:16])
    return path


@settings(max_examples=40)
@given(st.lists(st.integers(-3, 3), min_size=2, max_size=8), st.data())
def test_top_k_is_the_place_in_the_sorted_scores(scores: list[int], data: st.DataObject) -> None:
    label = data.draw(st.integers(0, len(scores) - 1))
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    for k in range(1, len(scores) + 1):
        found = TopK(k).measure({}, {"y": np.array([scores], np.float32)}, label)
        assert found == float(order.index(label) < k)


def test_scores_of_every_metric_and_number_of_jobs(qdq: Path) -> None:
    for backend in ("htp", "cpu", "ort"):
        found = hexforge.evaluate(qdq, DATA, LABELS[:40], backend=backend)
        assert (found.score, found.samples, found.metric) == (1.0, 40, "top1")
    wrong = (LABELS[:40] + 1) % 10
    assert hexforge.evaluate(qdq, DATA, wrong).score == 0.0
    sqnr = [hexforge.evaluate(qdq, DATA, metric=f"sqnr:{MODEL}", jobs=jobs).score for jobs in (1, 2)]
    assert sqnr[0] == sqnr[1]
    assert sqnr[0] == pytest.approx(hexforge.compare(MODEL, qdq, DATA).sqnr_db)


def test_custom_metrics_see_samples_in_order(qdq: Path) -> None:
    seen = []

    def margin(outputs: dict[str, Any], label: int) -> float:
        seen.append(label)
        return float(np.sort(outputs["logits"])[0, -1])

    class Last:
        def update(self, outputs: dict[str, Any], label: int) -> None:
            self.label = label

        def result(self) -> float:
            return self.label

    one = hexforge.evaluate(qdq, DATA, LABELS[:40], margin)
    assert seen == LABELS[:40].tolist()
    assert hexforge.evaluate(qdq, DATA, LABELS[:40], margin, jobs=2).score == one.score
    assert hexforge.evaluate(qdq, DATA, LABELS[:40], Last, jobs=2, limit=7).score == LABELS[6]


def test_folders_named_for_classes(qdq: Path, tmp_path: Path) -> None:
    for i in range(100):
        (tmp_path / f"class {LABELS[i]}").mkdir(exist_ok=True)
        np.save(tmp_path / f"class {LABELS[i]}" / f"{i}.npy", PICTURES[i])
    whole = hexforge.evaluate(qdq, tmp_path, "folders")
    assert (whole.samples, whole.score) == (100, hexforge.evaluate(qdq, PICTURES[:100], LABELS[:100]).score)
    assert whole.score >= 0.98
    some = hexforge.evaluate(qdq, tmp_path, "folders", limit=10)
    assert (some.samples, some.score) == (10, 1.0)
    classes = [f"class {9 - i}" for i in range(10)]
    assert hexforge.evaluate(qdq, tmp_path, "folders", classes=classes).score < 0.2
    with pytest.raises(CallError, match="not among the 2 classes"):
        hexforge.evaluate(qdq, tmp_path, "folders", classes=["class 0", "class 1"])
    with pytest.raises(CallError, match="has no folders"):
        hexforge.evaluate(qdq, tmp_path / "class 1", "folders")
    shutil.rmtree(tmp_path / "class 3")
    with pytest.raises(CallError, match="of 9 classes and the model has 10"):
        hexforge.evaluate(qdq, tmp_path, "folders")


def test_folders_named_by_numbers(qdq: Path, tmp_path: Path) -> None:
    for i in range(10):
        (tmp_path / str(LABELS[i])).mkdir(exist_ok=True)
        np.save(tmp_path / str(LABELS[i]) / f"{i}.npy", PICTURES[i])
    assert hexforge.evaluate(qdq, tmp_path, "folders").score == 1.0


def test_labels_by_order_and_by_name(tmp_path: Path) -> None:
    names = ["a.npy", "b.npy", "c d.npy"]
    texts = {
        "order.txt": "3\n1\n2\n",
        "names.txt": "c d.npy 2\na.npy 3\nb.npy 1\n",
        "tabs.txt": "a\t3\nb\t1\nc d\t2\n",
        "order.csv": "label\n3\n1\n2\n",
        "names.csv": "file,label\nb.npy,1\nc d.npy,2\na.npy,3\n",
        "order.json": "[3, 1, 2]",
        "names.json": json.dumps({"b": 1, "c d": 2, "a": 3}),
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        assert read_labels(tmp_path / name, names, 3) == [3, 1, 2], name
    np.save(tmp_path / "order.npy", np.array([3, 1, 2]))
    assert read_labels(tmp_path / "order.npy", (), 3) == [3, 1, 2]
    (tmp_path / "words.txt").write_text("big cat\nsmall dog\nbig cat\n")
    words = read_labels(tmp_path / "words.txt", (), 3)
    assert class_numbers(words) == ([0, 1, 0], 2)
    assert class_numbers(words, ["small dog", "big cat", "bird"]) == ([1, 0, 1], 3)


@pytest.mark.parametrize(
    ("file", "content", "error", "said"),
    [
        ("few.txt", "1\n2\n", CallError, "2 labels for 3 samples"),
        ("bad.json", "{", FormatError, "not JSON"),
        ("number.json", "5", FormatError, "not a list"),
        ("bad.npy", "x", FormatError, "not a .npy file"),
        ("wide.csv", "a,1,2\n", FormatError, "3.* columns"),
        ("names.csv", "a.npy,1\nz.npy,2\n", CallError, "no label for b.npy and 1 more"),
        ("labels.yaml", "", CallError, "labels are read from .csv"),
    ],
)
def test_labels_that_do_not_fit(tmp_path: Path, file: str, content: str, error: type[Exception], said: str) -> None:
    (tmp_path / file).write_text(content)
    with pytest.raises(error, match=said):
        read_labels(tmp_path / file, ["a.npy", "b.npy", "c.npy"], 3)


def test_what_is_wrong_with_the_call(qdq: Path) -> None:
    for arguments, said in (
        ((DATA,), "needs labels"),
        (([], []), "no samples"),
        ((DATA, LABELS[:5]), "5 labels for 40 samples"),
        ((DATA, LABELS[:40] + 10), "10 classes, 0 to 9"),
        ((DATA, ["x"] * 40, "top1:scores"), "no output 'scores'"),
        ((DATA, LABELS[:40], "f1"), "there are top1"),
        ((DATA, None, "sqnr:nowhere.onnx"), "no file 'nowhere.onnx'"),
        ((DATA, None, "nowhere.py:f"), "there is no file"),
        ((DATA, None, 5), "neither a function"),
        ((DATA, None, lambda outputs, label: "high"), "not a number"),
    ):
        with pytest.raises(CallError, match=said):
            hexforge.evaluate(qdq, *arguments)
    with pytest.raises(CallError, match="limit 0"):
        hexforge.evaluate(qdq, DATA, LABELS[:40], limit=0)
    with pytest.raises(CallError, match=r"sample 1.*shape"):
        hexforge.evaluate(qdq, [DATA[0], {"image": PICTURES[0][0]}], LABELS[:2])


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_metric_that_raises_says_what_and_where(qdq: Path, tmp_path: Path, jobs: int) -> None:
    script = tmp_path / "mine.py"
    script.write_text("def f(outputs, label):\n    if label == 3:\n        raise KeyError('boxes')\n    return 1\n")
    with pytest.raises(CallError, match=r"sample 1: metric .*mine.py:f: KeyError: 'boxes' \(mine.py, line 3\)"):
        hexforge.evaluate(qdq, DATA, [1, 3] * 20, f"{script}:f", jobs=jobs)
    script.write_text("import numpy\nf = 1 / 0\n")
    with pytest.raises(CallError, match=r"mine\.py, line 2: ZeroDivisionError"):
        hexforge.evaluate(qdq, DATA, metric=f"{script}:f")
    script.write_text("g = 1\n")
    with pytest.raises(CallError, match="has no 'f'"):
        hexforge.evaluate(qdq, DATA, metric=f"{script}:f")


@pytest.mark.parametrize("jobs", [1, 2])
def test_outputs_that_are_no_numbers(jobs: int) -> None:
    made = model([node("Sqrt", ["x"], ["y"])], {"x": (FLOAT, [1, 2])}, {"y": (FLOAT, [1, 2])})
    data = [{"x": np.array([[1, sign]], np.float32)} for sign in (1, 1, -1)]
    told = pytest.warns(UserWarning, match="an output is not finite") if jobs == 1 else contextlib.nullcontext()
    with told, pytest.raises(ModelError, match="sample 2: output 'y' has 1 NaN of 2 elements"):
        hexforge.evaluate(made, data, [0, 0, 0], backend="cpu", jobs=jobs)


def test_a_model_with_several_outputs_needs_a_name() -> None:
    nodes = [node("Neg", ["x"], ["a"]), node("Abs", ["x"], ["b"])]
    made = model(nodes, {"x": (FLOAT, [1, 2])}, {"a": (FLOAT, [1, 2]), "b": (FLOAT, [1, 2])})
    data = [{"x": np.array([[1, -2]], np.float32)}]
    with pytest.raises(CallError, match="name the one with the scores"):
        hexforge.evaluate(made, data, [1])
    assert hexforge.evaluate(made, data, [1], "top1:b").score == 1.0
    assert math.isclose(hexforge.evaluate(made, data, [0], "top1:a").score, 0.0)


def test_shards_are_evaluated_as_a_list_is_on_any_number_of_jobs(qdq: Path, tmp_path: Path) -> None:
    from tests.quant.data.test_data_sets import npy, write_tar

    for shard in range(2):
        files: dict[str, bytes] = {}
        for i in range(20 * shard, 20 * shard + 20):
            files |= {f"{i:03}.npy": npy(PICTURES[i]), f"{i:03}.cls": str(LABELS[i]).encode()}
        write_tar(tmp_path / f"{shard}.tar", files)
    listed = hexforge.evaluate(qdq, DATA, metric=f"sqnr:{MODEL}")
    for jobs in (1, 2):
        assert hexforge.evaluate(qdq, tmp_path, metric=f"sqnr:{MODEL}", jobs=jobs) == listed
    assert hexforge.evaluate(qdq, tmp_path, "dataset").score == 1.0
    assert hexforge.evaluate(qdq, tmp_path, "dataset", limit=7).samples == 7
    with pytest.raises(CallError, match="only tar and Parquet shards hold labels"):
        hexforge.evaluate(qdq, DATA, "dataset")


def test_a_sample_that_cannot_be_read_is_left_out_with_its_label(qdq: Path, tmp_path: Path) -> None:
    for i in range(6):
        np.save(tmp_path / f"{i}.npy", PICTURES[i])
    (tmp_path / "2.npy").write_bytes(b"not an array")
    found = hexforge.evaluate(qdq, tmp_path, LABELS[:6])
    assert (found.score, found.samples, found.left_out) == (1.0, 5, 1)
    assert "2.npy: cannot be read" in found.first_left_out
    assert found.to_json()["left_out"] == 1
    with pytest.raises(CallError, match=r"2\.npy: cannot be read"):
        hexforge.evaluate(qdq, tmp_path, LABELS[:6], strict_samples=True)
    compared = hexforge.compare(MODEL, qdq, tmp_path)
    assert (compared.samples, compared.left_out[:8]) == (5, "1 sample")
