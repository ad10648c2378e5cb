# SPDX-License-Identifier: Apache-2.0
"""Small fixed-point graphs on the htp backend: exact where docs/numerics.md says so, else within one step of cpu.

Every graph is compiled at optimization levels 1, 2 and 3 and run with 1 and 2 threads: the bits are always the same.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hexforge.ops  # noqa: F401 - fills the table
from hexforge.backends.htp.numbers.arithmetic import binary
from hexforge.backends.htp.numbers.lower.native_steps import ReferenceStep
from hexforge.backends.htp.numbers.storage import storage
from hexforge.ir import BlockwiseExpansion, DType, Role, ScaleOffset, TensorType, Value
from tests.backends.htp.numbers.fixed_nets import ACTIVATIONS, SEEDS, Net, convolved, examples, integers, requantized
from tests.native.halves import half, matrix_half

WEIGHTS = (DType.INT8, DType.UINT8, DType.INT4, DType.UINT4)


@pytest.mark.parametrize("dtype", ACTIVATIONS, ids=lambda d: d.value)
@examples(25)
@given(
    seed=SEEDS, weight=st.sampled_from(WEIGHTS), per_channel=st.booleans(), dims=st.sampled_from([2, 2, 3]),
    inputs=st.integers(1, 20), outputs=st.integers(1, 40), groups=st.integers(1, 3),
)  # fmt: skip
def test_conv(
    dtype: DType, seed: int, weight: DType, per_channel: bool, dims: int, inputs: int, outputs: int, groups: int
) -> None:
    net = Net(seed, dtype)
    draw = net.rng.integers
    kernel, stride, dilation = (tuple(int(v) for v in draw(1, n, dims)) for n in (4, 3, 3))
    pad = tuple((int(a), int(b)) for a, b in draw(0, 3, (dims, 2)))
    size = tuple(int(draw(d * (k - 1) + 1, 9)) for d, k in zip(dilation, kernel, strict=True))
    out = tuple(
        (n + sum(p) - d * (k - 1) - 1) // s + 1
        for n, p, d, k, s in zip(size, pad, dilation, kernel, stride, strict=True)
    )
    x = net.input((2, *size, inputs * groups))
    w = net.weights((*kernel, inputs, outputs * groups), weight, dims + 1 if per_channel else None)
    b = net.bias(x, w, outputs * groups)
    y = net.output((2, *out, outputs * groups))
    net.graph.node(f"Conv{dims}d", [x, w, b], [y], stride=stride, pad_amount=pad, dilation=dilation, group=groups)
    assert w.data is not None
    acc = convolved(integers(x, net.feeds[x.name]), integers(w, w.data), stride, pad, dilation, groups, y.shape)
    np.testing.assert_array_equal(net.run()[y.name], requantized(acc, x, w, b, y))


@pytest.mark.parametrize("dtype", ACTIVATIONS, ids=lambda d: d.value)
@examples(15)
@given(
    seed=SEEDS, weight=st.sampled_from(WEIGHTS), per_channel=st.booleans(), channels=st.integers(1, 70),
    several=st.sampled_from([1, 1, 2]),
)  # fmt: skip
def test_depthwise(dtype: DType, seed: int, weight: DType, per_channel: bool, channels: int, several: int) -> None:
    net = Net(seed, dtype)
    draw = net.rng.integers
    kernel, stride, dilation = (tuple(int(v) for v in draw(1, n, 2)) for n in (4, 3, 3))
    pad = tuple((int(a), int(b)) for a, b in draw(0, 3, (2, 2)))
    size = tuple(int(draw(d * (k - 1) + 1, 12)) for d, k in zip(dilation, kernel, strict=True))
    out = tuple((size[i] + sum(pad[i]) - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1 for i in range(2))
    x = net.input((1, *size, channels))
    w = net.weights((*kernel, 1, channels * several), weight, 3 if per_channel else None)
    b = net.bias(x, w, channels * several)
    y = net.output((1, *out, channels * several))
    net.graph.node("DepthWiseConv2d", [x, w, b], [y], stride=stride, pad_amount=pad, dilation=dilation)
    assert w.data is not None
    acc = convolved(integers(x, net.feeds[x.name]), integers(w, w.data), stride, pad, dilation, channels, y.shape)
    np.testing.assert_array_equal(net.run()[y.name], requantized(acc, x, w, b, y))


@pytest.mark.parametrize("dtype", ACTIVATIONS, ids=lambda d: d.value)
@examples(20)
@given(
    seed=SEEDS, weight=st.sampled_from(WEIGHTS), per_channel=st.booleans(), dims=st.sampled_from([2, 2, 3]),
    inputs=st.integers(1, 12), outputs=st.integers(1, 20),
)  # fmt: skip
def test_transposed_conv(
    dtype: DType, seed: int, weight: DType, per_channel: bool, dims: int, inputs: int, outputs: int
) -> None:
    net = Net(seed, dtype)
    draw = net.rng.integers
    kernel, stride, size = (tuple(int(v) for v in draw(1, 5, dims)) for _ in range(3))
    if draw(0, 3) == 0:
        kernel = stride
    pad = tuple((int(a), int(b)) for a, b in draw(0, 2, (dims, 2)))
    extra = tuple(int(draw(0, s)) for s in stride)
    out = tuple((n - 1) * s + k - sum(p) + e for n, s, k, p, e in zip(size, stride, kernel, pad, extra, strict=True))
    if min(out) < 1:
        return
    x = net.input((1, *size, inputs))
    w = net.weights((*kernel, inputs, outputs), weight, dims + 1 if per_channel else None)
    b = net.bias(x, w, outputs)
    y = net.output((1, *out, outputs))
    net.graph.node(f"TransposeConv{dims}d", [x, w, b], [y], stride=stride, pad_amount=pad, output_padding=extra)
    assert w.data is not None
    xs, ws = integers(x, net.feeds[x.name]), integers(w, w.data)
    acc = np.zeros((1, *(o + sum(p) + max(kernel) for o, p in zip(out, pad, strict=True)), outputs), np.int64)
    for k in np.ndindex(*kernel):
        at = tuple(slice(k[i], k[i] + size[i] * stride[i], stride[i]) for i in range(dims))
        part = acc[(slice(None), *at)]
        part += (xs @ ws[k])[tuple(slice(0, n) for n in part.shape)]
    acc = acc[(slice(None), *(slice(pad[i][0], pad[i][0] + out[i]) for i in range(dims)))]
    np.testing.assert_array_equal(net.run()[y.name], requantized(acc, x, w, b, y))


@pytest.mark.parametrize("dtype", ACTIVATIONS, ids=lambda d: d.value)
@pytest.mark.parametrize("op", ["FullyConnected", "MatMul"])
@examples(20)
@given(
    seed=SEEDS, weight=st.sampled_from(WEIGHTS), per_channel=st.booleans(), rows=st.integers(1, 30),
    inputs=st.integers(1, 300), outputs=st.integers(1, 90), swap=st.booleans(),
)  # fmt: skip
def test_product_with_weights(
    op: str, dtype: DType, seed: int, weight: DType, per_channel: bool, rows: int, inputs: int, outputs: int, swap: bool
) -> None:
    net = Net(seed, dtype)
    swap = swap or op == "FullyConnected"
    x = net.input((rows, inputs))
    shape = (outputs, inputs) if swap else (inputs, outputs)
    w = net.weights(shape, weight, (0 if swap else 1) if per_channel else None)
    b = net.bias(x, w, outputs)
    y = net.output((rows, outputs))
    params = {} if op == "FullyConnected" else {"transpose_in1": swap}
    net.graph.node(op, [x, w, b], [y], **params)  # type: ignore[arg-type]
    assert w.data is not None
    ws = integers(w, w.data)
    acc = integers(x, net.feeds[x.name]) @ (ws.T if swap else ws)
    np.testing.assert_array_equal(net.run()[y.name], requantized(acc, x, w, b, y))


@pytest.mark.parametrize("dtype", [DType.UINT16, DType.INT16], ids=lambda d: d.value)
@pytest.mark.parametrize("groups", [1, 3])
def test_16_bit_sums_of_the_largest_products(dtype: DType, groups: int) -> None:
    """Groups of unlike weights: every one must be emptied in time, wherever its heavy weights lie."""
    for seed in range(6):
        net = Net(seed, dtype)
        inputs, outputs = 602, 4
        low, high = dtype.range
        x = net.graph.value("x", TensorType(dtype, (1, 2, 2, inputs * groups), ScaleOffset(0.001, 0)), Role.APP_WRITE)
        data = np.zeros((1, 1, inputs, outputs * groups), np.int64)
        for g in range(groups):
            start = int(net.rng.integers(0, 300))
            length = (257, 300, 602)[(g + seed) % 3]
            data[:, :, start : start + length, g * outputs : (g + 1) * outputs] = 255
        w = net.graph.static(data.astype(np.uint8), ScaleOffset(0.001, 0), "w")
        sign = np.full(x.shape, high if seed % 2 else low)
        net.feeds["x"] = sign.astype(dtype.numpy)
        y = net.output((1, 2, 2, outputs * groups), ScaleOffset(0.01, 0))
        net.graph.node("Conv2d", [x, w], [y], stride=(1, 1), pad_amount=((0, 0), (0, 0)), group=groups)
        pad = ((0, 0), (0, 0))
        acc = convolved(integers(x, net.feeds["x"]), data, (1, 1), pad, (1, 1), groups, y.shape)
        assert np.abs(acc).max() >= 2**31 - 2**17 or (dtype is DType.UINT16 and seed % 2 == 0)
        np.testing.assert_array_equal(net.run()[y.name], requantized(acc, x, w, None, y))


def test_scales_along_another_axis_are_not_taken_for_the_outputs() -> None:
    """A square weight whose scales run along its inputs: the sums must not be scaled by them afterwards."""
    net = Net(3, DType.UINT8)
    x, y = net.input((4, 8)), net.output((4, 8), ScaleOffset(0.05, -100))
    w = net.weights((8, 8), DType.INT8, 0)
    net.graph.node("MatMul", [x, w], [y])
    net.check(1, native=False)


@pytest.mark.parametrize("dtype", ACTIVATIONS, ids=lambda d: d.value)
@examples(20)
@given(
    seed=SEEDS, batch=st.integers(1, 3), m=st.integers(1, 20), n=st.integers(1, 40), k=st.integers(1, 60),
    swap=st.booleans(), shared=st.booleans(),
)  # fmt: skip
def test_product_of_activations(
    dtype: DType, seed: int, batch: int, m: int, n: int, k: int, swap: bool, shared: bool
) -> None:
    net = Net(seed, dtype)
    a = net.input((batch, m, k))
    lead = 1 if shared else batch
    b = net.input((lead, n, k) if swap else (lead, k, n))
    y = net.output((batch, m, n), net.encoding(scale=k * 2.0 ** -(dtype.bits - 1)))
    net.graph.node("MatMul", [a, b], [y], transpose_in1=swap)
    left, right = (integers(v, net.feeds[v.name]) for v in (a, b))
    acc = left @ (right.swapaxes(1, 2) if swap else right)
    np.testing.assert_array_equal(net.run()[y.name], requantized(acc, a, b, None, y))


BINARY = ("Add", "Subtract", "Multiply", "Divide", "Maximum", "Minimum")


@pytest.mark.parametrize("dtype", ACTIVATIONS, ids=lambda d: d.value)
@pytest.mark.parametrize("op", BINARY)
@examples(8)
@given(seed=SEEDS, how=st.sampled_from(["whole", "channels", "scalar", "constant", "itself"]))
def test_binary(op: str, dtype: DType, seed: int, how: str) -> None:
    net = Net(seed, dtype)
    shape = (2, 5, 6, 20)  # 1200 elements: as many as a 16-bit table is made for
    x = net.input(shape)
    if how == "constant":
        low, high = dtype.range
        other = net.graph.static(net.rng.integers(low, high + 1, (1,)).astype(dtype.numpy), net.encoding(), "c")
    elif how == "itself":
        other = x
    else:
        other = net.input({"whole": shape, "channels": (20,), "scalar": (1,)}[how])
    y = net.output(shape)
    operands = [other, x] if seed % 2 else [x, other]
    net.graph.node(f"ElementWise{op}", operands, [y])
    net.check(1)


@pytest.mark.parametrize("op", BINARY)
def test_tables_round_as_the_kernel_does(op: str) -> None:
    """Every pair of bytes: the table's arithmetic is the kernel's, where float64 would sometimes round elsewhere."""
    stored = [np.repeat(np.arange(256), 256).astype(np.uint8), np.tile(np.arange(256), 256).astype(np.uint8)]
    elsewhere = 0
    for seed in range(12):
        net = Net(seed, DType.UINT8)
        a, b = (net.input((65536,)) for _ in range(2))
        y = net.output((65536,), net.encoding(scale=float(net.rng.uniform(0.002, 0.02))))
        net.feeds = dict(zip(net.feeds, stored, strict=True))
        net.graph.node(f"ElementWise{op}", [a, b], [y])
        got = net.run()[y.name]
        found = binary(f"ElementWise{op}", *(storage(v.type) for v in (a, b, y)), *stored)  # type: ignore[arg-type]
        assert found is not None
        np.testing.assert_array_equal(got, found)
        elsewhere += int((got != net.cpu()[y.name]).sum())
    assert elsewhere or op not in ("Add", "Subtract")


@pytest.mark.parametrize("dtype", ACTIVATIONS, ids=lambda d: d.value)
@examples(20)
@given(seed=SEEDS, length=st.integers(1, 4))
def test_chains_are_tables(dtype: DType, seed: int, length: int) -> None:
    """Any chain of one source: node by node, as one table, and inside a convolution."""
    net = Net(seed, dtype)
    shape = (1, 6, 6, 32)
    x = net.input((1, 6, 6, 5))
    w = net.weights((1, 1, 5, 32), DType.INT8, 3)
    value = net.middle(shape, net.encoding(scale=8 / (dtype.range[1] - dtype.range[0])))
    net.graph.node("Conv2d", [x, w], [value], stride=(1, 1), pad_amount=((0, 0), (0, 0)))
    low, high = dtype.range
    for i in range(length):
        op = str(net.rng.choice(["Sigmoid", "Relu", "HardSwish", "Tanh", "Gelu", "Multiply", "Add", "Square", "SiLU"]))
        out = net.output(shape) if i == length - 1 else net.middle(shape)
        if op in ("Multiply", "Add"):
            scalar = net.graph.static(net.rng.integers(low, high + 1, (1,)).astype(dtype.numpy), net.encoding(), "c")
            net.graph.node(f"ElementWise{op}", [value, scalar], [out])
        elif op == "Square":
            net.graph.node("ElementWiseMultiply", [value, value], [out])
        elif op == "SiLU":
            gate = net.middle(shape)
            net.graph.node("Sigmoid", [value], [gate])
            net.graph.node("ElementWiseMultiply", [value, gate], [out])
        else:
            net.graph.node(op, [value], [out])
        value = out
    net.run()


@pytest.mark.parametrize("dtype", ACTIVATIONS, ids=lambda d: d.value)
@pytest.mark.parametrize(
    "op", ["Sigmoid", "Tanh", "Relu", "HardSwish", "Gelu", "Elu", "ElementWiseExp", "ElementWiseAbs"]
)
def test_functions_of_one_tensor_are_exact(op: str, dtype: DType) -> None:
    for seed in range(3):
        net = Net(seed, dtype)
        low, high = dtype.range
        x = net.input((1, 64, 32 * (high - low + 1) // 2048 + 1), net.encoding(scale=8 / (high - low)))
        every = np.arange(low, high + 1)
        net.feeds[x.name] = np.resize(every, x.shape).astype(dtype.numpy)
        y = net.output(x.shape)
        net.graph.node(op, [x], [y])
        net.check(0)


@pytest.mark.parametrize("dtype", ACTIVATIONS, ids=lambda d: d.value)
@examples(15)
@given(seed=SEEDS, maximum=st.booleans(), count_pad=st.booleans(), channels=st.integers(1, 40))
def test_pool(dtype: DType, seed: int, maximum: bool, count_pad: bool, channels: int) -> None:
    net = Net(seed, dtype)
    draw = net.rng.integers
    kernel, stride = (tuple(int(v) for v in draw(1, n, 2)) for n in (4, 3))
    pad = tuple((int(draw(0, k)), int(draw(0, k))) for k in kernel)
    size = tuple(int(draw(k, 9)) for k in kernel)
    out = tuple((size[i] + sum(pad[i]) - kernel[i]) // stride[i] + 1 for i in range(2))
    x = net.input((2, *size, channels))
    y = net.output((2, *out, channels), x.encoding if maximum else None)
    params: dict[str, Any] = {} if maximum else {"count_pad_for_edges": count_pad}
    op = "PoolMax2d" if maximum else "PoolAvg2d"
    net.graph.node(op, [x], [y], filter_size=kernel, stride=stride, pad_amount=pad, **params)
    net.check(0 if maximum else 1)


@pytest.mark.parametrize("dtype", ACTIVATIONS, ids=lambda d: d.value)
@pytest.mark.parametrize("op", ["ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum"])
@examples(6)
@given(seed=SEEDS, axes=st.sets(st.integers(0, 3), min_size=1), keep=st.booleans())
def test_reduce(op: str, dtype: DType, seed: int, axes: set[int], keep: bool) -> None:
    net = Net(seed, dtype)
    x = net.input((2, 3, 5, 7))
    shape = tuple(1 if i in axes else n for i, n in enumerate(x.shape) if keep or i not in axes)
    same = op in ("ReduceMax", "ReduceMin") and seed % 2
    scale = x.encoding.scale * 20 if op == "ReduceSum" else None
    y = net.output(shape, x.encoding if same else net.encoding(scale=scale))
    net.graph.node(op, [x], [y], axes=tuple(sorted(axes)), keep_dims=keep)
    net.check(0 if same else 1)


@pytest.mark.parametrize("dtype", ACTIVATIONS, ids=lambda d: d.value)
@examples(12)
@given(seed=SEEDS, n=st.integers(1, 60), axis=st.integers(0, 2), beta=st.sampled_from([1.0, 0.5]))
def test_softmax(dtype: DType, seed: int, n: int, axis: int, beta: float) -> None:
    net = Net(seed, dtype)
    shape = tuple(n if i == axis else 3 for i in range(3))
    x = net.input(shape, net.encoding(scale=float(net.rng.uniform(1, 20)) / (dtype.range[1] - dtype.range[0])))
    low = dtype.range[0]
    y = net.output(shape, ScaleOffset(2.0**-dtype.bits, -low))
    net.graph.node("Softmax", [x], [y], axis=axis, beta=beta)
    net.check(1)


@pytest.mark.parametrize("dtype", ACTIVATIONS, ids=lambda d: d.value)
@pytest.mark.parametrize("op", ["LayerNorm", "RmsNorm", "InstanceNorm", "GroupNorm", "L2Norm"])
@examples(8)
@given(seed=SEEDS, channels=st.integers(2, 12))
def test_normalisation(op: str, dtype: DType, seed: int, channels: int) -> None:
    net = Net(seed, dtype)
    groups = 3 if op == "GroupNorm" else 1
    shape = (2, 3, 4, channels * groups)
    x, y = net.input(shape), net.output(shape, net.encoding(scale=8 / (dtype.range[1] - dtype.range[0])))
    params: dict[str, Any] = {"epsilon": 1e-5}
    if op == "GroupNorm":
        params["group"] = groups
    elif op != "InstanceNorm":
        params["axes"] = (3,)
    operands: list[Value | None] = [x]
    if op != "L2Norm":
        for name in ("gamma", "beta"):
            operands.append(net.graph.static(net.rng.standard_normal(shape[-1]).astype(np.float32), None, name))
    net.graph.node(op, operands, [y], **params)
    net.check(1)


@pytest.mark.parametrize("dtype", ACTIVATIONS, ids=lambda d: d.value)
@examples(15)
@given(seed=SEEDS, linear=st.booleans(), mode=st.integers(0, 3), rounding=st.integers(0, 3), same=st.booleans())
def test_resize(dtype: DType, seed: int, linear: bool, mode: int, rounding: int, same: bool) -> None:
    net = Net(seed, dtype)
    draw = net.rng.integers
    x = net.input((1, int(draw(1, 7)), int(draw(1, 7)), 5))
    factor = 1 + int(draw(0, 3))
    out = (x.shape[1] * factor, x.shape[2] * factor) if draw(0, 2) else (int(draw(1, 15)), int(draw(1, 15)))
    y = net.output((1, *out, 5), x.encoding if same else None)
    net.graph.node("Resize", [x], [y], interpolation_mode=int(linear), transformation_mode=mode, nearest_mode=rounding)
    net.check(1 if linear else 0)


@pytest.mark.parametrize("dtype", [*ACTIVATIONS, DType.INT32], ids=lambda d: d.value)
@examples(25)
@given(seed=SEEDS)
def test_moves(dtype: DType, seed: int) -> None:
    """Data movement gives the same integers as cpu, whatever is viewed, copied or written in place."""
    net = Net(seed, dtype)
    encoding = None if dtype is DType.INT32 else net.encoding()
    type = TensorType(dtype, (2, 4, 6, 8), encoding)
    x = net.graph.value("x", type, Role.APP_WRITE)
    net.feeds["x"] = net.rng.integers(*dtype.range, x.shape, endpoint=True).astype(dtype.numpy)
    value = x
    for i in range(4):
        op = str(net.rng.choice(["Transpose", "Reshape", "Slice", "Concat", "Split", "Pad", "Tile", "SpaceToDepth"]))
        shape = value.shape
        last = Role.APP_READ if i == 3 or net.rng.integers(0, 3) == 0 else Role.NATIVE

        def out(shape: tuple[int, ...], role: Role = last) -> Value:
            return net.graph.value(net.graph.unique("v"), type.with_shape(shape), role)

        draw = net.rng.integers
        if op == "Transpose":
            perm = tuple(int(p) for p in net.rng.permutation(4))
            made = out(tuple(shape[p] for p in perm))
            net.graph.node("Transpose", [value], [made], perm=perm)
        elif op == "Reshape":
            made = out((shape[0], shape[2], shape[1], shape[3]))
            net.graph.node("Reshape", [value], [made])
        elif op == "Slice":
            ranges = tuple((int(draw(0, max(1, n // 2))), n, int(draw(1, 3))) for n in shape)
            made = out(tuple(-(-(e - b) // s) for b, e, s in ranges))
            net.graph.node("StridedSlice", [value], [made], ranges=ranges)
        elif op == "Concat":
            axis = int(draw(0, 4))
            made = out(tuple(2 * n if j == axis else n for j, n in enumerate(shape)))
            net.graph.node("Concat", [value, value], [made], axis=axis)
        elif op == "Split":
            axis = int(draw(0, 4))
            if shape[axis] < 2:
                continue
            sizes = (1, shape[axis] - 1)
            parts = [out(tuple(s if j == axis else n for j, n in enumerate(shape))) for s in sizes]
            net.graph.node("Split", [value], parts, axis=axis, split_index=(1,))
            made = parts[1]
        elif op == "Pad":
            amount = tuple((int(a), int(b)) for a, b in draw(0, 3, (4, 2)))
            made = out(tuple(n + sum(p) for n, p in zip(shape, amount, strict=True)))
            net.graph.node("Pad", [value], [made], scheme=0, pad_amount=amount, pad_constant_value=0.0)
        elif op == "Tile":
            multiples = tuple(int(v) for v in draw(1, 3, 4))
            made = out(tuple(n * m for n, m in zip(shape, multiples, strict=True)))
            net.graph.node("Tile", [value], [made], multiples=multiples)
        else:
            if shape[1] % 2 or shape[2] % 2:
                continue
            made = out((shape[0], shape[1] // 2, shape[2] // 2, shape[3] * 4))
            net.graph.node("SpaceToDepth", [value], [made], block_size=(2, 2))
        value = made
    if not net.graph.outputs:
        return
    net.check(0, native=False)


@pytest.mark.parametrize("dtype", ACTIVATIONS, ids=lambda d: d.value)
def test_concat_of_different_encodings_is_within_a_step(dtype: DType) -> None:
    for seed in range(5):
        net = Net(seed, dtype)
        parts = [net.input((1, 4, 4, c)) for c in (3, 5, 8)]
        y = net.output((1, 4, 4, 16))
        net.graph.node("Concat", parts, [y], axis=3)
        net.check(1, native=False)


@pytest.mark.parametrize("dtype", ACTIVATIONS, ids=lambda d: d.value)
def test_float_borders_are_float32(dtype: DType) -> None:
    """Quantize of a float input and Dequantize to a float output work in float32, not float16."""
    for seed in range(5):
        net = Net(seed, dtype)
        encoding = net.encoding(scale=3.0 / (dtype.range[1] - dtype.range[0]))
        x = net.graph.value("x", TensorType(DType.FLOAT32, (3, 700)), Role.APP_WRITE)
        q = net.middle(x.shape, encoding)
        y = net.graph.value("y", TensorType(DType.FLOAT32, x.shape), Role.APP_READ)
        net.graph.node("Quantize", [x], [q])
        net.graph.node("Dequantize", [q], [y])
        net.feeds["x"] = net.rng.uniform(-3, 3, x.shape).astype(np.float32)
        got, want = net.run()["y"], net.cpu()["y"]
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("how", ["inputs", "constant", "shared", "moved"])
def test_floor_divisions_of_floats_are_float32(how: str) -> None:
    """Of inputs and constants as they are: in float16 many of these quotients would be past the next integer."""
    net = Net(3, DType.UINT8)
    float32, flat = TensorType(DType.FLOAT32, (4, 512)), TensorType(DType.FLOAT32, (2048,))
    b = net.rng.standard_normal(float32.shape).astype(np.float32)
    a = (b * net.rng.integers(1, 3000, b.shape) * np.float32(1 - 4e-4)).astype(np.float32)
    net.feeds = {"a": a} if how == "constant" else {"a": a, "b": b}
    role, data = (Role.STATIC, b) if how == "constant" else (Role.APP_WRITE, None)
    operands = [net.graph.value("a", float32, Role.APP_WRITE), net.graph.value("b", float32, role, data)]
    if how == "shared":
        net.graph.node("ElementWiseAdd", operands, [net.graph.value("sum", float32, Role.APP_READ)])
    if how == "moved":
        moved = [net.graph.value(f"flat_{v.name}", flat) for v in operands]
        for value, target in zip(operands, moved, strict=True):
            net.graph.node("Reshape", [value], [target])
        operands = moved
    net.graph.node("ElementWiseFloorDiv", operands, [net.graph.value("y", operands[0].type, Role.APP_READ)])
    found = net.run(native=False)
    np.testing.assert_array_equal(found["y"].reshape(a.shape), np.floor_divide(a, b))
    rounded = np.floor_divide(a.astype(np.float16).astype(np.float32), b.astype(np.float16).astype(np.float32))
    assert (rounded != np.floor_divide(a, b)).mean() > 0.1
    if how == "shared":
        np.testing.assert_array_equal(found["sum"], matrix_half(half(a) + half(b)))


@pytest.mark.parametrize("weight", [DType.INT16, DType.INT8], ids=lambda d: d.value)
@examples(10)
@given(seed=SEEDS, inputs=st.integers(1, 300), outputs=st.integers(1, 20))
def test_int16_weights_are_exact(weight: DType, seed: int, inputs: int, outputs: int) -> None:
    net = Net(seed, DType.UINT16)
    x, y = net.input((4, inputs)), net.output((4, outputs))
    data = net.rng.integers(-0x8000, 0x7F80, (inputs, outputs)) if weight is DType.INT16 else None
    w = (
        net.weights((inputs, outputs), weight, 1)
        if data is None
        else net.graph.static(data.astype(np.int16), ScaleOffset(1e-5, 0), "w")
    )
    net.graph.node("MatMul", [x, w], [y])
    assert w.data is not None
    acc = integers(x, net.feeds[x.name]) @ integers(w, w.data)
    np.testing.assert_array_equal(net.run(native=False)[y.name], requantized(acc, x, w, None, y))


@pytest.mark.parametrize("dtype", ACTIVATIONS, ids=lambda d: d.value)
@examples(10)
@given(seed=SEEDS, blocks=st.integers(1, 4), outputs=st.integers(1, 20))
def test_blockwise_weights(dtype: DType, seed: int, blocks: int, outputs: int) -> None:
    net = Net(seed, dtype)
    inputs = blocks * 16
    data = net.rng.integers(-8, 8, (1, 1, inputs, outputs)).astype(ml_dtypes.int4)
    encoding = BlockwiseExpansion(
        3, 2, tuple(float(np.float32(s)) for s in net.rng.uniform(0.001, 0.01, outputs)), (0,) * outputs,
        tuple(int(s) for s in net.rng.integers(1, 17, blocks * outputs)),
    )  # fmt: skip
    x, y = net.input((1, 3, 3, inputs)), net.output((1, 3, 3, outputs))
    w = net.graph.static(data, encoding, "w")
    net.graph.node("Conv2d", [x, w], [y], stride=(1, 1), pad_amount=((0, 0), (0, 0)))
    net.check(1, native=False)


@pytest.mark.parametrize("dtype", [DType.UINT8, DType.UINT16], ids=lambda d: d.value)
def test_a_table_behind_a_kernel_that_takes_none_is_a_step_of_its_own(dtype: DType) -> None:
    net = Net(3, dtype)
    x, inner, y = net.input((4, 40)), net.middle((4, 20)), net.output((4, 20))
    w = net.graph.static(net.rng.integers(-0x8000, 0x7F80, (40, 20)).astype(np.int16), ScaleOffset(1e-5, 0), "w")
    net.graph.node("MatMul", [x, w], [inner])
    net.graph.node("Sigmoid", [inner], [y])
    net.check(1)


@pytest.mark.parametrize("dtype", ACTIVATIONS, ids=lambda d: d.value)
@pytest.mark.parametrize("depthwise", [False, True])
def test_a_table_behind_a_concat_of_convolutions_changes_every_part(dtype: DType, depthwise: bool) -> None:
    """The last convolution writes its part of the Concat in place: it must not take the table for its part alone."""
    net = Net(4, dtype)
    shared, parts = net.encoding(), (4, 4) if depthwise else (4, 3)
    last = ("DepthWiseConv2d", (1, 1, 1, 4)) if depthwise else ("Conv2d", (1, 1, 4, 3))
    for (op, shape), channels in zip((("Conv2d", (1, 1, 4, 4)), last), parts, strict=True):
        x, inner = net.input((1, 5, 5, 4)), net.middle((1, 5, 5, channels), shared)
        w = net.weights(shape, DType.INT8, 3)
        net.graph.node(op, [x, w], [inner], stride=(1, 1), pad_amount=((0, 0), (0, 0)))
    made = [node.outputs[0] for node in net.graph]
    joined, y = net.middle((1, 5, 5, sum(parts)), shared), net.output((1, 5, 5, sum(parts)))
    net.graph.node("Concat", made, [joined], axis=3)
    net.graph.node("Sigmoid", [joined], [y])
    net.check(1, native=False)


EXTREME = [(1e-30, 1.0), (1.0, 1e-30), (3e38, 1e-38), (1e-38, 3e38)]


@pytest.mark.parametrize("dtype", ACTIVATIONS, ids=lambda d: d.value)
@pytest.mark.parametrize("scales", EXTREME)
def test_extreme_scales_saturate(dtype: DType, scales: tuple[float, float]) -> None:
    for op in BINARY:
        net = Net(1, dtype)
        a, b = (net.input((4, 300), net.encoding(scale=scales[0])) for _ in range(2))
        y = net.output((4, 300), net.encoding(scale=scales[1]))
        net.graph.node(f"ElementWise{op}", [a, b], [y])
        net.check(1, native=False)
    net = Net(2, dtype)
    x = net.input((4, 30), net.encoding(scale=scales[0]))
    w, y = net.weights((30, 20), DType.INT8, 1), net.output((4, 20), net.encoding(scale=scales[1]))
    net.graph.node("MatMul", [x, w], [y])
    net.check(1, native=False)


def test_a_product_too_long_for_32_bits_is_exact() -> None:
    """All 255 with zero points 0: 34,000 products pass 2^31."""
    net = Net(1, DType.UINT8)
    for _ in range(2):
        net.input((1, 34000), ScaleOffset(0.01, 0))
    y = net.output((1, 1), ScaleOffset(1000.0, 0))
    for name in net.feeds:
        net.feeds[name] = np.full((1, 34000), 255, np.uint8)
    a, b = net.graph.inputs
    net.graph.node("MatMul", [a, b], [y], transpose_in1=True)
    assert net.run(native=False)[y.name].item() == round(34000 * 255 * 255 * 0.01 * 0.01 / 1000)


def test_levels_differ_in_what_they_fuse() -> None:
    net = Net(1, DType.UINT8)
    x = net.input((1, 8, 8, 4))
    w, middle, y = net.weights((1, 1, 4, 8), DType.INT8, 3), net.middle((1, 8, 8, 8)), net.output((1, 8, 8, 8))
    gate = net.middle((1, 8, 8, 8))
    net.graph.node("Conv2d", [x, w], [middle], stride=(1, 1), pad_amount=((0, 0), (0, 0)))
    net.graph.node("Sigmoid", [middle], [gate])
    net.graph.node("ElementWiseMultiply", [middle, gate], [y])
    steps = {}
    for level in (1, 2, 3):
        lowering = net.compiled(level)[1]
        assert not any(isinstance(s, ReferenceStep) for s in lowering.steps)
        steps[level] = [s.kind for s in lowering.steps]
    assert steps == {1: ["conv_u8", "table_u8", "binary_u8"], 2: ["conv_u8"], 3: ["conv_u8"]}
    net.check(1)
    kept = net.compiled(3, fold_relu_activation_into_conv_off=True)[1]
    assert [s.kind for s in kept.steps] == ["conv_u8", "table_u8"]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 999), channels=st.integers(1, 40), outputs=st.integers(1, 150), first=st.booleans())
def test_a_convolution_adds_a_residual_to_the_same_bits(seed: int, channels: int, outputs: int, first: bool) -> None:
    net = Net(seed, DType.UINT8)
    x, skip = net.input((1, 6, 7, channels)), net.input((1, 6, 7, outputs))
    w, made = net.weights((1, 1, channels, outputs), DType.INT8, 3), net.middle((1, 6, 7, outputs))
    y = net.output((1, 6, 7, outputs))
    net.graph.node("Conv2d", [x, w], [made], stride=(1, 1), pad_amount=((0, 0), (0, 0)))
    net.graph.node("ElementWiseAdd", [made, skip] if first else [skip, made], [y])
    assert [s.kind for s in net.compiled(3)[1].steps] == ["conv_u8"]
    assert [s.kind for s in net.compiled(1)[1].steps] == ["conv_u8", "binary_u8"]
    net.check(1)
