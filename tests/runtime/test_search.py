"""The mixed-precision search on a real model: points, state, recipes, mistakes."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from hexforge import demo
from hexforge.errors import CallError, FormatError
from hexforge.quant.recipe import recipe
from hexforge.runtime.quantize import quantize
from hexforge.runtime.search import Searched, search_precision
from hexforge.runtime.spread import spread


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    for i, picture in enumerate(demo.held_out()[0][:12]):
        np.save(folder / f"{i}.npy", picture)
    return folder


@pytest.fixture(scope="module")
def searched(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Searched, Path]:
    state = tmp_path_factory.mktemp("state") / "search.json"
    return search_precision(demo.MODEL, str(data), samples=4, state=state), state


def test_a_search_measures_its_space_and_remembers_it(searched: tuple[Searched, Path], data: Path) -> None:
    found, state = searched
    assert found.found.exhausted
    assert len(found.found.points) == 2 ** len(found.groups)
    assert found.found.high.quality > found.found.low.quality
    assert found.best is not None
    before = state.read_bytes()
    seen: list[int] = []
    again = search_precision(demo.MODEL, str(data), samples=4, state=state, progress=lambda d, n: seen.append(d))
    assert again.found.points == found.found.points
    assert state.read_bytes() == before  # nothing was measured again
    assert seen
    said = json.loads(json.dumps(found.to_json()))
    assert len(said["points"]) == len(found.found.points)


def test_the_recipe_of_a_point_quantizes_as_it_was_measured(
    searched: tuple[Searched, Path], data: Path, tmp_path: Path
) -> None:
    found, _ = searched
    point = next(p for p in found.found.points.values() if len(p.high) == 1)
    file = tmp_path / "mix.json"
    file.write_text(json.dumps(found.recipe(point).to_mapping()))
    by_file, by_object = (quantize(demo.MODEL, str(data), r).model for r in (recipe(file), found.recipe(point)))
    assert by_file == by_object
    kinds = {f.dtype.value for f in quantize(demo.MODEL, str(data), found.recipe(point)).plan.tensors.values()}
    assert {"uint8", "uint16"} <= kinds


def test_a_metric_of_ones_own(data: Path, tmp_path: Path) -> None:
    code = tmp_path / "metric.py"
    code.write_text("def flat(outputs, label): return 1.0\n\ndef bad(outputs, label): raise KeyError('labels')\n")
    found = search_precision(demo.MODEL, str(data), samples=2, metric=f"{code}:flat")
    assert found.best is not None
    assert found.best.high == frozenset()  # nothing to gain: the fastest
    assert found.found.dominating()
    with pytest.raises(CallError, match="bad: KeyError"):
        search_precision(demo.MODEL, str(data), samples=2, metric=f"{code}:bad")
    with pytest.raises(CallError, match="has no 'none'"):
        search_precision(demo.MODEL, str(data), samples=2, metric=f"{code}:none")


def test_mistakes(searched: tuple[Searched, Path], data: Path, tmp_path: Path) -> None:
    _, state = searched
    with pytest.raises(CallError, match="is of another search"):
        search_precision(demo.MODEL, str(data), soc="SM8750", samples=4, state=state)
    broken = tmp_path / "s.json"
    broken.write_text("[1")
    with pytest.raises(FormatError, match="is not the state of a search"):
        search_precision(demo.MODEL, str(data), samples=4, state=broken)
    with pytest.raises(CallError, match="leaves activations in float"):
        search_precision(demo.MODEL, str(data), high="fp16")
    with pytest.raises(CallError, match="metric 'psnr': there are top1"):
        search_precision(demo.MODEL, str(data), samples=2, metric="psnr")


@pytest.mark.cluster
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="make cluster installs Ray")
def test_a_cluster_gives_the_same(searched: tuple[Searched, Path], data: Path) -> None:
    assert search_precision(demo.MODEL, str(data), samples=4, cluster=True).found.points == searched[0].found.points


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray_a_cluster_says_how_to_get_it() -> None:
    with pytest.raises(CallError, match=r"hexforge\[cluster\]"):
        list(spread(abs, (), [1], cluster=True))  # type: ignore[arg-type]
