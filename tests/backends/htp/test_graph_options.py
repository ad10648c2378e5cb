# SPDX-License-Identifier: Apache-2.0
"""Graph options mean what QNN's guide says: sizes of the file, numbers, time."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import hexforge
from hexforge._native import read_array
from hexforge.backends.htp.backend import HtpBackend
from hexforge.backends.htp.numbers.file_arrays import kept_halves, write_array
from hexforge.chips.htp_config import HtpConfig
from hexforge.errors import FormatError
from hexforge.formats.container import Container, Pool, json_bytes
from hexforge.ir import Array, DType, Graph, Role, TensorType
from hexforge.runtime.contexts.compile import Compiled
from tests.native.halves import every_half
from tests.ort.models import ahead

RNG = np.random.default_rng(5)


def session_of(model: bytes | str, entries: dict[str, str] | None = None, **options: str) -> hexforge.InferenceSession:
    """A session on SM8650."""
    given = hexforge.SessionOptions()
    for key, value in (entries or {}).items():
        given.add_session_config_entry(key, value)
    chosen = {"backend_type": "htp", "soc_model": "SM8650", **options}
    return hexforge.InferenceSession(model, given, [("QNNExecutionProvider", chosen)])


def float_model(channels: int = 64) -> bytes:
    """Two convolutions in float32."""
    held = [
        numpy_helper.from_array(RNG.standard_normal((channels, channels, 3, 3)).astype(np.float32), f"w{i}")
        for i in range(2)
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["m"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["m", "w1"], ["y"], pads=[1, 1, 1, 1]),
    ]
    shape = (1, channels, 8, 8)
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in ("x", "y")]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def quantized_conv(
    weights: Array, *, relu_zero: int | None = None, activation: Any = np.uint8, weight_zero: int = 0
) -> bytes:
    """A QDQ convolution, and a Relu whose result has the zero point `relu_zero` where one is given."""
    outputs, channels = weights.shape[:2]
    middle = {np.uint8: 128, np.uint16: 32768}[activation]
    scale = 0.02 if activation is np.uint8 else 0.0001
    held = [
        numpy_helper.from_array(weights, "w"),
        numpy_helper.from_array(np.array(0.01, np.float32), "ws"),
        numpy_helper.from_array(weights.dtype.type(weight_zero), "wz"),
        numpy_helper.from_array(np.array(scale, np.float32), "s"),
        numpy_helper.from_array(np.array(4 * scale, np.float32), "so"),
        numpy_helper.from_array(activation(middle), "z"),
        numpy_helper.from_array(activation(relu_zero or 0), "rz"),
    ]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"]),
        helper.make_node("Conv", ["xd", "wd"], ["c"], pads=[1, 1, 1, 1], name="conv"),
        helper.make_node("QuantizeLinear", ["c", "so", "z"], ["cq"]),
        helper.make_node("DequantizeLinear", ["cq", "so", "z"], ["cd" if relu_zero is not None else "y"]),
    ]
    if relu_zero is not None:
        nodes += [
            helper.make_node("Relu", ["cd"], ["r"], name="relu"),
            helper.make_node("QuantizeLinear", ["r", "so", "rz"], ["rq"]),
            helper.make_node("DequantizeLinear", ["rq", "so", "rz"], ["y"]),
        ]
    values = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, channels, 12, 12)),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, outputs, 12, 12)),
    ]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()


def small_weights(outputs: int = 128, channels: int = 128, dtype: Any = np.int8) -> Array:
    return RNG.integers(-8, 8, (outputs, channels, 3, 3)).astype(dtype)


def compiled(model: bytes, **options: Any) -> Compiled:
    config = hexforge.GraphConfig(**options)
    return hexforge.compile(model, deployment=hexforge.Deployment("SM8650", config=config))


def outputs(found: Compiled, x: Array) -> Array:
    return found.program().run({"x": x})["y"]


def estimated_us(model: bytes, **options: Any) -> float:
    deployment = hexforge.Deployment("SM8650", config=hexforge.GraphConfig(**options))
    return hexforge.estimate(model, deployment).latency_ms * 1e3


def stored(found: Compiled) -> dict[str, int]:
    """Bytes of each section of the file."""
    container = Container(found.to_bytes())
    return {section.kind: section.bytes for section in container.sections}


def read(said: Any, data: bytes) -> Array:
    """The array that a file describes, whose bytes are in the data."""
    array = read_array(json_bytes(said), lambda offset, size: memoryview(data)[offset : offset + size])
    return array.view(said["dtype"]).reshape(said["shape"])


# -- weights in the file ----------------------------------------------------------------------------------------------


def test_float_weights_lie_in_the_file_in_float16_and_compute_the_same_bits() -> None:
    model = float_model()
    found = compiled(model)
    elements = 2 * 64 * 64 * 9
    assert elements * 2 <= found.stored_bytes < elements * 2 + 16384  # and what kernels read past the end
    x = RNG.standard_normal((1, 64, 8, 8)).astype(np.float32)
    session = session_of(model)
    np.testing.assert_array_equal(outputs(found, x), session.run(None, {"x": x})[0])


@pytest.mark.feature("Weights packing", guide="507-513")
@pytest.mark.parametrize("activation", [np.uint8, np.uint16])
def test_weights_packing_halves_eight_bit_weights_of_four_bit_range_and_keeps_the_bits(activation: Any) -> None:
    model = quantized_conv(small_weights(), activation=activation)
    plain, packed = compiled(model), compiled(model, weights_packing=True)
    assert stored(packed)["weights"] < 0.55 * stored(plain)["weights"]
    assert packed.nbytes < plain.nbytes - 60_000
    x = RNG.standard_normal((1, 128, 12, 12)).astype(np.float32)
    np.testing.assert_array_equal(outputs(packed, x), outputs(plain, x))
    again = hexforge.compile(model, deployment=hexforge.Deployment("SM8650")).to_bytes()
    assert again == plain.to_bytes()


def test_weights_that_need_eight_bits_are_not_packed() -> None:
    model = quantized_conv(RNG.integers(-127, 128, (64, 64, 3, 3)).astype(np.int8))
    assert stored(compiled(model, weights_packing=True))["weights"] == stored(compiled(model))["weights"]


@pytest.mark.parametrize(
    ("array", "packing", "smaller"),
    [
        (np.linspace(-4, 4, 5000).astype(np.float16).astype(np.float32), False, 0.5),
        (every_half()[[0x7C00, 0xFC00, 0x8000, 0x7BFF, 1, 0x7FFF] * 2000], False, 0.5),
        (np.full(3000, 0.1, np.float32), False, 1.0),
        (np.full(3000, 1e30, np.float32), False, 1.0),
        (RNG.integers(-8, 8, 9001).astype(np.int8), True, 0.51),
        (RNG.integers(0, 16, (70, 71)).astype(np.int32) * 1000 - 5, True, 0.13),
        (RNG.integers(0, 17, 70_000).astype(np.int16), True, 0.5),
        (RNG.integers(-255, 1, 70_001).astype(np.int16), False, 0.5),
        ((RNG.integers(0, 256, 5000) - 32768).astype(np.int16), False, 0.5),
        (RNG.integers(-100, 156, (9, 512)).astype(np.int32) & 0xFFFF, False, 0.25),
        (RNG.integers(-100, 156, (9, 512)).astype(np.int32), False, 1.0),
        (RNG.integers(-128, 129, 5000).astype(np.int16), False, 1.0),
        (RNG.integers(-8, 8, 9001).astype(np.int8), False, 1.0),
        (np.arange(100, dtype=np.float32), False, 1.0),
    ],
)
def test_arrays_come_back_as_they_were(array: Array, packing: bool, smaller: float) -> None:
    pool = Pool()
    said = json.loads(json.dumps(write_array(array, pool.put, packing)))
    assert said["at"][1] <= smaller * array.nbytes + 1
    kept = b"".join(bytes(part) for part in pool.parts)
    found = read(said, kept)
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found.view(np.uint8), array.view(np.uint8))


def test_graphs_that_share_weights_share_the_whole_arrays(tmp_path: Path) -> None:
    model = float_model()
    path = tmp_path / "two.bin"
    hexforge.compile([model, model], path, "SM8650", hexforge.ContextRequest(True, graph_names=("a", "b")))
    context = hexforge.Context(path)
    seen: list[int] = []
    for name in ("a", "b"):
        kept = context.program(name)
        native = kept._runners[0]._program  # type: ignore[attr-defined]
        seen.append(next(address for step, attribute, address in native.constants
                         if attribute == "weights" and native.kinds[step] == "conv_f32"))  # fmt: skip
        assert kept.run({"x": np.zeros((1, 64, 8, 8), np.float32)})
        if name == "a":
            held = kept  # what is shared lives as long as somebody has it
    assert held
    assert seen[0] == seen[1]


@pytest.mark.parametrize(
    "said",
    [
        {"at": [0, 100], "dtype": "float32", "shape": [1 << 40], "half": 1},
        {"at": [0, 100], "dtype": "int8", "shape": [50], "half": 1},
        {"at": [0, 100], "dtype": "int8", "shape": [200], "values": []},
        {"at": [0, 100], "dtype": "int8", "shape": [200], "values": [300]},
        {"at": [0, 100], "dtype": "int8", "shape": [200], "values": list(range(17))},
        {"at": [0, 100], "dtype": "float32", "shape": [200], "values": [1]},
        {"at": [0, 100], "dtype": "int8", "shape": [1 << 62], "values": [1]},
        {"at": [0, 100], "dtype": "int8", "shape": [200], "values": "abc"},
        {"at": [0, 100], "dtype": "int16", "shape": [101], "bytes": [0]},
        {"at": [0, 100], "dtype": "int8", "shape": [100], "bytes": [0]},
        {"at": [0, 100], "dtype": "int16", "shape": [100], "bytes": [1 << 15]},
        {"at": [0, 100], "dtype": "int16", "shape": [100], "bytes": []},
        {"at": [0, 100], "dtype": "int16", "shape": [100], "bytes": [0, 1]},
        {"at": [0, 100], "dtype": "int16", "shape": [100], "bytes": "0"},
        {"at": [0, 100], "dtype": "int16", "shape": [100], "bytes": [0], "values": [0]},
    ],
)
def test_a_file_that_says_nonsense_of_an_array_is_refused(said: dict[str, Any]) -> None:
    with pytest.raises((FormatError, ValueError)):
        read_array(json_bytes(said), lambda offset, size: memoryview(bytes(size)))


@pytest.mark.parametrize(("dtype", "zero"), [(np.int8, 0), (np.uint8, 100)])
def test_8_bit_weights_beside_16_bits_take_a_byte_each(dtype: Any, zero: int) -> None:
    weights = (RNG.integers(-127, 128, (128, 128, 3, 3)) + (128 if zero else 0)).astype(dtype)
    model = quantized_conv(weights, activation=np.uint16, weight_zero=zero)
    found = compiled(model)
    assert stored(found)["weights"] < 1.1 * weights.size + 16384
    x = RNG.standard_normal((1, 128, 12, 12)).astype(np.float32)
    np.testing.assert_array_equal(outputs(found, x), session_of(model).run(None, {"x": x})[0])


# -- activations that are folded --------------------------------------------------------------------------------------


def relu_model(zero: int) -> bytes:
    return quantized_conv(RNG.integers(-127, 128, (32, 32, 3, 3)).astype(np.int8), relu_zero=zero)


def test_a_relu_with_the_encoding_of_its_range_is_the_same_folded_or_not() -> None:
    model, x = relu_model(0), RNG.standard_normal((1, 32, 12, 12)).astype(np.float32)
    folded, kept = compiled(model, exact_relu=False), compiled(model, fold_relu_activation_into_conv_off=True)
    np.testing.assert_array_equal(outputs(folded, x), outputs(kept, x))
    assert outputs(folded, x).min() == 0


@pytest.mark.feature("Fold ReLU off", guide="483-489")
def test_a_folded_relu_cuts_where_its_encoding_ends_and_off_keeps_it() -> None:
    model, x = relu_model(50), RNG.standard_normal((1, 32, 12, 12)).astype(np.float32)
    folded = outputs(compiled(model, exact_relu=False), x)
    kept = outputs(compiled(model, fold_relu_activation_into_conv_off=True), x)
    assert folded.min() == pytest.approx(-50 * 0.08)  # the end of the encoding
    assert kept.min() == 0
    np.testing.assert_array_equal(np.maximum(folded, 0), kept)
    np.testing.assert_array_equal(outputs(compiled(model), x), kept)  # and at no cost in time unless asked for
    assert estimated_us(model) == estimated_us(model, exact_relu=False)
    session = session_of(model)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], kept)  # what ONNX says, in a session
    (said,) = {reason for row in session.placements for reason in row.unsafe}
    assert "fold_relu_activation_into_conv_off" in said


@pytest.mark.parametrize("zero", [0, 50])
@pytest.mark.parametrize("level", [1, 2, 3])
@pytest.mark.parametrize("exact", [True, False])
def test_levels_give_one_set_of_bits_also_where_activations_are_folded(zero: int, level: int, exact: bool) -> None:
    RNG.bit_generator.state = np.random.default_rng(9).bit_generator.state
    model, x = relu_model(zero), RNG.standard_normal((1, 32, 12, 12)).astype(np.float32)
    at_level = compiled(model, optimization=level, exact_relu=exact)
    np.testing.assert_array_equal(outputs(compiled(model, exact_relu=exact), x), outputs(at_level, x))


@pytest.mark.feature("Fold ReLU off", guide="483-489")
def test_an_activation_of_its_own_costs_time() -> None:
    model = relu_model(0)
    assert estimated_us(model, fold_relu_activation_into_conv_off=True) > estimated_us(model)


# -- the other options ------------------------------------------------------------------------------------------------


@pytest.mark.feature("Short depth conv off HMX", guide="491-497, 1252-1254")
def test_convolutions_of_short_depth_take_longer_off_the_matrix_unit_and_give_the_same_bits() -> None:
    weights = RNG.integers(0, 256, (64, 3, 3, 3)).astype(np.uint8)
    model = quantized_conv(weights, weight_zero=77)
    x = RNG.standard_normal((1, 3, 12, 12)).astype(np.float32)
    on, off = compiled(model), compiled(model, short_depth_conv_on_hmx_off=True)
    np.testing.assert_array_equal(outputs(on, x), outputs(off, x))
    assert estimated_us(model, short_depth_conv_on_hmx_off=True) > estimated_us(model)
    deep = relu_model(0)
    assert estimated_us(deep, short_depth_conv_on_hmx_off=True) == estimated_us(deep)


@pytest.mark.feature("Short depth conv off HMX", guide="491-497, 1252-1254")
@pytest.mark.parametrize("channels", [3, 40])
def test_the_matrix_unit_rounds_weights_with_a_zero_point_where_asked_for(channels: int) -> None:
    """255 symmetric steps for each output channel; off the matrix unit short convolutions are exact."""
    random = np.random.default_rng(4)
    weights = random.integers(0, 256, (16, channels, 3, 3)).astype(np.uint8)
    model = quantized_conv(weights, weight_zero=77)
    x = random.uniform(-1, 1, (1, channels, 12, 12)).astype(np.float32) / np.float32(channels / 3)
    codes = np.rint(x / np.float32(0.02)).clip(-128, 127).astype(np.int64)
    centered = weights.astype(np.int64) - 77
    steps = np.abs(centered).max(axis=(1, 2, 3), keepdims=True) / 127
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(codes, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
    sums = np.einsum("nchwij,ocij->nohw", windows, np.rint(centered / steps).astype(np.int64))
    scales = (
        np.float64(np.float32(0.01)) * steps.reshape(1, -1, 1, 1) * float(np.float32(0.02)) / float(np.float32(0.08))
    )
    want = np.rint(sums.astype(np.float32) * scales.astype(np.float32)).clip(-128, 127)
    rounded = outputs(compiled(model, exact_weights=False), x) / np.float32(0.08)
    np.testing.assert_allclose(rounded, want, atol=1e-3)
    exact = outputs(compiled(model), x)
    assert not np.array_equal(exact, outputs(compiled(model, exact_weights=False), x))
    off = outputs(compiled(model, exact_weights=False, short_depth_conv_on_hmx_off=True), x)
    assert np.array_equal(off, exact) == (channels < 32)
    assert estimated_us(model) == estimated_us(model, exact_weights=False)
    (said,) = {remark for row in session_of(model).placements for remark in row.remarks}
    assert "its weights have the zero point 77" in said
    assert ("short_depth_conv_on_hmx_off" in said) == (channels < 32)


@pytest.mark.feature("Optimization level", guide="456-462, 523, 1234-1238")
def test_the_default_level_is_two_and_higher_levels_fetch_further_ahead() -> None:
    model = ahead()
    times = [estimated_us(model, optimization=level) for level in (0, 1, 2, 3)]
    assert times[0] == times[2]
    assert times[1] > times[2] > times[3]
    assert compiled(model).info.graphs[0].settings["optimization"] == 2
    assert HtpBackend(HtpConfig()).graph_settings()["optimization"] == 2


@pytest.mark.feature("VTCM in bytes", guide="2700-2723")
def test_vtcm_in_bytes_is_for_v81_and_for_compiled_contexts(tmp_path: Path) -> None:
    model = float_model()
    config = hexforge.GraphConfig(vtcm_size=8_323_072)
    made = hexforge.compile(model, deployment=hexforge.Deployment("SM8850", config=config))
    assert made.info.options["vtcm_size"] == "8323072"
    with pytest.raises(hexforge.CallError, match="vtcm_size needs v81"):
        hexforge.compile(model, deployment=hexforge.Deployment("SM8650", config=config))


def spilling_model() -> bytes:
    """Activations of some MB that are read again much later."""
    channels, size = 32, 256
    held = [
        numpy_helper.from_array(RNG.standard_normal((channels, channels, 3, 3)).astype(np.float32), f"w{i}")
        for i in range(4)
    ]
    nodes, last = [], "x"
    for i in range(4):
        nodes.append(helper.make_node("Conv", [last, f"w{i}"], [f"m{i}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("ReduceMean", [f"m{i}"], [f"a{i}"], axes=[2, 3]))
        nodes.append(helper.make_node("Mul", [f"m{i}", f"a{i}"], [f"n{i}"]))
        last = f"n{i}"
    nodes.append(helper.make_node("Add", [last, "m0"], ["y"]))
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, channels, size, size)) for n in ("x", "y")]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


@pytest.mark.parametrize("vtcm_mb", [1, 2, 4])
def test_the_spill_fill_buffer_of_a_context_model_obeys_vtcm_mb(tmp_path: Path, vtcm_mb: int) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(spilling_model())
    entries = {"ep.context_enable": "1", "ep.context_file_path": str(tmp_path / "c.onnx")}
    session = session_of(str(model), entries, vtcm_mb=str(vtcm_mb), enable_htp_spill_fill_buffer="1")
    assert session.saved is not None
    row = hexforge.Context(tmp_path / "c_qnn.bin").graphs[0]
    config = hexforge.GraphConfig(vtcm_mb=vtcm_mb)
    same = hexforge.compile(str(model), deployment=hexforge.Deployment("SM8650", config=config)).info.graphs[0]
    assert row.spill_fill_bytes == same.spill_fill_bytes > 0


def test_the_promised_float_graph_has_no_encodings_to_fold() -> None:
    graph = Graph("g")
    x = graph.value("x", TensorType(DType.FLOAT32, (1, 4, 4, 8)), Role.APP_WRITE)
    w = graph.static(np.ones((1, 1, 8, 8), np.float32), None, "w")
    middle = graph.value("m", TensorType(DType.FLOAT32, (1, 4, 4, 8)))
    y = graph.value("y", TensorType(DType.FLOAT32, (1, 4, 4, 8)), Role.APP_READ)
    graph.node("Conv2d", [x, w], [middle], stride=(1, 1), pad_amount=((0, 0), (0, 0)))
    graph.node("Relu", [middle], [y])
    backend = HtpBackend(HtpConfig())
    assert [n.op.name for n in backend.prepared(graph)] == ["Conv2d", "Relu"]


def test_float_convolutions_saturate_where_asked_on_v79() -> None:
    weights = np.full((2, 3, 1, 1), 60000.0, np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Relu", ["c"], ["y"])]
    values = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 2, 2)),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 2, 2, 2)),
    ]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [numpy_helper.from_array(weights, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    x = np.ones((1, 3, 2, 2), np.float32)
    x[..., 0] = -1
    (plain,) = session_of(model, soc_model="SM8750").run(None, {"x": x})
    (clamped,) = session_of(model, soc_model="SM8750", enable_htp_fp16_clamp_overflow="1").run(None, {"x": x})
    assert (plain[..., 1] == 65536).all()
    assert (clamped[..., 1] == 65504).all()
    assert not clamped[..., 0].any()
    with pytest.raises(hexforge.CallError, match="needs v79"):
        session_of(model, enable_htp_fp16_clamp_overflow="1")


TABLES = (
    (np.tanh(np.linspace(-4, 4, 65536)) * 32767).astype(np.int16),
    np.resize((np.linspace(0, 255, 65536) ** 2 / 255).astype(np.uint8), 65600),
    np.arange(65537).astype(np.uint16)[::-1],
)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: f"{table.dtype}[{table.size}]")
def test_tables_of_16_bits_lie_in_the_file_as_their_steps(table: Array) -> None:
    pool = Pool()
    said = json.loads(json.dumps(write_array(table, pool.put, packing=False)))
    assert said["steps"]
    assert pool.stored < table.nbytes // 8
    data = b"".join(bytes(part) for part in pool.parts)
    again = read(said, data)
    assert again.dtype == table.dtype
    assert np.array_equal(again, table)


def test_tables_of_halves_lie_in_the_file_as_they_were_made() -> None:
    bits = np.arange(65536, dtype=np.uint32).astype(np.uint16)
    pool, plain = Pool(), Pool()
    said = write_array(kept_halves(bits.view(np.float16)), pool.put, packing=False)
    assert said == write_array(every_half(), plain.put, packing=False)
    assert b"".join(pool.parts) == b"".join(plain.parts)
    data = b"".join(bytes(part) for part in pool.parts)
    assert np.array_equal(read(said, data), every_half())


def test_a_table_that_no_steps_shorten_lies_in_the_file_as_it_is() -> None:
    table = RNG.integers(0, 65536, 65536).astype(np.uint16)
    assert "steps" not in write_array(table, Pool().put, packing=False)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (lambda data: data[:40] + bytes(len(data) - 40), "damaged|not what"),
        (lambda data: b"\xff" * len(data), "damaged"),
        (lambda data: zlib.compress(bytes(131074), 6).ljust(4096, b"\0"), "not what"),
        (lambda data: zlib.compress(bytes(131070), 6).ljust(4096, b"\0"), "not what"),
    ],
)
def test_steps_that_make_no_table_are_refused(changed: Any, said: str) -> None:
    pool = Pool()
    value = write_array(TABLES[0], pool.put, packing=False)
    offset, size = value["at"]
    data = changed(b"".join(bytes(part) for part in pool.parts)[offset : offset + size])
    with pytest.raises(FormatError, match=said):
        read_array(json_bytes(value), lambda *_: memoryview(data))
    with pytest.raises(FormatError, match="cannot be made of"):
        read_array(json_bytes({**value, "at": [0, 100]}), lambda *_: memoryview(data)[:100])
