# SPDX-License-Identifier: Apache-2.0
"""Calibration: every float tensor seen, in bounded parts, and runs that are interrupted lose nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from hexforge.errors import CallError, ModelError
from hexforge.quant.data import calibrate as module
from hexforge.quant.data.calibrate import calibrate, model_sha256
from hexforge.quant.data.calibration_parts import CalibrationPart, split
from hexforge.quant.data.observe import Statistics
from tests import ROOT

Array = np.ndarray[Any, Any]
Sample = dict[str, Array]


def model(nodes: list[onnx.NodeProto], shape: list[int], outputs: list[str], **constants: Array) -> onnx_ir.Model:
    """A model of one float input x, with inferred types."""
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx_ir.from_proto(onnx.shape_inference.infer_shapes(proto, data_prop=True))


def network(seed: int = 0) -> onnx_ir.Model:
    """Convolutions with a branch, a move and an output that another node reads."""
    random = np.random.default_rng(seed)
    nodes = [
        helper.make_node("Concat", ["x", "x", "x", "x"], ["x4"], axis=1),
        helper.make_node("Conv", ["x", "w"], ["conv"], kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node("Relu", ["conv"], ["relu"]),
        helper.make_node("Add", ["relu", "x4"], ["sum"]),
        helper.make_node("Reshape", ["sum", "size"], ["flat"]),
        helper.make_node("MatMul", ["flat", "m"], ["y"]),
        helper.make_node("ArgMax", ["flat"], ["best"], axis=1),
    ]
    return model(
        nodes, [1, 1, 8, 8], ["y", "best"], w=random.standard_normal((4, 1, 3, 3)).astype(np.float32),
        m=random.standard_normal((256, 70)).astype(np.float32), size=np.array([1, 256]),
    )  # fmt: skip


def samples(count: int, shape: tuple[int, ...] = (1, 1, 8, 8), seed: int = 0) -> list[Sample]:
    """Random samples of x."""
    random = np.random.default_rng(seed)
    return [{"x": random.standard_normal(shape).astype(np.float32)} for _ in range(count)]


def tensors_of(found: onnx_ir.Model, data: list[Sample], names: list[str]) -> dict[str, list[Array]]:
    """What tensors hold, by another way: all as outputs of one session."""
    proto = onnx_ir.to_proto(found)
    del proto.graph.output[:]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    runs = [session.run(names, feeds) for feeds in data]
    return {name: [run[i] for run in runs] for i, name in enumerate(names)}


def arrays(found: Statistics) -> dict[str, bytes]:
    """Everything in statistics, to compare bit by bit."""
    return {
        f"{name}.{key}": array.tobytes() for name, tensor in found.items() for key, array in tensor.to_arrays().items()
    } | {"about": f"{found.model_sha256} {found.data_sha256} {found.samples}".encode()}


@pytest.mark.parametrize("part_bytes", [1 << 30, 1])
def test_every_float_tensor_is_seen(part_bytes: int) -> None:
    subject, data = network(), samples(5)
    found = calibrate(subject, data, part_bytes=part_bytes)
    assert sorted(found) == ["conv", "flat", "relu", "sum", "x", "x4", "y"]
    assert found.samples == 5
    assert len(split(subject, set(found), part_bytes)) == (1 if part_bytes > 1 else 6)
    expected = tensors_of(subject, data, ["conv", "flat", "relu", "sum", "x4", "y"])
    for name, values in expected.items():
        tensor, stacked = found[name], np.stack(values)
        assert tensor.count == stacked.size
        assert tensor.zeros == pytest.approx((stacked == 0).sum(), abs=2)
        near = pytest.approx((stacked.min(), stacked.max()), rel=1e-5, abs=1e-6)
        assert (tensor.minimum, tensor.maximum) == near
        own = [v.min() for v in values], [v.max() for v in values]
        assert tensor.average == pytest.approx(tuple(map(np.mean, own)), rel=1e-5, abs=1e-6)
        counts, edges = tensor.histogram()
        assert np.abs(counts - np.histogram(stacked, edges)[0]).sum() <= 4  # a value may lie on the edge of a bin


def test_only_what_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    subject, data = network(), samples(2)
    found = calibrate(subject, data, tensors=["flat", "relu"], histogram=False)
    assert sorted(found) == ["flat", "relu"]
    assert found["flat"].counts is None
    whole = calibrate(subject, data)
    assert found["flat"].maximum == whole["sum"].maximum
    ran = [n.op_type for part in split(subject, {"relu"}) for n in part.nodes]
    assert ran == ["Conv", "Relu"]
    with pytest.raises(CallError, match="no float tensor 'best'"):
        calibrate(subject, data, tensors=["best"])


def test_channels() -> None:
    subject, data = network(), samples(3)
    found = calibrate(subject, data, channel_axis=1)
    stacked = np.stack(tensors_of(subject, data, ["conv"])["conv"])
    assert found["conv"].channel_maximum == pytest.approx(stacked.max((0, 1, 3, 4)), rel=1e-5)
    # A moved tensor has other channels.
    assert found["flat"].channel_maximum is not None
    assert len(found["flat"].channel_maximum) == 256


def test_bodies_sequences_and_open_shapes() -> None:
    """Values that bodies take from outside cross parts; sequences do not, and what has no fixed shape is seen too."""
    body = helper.make_graph(
        [helper.make_node("Mul", ["double", "double"], ["inner"])], "then", [], [onnx.ValueInfoProto(name="inner")]
    )
    other = helper.make_graph(
        [helper.make_node("Identity", ["double"], ["outer"])], "else", [], [onnx.ValueInfoProto(name="outer")]
    )
    nodes = [
        helper.make_node("Add", ["x", "x"], ["double"]),
        helper.make_node("ReduceSum", ["x"], ["total"], keepdims=0),
        helper.make_node("Greater", ["total", "zero"], ["positive"]),
        helper.make_node("If", ["positive"], ["chosen"], then_branch=body, else_branch=other),
        helper.make_node("SplitToSequence", ["chosen"], ["parts"], axis=0),
        helper.make_node("Sin", ["chosen"], ["sine"]),
        helper.make_node("SequenceAt", ["parts", "first"], ["row"]),
        helper.make_node("NonZero", ["x"], ["where"]),
        helper.make_node("Cast", ["where"], ["places"], to=TensorProto.FLOAT),
    ]
    subject = model(nodes, [3, 4], ["row", "places", "sine"], zero=np.array(0, np.float32), first=np.array(0, np.int64))
    subject.graph.outputs[0].type = onnx_ir.TensorType(onnx_ir.DataType.FLOAT)
    data = samples(4, (3, 4))
    found = calibrate(subject, data, part_bytes=1)
    parts = split(subject, set(found), 1)
    assert [[n.op_type for n in part.nodes] for part in parts if len(part.nodes) > 1] == [
        ["SplitToSequence", "Sin", "SequenceAt"]
    ]
    expected = tensors_of(subject, data, ["chosen", "row", "places", "sine"])
    for name, values in expected.items():
        assert found[name].maximum == pytest.approx(max(v.max() for v in values), rel=1e-5)
        assert found[name].count == sum(v.size for v in values)


def test_values_are_dropped_when_no_later_part_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 0
    run = CalibrationPart.run

    def watching(self: CalibrationPart, values: dict[str, Array]) -> list[Array]:
        nonlocal most
        most = max(most, len(values))
        return run(self, values)

    monkeypatch.setattr(CalibrationPart, "run", watching)
    chain = [helper.make_node("Sin", ["x" if i == 0 else f"v{i - 1}"], [f"v{i}"]) for i in range(20)]
    calibrate(model(chain, [4], ["v19"]), samples(2, (4,)), part_bytes=1)
    assert most == 1


@pytest.mark.parametrize("type", [TensorProto.FLOAT16, TensorProto.DOUBLE])
def test_other_floats(type: int) -> None:
    nodes = [helper.make_node("Cast", ["x"], ["c"], to=type), helper.make_node("Sqrt", ["c"], ["y"])]
    found = calibrate(model(nodes, [4], ["y"]), [{"x": np.array([4, 9, 1, 0.25], np.float32)}])
    assert (found["y"].minimum, found["y"].maximum, found["y"].count) == (0.5, 3.0, 4)


def test_infinite_activations_are_counted_apart() -> None:
    subject = model([helper.make_node("Log", ["x"], ["y"])], [4], ["y"])
    found = calibrate(subject, [{"x": np.array([0, 1, -1, 1], np.float32)}])["y"]
    assert (found.count, found.nonfinite, found.minimum, found.maximum) == (2, 2, 0.0, 0.0)


# -- interrupted ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [1, 3, 6])
def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path, at: int) -> None:
    subject, data, state = network(), samples(7), tmp_path / "state.npz"

    def interrupt(done: int, total: int) -> None:
        assert total == 7
        if done == at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        calibrate(subject, data, state=state, progress=interrupt)
    assert Statistics.load(state).samples == at
    done: list[int] = []
    found = calibrate(subject, data, state=state, progress=lambda n, _: done.append(n))
    assert done == list(range(at, 8))
    assert arrays(found) == arrays(calibrate(subject, data))
    assert arrays(Statistics.load(state)) == arrays(found)


def test_a_sample_that_was_half_seen_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subject, data, state = network(), samples(4), tmp_path / "state.npz"
    calibrate(subject, data[:2], state=state)
    run, calls = CalibrationPart.run, 0

    def failing(self: CalibrationPart, values: dict[str, Array]) -> list[Array]:
        nonlocal calls
        calls += 1
        if calls > 10:  # in the midst of sample 3
            raise KeyboardInterrupt
        return run(self, values)

    monkeypatch.setattr(CalibrationPart, "run", failing)
    with pytest.raises(KeyboardInterrupt):
        calibrate(subject, data, state=state, part_bytes=1)
    assert Statistics.load(state).samples == 2
    monkeypatch.undo()
    assert arrays(calibrate(subject, data, state=state)) == arrays(calibrate(subject, data))


_KILLED = """
import sys
from hexforge.quant.data import calibrate as module
from tests.quant.data.test_calibrate import network, samples
module.SAVE_SECONDS = 0.0
def said(done, total):
    print(done, flush=True)
    if done == 4:
        sys.stdin.readline()
