# SPDX-License-Identifier: Apache-2.0
"""What QNN's GPU has and the gpu backend takes: Lstm, RoiAlign, Dequantize, filters in groups; and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("pyopencl")

import hexforge
from hexforge.addons.gpu.backend import GpuBackend
from hexforge.addons.gpu.config import GpuConfig
from hexforge.addons.gpu.qnn_ops import EXCLUDED, SOURCES
from hexforge.addons.gpu.support import KNOWN, RULES, GpuNode, unsupported
from hexforge.ir import DType, Graph, Node, Role, ScaleOffset, TensorType, Value
from hexforge.ir.op import known_names, lookup
from tests.addons.gpu.test_kernels import agree, floats, given, out, read, weight

pytestmark = pytest.mark.gpu


def lstm(
    g: Graph, rng: np.random.Generator, *, gates: str = "ifco", units: int = 12, size: int = 0, computed: bool = False,
    peepholes: bool = False, states: bool = False, reset: bool = False, **params: float,
) -> None:  # fmt: skip
    """An Lstm over 3 sequences of 5 steps: weights constant or computed, with or without what is optional."""
    batch, time, features, width = 3, 5, 7, size or units
    x = given(g, *((time, batch) if params.get("time_major") else (batch, time)), features)

    def matrix(*shape: int) -> Value:
        return out(g, "Tanh", [given(g, *shape)]) if computed else weight(g, rng, *shape)

    inputs: dict[str, Value] = {"in": x}
    for gate in gates:
        inputs |= {f"W_x{gate}": matrix(units, features), f"W_h{gate}": matrix(units, width)}
        inputs |= {f"b_{gate}": matrix(units)}
    if peepholes:
        inputs |= {f"W_c{gate}": weight(g, rng, units) for gate in "ifo"}
    if states:
        inputs |= {"h0": given(g, batch, width), "c0": given(g, batch, units)}
    if reset:
        inputs |= {"reset": given(g, batch, time)}
    if size:
        inputs |= {"W_proj": weight(g, rng, size, units), "b_proj": weight(g, rng, size)}
    names = [name.rstrip("?") for name in lookup("Lstm").inputs]
    for value in g.node("Lstm", [inputs.get(name) for name in names], **params).outputs:  # type: ignore[arg-type]
        read(g, value)


LSTMS = {
    "plain": {},
    "reverse": {"direction": 1, "time_major": True, "states": True},
    "coupled": {"gates": "fco", "states": True},
    "peepholes": {"peepholes": True, "cell_clip_threshold": 0.2},
    "computed": {"computed": True, "units": 9},
    "projected": {"size": 5, "output_clip_threshold": 0.1, "states": True},
}


@pytest.mark.parametrize("is_processor", [True, False])
@pytest.mark.parametrize("kind", LSTMS)
def test_lstm(kind: str, is_processor: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hexforge.addons.gpu.device.ClDevice.is_processor", property(lambda self: is_processor))
    agree(lambda g, rng: lstm(g, rng, **LSTMS[kind]))  # type: ignore[arg-type]


@pytest.mark.parametrize("precision", ["fp16", "hybrid"])
def test_lstm_in_half(precision: str) -> None:
    agree(lambda g, rng: lstm(g, rng, states=True), GpuConfig(gpu_precision=precision), tolerance=4e-3)


def test_roi_align() -> None:
    def make(g: Graph, rng: np.random.Generator) -> None:
        x = given(g, 2, 9, 8, 5)
        corners = rng.random((6, 4)).astype(np.float32) * 12 - 2
        corners[:, 2:] = corners[:, :2] + rng.random((6, 2)).astype(np.float32) * 9
        rois, batch = g.static(corners), g.static(rng.integers(0, 2, 6).astype(np.int32))
        for samples, aligned in ((0, False), (2, True), (3, False), (0, True)):
            y = g.value(g.unique("r"), floats(6, 3, 4, 5))
            g.node(
                "RoiAlign", [x, rois, batch], [y], img_size_ratio=(2.0, 1.5), num_samples_x=samples,
                num_samples_y=samples, aligned=aligned,
            )  # fmt: skip
            read(g, out(g, "Relu", [y]))

    agree(make)


def test_regions_of_a_picture_that_is_not_there_are_said() -> None:
    g = Graph("g")
    x = given(g, 1, 4, 4, 2)
    batch = g.value("batch", TensorType(DType.INT32, (1,)), Role.APP_WRITE)
    y = g.value("y", floats(1, 2, 2, 2), Role.APP_READ)
    rois = g.static(np.asarray([[0, 0, 3, 3]], np.float32))
    g.node("RoiAlign", [x, rois, batch], [y], img_size_ratio=(1.0, 1.0))
    program = GpuBackend().compile(g)
    feeds = {x.name: np.ones((1, 4, 4, 2), np.float32)}
    assert program.run({**feeds, "batch": np.zeros(1, np.int32)})["y"].shape == (1, 2, 2, 2)
    for wrong in (1, -1):
        with pytest.raises(hexforge.CallError, match="RoiAlign"):
            program.run({**feeds, "batch": np.full(1, wrong, np.int32)})


@pytest.mark.parametrize("dtype", [DType.UINT8, DType.INT8, DType.UINT4])
def test_dequantize(dtype: DType) -> None:
    encoding = ScaleOffset(0.037, 3 if dtype is DType.INT8 else -7)
    g = Graph("g")
    x = g.value("x", TensorType(dtype, (3, 10), encoding), Role.APP_WRITE)
    real = g.value("real", floats(3, 10))
    g.node("Dequantize", [x], [real])
    g.node("Relu", [real], [g.value("y", floats(3, 10), Role.APP_READ)])
    assert all(GpuBackend().unsupported(node) is None for node in g.nodes)
    low, high = dtype.range
    numbers = np.random.default_rng(0).integers(low, high + 1, (3, 10))
    made = GpuBackend().compile(g).run({"x": numbers.astype(dtype.numpy)})["y"]
    np.testing.assert_allclose(made, np.maximum((numbers + encoding.offset) * encoding.scale, 0), rtol=1e-6)


@pytest.mark.parametrize("is_processor", [True, False])
def test_a_computed_filter_in_groups(is_processor: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hexforge.addons.gpu.device.ClDevice.is_processor", property(lambda self: is_processor))

    def make(g: Graph, rng: np.random.Generator) -> None:
        x, w = given(g, 2, 5, 6, 12), out(g, "Tanh", [given(g, 3, 2, 12, 5)])
        params = {"stride": (2, 1), "pad_amount": ((1, 0), (0, 1)), "group": 3}
        read(g, out(g, "Relu", [out(g, "TransposeConv2d", [x, w, weight(g, rng, 15)], **params)]))

    agree(make)


def test_every_op_is_taken_or_refused_by_what_qnn_has() -> None:
    assert set(SOURCES) <= known_names()
    assert set(SOURCES) <= KNOWN, "QNN's GPU has it, and no kernel is written"
    assert not set(SOURCES) & set(EXCLUDED)
    g = Graph("g")
    x = g.value("x", TensorType(DType.FLOAT32, (4, 6)), Role.APP_WRITE)
    for name in ("ElementWiseAtan", "ElementWiseMod", "IsNan"):
        node = g.node(name, [x, x] if name == "ElementWiseMod" else [x])
        assert f"QNN's GPU has no {name}; gpu_ops=any runs it here" in str(GpuBackend().unsupported(node))
        assert GpuBackend(GpuConfig(gpu_ops="any")).unsupported(node) is None
    square = g.value("square", TensorType(DType.FLOAT32, (6, 6)), Role.APP_WRITE)
    reason = GpuBackend(GpuConfig(gpu_ops="any")).unsupported(g.node("Inverse", [square]))
    assert reason == "QNN's GPU has no Inverse; it runs on the CPU"


def broken() -> dict[str, Node]:
    """A node that breaks each rule but those for ops that QNN's GPU has not, by how the rule's reason begins."""
    g = Graph("g")

    def value(dtype: DType, *shape: int, encoding: ScaleOffset | None = None) -> Value:
        return g.value(g.unique("t"), TensorType(dtype, shape, encoding), Role.APP_WRITE)

    floats, ints = value(DType.FLOAT32, 4, 6), value(DType.INT32, 4, 6)
    pictures = value(DType.INT32, 1, 4, 4, 2)
    volume, points = value(DType.FLOAT32, 1, 4, 4, 4, 2), value(DType.FLOAT32, 1, 3, 3, 3, 3)
    reset, large = Graph("reset"), Graph("large")
    lstm(reset, np.random.default_rng(0), reset=True)
    lstm(large, np.random.default_rng(0), units=4096)
    doubled = g.value("doubled", TensorType(DType.INT32, (1, 8, 8, 2)), Role.APP_READ)
    return {
        "ops that QNN's GPU has not": g.node("Inverse", [value(DType.FLOAT32, 3, 3)]),
        "fixed point but": g.node("Relu", [value(DType.UINT8, 4, encoding=ScaleOffset(0.1))]),
        "other data types": g.node("Transpose", [value(DType.BFLOAT16, 4, 6)], perm=(1, 0)),
        "tensors of 2^31": g.node("Relu", [value(DType.FLOAT32, 1 << 16, 1 << 16)]),
        "4-bit integers": g.node("TopK", [value(DType.INT4, 8)], k=2),
        "integers; cast": g.node("Softmax", [ints], axis=1),
        "operations with an op": g.node("ElementWiseNeuron", [floats], operation=4),
        "other than 4": g.node("GridSample", [volume, points]),
        "interpolated integers": g.node("ResizeBilinear", [pictures], [doubled]),
        "an Lstm with": next(node for node in reset if node.op.name == "Lstm"),
        "states and gates": next(node for node in large if node.op.name == "Lstm"),
    }


def test_every_rule_applies_and_says_what_would_work() -> None:
    rows = [row for row in RULES if not (row.ops and row.ops <= set(EXCLUDED))]
    samples = broken()
    for row in rows:
        assert ";" in row.reason, row.reason
        assert row.evidence
        assert row.ops <= known_names()
        begins = [key for key in samples if row.reason.startswith(key)]
        if row.reason.startswith("ops without a kernel"):
            continue  # every op that QNN's GPU has is written
        assert len(begins) == 1, row.reason
        node = samples[begins[0]]
        said = row.refusal(GpuNode(node))
        assert said is not None, row.reason
        assert unsupported(node) == said
