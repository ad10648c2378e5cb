# SPDX-License-Identifier: Apache-2.0
"""Kernels against the references of their ops: each kind of kernel, in both forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyopencl")

from hexforge.addons.gpu import grouping, kernel_launches
from hexforge.addons.gpu.backend import GpuBackend
from hexforge.addons.gpu.config import GpuConfig
from hexforge.addons.gpu.device import choose
from hexforge.addons.gpu.kernels import launch
from hexforge.backends.cpu import CpuBackend
from hexforge.ir import Block, DType, Graph, Role, TensorType, Value

pytestmark = pytest.mark.gpu
Make = Callable[[Graph, np.random.Generator], None]


def floats(*shape: int) -> TensorType:
    return TensorType(DType.FLOAT32, shape)


def weight(g: Graph, rng: np.random.Generator, *shape: int) -> Value:
    return g.static(rng.standard_normal(shape).astype(np.float32) * np.float32(0.3))


def given(g: Graph, *shape: int) -> Value:
    return g.value(g.unique("x"), floats(*shape), Role.APP_WRITE)


def read(g: Graph, value: Value) -> None:
    g.node("Reshape", [value], [g.value(g.unique("y"), value.type, Role.APP_READ)])


def out(g: Graph, op: str, inputs: list[Any], **params: Any) -> Value:
    return g.node(op, inputs, **params).outputs[0]


def conv(
    g: Graph, rng: np.random.Generator, x: Value, columns: int, taps: int, stride: int, pad: int, group: int
) -> Value:
    w = weight(g, rng, taps, taps, x.shape[-1] // group, columns)
    pads = ((pad, pad), (pad, pad))
    return out(g, "Conv2d", [x, w, weight(g, rng, columns)], stride=(stride, stride), pad_amount=pads, group=group)


def convolutions(g: Graph, rng: np.random.Generator) -> None:
    x = given(g, 2, 13, 11, 12)
    a = conv(g, rng, x, 20, 3, 2, 1, 1)
    b = conv(g, rng, x, 20, 1, 2, 0, 4)
    read(g, out(g, "Relu", [out(g, "ElementWiseAdd", [a, b])]))
    narrow = given(g, 1, 9, 9, 3)
    read(g, out(g, "Sigmoid", [conv(g, rng, narrow, 7, 5, 1, 2, 1)]))
    for taps, pad in ((3, 1), (2, 0)):
        planes = out(g, "Transpose", [given(g, 2, 3, 9, 10)], perm=(0, 2, 3, 1))
        read(g, conv(g, rng, planes, 8, taps, 2, pad, 1))


def transposed(g: Graph, rng: np.random.Generator) -> None:
    x = given(g, 1, 5, 6, 8)
    w = weight(g, rng, 3, 3, 8, 4)
    params = {"stride": (2, 2), "pad_amount": ((1, 0), (1, 1)), "output_padding": (1, 0), "group": 2}
    read(g, out(g, "TransposeConv2d", [x, w], **params))


def volumes(g: Graph, rng: np.random.Generator) -> None:
    x = given(g, 1, 5, 6, 7, 4)
    w = weight(g, rng, 3, 2, 3, 4, 8)
    read(g, out(g, "Conv3d", [x, w], stride=(1, 2, 1), pad_amount=((1, 1), (0, 1), (1, 1))))
    read(g, out(g, "PoolMax3d", [x], filter_size=(2, 2, 2), stride=(2, 2, 2), pad_amount=((0, 1), (0, 0), (0, 1))))


def depthwise(g: Graph, rng: np.random.Generator) -> None:
    x = given(g, 2, 11, 9, 16)
    for multiple, stride in ((1, 1), (1, 2), (3, 1)):
        w = weight(g, rng, 3, 3, 1, 16 * multiple)
        bias = weight(g, rng, 16 * multiple)
        y = out(g, "DepthWiseConv2d", [x, w, bias], stride=(stride, stride), pad_amount=((1, 1), (1, 1)))
        read(g, out(g, "Relu6", [y]))
    for stride, pad in ((1, 1), (2, 0)):
        w = weight(g, rng, 3, 3, 1, 16)
        source = out(g, "Tanh", [x])
        y = out(g, "DepthWiseConv2d", [source, w], stride=(stride, stride), pad_amount=((pad, pad), (pad, pad)))
        read(g, out(g, "Relu", [conv(g, rng, out(g, "Relu6", [y]), 40, 1, 1, 0, 1)]))


def products(g: Graph, rng: np.random.Generator) -> None:
    x = given(g, 2, 3, 37, 24)
    read(g, out(g, "Gelu", [out(g, "MatMul", [x, weight(g, rng, 24, 19), weight(g, rng, 19)])]))
    y = given(g, 2, 1, 24, 10)
    read(g, out(g, "MatMul", [x, y]))
    z = given(g, 2, 3, 37, 24)
    scores = out(g, "MatMul", [x, z], transpose_in1=True)
    read(g, out(g, "ElementWiseMultiply", [scores, g.static(np.array(0.125, np.float32))]))
    read(g, out(g, "MatMul", [x, z], transpose_in0=True))
    read(g, out(g, "FullyConnected", [out(g, "ReduceMean", [z], axes=(1, 2)), weight(g, rng, 33, 24)]))


def attention(g: Graph, rng: np.random.Generator) -> None:
    """Heads split and joined by transposes, which products read and write through."""
    query, key, value = (given(g, 2, 12, 3, 8) for _ in range(3))
    q, v = (out(g, "Transpose", [x], perm=(0, 2, 1, 3)) for x in (query, value))
    scores = out(g, "MatMul", [q, out(g, "Transpose", [key], perm=(0, 2, 3, 1))])
    scaled = out(
        g,
        "ElementWiseAdd",
        [out(g, "ElementWiseMultiply", [scores, g.static(np.array(0.3, np.float32))]), given(g, 1, 1, 1, 12)],
    )
    mixed = out(g, "MatMul", [out(g, "Softmax", [scaled], axis=3), v])
    joined = g.value("joined", floats(2, 12, 24))
    g.node("Reshape", [out(g, "Transpose", [mixed], perm=(0, 2, 1, 3))], [joined])
    read(g, out(g, "MatMul", [joined, weight(g, rng, 24, 24)]))


def heads(g: Graph, rng: np.random.Generator) -> None:
    """Attention in one kernel: lengths that fill no tile, heads of other sizes, shared keys, rows that see few keys."""
    for queries, keys, depth, width in ((37, 70, 24, 40), (5, 33, 64, 64), (1, 100, 16, 32)):
        query, key, value = given(g, 2, 3, queries, depth), given(g, 2, 1, keys, depth), given(g, 1, 3, keys, width)
        hidden = np.where(rng.random((2, 1, queries, keys)) < 0.9, -np.inf, 0).astype(np.float32)
        hidden[..., -1] = 0
        scores = out(g, "MatMul", [query, key], transpose_in1=True)
        scaled = out(g, "ElementWiseMultiply", [scores, g.static(np.array(2.5, np.float32))])
        seen = out(g, "ElementWiseAdd", [scaled, g.static(hidden)])
        read(g, out(g, "MatMul", [out(g, "Softmax", [seen], axis=3, beta=0.5), value]))
    query, key, value = (out(g, "Tanh", [given(g, 1, 2, n, 8)]) for n in (6, 10, 10))
    scores = out(g, "MatMul", [query, key], transpose_in1=True)
    read(g, out(g, "MatMul", [out(g, "Softmax", [scores], axis=3), value]))
    turned = out(g, "Transpose", [given(g, 2, 3, 16, 20)], perm=(0, 1, 3, 2))
    scores = out(g, "MatMul", [given(g, 2, 3, 9, 12), given(g, 2, 3, 12, 20)])
    read(g, out(g, "MatMul", [out(g, "Softmax", [scores], axis=3), turned]))


def filters(g: Graph, rng: np.random.Generator) -> None:
    """Filters that are computed, groups that have a bias each."""
    x = given(g, 2, 9, 7, 8)
    for taps, group, stride in ((3, 1, 1), (1, 1, 1), (3, 2, 2)):
        w = out(g, "Relu", [given(g, taps, taps, 8 // group, 12)])
        pads = ((taps // 2, taps // 2),) * 2
        read(g, out(g, "Conv2d", [x, w, weight(g, rng, 12)], stride=(stride, stride), pad_amount=pads, group=group))
    read(g, out(g, "TransposeConv2d", [x, given(g, 2, 2, 8, 5)], stride=(2, 2), pad_amount=((0, 0), (0, 0))))
    read(g, conv(g, rng, x, 20, 1, 1, 0, 4))


def four_bits(g: Graph, rng: np.random.Generator) -> None:
    """Weights of 4 bits in blocks of 32, for one row, a few and many."""
    for rows, columns, dtype in ((1, 50, DType.UINT4), (3, 64, DType.INT4), (37, 40, DType.UINT4)):
        depth = 160
        low, high = (0, 16) if dtype is DType.UINT4 else (-8, 8)
        blocks = columns * depth // 32
        scales = tuple((rng.random(blocks) / 20 + 0.01).astype(np.float32).tolist())
        encoding = Block((1, 32), scales, tuple(int(o) for o in rng.integers(1 - high, 1 - low, blocks)))
        numbers = rng.integers(low, high, (columns, depth)).astype(dtype.numpy)
        w = g.value(g.unique("w"), TensorType(dtype, (columns, depth), encoding), Role.STATIC, numbers)
        y = out(g, "FullyConnected", [given(g, rows, depth), w, weight(g, rng, columns)])
        read(g, out(g, "Relu", [y]))


def deep(g: Graph, rng: np.random.Generator) -> None:
    """Few rows and many products: what is cut along its depth on GPUs."""
    read(g, conv(g, rng, given(g, 1, 7, 7, 96), 40, 3, 1, 1, 1))
    read(g, out(g, "FullyConnected", [given(g, 1, 2048), weight(g, rng, 50, 2048)]))


def pools(g: Graph, rng: np.random.Generator) -> None:
    x = given(g, 1, 12, 10, 8)
    common = {"filter_size": (3, 3), "stride": (2, 2), "pad_amount": ((1, 1), (1, 1))}
    read(g, out(g, "PoolMax2d", [x], **common))
    read(g, out(g, "PoolAvg2d", [x], **common, rounding_mode=1))
    read(g, out(g, "PoolAvg2d", [x], **common, count_pad_for_edges=True))
    read(g, out(g, "L2Pool2d", [x], **common))
    read(g, out(g, "Lrn", [x], radius=2, alpha=0.1, beta=0.75))


def pictures_mean(g: Graph, x: Value) -> Value:
    """What a GlobalAveragePool becomes."""
    return out(g, "PoolAvg2d", [x], filter_size=x.shape[1:3], stride=(1, 1), pad_amount=((0, 0), (0, 0)))


def whole_pictures(g: Graph, rng: np.random.Generator) -> None:
    """Means and sums over all positions: many of them, more channels than work-items, channels that are no vectors."""
    read(g, pictures_mean(g, given(g, 2, 23, 29, 16)))
    read(g, out(g, "Relu", [out(g, "ReduceMean", [given(g, 1, 3, 2, 520)], axes=(1, 2))]))
    read(g, out(g, "ReduceSum", [given(g, 3, 7, 7, 9)], axes=(0, 1, 2), keep_dims=True))


def excited(g: Graph, rng: np.random.Generator, shape: tuple[int, ...], columns: int, first: bool) -> None:
    """Channels times factors made of their means, read by a convolution of one tap."""
    x = given(g, *shape)
    factors = out(g, "Sigmoid", [pictures_mean(g, x)])
    times = out(g, "ElementWiseMultiply", [factors, x] if first else [x, factors])
    read(g, out(g, "ElementWiseAdd", [conv(g, rng, times, columns, 1, 1, 0, 1), given(g, *shape[:3], columns)]))


def squeeze_and_excite(g: Graph, rng: np.random.Generator) -> None:
    """Several pictures, channels that are no vectors, the factors on either side."""
    excited(g, rng, (2, 6, 5, 24), 20, first=False)
    excited(g, rng, (1, 7, 7, 10), 7, first=True)


def rows(g: Graph, rng: np.random.Generator) -> None:
    x = given(g, 3, 5, 7, 20)
    for axis in (1, 3):
        read(g, out(g, "Softmax", [x], axis=axis))
        read(g, out(g, "LogSoftmax", [x], axis=axis, beta=0.5))
        read(g, out(g, "Argmax", [x], axis=axis))
    read(g, out(g, "LayerNorm", [x, weight(g, rng, 20), weight(g, rng, 20)], axes=(3,), epsilon=1e-5))
    read(g, out(g, "RmsNorm", [x, weight(g, rng, 7, 20)], axes=(2, 3), epsilon=1e-5))
    read(g, out(g, "L2Norm", [x], axes=(2,)))
    read(g, out(g, "InstanceNorm", [x, weight(g, rng, 20), weight(g, rng, 20)], epsilon=1e-5))
    read(g, out(g, "GroupNorm", [x, weight(g, rng, 20)], group=4, epsilon=1e-5))
    for kind in ("Max", "Mean", "Min", "Prod", "Sum", "SumSquare"):
        read(g, out(g, f"Reduce{kind}", [x], axes=(1, 3), keep_dims=True))
    read(g, out(g, "CumulativeSum", [x], axis=2, exclusive=True, reverse=True))


def joined(g: Graph, rng: np.random.Generator) -> None:
    """Kernels that write into a concatenation, along the last axis and another, where rows are no vectors too."""
    x = given(g, 1, 6, 5, 8)
    for axis, columns in ((3, (16, 12)), (3, (7, 8)), (1, (8, 8))):
        parts = [out(g, "Relu", [conv(g, rng, x, n, 1, 1, 0, 1)]) for n in columns]
        pooled = out(g, "PoolMax2d", [x], filter_size=(3, 3), stride=(1, 1), pad_amount=((1, 1), (1, 1)))
        whole = out(g, "Concat", [*parts, pooled], axis=axis)
        read(g, conv(g, rng, whole, 8, 3, 1, 1, 1))


def winograd(g: Graph, rng: np.random.Generator) -> None:
    """Convolutions of 3 by 3 whose pictures fill no whole tiles."""
    for height, width, channels, columns, pad in ((13, 9, 32, 20, 1), (14, 14, 16, 48, 1), (9, 11, 16, 16, 0)):
        read(g, out(g, "Relu", [conv(g, rng, given(g, 2, height, width, channels), columns, 3, 1, pad, 1)]))


def moves(g: Graph, rng: np.random.Generator) -> None:
    x, y = given(g, 2, 6, 4, 8), given(g, 2, 6, 4, 4)
    joined = out(g, "Concat", [x, y], axis=3)
    read(g, out(g, "Relu", [out(g, "Transpose", [joined], perm=(0, 3, 1, 2))]))
    sliced = out(g, "StridedSlice", [x], ranges=((0, 2, 1), (5, -1, -2), (1, 4, 1), (0, 8, 3)))
    read(g, out(g, "Pad", [sliced], scheme=2, pad_amount=((0, 0), (1, 1), (1, 2), (0, 0))))
    read(g, out(g, "Pad", [x], scheme=0, pad_amount=((0, 0), (1, 0), (0, 2), (0, 0)), pad_constant_value=2.5))
    read(g, out(g, "Tile", [y], multiples=(1, 2, 1, 3)))
    for part in g.node("Split", [x], axis=3, split_index=(2, 5)).outputs:
        read(g, part)
    read(g, out(g, "DepthToSpace", [x], block_size=(2, 2)))
    read(g, out(g, "SpaceToDepth", [x], block_size=(2, 2), mode=1))
    indices = g.static(np.asarray([[1, -1], [0, 3]], np.int32))
    read(g, out(g, "Gather", [x, indices], axis=1))


def reshaped(g: Graph, rng: np.random.Generator) -> None:
    """Neighbours of the end of a chain that are none before a reshape, where something broadcasts."""
    for inner in ((4, 3, 2, 2, 1), (4, 3, 2, 2)):
        y = out(g, "ElementWiseMultiply", [given(g, *inner), weight(g, rng, *inner[:1], 1, 1, *inner[3:4], *inner[4:])])
        y = out(g, "Batchnorm", [y, weight(g, rng, inner[-1]), weight(g, rng, inner[-1])])
        flat = g.value(g.unique("flat"), floats(4, 3, 4))
        g.node("Reshape", [y], [flat])
        read(g, out(g, "Relu", [flat]))


def looked_up(g: Graph, rng: np.random.Generator) -> None:
    x, updates = given(g, 5, 6), given(g, 2, 6)
    indices = g.static(np.asarray([[3], [1]], np.int32))
    read(g, out(g, "ScatterNd", [x, indices, updates], reduction=1))
    read(
        g, out(g, "ScatterElements", [x, g.static(np.asarray([[0, 4, 2, -1, 0, 1]], np.int32)), given(g, 1, 6)], axis=0)
    )
    for value in g.node("TopK", [x], k=3).outputs:
        read(g, value)
    image = given(g, 1, 4, 5, 3)
    for mode in (0, 1, 2):
        y = g.value(g.unique("r"), floats(1, 9, 7, 3))
        g.node("Resize", [image], [y], interpolation_mode=mode)
        read(g, y)
    read(g, out(g, "GridSample", [image, given(g, 1, 3, 4, 2)], padding_mode=2))


def mixed_types(g: Graph, rng: np.random.Generator) -> None:
    x = given(g, 4, 6)
    whole = g.value("whole", TensorType(DType.INT32, (4, 6)))
    g.node("Cast", [out(g, "ElementWiseMultiply", [x, g.static(np.array(7, np.float32))])], [whole])
    three = g.static(np.asarray(3, np.int32))
    for op in ("Mod", "FloorDiv", "Divide", "Power"):
        read(g, out(g, f"ElementWise{op}", [whole, three]))
    negative = out(g, "ElementWiseLess", [x, g.static(np.array(0, np.float32))])
    read(g, out(g, "ElementWiseSelect", [negative, out(g, "ElementWiseExp", [x]), x]))
    read(g, out(g, "ElementWiseAnd", [negative, out(g, "ElementWiseGreater", [whole, three])]))


def tailed(g: Graph, rng: np.random.Generator) -> None:
    """Products whose columns fill no vector: their sums are vectors, and what follows works on one at a time."""
    x = given(g, 1, 5, 6, 8)
    read(g, out(g, "ElementWiseSoftplus", [conv(g, rng, x, 5, 3, 1, 1, 1)]))
    both = conv(g, rng, x, 16, 1, 1, 0, 1)
    gate = out(g, "ElementWiseSoftplus", [given(g, 1, 5, 6, 1)])
    read(g, out(g, "ElementWiseNeuron", [out(g, "ElementWiseMultiply", [both, gate])], operation=7, beta=0.5))


def left_out(g: Graph, rng: np.random.Generator) -> None:
    """Every op that can do without a weight or a bias, without them."""
    x = given(g, 1, 5, 6, 8)
    vector = [weight(g, rng, 8) for _ in range(3)]
    for first, *rest in ((x,), (conv(g, rng, x, 8, 3, 1, 1, 1), vector[2])):
        read(g, out(g, "Batchnorm", [first, vector[0], *rest]))
        read(g, out(g, "Relu", [out(g, "Batchnorm", [first, vector[1]])]))
    norms = (
        ("LayerNorm", {"axes": (3,)}),
        ("RmsNorm", {"axes": (3,)}),
        ("InstanceNorm", {}),
        ("GroupNorm", {"group": 2}),
    )
    for op, params in norms:
        for more in ([], vector[:1], [None, vector[1]], vector[:2]):
            read(g, out(g, op, [x, *more], **params))
    one = {"stride": (1, 1), "pad_amount": ((0, 0), (0, 0))}
    for op, w in (("Conv2d", (3, 3, 8, 4)), ("TransposeConv2d", (3, 3, 8, 4)), ("DepthWiseConv2d", (3, 3, 1, 8))):
        read(g, out(g, op, [x, weight(g, rng, *w)], **one))
    volume, threefold = given(g, 1, 4, 5, 6, 8), {"stride": (1, 1, 1), "pad_amount": ((0, 0),) * 3}
    for op in ("Conv3d", "TransposeConv3d"):
        for bias in ([], [weight(g, rng, 4)]):
            read(g, out(g, op, [volume, weight(g, rng, 2, 2, 2, 8, 4), *bias], **threefold))
    read(g, out(g, "MatMul", [x, weight(g, rng, 8, 5)]))
    read(g, out(g, "FullyConnected", [x, weight(g, rng, 5, 240)]))


MAKES: dict[str, Make] = {
    m.__name__: m
    for m in (
        convolutions, transposed, volumes, depthwise, products, attention, heads, filters, four_bits, deep, pools, rows,
        moves, reshaped, joined, winograd, looked_up, mixed_types, tailed, left_out, whole_pictures, squeeze_and_excite,
    )
}  # fmt: skip


def agree(make: Make, config: GpuConfig | None = None, seed: int = 0, tolerance: float = 2e-5) -> None:
    made = []
    for _ in range(2):
        graph = Graph("g")
        make(graph, np.random.default_rng(seed))
        made.append(graph)
    rng = np.random.default_rng(seed + 1)
    exact = np.float16 if config is not None and config.gpu_precision in ("fp16", "hybrid") else np.float32
    feeds = {v.name: rng.standard_normal(v.shape).astype(exact).astype(v.dtype.numpy) for v in made[0].inputs}
    got, want = GpuBackend(config).compile(made[0]).run(feeds), CpuBackend().compile(made[1]).run(feeds)
    assert set(got) == set(want)
    for name, expected in want.items():
        scale = 1 + float(np.abs(expected.astype(np.float64)).max()) if expected.size else 1
        np.testing.assert_allclose(got[name], expected, rtol=tolerance, atol=tolerance * scale, err_msg=name)


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
def test_kernels_agree_with_references(make: Make) -> None:
    agree(make)


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
def test_kernels_for_gpus_agree_too(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """PoCL runs the tiles in local memory as well; only slowly."""
    monkeypatch.setattr("hexforge.addons.gpu.device.ClDevice.is_processor", property(lambda self: False))
    monkeypatch.setattr("hexforge.addons.gpu.device.ClDevice.units", 132)  # so that depths are cut
    agree(make)


@pytest.mark.parametrize("precision", ["fp16", "hybrid"])
def test_half_precisions(precision: str) -> None:
    tolerance = 1.5e-2 if precision == "fp16" and choose().half_math else 4e-3
    agree(convolutions, GpuConfig(gpu_precision=precision), tolerance=tolerance)


def test_kernels_in_half_are_written_for_devices_that_can() -> None:
    """What a device with cl_khr_fp16 would be given; `make gpu-half` runs it."""
    graph = Graph("g")
    products(graph, np.random.default_rng(0))
    for can, is_processor in ((True, True), (True, False), (False, True)):
        made = launch.Machine(is_processor, units=8, local_bytes=32 << 10, half_math=can)
        lowered = kernel_launches.GpuLowering(graph, GpuConfig(gpu_precision="fp16"), made)
        sources = [launch.source for launch in lowered.launches()]
        assert all(("cl_khr_fp16" in source) == can for source in sources)
        assert any("fma((half" in source for source in sources) == can
        hybrid = kernel_launches.GpuLowering(graph, GpuConfig(gpu_precision="hybrid"), made)
        assert not any("cl_khr_fp16" in launch.source for launch in hybrid.launches())


def test_nothing_fused_is_the_same_numbers() -> None:
    made = []
    for optimized in (True, False):
        graph = Graph("g")
        convolutions(graph, np.random.default_rng(0))
        feeds = {v.name: np.random.default_rng(1).standard_normal(v.shape).astype(np.float32) for v in graph.inputs}
        config = GpuConfig(gpu_use_node_optimizations=optimized, gpu_use_memory_optimizations=optimized)
        made.append(GpuBackend(config).compile(graph))
    fused, apart = (p.run(feeds) for p in made)
    assert len(made[0].launches) < len(made[1].launches)
    for name, value in fused.items():
        np.testing.assert_allclose(value, apart[name], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("precision", ["fp32", "hybrid"])
def test_channels_times_factors_cost_no_kernel_and_change_no_bit(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hexforge.addons.gpu.device.ClDevice.is_processor", property(lambda self: False))
    graph = Graph("g")
    excited(graph, np.random.default_rng(0), (2, 4, 5, 24), 20, first=False)
    feeds = {v.name: np.random.default_rng(1).standard_normal(v.shape).astype(np.float32) for v in graph.inputs}
    together = GpuBackend(GpuConfig(gpu_precision=precision)).compile(graph)
    monkeypatch.setattr(grouping, "_scaled", lambda node, home: None)
    apart = GpuBackend(GpuConfig(gpu_precision=precision)).compile(graph)
    names = [[launch.name for launch in program.launches] for program in (together, apart)]
    assert [sum(n.startswith("ElementWiseMultiply") for n in each) for each in names] == [0, 1]
    expected = apart.run(feeds)
    for name, value in together.run(feeds).items():
        np.testing.assert_array_equal(value, expected[name])


def test_whole_pictures_are_shared_by_many_work_items() -> None:
    graph = Graph("g")
    read(graph, pictures_mean(graph, given(graph, 1, 112, 112, 32)))
    gpu = launch.Machine(is_processor=False, units=132, local_bytes=48 << 10, most_items=1024)
    (pool,) = (x for x in kernel_launches.GpuLowering(graph, GpuConfig(), gpu).launches() if "Pool" in x.name)
    assert pool.global_size[0] >= 4096  # one for each channel before


def test_attention_is_one_kernel() -> None:
    graph = Graph("g")
    heads(graph, np.random.default_rng(0))
    names = [launch.name for launch in GpuBackend().compile(graph).launches]
    assert sum(name.startswith("Attention") for name in names) == 5
    assert not any(name.startswith(("MatMul", "Softmax")) for name in names)


def test_concatenations_cost_no_kernel() -> None:
    graph = Graph("g")
    joined(graph, np.random.default_rng(0))
    assert not any(launch.name.startswith("Concat") for launch in GpuBackend().compile(graph).launches)


@pytest.mark.parametrize("is_processor", [True, False])
def test_winograd_convolutions_agree(is_processor: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hexforge.addons.gpu.device.ClDevice.is_processor", property(lambda self: is_processor))
    monkeypatch.setattr(kernel_launches, "winograd_pays", lambda product, machine: True)
    agree(winograd)
    graph = Graph("g")
    winograd(graph, np.random.default_rng(0))
    assert sum(launch.name.startswith("Winograd") for launch in GpuBackend().compile(graph).launches) == 6


def test_four_bits_stay_packed() -> None:
    graph = Graph("g")
    four_bits(graph, np.random.default_rng(0))
    elements = sum(v.type.size for v in graph.values.values() if v.encoding is not None)
    assert GpuBackend().compile(graph).constant_bytes < elements  # half a byte each, scales, padded panels


def test_machines_decide_kernels_not_devices() -> None:
    graph = Graph("g")
    deep(graph, np.random.default_rng(0))
    gpu = launch.Machine(is_processor=False, units=132, local_bytes=48 << 10)
    made = kernel_launches.GpuLowering(graph, GpuConfig(), gpu).launches()
    assert all(launch.local_size[0] >= 32 for launch in made)
