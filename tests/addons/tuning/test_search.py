# SPDX-License-Identifier: Apache-2.0
"""The mixed-precision search on a real model: points, state, recipes, mistakes."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hexforge.addons.tuning.mixes import Point, SearchPoints
from hexforge.addons.tuning.requests import Scoring, SearchSpace
from hexforge.addons.tuning.search import (
    LayerGroup,
    Measurer,
    MeasuringTask,
    SearchResult,
    group_layers,
    mixed_recipe,
    search,
)
from hexforge.analysis.mapped_tasks import map_tasks
from hexforge.analysis.quality.quantize import quantize
from hexforge.analysis.workers import Workers
from hexforge.chips.deployment import Deployment
from hexforge.cli import main
from hexforge.errors import CallError, FormatError
from hexforge.ir import DType
from hexforge.model.reader import read
from hexforge.model.save import to_bytes
from hexforge.quant.data.calibrate import calibrate
from hexforge.quant.data.samples import samples
from hexforge.quant.decide.quant_units import quant_units
from hexforge.quant.decide.recipe_reading import recipe
from hexforge.quant.fold import fold
from tests.digits import MODEL, held_out
from tests.quant.networks import Network


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    for i, picture in enumerate(held_out()[0][:12]):
        np.save(folder / f"{i}.npy", picture)
    return folder


@pytest.fixture(scope="module")
def searched(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[SearchResult, Path]:
    state = tmp_path_factory.mktemp("state") / "search.json"
    return search(MODEL, str(data), scoring=Scoring(samples=4), state=state), state


def test_a_search_measures_its_space_and_remembers_it(searched: tuple[SearchResult, Path], data: Path) -> None:
    found, state = searched
    assert found.mixes.exhausted
    assert len(found.mixes.points) == 2 ** len(found.groups)
    assert found.mixes.high.quality > found.mixes.low.quality
    assert found.best is not None
    before = state.read_bytes()
    seen: list[int] = []
    again = search(MODEL, str(data), scoring=Scoring(samples=4), state=state, progress=lambda d, n: seen.append(d))
    assert again.mixes.points == found.mixes.points
    assert state.read_bytes() == before  # nothing was measured again
    assert seen
    said = json.loads(json.dumps(found.to_json()))
    assert len(said["points"]) == len(found.mixes.points)


@pytest.fixture(scope="module")
def products(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that begins and ends with moves, multiplies run-time tensors, and has names that look like patterns."""
    net = Network((1, 64))
    image = net.node("Reshape", "x", net.constant(np.array([1, 4, 4, 4])))
    wide = net.node("Relu", net.conv(net.node("Relu", net.conv(image, 4, 4)), 4, 4))
    rows = net.node("Reshape", wide, net.constant(np.array([1, 8, 8])))
    scores = net.node("Softmax", net.node("MatMul", rows, net.node("Transpose", rows, perm=[0, 2, 1])))
    net.node("Reshape", net.node("MatMul", scores, rows), net.constant(np.array([1, 64])))
    net.nodes[-1].output[0] = "y"
    for i, node in enumerate(net.nodes):
        node.name = f"m[{i % 2}]" if i < 2 else f"m{i % 2}" if i < 4 else node.name
    path = tmp_path_factory.mktemp("products") / "m.onnx"
    path.write_bytes(to_bytes(net.model("y")))
    return path


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sets(st.integers(0, 2)),
    st.sampled_from([
        ("w8a8", "w8a16"), ("w8a8_channel", "w8a16"), ("w8a8+percentile=99.9", "w16a16"), ("w4a16", "w8a16_channel"),
        ("w8a8; node:m[[]1]=float; Softmax=a16; tensor:y=a16", "w8a16_channel"), ("w4a16_block[4]", "w8a16"),
    ]),
    st.sampled_from(["SM8650", "SM8350"]),
)  # fmt: skip
def test_a_mix_is_measured_as_quantize_makes_it(
    products: Path, chosen: set[int], precisions: tuple[str, str], soc: str
) -> None:
    (low, high), data = precisions, "random:3"
    folded = fold(read(products).ir)
    groups = group_layers([u.nodes for u in quant_units(folded.graph) if u.reason is None and not u.moves], 3)
    recipes = recipe(low), recipe(high)
    with TemporaryDirectory() as folder:
        kept, shown, file = (Path(folder) / name for name in ("s.npz", "x.npz", "mix.json"))
        calibrate(folded, samples(data, folded)).save(kept)
        np.savez(shown)
        measurer = Measurer(MeasuringTask(products, kept, shown, recipes, groups, Deployment(soc), "sqnr", [], 0))
        file.write_text(json.dumps(mixed_recipe(*recipes, groups, frozenset(chosen)).to_mapping()))
        assert measurer.model(sorted(chosen)) == quantize(products, data, file, soc=soc).model
        if len(chosen) == len(groups) and not recipes[0].rules and recipes[0].method == "minmax":
            assert measurer.model(sorted(chosen)) == quantize(products, data, high, soc=soc).model


