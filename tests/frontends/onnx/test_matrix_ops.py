# SPDX-License-Identifier: Apache-2.0
"""Translators of matrix, normalization, recurrent, attention and control ops, against onnxruntime's CPU kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from hexforge.frontends.onnx.placing import place
from hexforge.model.reader import read
from tests.frontends.onnx.parts import units
from tests.frontends.onnx.single_node import compare, f32, model, placed

MS = "com.microsoft"


@pytest.mark.parametrize(
    ("left", "right", "constant", "op"),
    [
        ((2, 3, 4), (4, 5), True, "FullyConnected"),
        ((4,), (4, 5), True, "FullyConnected"),
        ((3, 4), (4,), True, "MatMul"),
        ((2, 1, 3, 4), (5, 4, 2), False, "MatMul"),
        ((4,), (2, 4, 3), False, "MatMul"),
        ((4,), (4,), False, "MatMul"),
    ],
)
def test_matmul(left: tuple[int, ...], right: tuple[int, ...], constant: bool, op: str) -> None:
    x, y = {"x": f32(*left)}, {"y": f32(*right)}
    assert op in compare("MatMul", x if constant else {**x, **y}, y if constant else {})


@pytest.mark.parametrize("flags", range(4))
@pytest.mark.parametrize(
    ("c", "alpha", "beta"), [((5,), 1.0, 1.0), ((3, 1), 1.0, 1.0), ((1, 5), 0.5, 2.0), ((), 1.0, 1.0)]
)
def test_gemm(flags: int, c: tuple[int, ...], alpha: float, beta: float) -> None:
    a = f32(*((4, 3) if flags & 1 else (3, 4)))
    b = f32(*((5, 4) if flags & 2 else (4, 5)))
    params = {"transA": flags & 1, "transB": flags >> 1, "alpha": alpha, "beta": beta}
    ops = compare("Gemm", {"a": a}, {"b": b, "c": f32(*c)}, **params)  # type: ignore[arg-type]
    assert ("FullyConnected" in ops) == (c in ((5,), ()))
    compare("Gemm", {"a": a, "b": b, "c": f32(*c)}, {}, **params)  # type: ignore[arg-type]


EQUATIONS = [
    ("ij,jk->ik", [(2, 3), (3, 4)]),
    ("bij,bjk", [(2, 3, 4), (2, 4, 5)]),
    ("bhid,bhjd->bhij", [(2, 2, 3, 4), (2, 2, 5, 4)]),
    ("...ij,...kj->...ik", [(2, 1, 3, 4), (1, 5, 2, 4)]),
    ("...ii->...i", [(2, 3, 3)]),
    ("ii", [(3, 3)]),
    ("i,j->ij", [(3,), (4,)]),
    ("ij->j", [(3, 4)]),
    ("ijk,ijk->ik", [(2, 3, 4), (2, 3, 4)]),
    ("abc,cd,def->abef", [(2, 3, 4), (4, 2), (2, 3, 2)]),
    ("ij,ij,ij->", [(2, 3), (2, 3), (2, 3)]),
    ("bhwc,hkc->bhwk", [(1, 3, 4, 5), (3, 6, 5)]),
]


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS, ids=lambda v: v if isinstance(v, str) else "")
def test_einsum(equation: str, shapes: list[tuple[int, ...]]) -> None:
    arrays = {f"x{i}": f32(*s) for i, s in enumerate(shapes)}
    shape = np.einsum(equation, *arrays.values()).shape
    compare("Einsum", arrays, {}, [(np.float32, shape)], equation=equation)


@pytest.mark.parametrize("trans", [{"transA": 1}, {"transB": 1, "alpha": 0.5}, {"transBatchA": 1, "transBatchB": 1}])
def test_fused_matmul(trans: dict[str, Any]) -> None:
    compare("FusedMatMul", {"x": f32(3, 3, 3), "y": f32(3, 3, 3)}, {}, domain=MS, **trans)


@pytest.mark.parametrize("zero", [None, "packed"])
@pytest.mark.parametrize(
    ("bits", "k", "block"),
    [(4, 64, 32), (4, 40, 16), (8, 64, 16), (2, 64, 32), (4, 256, 64), (4, 256, 128), (8, 256, 64), (8, 256, 128)],
)
def test_matmul_nbits(bits: int, k: int, block: int, zero: str | None) -> None:
    rng, n, blocks = np.random.default_rng(1), 6, -(-k // block)
    constants = {
        "b": rng.integers(0, 256, (n, blocks, block * bits // 8), dtype=np.uint8),
        "s": rng.uniform(0.1, 1, (n * blocks)).astype(np.float32),
    }
    if zero:
        constants["z"] = rng.integers(0, 256, n * -(-blocks * bits // 8), dtype=np.uint8)
    settings = {"K": k, "N": n, "bits": bits, "block_size": block}
    # terms of up to 2**bits / 10 that may cancel: the error is a share of theirs, not of what is left of them
    ops = compare(
        "MatMulNBits", {"x": f32(2, 3, k) * 0.1}, constants, domain=MS, atol=1e-8 * k * 2**bits + 1e-6, **settings
    )
    assert ops == ["FullyConnected"]


@pytest.mark.parametrize("zero", [False, True])
def test_matmul_nbits_whose_inputs_are_in_groups(zero: bool) -> None:
    """g_idx says which group's scale and zero point each input has.

    onnxruntime 1.31.1 computes something else with zero points, for groups in their order, too: there the op's own
    description is what is compared with.
    """
    rng, n, k, block = np.random.default_rng(1), 6, 64, 16
    blocks = k // block
    constants: dict[str, np.ndarray] = {
        "b": rng.integers(0, 256, (n, blocks, block // 2), dtype=np.uint8),
        "s": rng.uniform(0.1, 1, n * blocks).astype(np.float32),
        "g": rng.permutation(np.repeat(np.arange(blocks), block)).astype(np.int32),
    }
    zeros = np.full((n, blocks), 8)
    if zero:
        constants["z"] = rng.integers(0, 256, n * blocks // 2, dtype=np.uint8)
        zeros = np.stack((constants["z"] & 15, constants["z"] >> 4), -1).reshape(n, blocks)
    settings: dict[str, Any] = {"domain": MS, "K": k, "N": n, "bits": 4, "block_size": block}
    node = helper.make_node("MatMulNBits", ["x", "b", "s", "z" if zero else "", "g"], ["y"], "node", **settings)
    x = {"x": f32(2, 3, k) * 0.1}

    def proto() -> onnx.ModelProto:
        return model([node], x, constants, {"y": (np.float32, (2, 3, n))})

    (given,), ops = placed(proto(), x)
    assert ops == ["FullyConnected"]
    codes = np.stack((constants["b"] & 15, constants["b"] >> 4), -1).reshape(n, k).astype(int)
    weight = (codes - zeros[:, constants["g"]]) * constants["s"].reshape(n, blocks)[:, constants["g"]]
    np.testing.assert_allclose(given, x["x"] @ weight.T, rtol=1e-4, atol=1e-4)
    if not zero:
        theirs = onnxruntime.InferenceSession(proto().SerializeToString()).run(None, x)
        np.testing.assert_allclose(given, theirs[0], rtol=1e-4, atol=1e-4)
    constants["g"][3] = 4
    refused = [p.reason for p in place(units(read(proto()).ir), lambda node: None) if not p.taken]
    assert "g_idx has 64 groups from 0 to 4 for K 64 of 4" in str(refused[0])


def test_matmul_integer() -> None:
    rng = np.random.default_rng(2)
    x = {"x": rng.integers(0, 256, (2, 3, 4), dtype=np.uint8)}
    y = {"y": rng.integers(-128, 128, (4, 5), dtype=np.int8)}
    compare("MatMulInteger", x, y, np.int32)
    zeros = {"zx": np.array(7, np.uint8), "zy": rng.integers(-9, 9, 5, dtype=np.int8)}
    compare("MatMulInteger", x, {**y, **zeros}, np.int32)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_qlinear_matmul(dtype: Any) -> None:
    rng, limits = np.random.default_rng(3), np.iinfo(dtype)
    x = rng.integers(limits.min, limits.max + 1, (2, 3, 4)).astype(dtype)
    y = rng.integers(limits.min, limits.max + 1, (4, 5)).astype(dtype)
    scale, zero = np.array(0.02, np.float32), np.array(3, dtype)
    names = ["x", "s", "z", "y", "s", "z", "out_s", "z"]
    node = helper.make_node("QLinearMatMul", names, ["out"], "node")
    constants = {"s": scale, "z": zero, "y": y, "out_s": np.array(0.15, np.float32)}
    proto = model([node], {"x": x}, constants, {"out": dtype})
    got, ops = placed(proto, {"x": x})
    assert ops == ["FullyConnected"]
    theirs = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(got[0].astype(int), theirs[0].astype(int), atol=1)


@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_softmax(op: str, axis: int | None, opset: int) -> None:
    compare(op, {"x": f32(2, 3, 4)}, {}, opset=opset, **({} if axis is None else {"axis": axis}))  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 9, 12])
def test_lrn(size: int) -> None:
    x = f32(1, 5, 2, 2)
    node = helper.make_node("LRN", ["x"], ["y"], "node", size=size, alpha=0.3, beta=0.6, bias=1.5)
    got, _ = placed(model([node], {"x": x}, {}, {"y": np.float32}), {"x": x})
    before, after = (size - 1) // 2, size // 2  # the window of an even size is not centred
    sums = [np.square(x[:, max(0, c - before) : c + after + 1]).sum(axis=1) for c in range(5)]
    np.testing.assert_allclose(got[0], x / (1.5 + 0.3 / size * np.stack(sums, axis=1)) ** 0.6, rtol=1e-5)


def test_norms() -> None:
    x, c = {"x": f32(2, 4, 3)}, {"s": f32(4), "b": f32(4)}
    stats = {"m": f32(4), "v": np.abs(f32(4)) + 0.1}
    assert "Batchnorm" in compare("BatchNormalization", x, {**c, **stats})
    compare("BatchNormalization", {**x, **c, **stats}, {})
    assert "InstanceNorm" in compare("InstanceNormalization", x, c, epsilon=1e-2)
    assert compare("LayerNormalization", x, {"s": f32(3), "b": f32(3)}, outputs=3)[0] == "LayerNorm"
    compare("LayerNormalization", {**x, "s": f32(4, 1)}, {}, axis=1, opset=17)
    compare("GroupNormalization", {**x, "s": f32(2), "b": f32(2)}, {}, opset=18, num_groups=2)
    assert "GroupNorm" in compare("GroupNormalization", x, c, opset=21, num_groups=2)
    compare("SimplifiedLayerNormalization", x, {"s": f32(3)}, epsilon=1e-3)
    compare("LpNormalization", x, {}, p=1, axis=1)
    compare("LpNormalization", x, {}, p=2, axis=0)


@pytest.mark.parametrize("lengths", [None, (4, 4, 4), (2, 4, 1)])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_lstm(direction: str, lengths: tuple[int, ...] | None) -> None:
    d = 2 if direction == "bidirectional" else 1
    x, lens = f32(4, 3, 5), np.asarray(lengths or (4, 4, 4), np.int32)
    constants = {"w": f32(d, 8, 5), "r": f32(d, 8, 2), "b": f32(d, 16), "l": lens, "h": f32(d, 3, 2), "c": f32(d, 3, 2)}
    if direction != "forward":
        constants["p"] = f32(d, 6)
    compare("LSTM", {"x": x}, constants, outputs=3, hidden_size=2, direction=direction)


@pytest.mark.parametrize("lengths", [(4, 4, 4), (2, 4, 1)])
@pytest.mark.parametrize("linear", [0, 1])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_gru(direction: str, linear: int, lengths: tuple[int, ...]) -> None:
    d = 2 if direction == "bidirectional" else 1
    constants = {"w": f32(d, 6, 5), "r": f32(d, 6, 2), "b": f32(d, 12), "l": np.asarray(lengths, np.int32)}
    constants["h"] = f32(d, 3, 2)
    params = {"hidden_size": 2, "direction": direction, "linear_before_reset": linear}
    compare("GRU", {"x": f32(4, 3, 5)}, constants, outputs=2, **params)  # type: ignore[arg-type]


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("positions", [np.array([[0, 1, 2], [3, 4, 5]]), np.array([2])], ids=["each", "offset"])
def test_rotary_embedding_contrib(interleaved: int, positions: np.ndarray) -> None:
    caches = {"cos": f32(10, 4), "sin": f32(10, 4)}
    inputs = {"x": f32(2, 2, 3, 8), "p": positions}
    compare("RotaryEmbedding", inputs, caches, domain=MS, interleaved=interleaved)


def _branch(name: str, nodes: list[onnx.NodeProto], constants: list[onnx.TensorProto]) -> onnx.GraphProto:
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 3))
    return helper.make_graph(nodes, name, [], [out], constants)


def _if() -> onnx.ModelProto:
    """Branches that use the same inner names, constants of their own and a value from outside."""
    two = numpy_helper.from_array(np.array([2.0], np.float32), "c")
    then = _branch("then", [helper.make_node("Mul", ["t", "c"], ["i"]), helper.make_node("Relu", ["i"], ["y"])], [two])
    other = _branch("else", [helper.make_node("Neg", ["t"], ["i"]), helper.make_node("Exp", ["i"], ["y"])], [])
    nodes = [
        helper.make_node("Tanh", ["x"], ["t"], "tanh"),
        helper.make_node("If", ["cond"], ["out"], "if", then_branch=then, else_branch=other),
    ]
    inputs = {"x": f32(2, 3), "cond": np.array(True)}
    return model(nodes, inputs, {}, {"out": (np.float32, (2, 3))}, 17)


@pytest.mark.parametrize("condition", [True, False])
def test_if(condition: bool) -> None:
    proto, feeds = _if(), {"x": f32(2, 3), "cond": np.array(condition)}
    got, ops = placed(proto, feeds)
    assert "ElementWiseSelect" in ops
    theirs = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, feeds)
    np.testing.assert_allclose(got[0], theirs[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "words"),
    [
        ("LSTM", {"x": f32(2, 1, 3), "w": f32(1, 8, 3), "r": f32(1, 8, 2)}, {"clip": 1.0}, "clip"),
        ("GRU", {"x": f32(2, 1, 3), "w": f32(1, 6, 3), "r": f32(1, 6, 2)}, {"activations": ["Tanh"] * 2}, "QNN has"),
        ("NonMaxSuppression", {"b": f32(1, 2, 4), "s": f32(1, 1, 2)}, {}, "run time"),
        ("Einsum", {"x": f32(2, 3)}, {"equation": "ijk->i"}, "names 3 axes"),
    ],
)
def test_refusals_say_why(op: str, inputs: dict[str, np.ndarray], attributes: dict[str, Any], words: str) -> None:
    if op in ("LSTM", "GRU"):
        attributes["hidden_size"] = 2
    kind = np.int64 if op == "NonMaxSuppression" else np.float32
    proto = model([helper.make_node(op, [*inputs], ["y"], "node", **attributes)], inputs, {}, {"y": kind})
    (found,) = place(units(read(proto).ir), lambda node: None)
    assert found.reason is not None
    assert words in found.reason
