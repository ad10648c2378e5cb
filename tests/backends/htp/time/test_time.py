# SPDX-License-Identifier: Apache-2.0
"""The HTP's time: tiles, the schedule, the timeline, and that they move as physics says."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hexforge.ops  # noqa: F401 - fills the table
from hexforge.analysis.estimate import estimate
from hexforge.analysis.timed_graphs import graph_of
from hexforge.backend import SharedWork
from hexforge.backends.htp.backend import HtpBackend
from hexforge.backends.htp.time import cost, simulate, tile
from hexforge.backends.htp.time.schedule import schedule
from hexforge.backends.htp.time.task_sequence import TaskSequence
from hexforge.backends.htp.timing import Clock
from hexforge.chips import soc
from hexforge.chips.deployment import Deployment
from hexforge.chips.graph_config import GraphConfig
from hexforge.chips.power import CPU_WAKE_US, HOLD_US, MODES, UNVOTED_WAKE_US, VOTE_US, Corner, Power
from hexforge.errors import CallError, CapacityError, UnsupportedError
from hexforge.ir import DType, Graph, Role, ScaleOffset, TensorType, Value
from hexforge.timeline import Timeline
from tests import ROOT

CHIP = soc.find_chip("SM8650")
assert CHIP is not None
COSTS = cost.costs(CHIP)
MEASURED = ROOT / "src" / "hexforge" / "addons" / "latency" / "measured"
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
    assert tile.padded_elements((1, 7, 7, 3)) == 8 * 8 * 32
    assert tile.pixel_rows((1, 7, 7, 3), W8A8) == 64
    assert tile.pixel_rows((1, 7, 9, 3), FLOAT) == 8 * 12
    assert tile.pixel_rows((1, 17, 17, 64), W8A8) == 24 * 20
    assert tile.pixel_rows((1, 17, 17, 64), W8A8, folded=True) == 320
    assert tile.pixel_rows((1, 1, 197, 768), W8A8) == 256
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
    x = made.value("x", TensorType(DType.FLOAT32, (1, 3, 512, 512)), Role.APP_WRITE)
    last = made.node("Transpose", [x], perm=(0, 2, 3, 1)).outputs[0]
    kernel = made.static(weights(3, 3, 3, 32))
    net = ends(made, made.node("Conv2d", [last, kernel], stride=(1, 1), pad_amount=((1, 1), (1, 1))).outputs[0])
    assert [t.op for t in schedule(net, FLOAT, "qnn_dlc", 8 << 20)] == ["Conv2d"]
    assert [t.op for t in schedule(net, FLOAT, "onnx", 8 << 20)] == ["Transpose", "Conv2d"]
    assert [t.op for t in schedule(net, FLOAT, "onnx", 64 << 20)] == ["Conv2d"]  # where the padded image stays in VTCM


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
    names = {e["name"] for e in line.trace().events}
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


SIZES = st.sampled_from([7, 20, 56, 130])
CHANNELS = st.sampled_from([3, 32, 40, 64, 200])


@st.composite
def nets(draw: st.DrawFn) -> Graph:
    """Chains and branches of convolutions, products, sums, softmax and transposes of any size."""
    size, channels = draw(SIZES), draw(CHANNELS)
    made = Graph("net")
    values = [made.value("x", TensorType(DType.FLOAT32, (1, size, size, channels)), Role.APP_WRITE)]
    for _ in range(draw(st.integers(1, 8))):
        value = values[draw(st.integers(0, len(values) - 1))]
        kind = draw(st.sampled_from(["conv", "wide", "add", "softmax", "relu", "divide"]))
        if kind in ("conv", "wide"):
            side = 3 if kind == "conv" else 1
            kernel = made.static(weights(side, side, channels, channels))
            pads = ((side // 2, side // 2),) * 2
            node = made.node("Conv2d", [value, kernel], stride=(1, 1), pad_amount=pads)
        elif kind == "softmax":
            node = made.node("Softmax", [value], axis=3)
        elif kind == "relu":
            node = made.node("Relu", [value])
        else:
            op = "ElementWiseAdd" if kind == "add" else "ElementWiseDivide"
            node = made.node(op, [value, values[0]])
        values.append(node.outputs[0])
    return ends(made, values[-1])


def timed(net: Graph, precision: str, batch: int = 1, power: Power | None = None, **config: Any) -> Timeline:
    return simulate.simulate(
        net, COSTS, tile.precision(precision), "qnn_dlc", GraphConfig(**config), power or Power(), batch
    )


PRECISION = st.sampled_from(["float", "w8a8", "w8a16", "w4a16", "w16a16"])


@given(nets(), PRECISION)
@settings(max_examples=25)
def test_more_vtcm_and_more_threads_are_never_slower(net: Graph, precision: str) -> None:
    by_vtcm = [round(timed(net, precision, vtcm_mb=mb).latency_us, 9) for mb in range(1, 9)]
    threads = range(1, COSTS.soc.hvx_threads + 1)
    by_threads = [timed(net, precision, num_hvx_threads=n).latency_us for n in threads]
    assert by_vtcm == sorted(by_vtcm, reverse=True)
    assert by_threads == sorted(by_threads, reverse=True)


@given(nets(), PRECISION, st.lists(st.integers(1, 128), min_size=2, max_size=6))
@settings(max_examples=25)
def test_more_vtcm_in_bytes_is_never_slower(net: Graph, precision: str, granules: list[int]) -> None:
    costs = cost.costs(soc.require_chip("SM8850"))
    sizes = [n << 16 for n in sorted(granules)]
    times = [
        round(
            simulate.simulate(net, costs, tile.precision(precision), config=GraphConfig(vtcm_size=size)).latency_us, 9
        )
        for size in sizes
    ]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize("runtime", ["qnn_dlc", "onnx", "tflite"])
@pytest.mark.parametrize("precision", ["float", "w8a8"])
def test_a_look_up_before_the_first_layer_does_not_hide_that_it_is_the_first(runtime: str, precision: str) -> None:
    def net(lookup: bool) -> float:
        made = Graph("net")
        value = made.value("x", TensorType(DType.FLOAT32, (1, 3, 224, 224)), Role.APP_WRITE)
        if lookup:
            value = made.node("Sigmoid", [value]).outputs[0]
        value = made.node("ElementWiseDivide", [value, made.static(weights(1, 3, 1, 1))]).outputs[0]
        value = made.node("Transpose", [value], perm=(0, 2, 3, 1)).outputs[0]
        kernel = made.static(weights(3, 3, 3, 32))
        made.node("Conv2d", [value, kernel], stride=(1, 1), pad_amount=((1, 1), (1, 1)))
        last = ends(made, made.nodes[-1].outputs[0])
        return simulate.simulate(last, COSTS, tile.precision(precision), runtime).latency_us

    assert net(True) > net(False)


@given(nets(), PRECISION)
@settings(max_examples=25)
def test_a_higher_performance_mode_is_never_slower(net: Graph, precision: str) -> None:
    times = [timed(net, precision, power=Power(name)).latency_us for name in MODES if name != "default"]
    assert times == sorted(times)
    assert times[0] < times[-1]


@given(nets(), PRECISION)
@settings(max_examples=25)
def test_a_larger_batch_never_has_a_lower_latency_and_shares_weights(net: Graph, precision: str) -> None:
    lines = [timed(net, precision, batch=n) for n in (1, 2, 3, 5, 8)]
    times = [line.latency_us for line in lines]
    assert times == sorted(times)
    per_sample = [line.accelerator_us / line.batch for line in lines]
    assert all(one <= per_sample[0] * (1 + 1e-9) for one in per_sample)


@given(nets(), PRECISION)
@settings(max_examples=25)
def test_the_timeline_is_consistent(net: Graph, precision: str) -> None:
    line = timed(net, precision)
    assert sum(row.us for row in line.rows) == pytest.approx(line.accelerator_us)
    assert sum(e.end_us - e.start_us for e in line.critical) == pytest.approx(line.accelerator_us)
    assert all(a.end_us == pytest.approx(b.start_us) for a, b in pairwise(line.critical))
    for row in line.rows:
        assert 0 <= row.overlap_us <= row.us + 1e-6
        assert 0 <= row.wait_us <= row.us + 1e-6
        assert row.vtcm_bytes <= line.vtcm_bytes
    assert line.dram_bytes == pytest.approx(line.weight_bytes + line.spill_bytes, abs=len(line.events))


@pytest.mark.feature("Batch and threads", guide="2949-2967")
def test_batches_and_threads_raise_the_throughput_as_published() -> None:
    """SNPE's ResNet50 on SM8550: batches of 5 on 2 threads give about 1.8 times one image on one thread."""
    net = graph_of(MEASURED / "topologies" / "resnet50.onnx")
    alone = estimate(net, Deployment("SM8550", "w8a8"))
    many = estimate(net, Deployment("SM8550", "w8a8"), batch=5, threads=2)
    assert 1.4 <= many.throughput / alone.throughput <= 2.1  # 1.50 as fitted
    assert many.latency_ms > alone.latency_ms
    assert estimate(net, Deployment("SM8550", "w8a8", power=Power(interval_us=1000000.0)), batch=5).throughput == 5