def test_labels_and_accuracy(data: Path, tmp_path: Path) -> None:
    labels = held_out()[1][:12].tolist()
    right = search(MODEL, str(data), scoring=Scoring(samples=12, metric="top1", labels=labels))
    assert right.metric == "top1"
    assert right.mixes.high.quality == 1.0
    wrong = search(MODEL, str(data), scoring=Scoring(samples=12, metric="top1", labels=[(i + 1) % 10 for i in labels]))
    assert wrong.mixes.high.quality == 0.0
    code = tmp_path / "metric.py"
    code.write_text(
        "class Count:\n    seen = 0\n"
        "    def update(self, outputs, label): self.seen += 1\n    def result(self): return self.seen\n"
        "COUNT = Count()\n"
    )
    counted = search(MODEL, str(data), scoring=Scoring(samples=5, metric=f"{code}:Count"))
    assert {p.quality for p in counted.mixes.points.values()} == {5.0}
    with pytest.raises(CallError, match="name its class"):
        search(MODEL, str(data), scoring=Scoring(samples=5, metric=f"{code}:COUNT"))
    with pytest.raises(CallError, match="needs labels"):
        search(MODEL, str(data), scoring=Scoring(metric="top1"))
    with pytest.raises(CallError, match="11 labels for 12 samples"):
        search(MODEL, str(data), scoring=Scoring(metric="top1", labels=labels[:11]))


