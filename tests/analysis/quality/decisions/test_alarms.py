# SPDX-License-Identifier: Apache-2.0
"""Alarms: what is lost whatever the average says; channel groups; a YOLO whose scores share the scale of its boxes."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from hexforge.analysis.quality.decisions.channels import channel_text
from hexforge.analysis.quality.decisions.judge import judge
from hexforge.ir import Array
from hexforge.model.reader import read
from tests.analysis.quality.decisions.yolo_model import CLASSES, pictures, yolo_model

RANDOM = np.random.default_rng(11)


def mixed_outputs(samples: int = 4) -> list[dict[str, Array]]:
    """Boxes up to 640 and scores up to 1 in one output."""
    found = []
    for _ in range(samples):
        boxes, scores = RANDOM.uniform(10, 640, (4, 400)), RANDOM.random((12, 400)) ** 8
        found.append({"output0": np.concatenate([boxes, scores])[None].astype(np.float32)})
    return found


def rounded(outputs: list[dict[str, Array]], scale: float, steps: int = 255) -> list[dict[str, Array]]:
    """Outputs as one scale leaves them."""
    return [
        {n: (np.clip(np.rint(a / scale), 0, steps) * scale).astype(np.float32) for n, a in o.items()} for o in outputs
    ]


def kinds(float_outputs: list[dict[str, Array]], other: list[dict[str, Array]]) -> list[tuple[str, str]]:
    return [(a.kind, a.channels) for a in judge(float_outputs, other).alarms]


def test_scores_that_share_the_scale_of_boxes_are_dead() -> None:
    one = mixed_outputs()
    found = judge(one, rounded(one, 640 / 255))
    assert found.sqnr_db > 40  # what SQNR over the whole output says
    assert [(a.kind, a.channels) for a in found.alarms] == [("dead channels", "4-15")]
    assert found.alarms[0].text.startswith(
        "channels 4-15 of output 'output0' are 0 in all samples; in float they go from"
    )
    assert found.verdict == "unusable"
    assert [(g.first, g.last) for g in found.groups] == [(0, 3), (4, 15)]
    assert found.worst_group is not None
    assert found.worst_group.sqnr_db == 0  # all of the signal is noise
    boxes = np.concatenate([o["output0"][:, :4] for o in one]).astype(np.float64)
    noise = boxes - np.concatenate([o["output0"][:, :4] for o in rounded(one, 640 / 255)])
    assert found.groups[0].sqnr_db == pytest.approx(10 * np.log10((boxes**2).sum() / (noise**2).sum()), abs=1e-3)


def test_sixteen_bits_wake_them() -> None:
    one = mixed_outputs()
    found = judge(one, rounded(one, 640 / 65535, 65535))
    assert found.alarms == ()
    assert found.verdict == "good"


def test_a_constant_output_is_an_alarm_and_one_that_is_constant_in_float_is_none() -> None:
    one = [{"y": RANDOM.normal(0, 1, (1, 10)).astype(np.float32)} for _ in range(4)]
    still = [{"y": np.full((1, 10), 0.25, np.float32)} for _ in range(4)]
    assert kinds(one, still) == [("constant", "")]
    assert kinds(still, still) == []
    classes = [{"y": np.array([i % 3], np.int64)} for i in range(6)]
    assert kinds(classes, [{"y": np.zeros(1, np.int64)}] * 6) == [("constant", "")]


def test_numbers_that_are_none_are_an_alarm() -> None:
    one = [{"y": RANDOM.normal(0, 1, (1, 10)).astype(np.float32)} for _ in range(4)]
    broken = [{"y": np.where(o["y"] == o["y"].max(), np.nan, o["y"])} for o in one]
    assert kinds(one, broken) == [("not finite", "")]


def test_clipped_outputs_are_saturated() -> None:
    one = [{"y": RANDOM.normal(0, 1, (1, 1000)).astype(np.float32)} for _ in range(4)]
    assert kinds(one, [{"y": o["y"].clip(-1, 1)} for o in one]) == [("saturated", "")]
    assert kinds(one, [{"y": o["y"].clip(-3, 3)} for o in one]) == []  # a few of a thousand
    relu = [{"y": np.maximum(o["y"], 0)} for o in one]
    assert kinds(relu, rounded(relu, 4 / 255)) == []  # many are at the end of the range, as in float


def test_a_dead_channel_among_living_ones() -> None:
    one = [{"y": RANDOM.normal(0, 1, (1, 8, 20, 20)).astype(np.float32)} for _ in range(2)]
    dead = [{"y": o["y"].copy()} for o in one]
    for o in dead:
        o["y"][:, [2, 3, 6]] = 0.5
    assert kinds(one, dead) == [("dead channels", "2-3, 6")]


def test_classes_that_are_never_likely_are_not_dead() -> None:
    """A softmax of a thousand classes at steps of 1/256: most classes stay 0 in a few samples, in any good model."""
    logits = RANDOM.normal(0, 1, (8, 1, 1000))
    logits[np.arange(8), 0, RANDOM.integers(0, 1000, 8)] += 14
    softmax = np.exp(logits) / np.exp(logits).sum(2, keepdims=True)
    one = [{"y": s.astype(np.float32)} for s in softmax]
    found = judge(one, rounded(one, 1 / 256))
    assert found.alarms == ()
    assert found.agreement == 1


def test_scores_that_stay_tiny_in_float_tell_nothing_at_a_fine_scale_and_are_dead_at_a_coarse_one() -> None:
    tiny = [{"y": (1e-4 * RANDOM.random((1, 40, 10))).astype(np.float32)} for _ in range(3)]
    assert kinds(tiny, rounded(tiny, 1 / 256)) == []
    mixed = [{"y": np.concatenate([640 * RANDOM.random((1, 4, 90)), o["y"].reshape(1, 10, 40)[:, :4, :1].repeat(90, 2)
              * RANDOM.random((1, 4, 90))], 1).astype(np.float32)} for o in tiny]  # fmt: skip
    assert kinds(mixed, rounded(mixed, 640 / 255)) == [("dead channels", "4-7")]


@pytest.mark.parametrize("seed", range(8))
def test_good_8_bits_ring_no_alarm(seed: int) -> None:
    """Outputs of their own scale, whatever their shape, are alive."""
    random = np.random.default_rng(seed)
    shapes = [(1, 10), (1, 128), (1, 19, 16, 16), (1, 3, 32, 32), (1, 24, 40), (1, 2), (1, 7)]
    one = [{f"y{i}": random.normal(0, 3, shape).astype(np.float32) for i, shape in enumerate(shapes)} for _ in range(5)]
    two = []
    for outputs in one:
        step = 32 / 255
        two.append({n: (np.clip(np.rint(a / step), -128, 127) * step).astype(np.float32) for n, a in outputs.items()})
    found = judge(one, two)
    assert found.alarms == ()
    assert found.worst_group is not None
    assert found.worst_group.sqnr_db > 25


def test_channels_as_text() -> None:
    assert channel_text(np.array([0, 1, 2, 5, 7, 8])) == "0-2, 5, 7-8"


def test_the_graph_says_what_is_concatenated() -> None:
    model = yolo_model()
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    one = [dict(zip(("output0",), session.run(None, feeds), strict=True)) for feeds in pictures(6)]
    found = judge(one, rounded(one, 640 / 255), read(model.SerializeToString()))
    assert found.kind == "detection"
    assert [(a.kind, a.channels) for a in found.alarms] == [("dead channels", f"4-{3 + CLASSES}")]
    assert found.agreement == 0
    assert judge(one, one, read(model.SerializeToString())).parts[0].figures["boxes"] >= 20


def anchors(samples: int = 6) -> list[dict[str, Array]]:
    """Offsets and logits of 400 anchors, of which 8 find something; anchors 3 and 7 move far below what passes."""
    found = []
    for _ in range(samples):
        logits = RANDOM.normal(-12, 3, (1, 400)).astype(np.float32)
        logits[0, RANDOM.integers(20, 400, 8)] = RANDOM.uniform(2, 6, 8)
        logits[0, [3, 7]] = RANDOM.uniform(-60, -40, 2)
        found.append({"offsets": RANDOM.normal(0, 20, (1, 400, 4)).astype(np.float32), "scores": logits})
    return found


def test_anchors_that_can_never_pass_are_no_alarm() -> None:
    """BlazeFace has two: that made it unusable though it found every face."""
    one = anchors()
    cut = [{"offsets": o["offsets"], "scores": np.maximum(o["scores"], -30)} for o in one]
    found = judge(one, cut)
    assert (found.kind, found.verdict) == ("detection", "good")
    assert found.alarms == ()
    assert [(a.kind, a.channels) for a in judge(one, cut, metric="numbers:scores").alarms] == [
        ("dead channels", "3, 7")
    ]


def test_an_anchor_that_passes_in_float_and_stands_still_is_an_alarm() -> None:
    one = anchors()
    for outputs in one[::2]:
        outputs["scores"][0, 5] = 5
    dead = [{"offsets": o["offsets"], "scores": o["scores"].copy()} for o in one]
    for outputs in dead:
        outputs["scores"][0, 5] = -12
    assert kinds(one, dead) == [("dead channels", "5")]