@pytest.mark.feature("VTCM in MB", guide="472-481")
def test_less_vtcm_takes_longer_where_more_moves_for_it() -> None:
    """What moves for want of VTCM does so piece by piece, and the first one hides behind nothing."""
    costs = cost.costs(soc.require_chip("SM8650"))
    net = graph(100, 256, layers=8)
    lines = {mb: simulate.simulate(net, costs, W8A8, config=GraphConfig(vtcm_mb=mb)) for mb in (1, 2, 4, 8)}
    times, moved = ([getattr(line, name) for line in lines.values()] for name in ("accelerator_us", "dram_bytes"))
    assert moved == sorted(moved, reverse=True)
    assert moved[0] > 2 * moved[-1]
    assert times == sorted(times, reverse=True)
    assert len({round(us, 3) for us in times}) == len(set(moved))
    for line in lines.values():
        assert sum(e.end_us - e.start_us for e in line.critical) == pytest.approx(line.accelerator_us)
        assert sum(row.us for row in line.rows) == pytest.approx(line.accelerator_us)
    all_of_it = simulate.simulate(net, costs, W8A8)
    assert lines[8].accelerator_us == all_of_it.accelerator_us  # which the costs were fitted with


def test_what_a_call_waits_for() -> None:
    accelerator, call = 500.0, 60.0
    burst = Power()
    assert burst.wait_us(accelerator, call) == 0
    assert Power(vote="every_inference").wait_us(accelerator, call) > 0
    assert Power("sustained_high_performance").wait_us(accelerator, call) == UNVOTED_WAKE_US
    assert Power("sustained_high_performance").wait_us(2000, call) == 2000 / 4  # of a CPU that slept so long
    voted = Power("sustained_high_performance", rpc_control_latency_us=30)
    assert voted.wait_us(accelerator, call) == 30
    assert burst.wait_us(20_000, call) == CPU_WAKE_US  # longer than the CPU polls
    assert Power(adaptive_polling_us=1000).wait_us(20_000, call) == 0
    slow = Power("balanced", interval_us=33_000)
    wake = UNVOTED_WAKE_US
    assert slow.wait_us(accelerator, call) == wake + 1000 - 40 + 2 * VOTE_US  # the HTP slept as deep as it may
    at_once = Power("balanced").wait_us(accelerator, call)  # idle for the call, the CPU's wake-up and two votes
    assert at_once == wake + 2 * VOTE_US + (call + wake + 2 * VOTE_US - 40)
    assert Power("balanced", vote="sustained").wait_us(accelerator, call) == wake + (call + wake - 40)
    assert Power().through("onnx").control_latency_us == 0
    assert Power().through("qnn_dlc").control_latency_us == 100
    assert Power("balanced", interval_us=1.0).wait_us(accelerator, call) == at_once  # sooner than it can be
    rare = Power(interval_us=accelerator + call + HOLD_US + 1)
    assert rare.wait_us(accelerator, call) == VOTE_US  # the timer's vote has ended
    assert replace(rare, hold_us=2 * HOLD_US).wait_us(accelerator, call) == 0
    for wrong in (
        {"performance_mode": "turbo"}, {"rpc_polling_us": 10_000}, {"vote": "never"}, {"interval_us": -1.0},
        {"interval_us": math.inf}, {"interval_us": math.nan},
        {"performance_mode": "balanced", "adaptive_polling_us": 1000},
    ):  # fmt: skip
        with pytest.raises(CallError):
            Power(**wrong)


