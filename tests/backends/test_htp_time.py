"""The HTP's time: tiles, the schedule, the timeline, and that they move as physics says."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import hexforge.ops  # noqa: F401 - fills the table
from hexforge.backends.htp import cost, simulate, soc, tile
from hexforge.backends.htp.schedule import schedule
from hexforge.errors import CallError
from hexforge.ir import DType, Graph, Role, TensorType, Value

CHIP = soc.find("SM8650")
assert CHIP is not None
COSTS = cost.costs(CHIP)
W8A8, FLOAT = tile.precision("w8a8"), tile.precision("float")


def weights(*shape: int) -> Any:
    return np.broadcast_to(np.float32(1), shape)


def graph(size: int = 56, channels: int = 64, layers: int = 3, batch: int = 1) -> Graph:
    """Convolutions with clamps, the last result added to the first."""
    made = Graph("net")
    value = first = made.value("x", TensorType(DType.FLOAT32, (batch, size, size, channels)), Role.APP_WRITE)
    for i in range(layers):
        kernel = made.static(weights(3, 3, channels, channels), name=f"w{i}")
        node = made.node("Conv2d", [value, kernel], stride=(1, 1), pad_amount=((1, 1), (1, 1)), name=f"conv{i}")
        value = made.node("Relu", [node.outputs[0]], name=f"relu{i}").outputs[0]
    return ends(made, made.node("ElementWiseAdd", [value, first], name="add").outputs[0])


def ends(made: Graph, value: Value) -> Graph:
    value.role = Role.APP_READ
    return made


def latency(net: Graph, costs: cost.Costs = COSTS, precision: tile.Precision = W8A8) -> float:
    return simulate.simulate(net, costs, precision).latency_us


def test_tiles_pad_depth_to_32_and_pixels_to_2_kib() -> None:
    assert tile.padded((1, 7, 7, 3)) == 8 * 8 * 32
    assert tile.pixels((1, 7, 7, 3), W8A8) == 64
    assert tile.pixels((1, 7, 9, 3), FLOAT) == 8 * 12
    assert tile.pixels((1, 17, 17, 64), W8A8) == 24 * 20
    assert tile.pixels((1, 17, 17, 64), W8A8, folded=True) == 320
    assert tile.pixels((1, 1, 197, 768), W8A8) == 256
    assert tile.window_depth(3, 3, 64) == 9 * 64
    assert tile.window_depth(7, 7, 3) == 7 * 32
    for precision in tile.PRECISIONS.values():
        assert precision.rows * precision.columns * 32 * precision.activation_bytes == 2048


def test_clamps_and_a_following_sum_run_with_the_convolution() -> None:
    tasks = schedule(graph(), W8A8, "qnn_dlc", COSTS.vtcm_bytes)
    assert [t.ops for t in tasks] == [["conv0", "relu0"], ["conv1", "relu1"], ["conv2", "relu2", "add"]]
    assert tasks[0].hmx["conv"] == pytest.approx(56 * 56 * 9 * 64 * 64 / 1e9)
    assert tasks[0].weight_bytes == 9 * 64 * 64
    assert "add" in tasks[2].hvx


def test_images_stay_channel_last_except_through_onnx() -> None:
    made = Graph("net")
    x = made.value("x", TensorType(DType.FLOAT32, (1, 3, 64, 64)), Role.APP_WRITE)
    last = made.node("Transpose", [x], perm=(0, 2, 3, 1)).outputs[0]
    kernel = made.static(weights(3, 3, 3, 32))
    net = ends(made, made.node("Conv2d", [last, kernel], stride=(1, 1), pad_amount=((1, 1), (1, 1))).outputs[0])
    assert [t.op for t in schedule(net, FLOAT, "qnn_dlc", 8 << 20)] == ["Conv2d"]
    assert [t.op for t in schedule(net, FLOAT, "onnx", 8 << 20)] == ["Transpose", "Conv2d"]


def test_only_what_does_not_fit_spills() -> None:
    small = schedule(graph(56), W8A8, "qnn_dlc", 8 << 20)
    assert sum(t.spill_bytes for t in small) == 56 * 56 * 64  # the input comes from DRAM once
    tiled = schedule(graph(512, layers=40), W8A8, "qnn_dlc", 8 << 20)
    assert sum(t.spill_bytes for t in tiled) == 512 * 512 * 64  # what is between is made and used tile by tile
    deep = schedule(graph(512, layers=80), W8A8, "qnn_dlc", 8 << 20)
    assert sum(t.spill_bytes for t in deep) > 2 * 512 * 512 * 64


def test_rows_add_up_and_lanes_do_not_overlap_themselves() -> None:
    line = simulate.simulate(graph(), COSTS, W8A8)
    assert sum(row.us for row in line.rows) == pytest.approx(line.accelerator_us)
    assert line.latency_us > line.accelerator_us > 0
    for unit in ("HMX", "DMA"):
        spans = sorted((e.start_us, e.end_us) for e in line.events if e.unit == unit)
        assert all(a[1] <= b[0] + 1e-9 for a, b in pairwise(spans))
    assert line == simulate.simulate(graph(), COSTS, W8A8)
    names = {e["name"] for e in line.trace()["traceEvents"]}
    assert {"conv0", "conv1", "conv2"} <= names


def test_a_classifier_of_big_weights_waits_for_them() -> None:
    made = Graph("head")
    x = made.value("x", TensorType(DType.FLOAT32, (1, 4096)), Role.APP_WRITE)
    net = ends(made, made.node("FullyConnected", [x, made.static(weights(4096, 4096))]).outputs[0])
    line = simulate.simulate(net, COSTS, W8A8)
    assert line.rows[0].bound == "DMA"
    assert line.accelerator_us >= COSTS.dram_us(4096 * 4096)


@pytest.mark.parametrize("precision", ["float", "w8a8", "w8a16"])
def test_more_work_never_takes_less(precision: str) -> None:
    chosen = tile.precision(precision)
    by_batch = [latency(graph(batch=n), precision=chosen) for n in (1, 2, 4)]
    by_size = [latency(graph(size), precision=chosen) for size in (28, 56, 112, 224)]
    by_depth = [latency(graph(layers=n), precision=chosen) for n in (1, 2, 4, 8)]
    for each in (by_batch, by_size, by_depth):
        assert each == sorted(each)


def test_more_vtcm_is_never_slower_here() -> None:
    times = [
        latency(graph(256, 128, 12), replace(COSTS, soc=replace(COSTS.soc, vtcm_mb=mb)), FLOAT) for mb in (2, 4, 8, 16)
    ]
    assert times == sorted(times, reverse=True)


def test_a_division_costs_more_than_a_product() -> None:
    def net(op: str) -> Graph:
        made = Graph(op)
        a, b = (made.value(n, TensorType(DType.FLOAT32, (1, 128, 128, 64)), Role.APP_WRITE) for n in "ab")
        return ends(made, made.node(op, [a, b]).outputs[0])

    assert latency(net("ElementWiseDivide")) > latency(net("ElementWiseMultiply"))


def test_a_learned_slope_costs_more_than_a_clamp() -> None:
    def net(slope: bool) -> Graph:
        made = graph(128, layers=1)
        conv = made.nodes[0].outputs[0]
        if slope:
            made.rewrite(made.nodes[1], "Prelu", [conv, made.static(weights(64))])
        return made

    assert latency(net(True)) > latency(net(False))
    slowest = max(simulate.simulate(net(True), COSTS, W8A8).rows, key=lambda row: row.us)
    assert slowest.bound == "HVX"


def test_parameters_are_positive_and_near_what_was_believed() -> None:
    found = cost.fitted()
    assert set(found["parameters"]) == {p.name for p in cost.PARAMETERS}
    for p in cost.PARAMETERS:
        assert 0 < found["parameters"][p.name] < 20 * p.prior
    for name, factors in found["chips"].items():
        assert soc.find(name) is not None
        assert set(factors) == set(cost.FACTORS)


def test_a_chip_that_was_not_measured_says_what_it_stands_on() -> None:
    unmeasured = next(s for s in soc.SOCS if s.name not in cost.fitted()["chips"])
    assert cost.costs(unmeasured).provenance.startswith("assumed as ")
    assert COSTS.provenance == "fitted"


def test_impossible_requests_are_clear() -> None:
    with pytest.raises(CallError, match="precision 'w9a9' is not known"):
        tile.precision("w9a9")
    with pytest.raises(CallError, match="runtime 'trt' is not known"):
        schedule(graph(), W8A8, "trt", 8 << 20)
