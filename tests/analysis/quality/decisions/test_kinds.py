# SPDX-License-Identifier: Apache-2.0
"""Each kind of decision: what is chosen by the outputs, and figures that are counted by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hexforge.analysis.quality.decisions.answers import SymbolSequence, edit_distance
from hexforge.analysis.quality.decisions.graph_facts import ModelFacts, OutputFacts
from hexforge.analysis.quality.decisions.judge import judge
from hexforge.errors import CallError
from hexforge.ir import Array

RANDOM = np.random.default_rng(7)


def facts(**last_ops: str) -> ModelFacts:
    return ModelFacts({name: OutputFacts(op) for name, op in last_ops.items()}, (64, 64))


def test_classes_are_counted_with_the_first_five_and_the_margin() -> None:
    float_rows = np.array([[9, 1, 2, 3, 4, 5, 6], [0, 8, 2, 3, 4, 5, 6]], np.float32)
    other_rows = np.array([[7, 1, 2, 3, 4, 5, 6], [0, 5, 2, 3, 4, 7, 1]], np.float32)
    found = judge([{"y": r[None]} for r in float_rows], [{"y": r[None]} for r in other_rows])
    assert found.kind == "classification"
    assert found.agreement == 0.5
    figures = found.parts[0].figures
    # of the second sample's first five {1, 6, 5, 4, 3} the other has {5, 1, 4, 3} and class 2 for class 6
    assert figures["top5"] == pytest.approx((1 + 4 / 5) / 2)
    # margins of the float model's class: 9 - 6 and 8 - 6; in the other model 7 - 6 and 5 - 7
    assert figures["margin"] == pytest.approx((1 - 2) / (3 + 2))
    assert found.parts[0].by_sample == (1.0, 0.0)
    assert found.worst_sample is not None
    assert (found.worst_sample.number, found.worst_sample.in_float, found.worst_sample.in_other) == (
        1,
        "class 1",
        "class 5",
    )
    assert found.verdict == "unusable"


def test_labels_are_sets() -> None:
    one = np.array([[0.9, 0.8, 0.1, 0.2]], np.float32)
    two = np.array([[0.9, 0.4, 0.1, 0.6]], np.float32)
    found = judge([{"y": one}], [{"y": two}], facts(y="Sigmoid"))
    assert found.kind == "labels"
    assert found.agreement == 2 * 1 / (2 + 2)
    assert (found.parts[0].figures["precision"], found.parts[0].figures["recall"]) == (0.5, 0.5)


def test_classes_of_pixels_by_intersection_over_union() -> None:
    one = np.zeros((1, 3, 16, 16), np.float32)
    one[0, 0] = 1
    one[0, 1, :, 8:] = 2  # the right half is class 1
    two = one.copy()
    two[0, 1, :8, 8:12] = 0  # a quarter of it becomes class 0
    found = judge([{"y": one}], [{"y": two}], facts(y="Conv"), "segmentation")
    left, right = 128 / (128 + 32), 96 / 128
    assert found.agreement == pytest.approx((left + right) / 2)
    assert found.parts[0].figures["pixels"] == pytest.approx(224 / 256)


def test_a_mask_is_judged_by_what_is_marked() -> None:
    one = np.full((1, 1, 32, 32), 0.1, np.float32)
    one[..., :8, :] = 0.9
    two = one.copy()
    two[..., 6:8, :] = 0.2
    found = judge([{"mask": one}], [{"mask": two}], facts(mask="Sigmoid"))
    assert found.kind == "segmentation"
    assert found.agreement == pytest.approx(6 / 8)


def test_where_nothing_is_marked_nothing_is_decided() -> None:
    empty = [{"mask": np.full((1, 1, 32, 32), 0.01 * i, np.float32)} for i in range(2)]
    found = judge(empty, empty, facts(mask="Sigmoid"))
    assert math.isnan(found.agreement)
    assert (found.verdict, found.usable, found.worst_sample) == ("unknown", True, None)
    unheard = [{"y": np.full((1, 1), 0.1, np.float32)}]
    assert judge(unheard, unheard, facts(y="Sigmoid")).verdict == "unknown"
    spot = np.zeros((1, 1, 32, 32), np.float32)
    spot[..., 3, 4] = 1  # less than half a percent of the pixels, but all there is
    assert judge([{"mask": spot}], [{"mask": spot}], facts(mask="Sigmoid")).agreement == 1
    assert judge([{"mask": spot}], [{"mask": 0 * spot}], facts(mask="Sigmoid")).agreement == 0


def test_integers_are_classes_of_pixels() -> None:
    one = np.tile(np.arange(32) // 16, (1, 32, 1)).astype(np.int64)
    found = judge([{"y": one}], [{"y": np.flip(one, 2).copy()}])
    assert (found.kind, found.agreement) == ("segmentation", 0.0)


def one_hot(symbols: list[int], count: int) -> Array:
    return np.eye(count, dtype=np.float32)[symbols][None]


def test_a_text_is_read_as_ctc_reads_it() -> None:
    # blank 0: 1 1 - 2 2 - 2 reads 1 2 2; the other has 1 - - 2 3 - - which reads 1 2 3
    one, two = [1, 1, 0, 2, 2, 0, 2, 0], [1, 0, 0, 2, 3, 0, 0, 0]
    found = judge([{"y": one_hot(one, 12)}], [{"y": one_hot(two, 12)}])
    assert found.kind == "sequence"
    assert "symbol 0 is blank" in found.parts[0].about
    assert found.agreement == pytest.approx(1 - 1 / 3)
    assert found.parts[0].figures["places"] == pytest.approx(5 / 8)
    assert found.parts[0].figures["same_texts"] == 0


def test_a_symbol_at_each_place_where_none_is_blank() -> None:
    found = judge([{"y": one_hot([1, 2, 3, 4], 12)}], [{"y": one_hot([1, 2, 3, 5], 12)}])
    assert (found.kind, found.agreement) == ("sequence", 0.75)


def _slow_distance(a: list[int], b: list[int]) -> int:
    """The recursion as textbooks have it."""
    if not a or not b:
        return len(a) + len(b)
    return min(
        _slow_distance(a[1:], b) + 1, _slow_distance(a, b[1:]) + 1, _slow_distance(a[1:], b[1:]) + (a[0] != b[0])
    )


def test_edits_are_counted_as_the_recursion_does() -> None:
    for _ in range(40):
        a, b = (RANDOM.integers(0, 3, RANDOM.integers(0, 6)).tolist() for _ in range(2))
        assert edit_distance(np.array(a, int), np.array(b, int)) == _slow_distance(a, b)


def test_a_text_without_symbols_is_compared_by_places() -> None:
    measure = SymbolSequence("y", blank=0)
    silent = np.zeros(5, int)
    assert measure.figures(measure.compare(silent, silent))["agreement"] == 1


def test_vectors_are_compared_by_their_direction() -> None:
    one = np.zeros((1, 128), np.float32)
    one[0, :2] = 3, 4
    two = np.zeros((1, 128), np.float32)
    two[0, :2] = 8, 6
    found = judge([{"y": one}], [{"y": two}], facts(y="LayerNormalization"))
    assert found.kind == "embedding"
    assert judge([{"y": one / 5}], [{"y": two / 10}]).kind == "embedding"  # of length 1
    assert found.agreement == pytest.approx((3 * 8 + 4 * 6) / (5 * 10))


def test_pictures_are_compared_by_likeness() -> None:
    one = RANDOM.random((1, 3, 32, 32)).astype(np.float32)
    found = judge([{"y": one}], [{"y": one + np.float32(0.01)}])
    assert found.kind == "picture"
    assert found.agreement > 0.99
    assert found.parts[0].figures["psnr"] == pytest.approx(40, abs=1e-3)  # 20 log10(1 / 0.01)


def test_peaks_of_heat_maps_stay_or_move() -> None:
    one, two = np.zeros((2, 1, 4, 32, 32), np.float32)
    for i in range(4):
        one[0, i, 5 + i, 9] = 1
        two[0, i, 5 + i if i else 30, 9] = 1
    found = judge([{"heatmap": one}], [{"heatmap": two}])
    assert (found.kind, found.agreement) == ("keypoints", 0.75)


def test_numbers_are_judged_by_the_variance_that_is_explained() -> None:
    one = [{"angle": np.array([[x]], np.float32)} for x in (1.0, 3.0)]
    two = [{"angle": np.array([[x]], np.float32)} for x in (1.5, 3.0)]
    found = judge(one, two)
    assert found.kind == "numbers"
    assert found.agreement == pytest.approx(1 - 0.25 / 2)  # squares about the mean: 1 + 1


def test_the_kind_can_be_said() -> None:
    one = [{"y": RANDOM.random((1, 10)).astype(np.float32)} for _ in range(3)]
    assert judge(one, one).kind == "numbers"
    assert judge(one, one).parts[0].about.startswith("kind uncertain: judged by numbers")
    assert judge(one, one, metric="classification").kind == "classification"
    assert judge(one, one, metric="embedding").kind == "embedding"
    assert judge(one, one, metric="numbers:y").kind == "numbers"
    with pytest.raises(CallError, match="no output 'z'; it has 'y'"):
        judge(one, one, metric="classification:z")
    with pytest.raises(CallError, match="no usual layout of boxes fits the outputs"):
        judge(one, one, metric="detection")
    with pytest.raises(CallError, match="is no kind of decision"):
        judge(one, one, metric="detecting")


def _told(shape: tuple[int, ...], last_op: str) -> ModelFacts:
    return ModelFacts({"y": OutputFacts(last_op)}, (64, 64) if len(shape) == 4 and shape[-1] > 1 else None)


@pytest.mark.parametrize(
    ("shape", "low", "last_op", "kind"),
    [
        ((2,), -1, "Softmax", "classification"),
        ((1, 128, 768), -1, "LayerNormalization", "embedding"),
        ((1, 3, 64, 64), 0, "Clip", "picture"),
        ((1, 1, 64, 64), 0, "Conv", "picture"),
        ((1, 1), 0, "Gemm", "numbers"),
        ((1, 3), 0.1, "Gemm", "numbers"),
        ((1, 512, 20, 20), 0, "Relu", "numbers"),
        ((1, 1, 1, 96), -1, "Conv", "numbers"),
        ((1, 1000), -1, "Gemm", "numbers"),
        ((40, 1, 210), -1, "Add", "numbers"),
        ((1, 21, 64, 64), -1, "Resize", "numbers"),
        ((1, 172, 88), 0, "Sigmoid", "numbers"),
        ((1, 1, 64, 64), 0, "Sigmoid", "numbers"),
    ],
)
def test_a_kind_is_named_by_evidence_and_random_numbers_are_none(
    shape: tuple[int, ...], low: float, last_op: str, kind: str
) -> None:
    outputs = {"y": np.asarray(np.random.default_rng(1).uniform(low, 1, shape), np.float32)}
    found = judge([outputs], [outputs], _told(shape, last_op))
    assert found.kind == kind
    assert ("kind uncertain" in found.parts[0].about) == (kind == "numbers")


@pytest.mark.parametrize(
    ("shape", "last_op", "kind"),
    [
        ((1, 10), "Gemm", "classification"),
        ((1, 1000), "Gemm", "classification"),
        ((1, 1000, 1, 1), "Conv", "classification"),
        ((40, 1, 210), "Add", "sequence"),
        ((1, 64, 16), "MatMul", "sequence"),
        ((1, 21, 64, 64), "Resize", "segmentation"),
    ],
)
def test_scores_whose_winners_stand_out_are_those_of_classes(shape: tuple[int, ...], last_op: str, kind: str) -> None:
    random = np.random.default_rng(3)
    axis = 1 if kind == "segmentation" or len(shape) == 2 or shape[-1] == 1 else len(shape) - 1
    one = []
    for _ in range(6):
        scores = np.moveaxis(random.normal(0, 1, shape), axis, -1)
        winners = random.integers(0, shape[axis], scores.shape[:-1])
        np.put_along_axis(scores, winners[..., None], 6 + random.random(winners.shape)[..., None], -1)
        one.append({"y": np.moveaxis(scores, -1, axis).astype(np.float32)})
    assert judge(one, one, _told(shape, last_op)).kind == kind
    same = [one[0]] * 6 if len(shape) == 2 else []  # what always wins is no class
    assert all(judge(same, same, _told(shape, last_op)).kind == "numbers" for _ in same[:1])


@pytest.mark.parametrize(
    ("shape", "kind"), [((), "labels"), ((1, 172, 88), "labels"), ((1, 1, 64, 64), "segmentation")]
)
def test_probabilities_that_are_seldom_near_a_half_are_labels(shape: tuple[int, ...], kind: str) -> None:
    sure = [np.asarray(np.random.default_rng(i).beta(0.1, 0.2, shape), np.float32) for i in range(8)]
    outputs = [{"y": array} for array in sure]
    assert judge(outputs, outputs, _told(shape, "Sigmoid")).kind == kind


def test_a_state_that_is_carried_is_numbers_whatever_stands_out_in_it() -> None:
    states = [{"y": np.tanh(8 * RANDOM.normal(0, 0.2, (2, 1, 128)) ** 3).astype(np.float32)} for _ in range(8)]
    assert judge(states, states).kind == "sequence"
    carried = ModelFacts({}, given=frozenset({(1, 576), (2, 1, 128)}))
    assert judge(states, states, carried).kind == "numbers"


def landmarks(samples: int, count: int = 478, seed: int = 0) -> tuple[list[dict[str, Array]], list[dict[str, Array]]]:
    """A face mesh in a crop of 192 pixels that moves a little, and the same 0.54 pixels off."""
    random = np.random.default_rng(seed)
    mesh = random.uniform(20, 170, (count, 3)) * [1, 1, 0.2]
    one, two = [], []
    for _ in range(samples):
        turned = mesh * random.normal(1, 0.04, 3) + random.normal(0, 3, 3) + random.normal(0, 0.4, mesh.shape)
        one.append({"y": turned.reshape(1, -1).astype(np.float32)})
        two.append({"y": (turned + random.normal(0, 0.54, mesh.shape)).reshape(1, -1).astype(np.float32)})
    return one, two


@pytest.mark.parametrize("samples", [1, 2, 12])
def test_landmarks_are_numbers_and_good_half_a_pixel_off(samples: int) -> None:
    one, two = landmarks(samples)
    found = judge(one, two, _told((1, 1434), "Conv"))
    assert (found.kind, found.verdict) == ("numbers", "good")
    assert found.parts[0].figures["error_of_spread"] < 0.02
    if samples > 2:
        assert 0.05 < found.parts[0].figures["error_of_variation"] < 0.5


def test_numbers_that_do_not_follow_the_samples_are_not_usable() -> None:
    """The mean of all samples is near in units of the spread, and says nothing of a sample."""
    one, _ = landmarks(12)
    far = [
        {"y": (o["y"] + 25 * np.random.default_rng(i).normal(size=1434)).astype(np.float32)} for i, o in enumerate(one)
    ]
    mean = [{"y": np.mean([o["y"] for o in far], 0)} for _ in far]
    assert judge(far, mean, metric="numbers").verdict == "unusable"
    assert judge(far, far, metric="numbers").verdict == "good"


def test_a_tagger_is_no_ctc() -> None:
    tags = [0] * 20 + [1, 2, 3, 4]
    words = ModelFacts({}, None, tokens=True)
    found = judge([{"y": one_hot(tags, 12)}], [{"y": one_hot(tags, 12)}], words)
    assert found.parts[0].about == "the symbol with the highest score at each place"
    assert "CTC" in judge([{"y": one_hot(tags, 12)}], [{"y": one_hot(tags, 12)}]).parts[0].about


@pytest.mark.parametrize("seed", range(6))
def test_a_model_agrees_with_itself(seed: int) -> None:
    random = np.random.default_rng(seed)
    shapes = [(1, 10), (1, 512), (1, 21, 32, 32), (1, 3, 32, 32), (1, 24, 40), (1, 1), (1, 1, 64, 64), (1, 84, 400)]
    outputs = [{f"y{i}": random.random(shape).astype(np.float32) for i, shape in enumerate(shapes)} for _ in range(3)]
    found = judge(outputs, outputs)
    assert all(part.agreement == pytest.approx(1) for part in found.parts if not math.isnan(part.agreement))
    assert found.alarms == ()
    assert found.verdict == "good"
    assert found.to_json()["sqnr_db"] is None  # nothing is lost


def test_outputs_whose_length_depends_on_the_data_are_compared_over_what_both_have() -> None:
    one, two = RANDOM.random((1, 30, 40)).astype(np.float32), RANDOM.random((1, 30, 40)).astype(np.float32)
    found = judge([{"y": one}], [{"y": two[:, :28]}])
    assert found.samples == 1
    assert 0 <= found.agreement <= 1


def test_probabilities_of_a_small_alphabet_are_a_text_and_no_picture() -> None:
    logits = np.random.default_rng(3).normal(size=(1, 40, 97)).astype(np.float32)
    powers = np.exp(4 * logits)
    told = ModelFacts({"y": OutputFacts("Softmax", 2)}, (48, 320))
    outputs = [{"y": powers / powers.sum(-1, keepdims=True)}]
    assert judge(outputs, outputs, told).kind == "sequence"


def test_a_verdict_by_one_sample_says_so() -> None:
    one = [{"y": one_hot([i], 12)[0]} for i in range(5)]
    assert judge(one[:1], one[:1]).text().startswith("good (judged by one sample alone: give 15 or more): ")
    assert judge(one[:1], one[:1]).to_json()["caution"]
    assert judge(one[:2], one[:2]).caution.startswith("judged by 2 samples alone")
    assert judge(one, one).text().startswith("good: ")
    assert "caution" not in judge(one, one).to_json()


def test_a_curve_is_no_row_of_classes() -> None:
    """Chances over time have a highest one, too, but the second is beside it; scores of classes lie in no order."""
    peaks = RANDOM_PLACES.integers(2, 60, 8)
    frames = np.arange(62)
    curves = [np.exp(-np.square((frames - peak) / 1.5))[None].astype(np.float32) for peak in peaks]
    noise = [RANDOM_PLACES.normal(0, 0.01, curve.shape).astype(np.float32) for curve in curves]
    one = [{"y": curve + more} for curve, more in zip(curves, noise, strict=True)]
    assert judge(one, one).kind == "numbers"
    mixed = RANDOM_PLACES.permutation(62)
    scores = [{"y": outputs["y"][:, mixed]} for outputs in one]
    assert judge(scores, scores).kind == "classification"


RANDOM_PLACES = np.random.default_rng(42)