@pytest.mark.feature("DLBC inputs and weights", guide="998-1088")
def test_traffic_options_take_bytes_off_dram() -> None:
    chip = next(s for s in soc.SOCS if s.dlbc and s.slc)
    costs = cost.costs(chip)
    net = graph(512, 64, layers=80)

    def moved(**config: bool) -> int:
        line = simulate.simulate(net, costs, W8A8, config=GraphConfig(vtcm_mb=1, **config))
        assert line.weight_bytes == 80 * 9 * 64 * 64
        return line.dram_bytes

    plain = moved()
    assert moved(dlbc=True) < plain
    assert moved(slc_alloc_enable=True) < plain
    assert moved(dlbc_weights=True) < plain


def test_packed_weights_are_fetched_as_four_bits() -> None:
    made = Graph("head")
    wide = TensorType(DType.UINT8, (1, 4096), ScaleOffset(0.1, -128))
    x = made.value("x", wide, Role.APP_WRITE)
    small = np.random.default_rng(0).integers(-8, 8, (4096, 4096)).astype(np.int8)
    weight = made.static(small, ScaleOffset(0.01, 0), name="w")
    y = made.value("y", wide, Role.APP_READ)
    made.node("FullyConnected", [x, weight], [y])
    plain, packed = (
        simulate.simulate(made, COSTS, None, config=GraphConfig(weights_packing=on)).accelerator_us
        for on in (False, True)
    )
    assert packed < 0.6 * plain


