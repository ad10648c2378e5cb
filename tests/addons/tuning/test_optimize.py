# SPDX-License-Identifier: Apache-2.0
"""Optimize: the whole way in one call, what it recommends and why, and that an interrupted run loses nothing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from hexforge.addons.tuning.mixes import Point, SearchPoints
from hexforge.addons.tuning.optimize import optimize
from hexforge.addons.tuning.recommend import recommend
from hexforge.addons.tuning.requests import OptimizeRequest
from hexforge.addons.tuning.search import LayerGroup, SearchResult
from hexforge.chips.deployment import Deployment
from hexforge.errors import CallError
from hexforge.quant.decide.recipe_reading import recipe as recipe_of
from hexforge.runtime.contexts.context import Context
from tests.digits import MODEL, held_out

PICTURES, LABELS = held_out()
FEEDS = [{"image": picture} for picture in PICTURES]


def request(**more: object) -> OptimizeRequest:
    settings = {"budget": 6, "groups": 3, "samples": 32, "scored": 64}
    return OptimizeRequest(FEEDS[:16], FEEDS[16:80], LABELS[16:80].tolist(), "top1", **(settings | more))  # type: ignore[arg-type]


def searched(points: list[tuple[float, float]], metric: str = "sqnr") -> SearchResult:
    """A search of one group for each point but two; the first has no group high, the last all."""
    groups = len(points) - 1
    found = SearchPoints(groups)
    for k, (ms, quality) in enumerate(points):
        choice = frozenset(range(groups)) if k == groups else frozenset(range(k))
        found.points[choice] = Point(choice, quality, ms)
    names = tuple(LayerGroup((f"layer{i}",)) for i in range(groups))
    return SearchResult("m", "SM8650", metric, names, found, 0.0, recipe_of("w8a8_channel"), recipe_of("w8a16_channel"))


def test_a_tenth_of_a_decibel_is_not_seen_in_a_picture() -> None:
    mixes = searched([(1.0, 24.9), (1.2, 30.95), (1.6, 31.0), (2.0, 31.1)], "psnr")
    found = recommend(mixes, 31.03)
    assert (found.point.latency_ms, found.kind) == (1.2, "knee")
    assert found.reason == (
        "The fastest mix that keeps psnr within 0.1 dB of the float model's: 0.08 dB below it; the best, 2.000 ms at "
        "31.10 dB, takes 67 % longer."
    )
    lost = recommend(mixes, 33.0)
    assert lost.kind == "best"
    assert "within 0.1 dB of the float model's 33.00 dB; this is the best, 1.90 dB below it" in lost.reason


def test_everything_is_written_and_agrees(tmp_path: Path) -> None:
    seen: list[str] = []
    found = optimize(
        MODEL, tmp_path / "out", request(), "Galaxy S24", progress=lambda what, done, of: seen.append(what)
    )
    folder = found.folder
    assert {"trying rewrites", "measuring mixes", "comparing tensors", "compiling"} <= set(seen)
    for path in (folder.float_model, folder.quantized):
        onnx.checker.check_model(onnx.load(path), full_check=True)
        onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert found.after.soc == "SM8650"
    assert found.score >= 0.95
    assert found.float_score is not None
    assert found.scored == 64
    assert found.quantization.placed_whole
    program = Context(folder.context).program("digits")
    (logits,) = program.run({"image": PICTURES[0]}).values()
    assert np.argmax(logits) == LABELS[0]
    said = json.loads(folder.result.read_text())
    assert said["latency_ms"] == round(found.after.latency_ms, 4)
    assert said["recommended"]["reason"] == found.recommendation.reason


def test_a_second_run_measures_nothing_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stop(BaseException):
        pass

    def stop(what: str, done: int, of: int) -> None:
        if what == "scoring the float model":
            raise Stop

    with pytest.raises(Stop):
        optimize(MODEL, tmp_path, request(), progress=stop)
    assert (tmp_path / "digits.float.onnx").exists()
    assert not (tmp_path / "digits.qdq.onnx").exists()
    measured = json.loads((tmp_path / "search.state.json").read_text())["points"]
    assert measured
    monkeypatch.setattr("hexforge.addons.tuning.search.Measurer.__call__", lambda *_: pytest.fail("measured again"))
    optimize(MODEL, tmp_path, request())
    assert json.loads((tmp_path / "search.state.json").read_text())["points"] == measured


def test_a_folder_of_another_run_starts_anew(tmp_path: Path) -> None:
    optimize(MODEL, tmp_path, request())
    found = optimize(MODEL, tmp_path, request(samples=16), Deployment("X Elite"))
    assert found.after.soc == "SC8380XP"


def test_a_chip_without_float_math(tmp_path: Path) -> None:
    found = optimize(MODEL, tmp_path, request(), "QCS6490")
    assert found.before is None
    assert found.speedup is None
    assert found.to_json()["float_latency_ms"] is None
    assert found.quantization.placed_whole


def test_the_model_itself_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "a.qdq.onnx").write_bytes(MODEL.read_bytes())
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "digits.float.onnx").write_bytes(MODEL.read_bytes())
    copy = tmp_path / "digits.onnx"
    copy.symlink_to(tmp_path / "sub" / "digits.float.onnx")
    with pytest.raises(CallError, match="would be overwritten"):
        optimize(copy, tmp_path / "sub", request())


@pytest.mark.parametrize(
    ("points", "kind", "chosen"),
    [
        ([(1.0, 20.0), (1.1, 35.0), (2.0, 38.0)], "knee", 1),
        ([(1.0, 45.0), (1.5, 50.0), (2.0, 60.0)], "fastest", 0),
        ([(1.0, 20.0), (1.9, 22.0), (2.0, 38.0)], "best", 2),
        ([(1.0, 50.0), (2.0, 40.0)], "only", 0),
        ([(1.0, 0.4), (1.5, 0.5), (2.0, 9.0)], "poor", 2),
        ([(1.0, 20.0), (1.5, 30.0), (2.0, float("inf"))], "best", 2),
    ],
)
def test_by_sqnr(points: list[tuple[float, float]], kind: str, chosen: int) -> None:
    found = recommend(searched(points))
    assert (found.kind, (found.point.latency_ms, found.point.quality)) == (kind, points[chosen])
    assert f"{points[chosen][0]:.3f} ms" in found.reason


def test_by_a_score_of_labels() -> None:
    points = [(1.0, 0.70), (1.2, 0.757), (2.0, 0.76)]
    found = recommend(searched(points, "top1"), 0.765)
    assert found.point.latency_ms == 1.2
    assert "within 0.01" in found.reason
    assert "0.0080 below" in found.reason
    lost = recommend(searched(points, "top1"), 0.9)
    assert (lost.kind, lost.point.latency_ms) == ("best", 2.0)
    assert recommend(searched(points, "top1"), 0.7).kind == "fastest"


def test_no_error_at_all_is_said_in_words() -> None:
    found = recommend(searched([(1.0, float("inf"))]))
    assert "exact" in found.reason
    assert "inf" not in found.reason


@pytest.mark.parametrize("points", [[(1.0, 20.0), (1.1, 35.0), (2.0, 38.0)], [(1.0, 20.0), (1.1, 22.0), (2.0, 38.0)]])
def test_search_and_optimize_mean_the_same_knee(points: list[tuple[float, float]]) -> None:
    found = searched(points)
    assert recommend(found).point == found.mixes.knee()


def with_decisions(points: list[tuple[float, float, float]], alarmed: tuple[int, ...] = ()) -> SearchResult:
    """A search whose mixes have latency, quality and agreement; some have an alarm."""
    found = searched([(ms, quality) for ms, quality, _ in points])
    agreed = {ms: (agreement, number) for number, (ms, _, agreement) in enumerate(points)}
    for choice, point in list(found.mixes.points.items()):
        agreement, number = agreed[point.latency_ms]
        lost = ("an output is constant",) if number in alarmed else ()
        found.mixes.points[choice] = Point(choice, point.quality, point.latency_ms, agreement, lost)
    return found


def test_a_sentence_about_the_front_is_computed_from_the_front() -> None:
    """A page said that nothing was faster above a front that listed 0.109 and 0.111 ms."""
    found = recommend(with_decisions([(0.109, 20.0, 0.8), (0.111, 21.0, 0.82), (0.147, 41.0, 1.0)]))
    assert found.point.latency_ms == 0.147
    assert "No other mix" not in found.reason
    assert found.reason == (
        "The one mix that decides well (0.147 ms at 41.0 dB, decisions 100 %). Faster, but less often deciding as the "
        "float model does: 0.109 ms at 20.0 dB, decisions 80.0 % and 1 more."
    )
    alarmed = recommend(with_decisions([(0.109, 30.0, 1.0), (0.147, 41.0, 1.0)], alarmed=(0,)))
    assert alarmed.reason.endswith("Faster, but with an output lost: 0.109 ms.")
    only = recommend(with_decisions([(0.109, 41.0, 1.0), (0.147, 41.0, 1.0)]))
    assert only.reason.startswith("No other mix that was measured is faster or better (0.109 ms")
    assert only.reason.endswith(").")