def test_a_stopped_search_goes_on(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, state, told = tmp_path / "metric.py", tmp_path / "search.json", tmp_path / "told"
    code.write_text(
        "import pathlib, signal\n"
        f"TOLD = pathlib.Path({str(told)!r})\n"
        "def one(outputs, label):\n"
        "    count = int(TOLD.read_text()) if TOLD.exists() else 0\n"
        "    TOLD.write_text(str(count + 1))\n"
        "    if count == 7: signal.raise_signal(signal.SIGINT)\n"
        "    return 1.0\n"
    )
    arguments = ["search", str(MODEL), "--data", str(data), "--samples", "2", "--jobs", "1", "--metric",
                 f"{code}:one", "--state", str(state), "--recipe", str(tmp_path / "mix.json")]  # fmt: skip
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 130
    assert f"{state} has what was done so far" in " ".join(capsys.readouterr().err.split())
    assert len(json.loads(state.read_text())["points"]) == 3
    assert not (tmp_path / "mix.json").exists()
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert not ended.value.code
    assert int(told.read_text()) == 8 + 2 * (8 - 3)  # only what was left
    assert recipe(tmp_path / "mix.json").activation is DType.UINT8


def test_a_metric_of_ones_own(data: Path, tmp_path: Path) -> None:
    code = tmp_path / "metric.py"
    code.write_text("def flat(outputs, label): return 1.0\n\ndef bad(outputs, label): raise KeyError('labels')\n")
    found = search(MODEL, str(data), scoring=Scoring(samples=2, metric=f"{code}:flat"))
    assert found.best is not None
    assert found.best.high == frozenset()  # nothing to gain: the fastest
    assert found.mixes.dominating()
    with pytest.raises(CallError, match="bad: KeyError"):
        search(MODEL, str(data), scoring=Scoring(samples=2, metric=f"{code}:bad"))
    with pytest.raises(CallError, match="has no 'none'"):
        search(MODEL, str(data), scoring=Scoring(samples=2, metric=f"{code}:none"))


def test_mistakes(searched: tuple[SearchResult, Path], data: Path, tmp_path: Path) -> None:
    _, state = searched
    with pytest.raises(CallError, match="is of another search"):
        search(MODEL, str(data), "SM8750", scoring=Scoring(samples=4), state=state)
    broken = tmp_path / "s.json"
    broken.write_text("[1")
    with pytest.raises(FormatError, match="is not the state of a search"):
        search(MODEL, str(data), scoring=Scoring(samples=4), state=broken)
    for low, high, said in (
        ("w8a8+bias", "w8a16", "without bias; improve the one"),
        ("w8a8", "w8a16+mse", "the high recipe says bits only"),
        ("w8a8", "w8a16; Conv=w16a16", "the high recipe says bits only"),
        ("w8a16+mse", "w8a16", "nothing to mix"),
    ):
        with pytest.raises(CallError, match=said):
            search(MODEL, str(data), space=SearchSpace(low=low, high=high))
    quantize(MODEL, str(data), output=tmp_path / "q.onnx")
    with pytest.raises(CallError, match="is quantized already"):
        search(tmp_path / "q.onnx", str(data))
    with pytest.raises(CallError, match="leaves activations in float"):
        search(MODEL, str(data), space=SearchSpace(high="fp16"))
    with pytest.raises(CallError, match="metric 'accuracy': there are top1"):
        search(MODEL, str(data), scoring=Scoring(samples=2, metric="accuracy"))


def test_files_are_refused_before_the_search(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(MODEL.read_bytes())
    for flag, path, said in (
        ("--output", model, "is the model itself"),
        ("--output", tmp_path / "no" / "q.onnx", "there is no folder"),
        ("--recipe", tmp_path / "no" / "r.json", "there is no folder"),
        ("--report", tmp_path, "it is a folder"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main(["search", str(model), "--data", str(data), flag, str(path)])
        assert stopped.value.code == 2
        assert said in capsys.readouterr().err
    assert model.read_bytes() == MODEL.read_bytes()


@pytest.mark.cluster
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="make cluster installs Ray")
def test_a_cluster_gives_the_same(searched: tuple[SearchResult, Path], data: Path) -> None:
    assert (
        search(MODEL, str(data), scoring=Scoring(samples=4), workers=Workers(cluster=True)).mixes.points
        == searched[0].mixes.points
    )


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray_a_cluster_says_how_to_get_it() -> None:
    with pytest.raises(CallError, match=r"hexforge\[cluster\]"):
        list(map_tasks(abs, (), [1], Workers(cluster=True)))


def test_both_recipes_are_per_channel_and_the_knee_is_recommended_with_its_reason() -> None:
    assert (SearchSpace().low, SearchSpace().high) == ("w8a8_channel", "w8a16_channel")
    points = SearchPoints(2)
    for high, quality, ms in (([], 30.0, 1.0), ([0], 50.0, 1.1), ([1], 31.0, 1.5), ([0, 1], 52.0, 2.0)):
        points.points[frozenset(high)] = Point(frozenset(high), quality, ms)
    groups = (LayerGroup(("a",)), LayerGroup(("b",)))
    found = SearchResult("m", "SM8650", "sqnr", groups, points, None, recipe("w8a8_channel"), recipe("w8a16_channel"))
    assert found.best is not None
    assert found.best.high == frozenset([0])
    assert found.reason == "its 20.00 dB over the fastest mix cost 0.100 ms; 2.00 dB more would cost another 0.900 ms"
    asked = replace(found, target=51.0)
    assert asked.best is not None
    assert asked.best.high == frozenset([0, 1])
    assert "reaches 51.00 dB" in asked.reason