@pytest.mark.parametrize(
    ("config", "power", "words"),
    [
        (GraphConfig(vtcm_mb=9), Power(), "9 MB of VTCM: SM8650 has 8 MB"),
        (GraphConfig(vtcm_mb=-1), Power(), "not below 0"),
        (GraphConfig(vtcm_size=1 << 20), Power(), "vtcm_size needs v81"),
        (GraphConfig(num_hvx_threads=99), Power(), "hvx_threads 99: SM8650 has"),
        (GraphConfig(optimization=4), Power(), "is not a level"),
    ],
)
def test_a_chip_refuses_what_it_has_not(config: GraphConfig, power: Power, words: str) -> None:
    with pytest.raises(CallError, match=words):
        simulate.simulate(graph(), COSTS, W8A8, "qnn_dlc", config, power)


def test_hmx_votes_need_v75_and_slow_only_the_matrix_unit() -> None:
    slow = timed(graph(), "w8a8", power=Power(hmx_corner=Corner.SVS))
    assert slow.rows[0].hmx_us > timed(graph(), "w8a8").rows[0].hmx_us
    assert slow.rows[-1].hvx_us == timed(graph(), "w8a8").rows[-1].hvx_us
    old = soc.find_chip("SM8550")
    assert old is not None
    with pytest.raises(CallError, match="needs v75"):
        simulate.simulate(graph(), cost.costs(old), W8A8, power=Power(hmx_corner=Corner.NOM))


@pytest.mark.feature("Context binary size", guide="2643-2652")
def test_a_context_has_its_weights_and_40_bytes_for_each_piece() -> None:
    one, larger = (simulate.simulate(graph(size), COSTS, W8A8) for size in (56, 448))
    records = [timeline.context_bytes - timeline.weight_bytes for timeline in (one, larger)]
    assert [count % 40 for count in records] == [0, 0]
    assert records[1] > 20 * records[0]  # 64 times the pixels are cut into more pieces


def test_what_no_tiling_makes_fit_is_named() -> None:
    made = Graph("rows")
    x = made.value("x", TensorType(DType.FLOAT32, (1, 4, 3 << 20)), Role.APP_WRITE)
    net = ends(made, made.node("Softmax", [x], axis=2, name="soft").outputs[0])
    with pytest.raises(CapacityError, match=r"node soft \(Softmax\).*12.00 MB of tensor 'x'.*vtcm_mb 12 would fit"):
        estimate(net, Deployment("SM8650", "w8a16"))
    made = Graph("huge")
    x = made.value("x", TensorType(DType.FLOAT32, (1, 1 << 16, 1 << 15)), Role.APP_WRITE)
    net = ends(made, made.node("Relu", [x]).outputs[0])
    with pytest.raises(CapacityError, match=r"tensor 'x' .* takes 4.00 GB, a session holds 3.75 GB"):
        estimate(net, Deployment("SM8650", "w8a16"))


