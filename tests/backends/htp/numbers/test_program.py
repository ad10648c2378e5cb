# SPDX-License-Identifier: Apache-2.0
"""The htp backend at run time: threads, several sessions, memory. What it computes is tested elsewhere."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import hexforge
from benchmarks.htp import memory
from hexforge.backends.htp.numbers.program import HtpProgram
from tests.models.quantize import quantized

Array = np.ndarray[Any, Any]

VARIANTS = ("a8w8", "a16w8", "float")
SHAPE = (1, 3, 48, 48)


class _Net:
    """Writes a model node by node."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(0)

    def weight(self, *shape: int) -> str:
        name = f"w{len(self.weights)}"
        array = self.random.standard_normal(shape, np.float32) / np.array(max(1, np.prod(shape[1:])), np.float32) ** 0.5
        self.weights.append(numpy_helper.from_array(array.astype(np.float32), name))
        return name

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [f"{name}_out"], name=name, **attributes))
        return f"{name}_out"

    def conv(self, x: str, before: int, after: int, kernel: int, **attributes: Any) -> str:
        weight = self.weight(after, before // attributes.get("group", 1), kernel, kernel)
        return self.node("Conv", x, weight, self.weight(after), pads=[kernel // 2] * 4, **attributes)

    def save(self, path: Path, shape: Sequence[int], result: str, result_shape: Sequence[int]) -> None:
        self.nodes.append(helper.make_node("Identity", [result], ["y"], name="y"))
        graph = helper.make_graph(
            self.nodes,
            "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, result_shape)],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        path.write_bytes(model.SerializeToString())


def _mixed(path: Path) -> None:
    """Convolutions dense and depthwise, a residual sum, a concat, tables, pools, a product, a softmax."""
    net = _Net()
    x = net.node("Relu", net.conv("x", 3, 24, 3))
    y = net.conv(x, 24, 24, 3, group=24)
    gated = net.node("Mul", y, net.node("Sigmoid", y))
    x = net.node("Relu", net.node("Add", x, net.conv(gated, 24, 24, 1)))
    x = net.node("Concat", x, net.conv(x, 24, 40, 3), axis=1)
    x = net.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.node("Flatten", net.node("GlobalAveragePool", net.conv(x, 64, 64, 3)), axis=1)
    x = net.node("Softmax", net.node("Gemm", x, net.weight(100, 64), net.weight(100), transB=1), axis=-1)
    net.save(path, SHAPE, x, (1, 100))


def feeds(seed: int) -> dict[str, Array]:
    """An input of the mixed net."""
    return {"x": np.random.default_rng(seed).random(SHAPE, np.float32)}


def session(path: Path, threads: int = 0) -> hexforge.InferenceSession:
    """The model on the htp backend."""
    options = hexforge.SessionOptions()
    options.intra_op_num_threads = threads
    qnn = {"backend_type": "htp", "offload_graph_io_quantization": "0"}
    return hexforge.InferenceSession(str(path), options, providers=[("QNNExecutionProvider", qnn)])


def programs(of: hexforge.InferenceSession) -> list[HtpProgram]:
    """Its compiled graphs."""
    return [stage.runner for stage in of.stages if isinstance(stage.runner, HtpProgram)]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The file of the mixed net in a variant."""
    folder = tmp_path_factory.mktemp("htp")
    _mixed(folder / "float.onnx")

    def find(variant: str) -> Path:
        target = folder / f"{variant}.onnx"
        if not target.exists():
            quantized(folder / "float.onnx", target, variant, [feeds(seed) for seed in (100, 101)])
        return target

    return find


def bits(results: Sequence[Array]) -> list[bytes]:
    """Results as bytes: equal only if every bit is."""
    return [np.ascontiguousarray(r).tobytes() for r in results]


def together(work: Sequence[Callable[[], None]]) -> None:
    """Start all at the same moment, each in a thread; what one raises is raised here."""
    barrier = threading.Barrier(len(work))

    def begin(one: Callable[[], None]) -> None:
        barrier.wait()
        one()

    with ThreadPoolExecutor(len(work)) as pool:
        for done in [pool.submit(begin, one) for one in work]:
            done.result()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("threads", [1, 2])
def test_eight_threads_on_one_session_give_the_bits_of_one(
    variant: str, threads: int, path: Callable[[str], Path]
) -> None:
    shared = session(path(variant), threads)
    expected = [bits(shared.run(None, feeds(i))) for i in range(8)]
    assert len({b for row in expected for b in row}) == 8, "the inputs must give different results"

    def work(i: int) -> Callable[[], None]:
        def run() -> None:
            for turn in range(8):
                number = (i + turn) % 8
                assert bits(shared.run(None, feeds(number))) == expected[number]

        return run

    together([work(i) for i in range(8)])


@pytest.mark.parametrize("variant", VARIANTS)
def test_results_do_not_depend_on_the_number_of_threads(variant: str, path: Callable[[str], Path]) -> None:
    alone = session(path(variant), 1)
    for threads in (2, 3, 5):
        several = session(path(variant), threads)
        for seed in range(4):
            assert bits(several.run(None, feeds(seed))) == bits(alone.run(None, feeds(seed)))


def test_results_do_not_change_from_run_to_run(path: Callable[[str], Path]) -> None:
    first, second = session(path("a8w8")), session(path("a8w8"))
    expected = bits(first.run(None, feeds(0)))
    for one in (first, second):
        for _ in range(20):
            assert bits(one.run(None, feeds(0))) == expected


def test_two_sessions_at_once(path: Callable[[str], Path]) -> None:
    sessions = [session(path(variant), 2) for variant in ("a8w8", "a16w8")]
    expected = [bits(one.run(None, feeds(3))) for one in sessions]

    def work(i: int) -> Callable[[], None]:
        def run() -> None:
            for _ in range(30):
                assert bits(sessions[i].run(None, feeds(3))) == expected[i]

        return run

    together([work(0), work(1)])


def test_threads_come_from_the_session_options(path: Callable[[str], Path]) -> None:
    assert {p.running.threads for p in programs(session(path("a8w8"), 3))} == {3}
    for default in (0, -1):
        by_default = {p.running.threads for p in programs(session(path("a8w8"), default))}
        assert len(by_default) == 1
        assert by_default.pop() >= 1


def _resident_bytes() -> int:
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * 4096


linux = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")


def _tiny(path: Path) -> None:
    net = _Net()
    net.save(path, (1, 3, 8, 8), net.node("Relu", net.conv("x", 3, 8, 3)), (1, 8, 8, 8))


@linux
@pytest.mark.parametrize("variant", ["a8w8", "float"])
@pytest.mark.parametrize("threads", [1, 2])
def test_ten_thousand_runs_leak_nothing(variant: str, threads: int, tmp_path: Path) -> None:
    _tiny(tmp_path / "float.onnx")
    given: Mapping[str, Array] = {"x": np.random.default_rng(0).random((1, 3, 8, 8), np.float32)}
    if variant != "float":
        quantized(tmp_path / "float.onnx", tmp_path / f"{variant}.onnx", variant, [given])
    tiny = session(tmp_path / f"{variant}.onnx", threads)

    def growth(runs: int) -> int:
        before = _resident_bytes()
        for _ in range(runs):
            tiny.run(None, given)
        gc.collect()
        return _resident_bytes() - before

    growth(1000)
    # One leaked output array per run would be 20 MB, one leaked Python object 0.5 MB, in every ten thousand runs; what
    # the allocator takes in one of them and keeps is no leak.
    assert any(growth(10_000) < 400_000 for _ in range(3))


def test_a_dropped_session_frees_its_program(path: Callable[[str], Path]) -> None:
    one = session(path("a8w8"))
    one.run(None, feeds(0))
    kept = [weakref.ref(program) for program in programs(one)]
    assert kept
    del one
    gc.collect()
    assert [ref() for ref in kept] == [None] * len(kept)


@linux
def test_memory_of_a_deep_model(tmp_path: Path) -> None:
    """Twenty layers of 400 kB at 8 bits: tensors share an arena, and weights are not kept many times over."""
    net = _Net()
    x = net.conv("x", 3, 64, 1)
    for _ in range(20):
        x = net.node("Relu", net.conv(x, 64, 64, 3))
    shape = (1, 3, 80, 80)
    net.save(tmp_path / "float.onnx", shape, x, (1, 64, 80, 80))
    quantized(tmp_path / "float.onnx", tmp_path / "deep.onnx", "a8w8", [{"x": np.ones(shape, np.float32)}])
    (program,) = programs(session(tmp_path / "deep.onnx", 1))
    layer = 64 * 80 * 80
    assert program.facts.arena_bytes <= 3.5 * layer + 4 * 3 * 80 * 80
    figures = memory.measure(tmp_path / "deep.onnx")
    assert figures["peak of running"] - figures["imports"] < 30
