# SPDX-License-Identifier: Apache-2.0
"""Translators of activations, convolutions, pools, resizes and samplers, against onnxruntime's CPU kernels."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import helper

from hexforge.frontends.onnx.placing import place
from hexforge.model.reader import read
from tests.frontends.onnx import single_node
from tests.frontends.onnx.parts import units
from tests.frontends.onnx.single_node import f32, i64, model, placed

MS = "com.microsoft"


compare = partial(single_node.compare, rtol=1e-4, atol=1e-5)  # sums of many products


@pytest.mark.parametrize(
    ("op", "attributes", "domain", "ops"),
    [
        ("Relu", {}, "", ["Relu"]),
        ("Elu", {"alpha": 0.7}, "", ["Elu"]),
        ("LeakyRelu", {"alpha": 0.2}, "", ["Prelu"]),
        ("HardSigmoid", {"alpha": 0.3}, "", ["ElementWiseNeuron"]),
        ("HardSwish", {}, "", ["HardSwish"]),
        ("Gelu", {}, "", ["Gelu"]),
        ("Gelu", {}, MS, ["Gelu"]),
        ("Gelu", {"approximate": "tanh"}, "", None),
        ("QuickGelu", {"alpha": 1.5}, MS, None),
        ("Selu", {}, "", None),
        ("Softplus", {}, "", ["ElementWiseSoftplus"]),
        ("ThresholdedRelu", {"alpha": 0.4}, "", None),
    ],
)
def test_activation(op: str, attributes: dict[str, Any], domain: str, ops: list[str] | None) -> None:
    for shape in ((2, 3, 4), ()):
        found = compare(op, {"x": f32(*shape) * 3}, {}, domain=domain, **attributes)
        assert ops is None or found == ops


def test_clip() -> None:
    x, low, high = {"x": f32(2, 5)}, np.float32(-0.5), np.float32(0.25)
    assert compare("Clip", x, {"lo": low, "hi": high}) == ["ReluMinMax"]
    assert compare("Clip", x, {}, opset=6 + 1, min=-0.5) == ["ReluMinMax"]
    assert compare("Clip", {**x, "lo": low, "hi": high}, {}) == ["ElementWiseMaximum", "ElementWiseMinimum"]
    assert compare("Clip", x, {"lo": high, "hi": low}) == ["ReluMinMax"]
    integers = {"x": np.arange(-5, 5, dtype=np.int32)}
    ops = compare("Clip", integers, {"lo": np.int32(-2), "hi": np.int32(3)}, np.int32)
    assert ops == ["ElementWiseMaximum", "ElementWiseMinimum"]


def _window(draw: st.DrawFn, dims: int) -> dict[str, Any]:
    kernel = [draw(st.integers(1, 3)) for _ in range(dims)]
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": [draw(st.integers(1, 3)) for _ in range(dims)]}
    match draw(st.sampled_from(["none", "pads", "pads", "SAME_UPPER", "SAME_LOWER", "VALID"])):
        case "pads":
            attributes["pads"] = [draw(st.integers(0, k - 1)) for k in (*kernel, *kernel)]
        case "none":
            pass
        case auto:
            attributes["auto_pad"] = auto
    return attributes


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_conv(data: st.DataObject) -> None:
    dims = data.draw(st.sampled_from([1, 2, 2, 3]))
    attributes = _window(data.draw, dims)  # type: ignore[arg-type]
    attributes["dilations"] = [data.draw(st.integers(1, 2)) for _ in range(dims)]
    if "auto_pad" in attributes:
        attributes["dilations"] = [1] * dims
    group, cin, cout = (data.draw(st.integers(1, 3)) for _ in range(3))
    x = f32(2, cin * group, *(data.draw(st.integers(5, 8)) for _ in range(dims)))
    constants = {"w": f32(cout * group, cin, *attributes["kernel_shape"])}
    if data.draw(st.booleans()):
        constants["b"] = f32(cout * group)
    ops = compare("Conv", {"x": x}, constants, group=group, **attributes)
    assert ("DepthWiseConv2d" in ops) == (group > 1 and cin == 1 and dims < 3)
    if data.draw(st.booleans()):
        compare("Conv", {"x": x, **constants}, {}, group=group, **attributes)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_conv_transpose(data: st.DataObject) -> None:
    dims = data.draw(st.sampled_from([1, 2, 2, 3]))
    attributes = _window(data.draw, dims)  # type: ignore[arg-type]
    strides, kernel = attributes["strides"], attributes["kernel_shape"]
    if "auto_pad" not in attributes:
        attributes["output_padding"] = [data.draw(st.integers(0, s - 1)) for s in strides]
        attributes["dilations"] = [data.draw(st.integers(1, 2)) for _ in range(dims)]
    group, cin, cout = (data.draw(st.integers(1, 2)) for _ in range(3))
    sizes = [data.draw(st.integers(3, 5)) for _ in range(dims)]
    constants = {"w": f32(cin * group, cout, *kernel), "b": f32(cout * group)}
    compare("ConvTranspose", {"x": f32(2, cin * group, *sizes)}, constants, group=group, **attributes)


@pytest.mark.parametrize("auto", ["NOTSET", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(("shape", "extra"), [([8, 10], [0, 0]), ([5, 6], [1, 1]), ([4, 5], [0, 0])])
def test_conv_transpose_to_a_shape(auto: str, shape: list[int], extra: list[int]) -> None:
    compare(
        "ConvTranspose", {"x": f32(1, 2, 3, 4)}, {"w": f32(2, 1, 3, 3)}, auto_pad=auto, strides=[2, 2],
        output_shape=shape, output_padding=extra,
    )  # fmt: skip


@pytest.mark.parametrize("dilation", [1, 2])
def test_conv_transpose_of_groups_with_channel_scales(dilation: int) -> None:
    rng = np.random.default_rng(5)
    constants = {
        "xs": np.float32(0.02), "xz": np.uint8(90), "w": rng.integers(-127, 128, (4, 3, 2, 2), dtype=np.int8),
        "ws": rng.uniform(0.01, 0.05, 3).astype(np.float32), "wz": np.zeros(3, np.int8),
        "ys": np.float32(0.03), "yz": np.uint8(120),
    }  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["xr"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wr"], axis=1),
        helper.make_node("ConvTranspose", ["xr", "wr"], ["yr"], group=2, strides=[2, 2], dilations=[dilation] * 2),
        helper.make_node("QuantizeLinear", ["yr", "ys", "yz"], ["y"]),
    ]
    x = {"x": rng.integers(0, 256, (1, 4, 3, 3), dtype=np.uint8)}
    proto = model(nodes, x, {k: np.asarray(v) for k, v in constants.items()}, {"y": np.uint8}, 21)
    got, ops = placed(proto, x)
    assert ops == ["Transpose", "TransposeConv2d", "Transpose"]
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    assert np.abs(got[0].astype(int) - session.run(None, x)[0].astype(int)).max() <= 1


@pytest.mark.parametrize("run_time", [False, True])
def test_conv_integer(run_time: bool) -> None:
    rng = np.random.default_rng(0)
    x = {"x": rng.integers(0, 256, (1, 3, 5, 5), dtype=np.uint8)}
    rest = {"w": rng.integers(0, 256, (4, 3, 3, 3), dtype=np.uint8), "xz": np.uint8(120), "wz": np.uint8(7)}
    feeds, constants = ({**x, **rest}, {}) if run_time else (x, rest)  # type: ignore[dict-item]
    compare("ConvInteger", feeds, constants, np.int32, opset=10, pads=[1, 0, 1, 2])


@pytest.mark.parametrize("channels", [False, True])
def test_qlinear_conv(channels: bool) -> None:
    rng = np.random.default_rng(0)
    scales = rng.uniform(0.01, 0.05, 4).astype(np.float32) if channels else np.float32(0.02)
    constants = {
        "xs": np.float32(0.05), "xz": np.uint8(100), "w": rng.integers(-127, 128, (4, 3, 3, 3), dtype=np.int8),
        "ws": scales, "wz": np.zeros_like(scales, np.int8), "ys": np.float32(0.4), "yz": np.uint8(128),
        "b": rng.integers(-900, 900, 4).astype(np.int32),
    }  # fmt: skip
    x = {"x": rng.integers(0, 256, (1, 3, 6, 6), dtype=np.uint8)}
    node = helper.make_node(
        "QLinearConv", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], ["y"], pads=[1, 1, 1, 1]
    )
    got, ops = placed(model([node], x, constants, {"y": np.uint8}, 13), x)  # type: ignore[arg-type]
    assert ops.count("Conv2d") == 1
    real_x = np.pad((x["x"].astype(np.float64) - 100) * 0.05, ((0, 0), (0, 0), (1, 1), (1, 1)))
    real_w = constants["w"] * np.reshape(np.float64(scales), (-1, 1, 1, 1))  # type: ignore[operator]
    view = np.lib.stride_tricks.sliding_window_view(real_x, (3, 3), axis=(2, 3))
    real = np.einsum("nchwij,ocij->nohw", view, real_w)
    real += (constants["b"] * 0.05 * np.float64(scales)).reshape(1, -1, 1, 1)  # type: ignore[operator]
    want = np.clip(np.rint(real / 0.4) + 128, 0, 255)
    assert np.abs(got[0].astype(np.float64) - want).max() <= 1


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_pool(data: st.DataObject) -> None:
    op = data.draw(st.sampled_from(["MaxPool", "AveragePool", "LpPool"]))
    dims = data.draw(st.sampled_from([1, 2, 2, 3]))
    attributes = _window(data.draw, dims)  # type: ignore[arg-type]
    if op == "AveragePool":
        attributes["count_include_pad"] = data.draw(st.integers(0, 1))
    if op == "LpPool":
        attributes["p"] = data.draw(st.integers(1, 3))
    elif "auto_pad" not in attributes:
        attributes["ceil_mode"] = data.draw(st.integers(0, 1))
        attributes["dilations"] = [data.draw(st.integers(1, 2)) for _ in range(dims)]
    sizes = [data.draw(st.integers(5, 8)) for _ in range(dims)]
    kernel, strides = attributes["kernel_shape"], attributes["strides"]
    # onnxruntime takes no pads as large as the kernel; a last window beyond the input is dropped since opset 22 only
    assume("auto_pad" not in attributes or all(s <= k for s, k in zip(strides, kernel, strict=True)))
    pads = attributes.get("pads", [0] * 2 * dims)
    for i, (n, k, s) in enumerate(zip(sizes, kernel, strides, strict=True)):
        reach = attributes.get("dilations", [1] * dims)[i] * (k - 1) + 1
        room = n + pads[i] + pads[i + dims] - reach
        assume(not attributes.get("ceil_mode") or -(-room // s) * s < n + pads[i])
    x = f32(2, 3, *sizes)
    compare(op, {"x": x}, {}, opset=21, **attributes)


@pytest.mark.parametrize("order", [0, 1])
def test_max_pool_indices(order: int) -> None:
    x = {"x": np.random.default_rng(1).integers(0, 5, (2, 3, 6, 7)).astype(np.float32)}  # with ties
    compare(
        "MaxPool", x, {}, [np.float32, np.int64], outputs=2, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1],
        dilations=[1, 2], storage_order=order,
    )  # fmt: skip


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool"])
@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 3, 4, 5), (1, 2, 3, 4, 5)])
def test_global_pool(op: str, shape: tuple[int, ...]) -> None:
    assert any(name.startswith("Pool") for name in compare(op, {"x": f32(*shape)}, {}))


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["nearest", "linear", "cubic"]),
    st.sampled_from(["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]),
    st.sampled_from(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]),
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
)
def test_resize(mode: str, transformation: str, rounding: str, size: tuple[int, int], out: tuple[int, int]) -> None:
    # onnxruntime samples one position at -0.5, and rounds positions in float32, where ties fall elsewhere
    assume(mode != "cubic" or 1 not in out)
    assume(mode != "nearest" or all(o % n == 0 or n % o == 0 for n, o in zip(size, out, strict=True)))
    ops = compare(
        "Resize", {"x": f32(1, 2, *size)}, {"r": f32(0), "s": f32(0), "sizes": i64(1, 2, *out)}, mode=mode,
        coordinate_transformation_mode=transformation, nearest_mode=rounding,
    )  # fmt: skip
    assert "Resize" in ops


_CORNER = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


@pytest.mark.parametrize(
    ("mode", "scales", "attributes", "op"),
    [
        ("linear", (1, 1, 0.6, 1.3), {}, "MatMul"),
        ("nearest", (1, 1, 0.6, 1.3), _CORNER, "Gather"),
        ("linear", (1, 1, 2.0, 3.0), {}, "Resize"),
        ("cubic", (1, 1, 0.6, 0.6), {"exclude_outside": 1, "cubic_coeff_a": -0.5}, "MatMul"),
    ],
)
def test_resize_by_scales(mode: str, scales: tuple[float, ...], attributes: dict[str, Any], op: str) -> None:
    constants = {"r": f32(0), "s": np.asarray(scales, np.float32)}
    assert op in compare("Resize", {"x": f32(1, 2, 5, 6)}, constants, mode=mode, **attributes)


def test_resize_10_and_upsample() -> None:
    x, scales = {"x": f32(1, 2, 3, 4)}, np.asarray([1, 1, 2, 3], np.float32)
    for mode in ("nearest", "linear"):
        assert "Resize" in compare("Resize", x, {"s": scales}, opset=10, mode=mode)
        assert "Resize" in compare("Upsample", x, {"s": scales}, opset=9, mode=mode)
        assert "Resize" in compare("Upsample", x, {}, opset=7, mode=mode, scales=scales.tolist())


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["linear", "nearest", "cubic"]), st.sampled_from(["zeros", "border", "reflection"]),
    st.integers(0, 1), st.sampled_from([2, 2, 3]), st.integers(0, 99),
)  # fmt: skip
def test_grid_sample(mode: str, padding: str, corners: int, dims: int, seed: int) -> None:
    assume(mode != "cubic" or dims == 2)
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(2, 2, *rng.integers(2, 5, dims))).astype(np.float32)
    grid = rng.uniform(-1.8, 1.8, (2, *rng.integers(1, 4, dims), dims)).astype(np.float32)
    attributes = {"mode": mode, "padding_mode": padding, "align_corners": corners}
    compare("GridSample", {"x": x, "grid": grid}, {}, opset=20, **attributes)  # type: ignore[arg-type]


_BOXES = np.array([[0, 0, 6, 7], [1.2, 2.4, 5.5, 4.1], [4, 5, 4.2, 5.1], [-3, -2, 20, 15]], np.float32)


@pytest.mark.parametrize("samples", [0, 2])
@pytest.mark.parametrize("transformation", ["half_pixel", "output_half_pixel"])
def test_roi_align(samples: int, transformation: str) -> None:
    feeds = {"x": f32(2, 3, 8, 9), "rois": _BOXES, "batch": i64(0, 1, 1, 0)}
    ops = compare(
        "RoiAlign", feeds, {}, opset=16, output_height=2, output_width=3, sampling_ratio=samples, spatial_scale=0.9,
        coordinate_transformation_mode=transformation,
    )  # fmt: skip
    assert "RoiAlign" in ops


def test_max_roi_pool() -> None:
    rois = np.concatenate([np.array([[0], [1], [1], [0]], np.float32), np.clip(_BOXES, 0, 30)], axis=1)
    ops = compare("MaxRoiPool", {"x": f32(2, 3, 8, 9), "rois": rois}, {}, pooled_shape=[2, 3], spatial_scale=0.5)
    assert "RoiPooling" in ops


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "reason"),
    [
        ("Conv", {"x": (1, 3, 5, 5), "w": (4, 2, 3, 3)}, {}, "group 1 does not fit"),
        ("MaxPool", {"x": (1, 3, 5, 5)}, {"kernel_shape": [2, 2], "auto_pad": "SAME"}, "auto_pad 'SAME' is unknown"),
        ("Resize", {"x": (1, 3, 5, 5), "r": (0,), "s": (4,)}, {}, "scales .* computed at run time"),
        ("GridSample", {"x": (1, 1, 2, 2, 2), "g": (1, 2, 2, 2, 3)}, {"mode": "cubic"}, "64 gathers"),
    ],
)
def test_refusals_say_why(op: str, inputs: dict[str, tuple[int, ...]], attributes: dict[str, Any], reason: str) -> None:
    arrays = {name: f32(*shape) for name, shape in inputs.items()}
    rank = len(next(iter(arrays.values())).shape)
    node = helper.make_node(op, [*arrays], ["y"], "node", **attributes)
    proto = model([node], arrays, {}, {"y": (np.float32, (1,) * rank)}, 20)
    found = place(units(read(proto).ir), lambda node: None)
    assert len(found) == 1
    assert not found[0].taken
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(found[0].reason)