def test_a_batch_that_no_session_holds_is_refused() -> None:
    assert estimate(graph(), Deployment("SM8650", "w8a8"), batch=8).latency_ms > 0
    with pytest.raises(CapacityError, match=r"takes .* for a batch of 1000000, a session holds 3.75 GB"):
        estimate(graph(), Deployment("SM8650", "w8a8"), batch=1000000)


def test_a_compiled_program_is_estimated_as_its_graph() -> None:
    program = HtpBackend().compile(graph())
    assert estimate(program, "SM8650").latency_ms == pytest.approx(estimate(graph(), "SM8650").latency_ms)


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
        if p.name in found["off"]:
            assert found["parameters"][p.name] == p.off
        else:
            assert p.bounds[0] < found["parameters"][p.name] < p.bounds[1]
    for name, factors in found["chips"].items():
        assert soc.find_chip(name) is not None
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


@pytest.mark.parametrize(("size", "channels"), [(1, 4), (8, 16), (16, 32), (16, 64), (24, 96), (56, 64)])
def test_what_fits_the_least_of_vtcm_needs_no_more(size: int, channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = simulate.simulate(graph(size, channels), COSTS, W8A8)
    monkeypatch.setattr(TaskSequence, "fits", lambda tasks, vtcm_bytes: False)
    assert simulate.simulate(graph(size, channels), COSTS, W8A8) == quick


@pytest.mark.feature("Spill-fill size in the binary's JSON", guide="253-259")
def test_what_fits_vtcm_is_not_moved_out_of_it_where_that_would_gain_no_time() -> None:
    # on v81 parts of a MB can be asked for, so they are tried, too: they are as fast, and must not win by being first
    net = graph(96, 64, layers=6)
    lines = {
        name: simulate.simulate(net, cost.costs(soc.require_chip(name)), W8A8)
        for name in ("SM8550", "SM8750", "SM8850")
    }
    assert {line.spill_fill_bytes for line in lines.values()} == {0}
    assert len({line.dram_bytes for line in lines.values()}) == 1
    v81 = cost.costs(soc.require_chip("SM8850"))
    moved = [
        simulate.simulate(net, v81, W8A8, config=GraphConfig(vtcm_size=size)).spill_fill_bytes
        for size in (1 << 18, 1 << 19, 1 << 20, 1 << 21, 8 << 20)
    ]
    assert moved == sorted(moved, reverse=True)
    assert moved[0] > 0 == moved[-1]


def test_chips_share_the_tasks_of_a_graph_and_give_the_same_times(monkeypatch: pytest.MonkeyPatch) -> None:
    net = graph(56, 64)
    shared = SharedWork(net)
    clocks = [Clock(chip, GraphConfig(), Power()) for chip in soc.SOCS]
    alone = [clock.timing(net, "w8a8", "onnx", batch) for clock in clocks for batch in (1, 3)]
    made: list[int] = []
    monkeypatch.setattr(simulate, "schedule", lambda *given: made.append(given[3]) or schedule(*given))
    again = [clock.timing(net, "w8a8", "onnx", batch, shared) for clock in clocks for batch in (1, 3)]
    assert again == alone
    assert sorted(made) == sorted({chip.vtcm_mb << 20 for chip in soc.SOCS})  # once for each amount of VTCM


def test_a_chip_without_float_names_what_is_float_and_never_advises_what_was_asked_for() -> None:
    v68 = Clock(soc.require_chip("QCS6490"), GraphConfig(), Power())
    assert v68.timing(graph(), "w8a8", "qnn_dlc").timeline.latency_us > 0
    with pytest.raises(UnsupportedError, match="choose precision w8a8 or w8a16 instead of float, or another chip"):
        v68.timing(graph(), "float", "qnn_dlc")
    made = graph(layers=1)  # in its own encodings, whatever precision the model was promised at
    with pytest.raises(UnsupportedError, match=r"'conv0', 'relu0', 'add' compute in float: quantize them") as refused:
        v68.timing(made, "as-is", "qnn_dlc")
    assert "choose precision" not in str(refused.value)