module.calibrate(network(), samples(9), state=module.Path(sys.argv[1]), progress=said)
"""


def test_a_sample_is_taken_in_whole_before_a_run_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, state, take, taken = samples(4), tmp_path / "s.npz", module.SampleRun.take, []

    def stopped(run: Any, feeds: Any) -> None:
        taken.append(feeds)
        if len(taken) == 2:
            signal.raise_signal(signal.SIGINT)
        take(run, feeds)

    monkeypatch.setattr(module.SampleRun, "take", stopped)
    with pytest.raises(KeyboardInterrupt):
        calibrate(network(), data, state=state)
    assert Statistics.load(state).samples == 2
    found = calibrate(network(), data, state=state)
    assert len(taken) == 4
    assert arrays(found) == arrays(calibrate(network(), data))


def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    state = tmp_path / "state.npz"
    child = subprocess.Popen(
        [sys.executable, "-c", _KILLED, str(state)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd=ROOT,
    )  # fmt: skip
    assert child.stdout is not None
    while child.stdout.readline().strip() != "4":
        assert child.poll() is None
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    assert Statistics.load(state).samples == 4
    found = calibrate(network(), samples(9), state=state)
    assert arrays(found) == arrays(calibrate(network(), samples(9)))
    assert [p.name for p in tmp_path.iterdir()] == ["state.npz"]


def test_a_finished_run_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "state.npz"
    first = calibrate(network(), samples(3), state=state)
    monkeypatch.setattr(CalibrationPart, "run", lambda *_: pytest.fail("ran"))
    written = state.stat().st_mtime_ns
    assert arrays(calibrate(network(), samples(3), state=state)) == arrays(first)
    assert state.stat().st_mtime_ns == written


def test_more_samples_are_added(tmp_path: Path) -> None:
    state = tmp_path / "state.npz"
    calibrate(network(), samples(5)[:3], state=state)
    assert arrays(calibrate(network(), samples(5), state=state)) == arrays(calibrate(network(), samples(5)))


def test_a_state_belongs_to_its_model_data_and_tensors(tmp_path: Path) -> None:
    state = tmp_path / "state.npz"
    calibrate(network(), samples(3), state=state)
    before = state.read_bytes()
    with pytest.raises(CallError, match="another model"):
        calibrate(network(seed=1), samples(3), state=state)
    with pytest.raises(CallError, match="other data"):
        calibrate(network(), samples(5, seed=1), state=state)
    with pytest.raises(CallError, match="3 samples, and now there are 2"):
        calibrate(network(), samples(2), state=state)
    with pytest.raises(CallError, match="other tensors"):
        calibrate(network(), samples(3), state=state, tensors=["x"])
    with pytest.raises(CallError, match="other tensors or statistics"):
        calibrate(network(), samples(3), state=state, histogram=False)
    assert state.read_bytes() == before


def test_the_state_is_written_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAVE_SECONDS", 1000.0)
    state, saved = tmp_path / "state.npz", []
    clock = iter(range(0, 100_000, 400))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(Statistics, "save", lambda self, path: saved.append(self.samples))
    calibrate(network(), samples(8), state=state)
    assert 2 <= len(saved) < 8
    assert saved[-1] == 8


def test_the_hash_is_of_what_a_model_computes() -> None:
    assert model_sha256(network()) == model_sha256(network())
    other = network()
    weight = other.graph.initializers["w"]
    assert weight.const_value is not None
    weight.const_value = onnx_ir.tensor(weight.const_value.numpy() * np.float32(1.001))
    assert model_sha256(other) != model_sha256(network())


def test_no_samples() -> None:
    with pytest.raises(CallError, match="at least one sample"):
        calibrate(network(), [])


def test_a_model_that_cannot_run() -> None:
    strange = model([helper.make_node("Sin", ["x"], ["y"])], [4], ["y"])
    strange.graph[0].domain = "nobody"
    strange.opset_imports["nobody"] = 1
    with pytest.raises(ModelError, match="onnxruntime cannot load"):
        calibrate(strange, samples(1, (4,)))
    gather = model([helper.make_node("Gather", ["x", "far"], ["y"])], [4], ["y"], far=np.array([9]))
    with pytest.raises(ModelError, match="onnxruntime cannot"):
        calibrate(gather, samples(1, (4,)))


def test_an_error_in_the_data_keeps_what_was_seen(tmp_path: Path) -> None:
    class Failing(list[Sample]):
        def __iter__(self) -> Iterator[Sample]:
            yield from self[:2]
            raise CallError("file 2 is broken")

    state = tmp_path / "state.npz"
    with pytest.raises(CallError, match="broken"):
        calibrate(network(), Failing(samples(3)), state=state)
    assert Statistics.load(state).samples == 2


@pytest.mark.parametrize("together", [1, 3, 100])
@pytest.mark.parametrize("axis", [None, 1])
def test_what_others_have_seen_adds_up_to_the_same_bits(
    together: int, axis: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(5)
    data = [{"x": (random.standard_normal((1, 1, 8, 8)) * 3.0**i).astype(np.float32)} for i in range(7)]
    alone = calibrate(network(), data, channel_axis=axis)
    monkeypatch.setattr(module, "_TOGETHER", together)
    works = 0

    def spread(make: Any, arguments: Any, tasks: Any) -> Iterator[Any]:
        nonlocal works
        function = make(*arguments)
        for task in list(tasks):
            works += len(task)
            yield function(task)

    apart = calibrate(network(), data, channel_axis=axis, task_map=spread)
    state = tmp_path / "state.npz"
    calibrate(network(), data[:4], channel_axis=axis, state=state)
    works = 0
    resumed = calibrate(network(), data, channel_axis=axis, state=state, task_map=spread)
    assert works == 3
    for statistics in (apart, resumed, Statistics.load(state)):
        assert (statistics.data_sha256, statistics.samples) == (alone.data_sha256, 7)
        for name, tensor in alone.items():
            for key, array in tensor.to_arrays().items():
                assert np.array_equal(array, statistics[name].to_arrays()[key]), (name, key)
    with pytest.raises(CallError, match="made with other data"):
        calibrate(network(), data[::-1], channel_axis=axis, state=state, task_map=spread)
    with pytest.raises(CallError, match="made with 7 samples, and now there are 6"):
        calibrate(network(), data[:6], channel_axis=axis, state=state, task_map=spread)
