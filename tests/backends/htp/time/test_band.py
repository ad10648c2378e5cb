# SPDX-License-Identifier: Apache-2.0
"""How far an estimate may be off: wider where the fits differ, where work is little known, on a chip without rows."""

from __future__ import annotations

import numpy as np
import pytest

import hexforge.ops  # noqa: F401 - fills the table
from hexforge.analysis.estimate import estimate
from hexforge.analysis.timed_graphs import graph_of
from hexforge.backends.htp.time import band, cost
from hexforge.chips import soc
from hexforge.chips.deployment import Deployment
from hexforge.errors import FormatError
from tests import ROOT

MEASURED = ROOT / "src" / "hexforge" / "addons" / "latency" / "measured"
COSTS = cost.costs(soc.require_chip("SM8650"))
KNOWN = {"w8a8": {"conv": 20, "lookup": 20, "conv3d": 1}}


def test_the_fits_of_the_bag_are_kept_and_their_mean_is_used() -> None:
    fit = cost.fitted()
    for p in cost.PARAMETERS:
        each = np.array(fit["members"][p.name])
        assert len(each) >= 8
        assert np.exp(np.log(each).mean()) == pytest.approx(fit["parameters"][p.name], rel=1e-3)


def test_there_are_fewer_parameters_than_before() -> None:
    assert len(cost.PARAMETERS) < 58
    assert len(cost.FACTORS) < 7


def test_a_graph_of_work_the_fits_differ_on_is_less_certain() -> None:
    spreads = {kind: float(np.log(COSTS.member_ratio(kind, "w8a8")).std()) for kind in ("conv", *cost.MATRIX)}
    least, most = min(spreads, key=lambda k: spreads[k]), max(spreads, key=lambda k: spreads[k])
    support = {"w8a8": dict.fromkeys(spreads, 20)}
    sure = band.certainty([("w8a8", least, 100.0)], COSTS, support)
    unsure = band.certainty([("w8a8", most, 100.0)], COSTS, support)
    assert sure.spread == pytest.approx(spreads[least])
    assert sure.spread < unsure.spread
    assert band.band_shape(sure) < band.band_shape(unsure)


def test_little_known_work_widens_the_band_and_is_named() -> None:
    common = band.certainty([("w8a8", "conv", 90.0), ("w8a8", "lookup", 10.0)], COSTS, KNOWN)
    rare = band.certainty([("w8a8", "conv", 40.0), ("w8a8", "conv3d", 60.0)], COSTS, KNOWN)
    some = band.certainty([("w8a8", "conv", 98.0), ("w8a8", "conv3d", 2.0)], COSTS, KNOWN)
    assert common.little_known == some.little_known == ()
    assert rare.little_known == ("3-D convolutions",)
    assert rare.little_known_part == pytest.approx(0.6)
    assert band.band_width(common, ["w8a8"], "onnx", True) < band.band_width(rare, ["w8a8"], "onnx", True)


def test_a_graph_unlike_every_measured_one_is_less_certain() -> None:
    images, rows = (
        [("w8a8", "conv", 90.0), ("w8a8", "lookup", 10.0)],
        [("w8a8", "softmax", 70.0), ("w8a8", "conv", 30.0)],
    )
    measured = {"w8a8": np.stack([band.profile(images)])}
    support = {"w8a8": dict.fromkeys(("conv", "lookup", "softmax"), 9)}
    alike, unlike = (band.certainty(work, COSTS, support, measured) for work in (images, rows))
    assert alike.distance == pytest.approx(0)
    assert unlike.distance == pytest.approx(0.7)
    assert band.band_width(alike, ["w8a8"], "onnx", True) < band.band_width(unlike, ["w8a8"], "onnx", True)
    assert band.distance(rows, {"float": measured["w8a8"]}) == 1  # nothing was measured at its rate
    # a graph of two rates is compared with those of the rate it is mostly at; a kind without a name is a sum
    assert band.distance([*images, ("float", "cast", 10.0)], measured) == pytest.approx(1 / 11)


def test_profiles_in_the_file_are_those_of_measured_graphs() -> None:
    fit = cost.fitted()
    profiles = band.measured_profiles(fit)
    assert {rate: len(each) for rate, each in profiles.items()} == {"float": 153, "w8a8": 80, "w8a16": 67}
    assert all(each.sum(1) == pytest.approx(1, abs=0.02) for each in profiles.values())
    shuffled = {**fit, "profile_kinds": fit["profile_kinds"][::-1]}
    shuffled["profiles"] = {r: {m: p[::-1] for m, p in by_model.items()} for r, by_model in fit["profiles"].items()}
    assert all((band.measured_profiles(shuffled)[rate] == each).all() for rate, each in profiles.items())
    line = estimate(MEASURED / "topologies" / "resnet50.onnx", Deployment("SM8650", "w8a8")).timeline
    assert band.distance(line.work_us, profiles) < 0.01
    for bad in ([0.5], ["a"] * len(fit["profile_kinds"]), None):
        with pytest.raises(FormatError, match="profiles of w8a8"):
            band.measured_profiles({**fit, "profiles": {"w8a8": {"resnet50": bad}}})


def test_a_chip_without_rows_has_a_wider_band() -> None:
    net = graph_of(MEASURED / "topologies" / "resnet18.onnx")
    measured, unmeasured = estimate(net, Deployment("SM8450", "w8a8")), estimate(net, Deployment("SM8475", "w8a8"))
    assert unmeasured.provenance == "assumed as SM8450"
    assert unmeasured.band > measured.band


def test_an_estimate_says_what_of_it_is_little_known() -> None:
    images, frames = (
        estimate(MEASURED / "topologies" / f"{m}.onnx", Deployment("SM8650", "w8a8")) for m in ("resnet50", "resnet_3d")
    )
    assert images.little_known == ()
    assert "3-D convolutions" in frames.little_known
    assert frames.to_json()["little_known"] == list(frames.little_known)
    assert frames.band > images.band
    assert images.low_ms < images.latency_ms < images.high_ms
    tflite = estimate(MEASURED / "topologies" / "resnet_3d.onnx", Deployment("SM8650", "w8a8", "tflite"))
    assert "through tflite" in tflite.little_known[0]
    assert not any("tflite" in kind for kind in frames.little_known)


def test_the_time_of_the_path_is_told_by_kind_of_work() -> None:
    line = estimate(MEASURED / "topologies" / "resnet50.onnx", Deployment("SM8650", "w8a8")).timeline
    whole = sum(us for _, _, us in line.work_us)
    assert whole == pytest.approx(line.accelerator_us + line.rpc_us + line.io_us, rel=1e-3)
    shares = {rate: sum(us for r, _, us in line.work_us if r == rate) for rate, _, _ in line.work_us}
    assert shares.keys() <= {"w8a8", "float"}
    assert shares["w8a8"] > 0.9 * whole  # the rest is what converts the floats of the border
