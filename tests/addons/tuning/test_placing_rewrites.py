# SPDX-License-Identifier: Apache-2.0
"""Rewrites that bring nodes onto the NPU: random graphs of each kind compute the same in onnxruntime afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hexforge
from hexforge.addons.tuning.rewrites import RULES, apply, find
from hexforge.addons.tuning.rewrites.ranks import MOST_RANK, merge_axes
from hexforge.chips.deployment import Deployment
from hexforge.model.extraction import model_bytes
from hexforge.model.reader import read
from hexforge.ort.check import REMEDY
from hexforge.patterns.nodes import shape
from hexforge.runtime.prepare import prepare_model
from hexforge.runtime.registry import backend_for
from tests.addons.tuning.test_rewrites import built, ops, same
from tests.ort.models import node

BY_NAME = {rule.name: rule for rule in RULES}


def rewritten_the_same(data: bytes, rule: str) -> Any:
    """The model with a rule applied, whose outputs are the same."""
    loaded = read(data)
    assert find(loaded.ir, BY_NAME[rule])
    apply(loaded.ir, BY_NAME[rule])
    same(data, model_bytes(loaded))
    return loaded


def on_the_cpu(model: Any) -> list[str]:
    """Ops of a model that the NPU refuses."""
    return [row.op_type for row in prepare_model(model, backend_for(Deployment("SM8650"))).left_on_cpu]


# -- reductions --------------------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(
    op=st.sampled_from(["ReduceSumSquare", "ReduceL1", "ReduceLogSum"]),
    axes=st.sets(st.integers(-4, 3), max_size=3),
    keep=st.integers(0, 1),
    opset=st.sampled_from([11, 13, 17, 18, 21]),
)
def test_reductions_written_out(op: str, axes: set[int], keep: int, opset: int) -> None:
    given_axes = sorted({axis % 4 for axis in axes})
    attributes: dict[str, Any] = {"keepdims": keep}
    inputs = ["p"]
    constants: dict[str, Any] = {}
    if opset >= 18 and given_axes:
        inputs.append("axes")
        constants["axes"] = np.array(given_axes, np.int64)
    elif given_axes:
        attributes["axes"] = given_axes
    ahead = node("Abs", ["x"], ["p"]) if op == "ReduceLogSum" else node("Neg", ["x"], ["p"])
    data = built([ahead, node(op, inputs, ["y"], **attributes)], (2, 3, 4, 5), opset, **constants)
    assert op in on_the_cpu(read(data))
    after = rewritten_the_same(data, "reduction-written-out")
    assert on_the_cpu(after) == []


def test_axes_that_are_none_because_none_means_none_are_left_alone() -> None:
    nodes = [node("ReduceSumSquare", ["x"], ["y"], noop_with_empty_axes=1)]
    assert not find(read(built(nodes, opset=18)).ir, BY_NAME["reduction-written-out"])


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("Softsign", {}),
        ("Celu", {}),
        ("Celu", {"alpha": 0.5}),
        ("Celu", {"alpha": 2.0}),
        ("Shrink", {}),
        ("Shrink", {"lambd": 0.3, "bias": 0.2}),
    ],
)
def test_activations_written_out(op: str, attributes: dict[str, Any]) -> None:
    data = built([node("Neg", ["x"], ["u"]), node(op, ["u"], ["y"], **attributes)], (2, 3, 4))
    assert on_the_cpu(read(data)) == [op]
    assert on_the_cpu(rewritten_the_same(data, "pointwise-written-out")) == []


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [None, -2, 0, 1, 9])
def test_triangles_as_masks(upper: int, k: int | None) -> None:
    given: dict[str, Any] = {} if k is None else {"k": np.array(k)}
    data = built([node("Neg", ["x"], ["u"]), node("Trilu", ["u", *given], ["y"], upper=upper)], (2, 4, 5), **given)
    assert on_the_cpu(read(data)) == ["Trilu"]
    assert on_the_cpu(rewritten_the_same(data, "triangle-as-mask")) == []


# -- focus -------------------------------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(
    order=st.permutations([(0, 0), (0, 1), (1, 0), (1, 1)]),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    pads=st.tuples(*[st.integers(0, 2)] * 4),
    chained=st.booleans(),
    size=st.tuples(st.sampled_from([8, 10]), st.sampled_from([8, 14])),
    negative=st.booleans(),
)
def test_focus_becomes_a_convolution(
    order: list[tuple[int, int]], kernel: tuple[int, int], stride: tuple[int, int], pads: tuple[int, ...],
    chained: bool, size: tuple[int, int], negative: bool,
) -> None:  # fmt: skip
    random = np.random.default_rng(1)
    nodes = []
    constants: dict[str, Any] = {"end": np.array([2**62]), "two": np.array([2]), "rows": np.array([2])}
    constants |= {"columns": np.array([-1 if negative else 3]), "zero": np.array([0]), "one": np.array([1])}
    number = ("zero", "one")
    for i, (row, column) in enumerate(order):
        if chained:
            nodes.append(node("Slice", ["x", number[row], "end", "rows", "two"], [f"r{i}"]))
            nodes.append(node("Slice", [f"r{i}", number[column], "end", "columns", "two"], [f"u{i}"]))
        else:
            constants |= {f"s{i}": np.array([column, row]), "e": np.array([99, 99]), "a": np.array([3, 2])}
            constants["t"] = np.array([2, 2])
            nodes.append(node("Slice", ["x", f"s{i}", "e", "a", "t"], [f"u{i}"]))
    nodes.append(node("Concat", ["u0", "u1", "u2", "u3"], ["c"], axis=1))
    nodes.append(node("Conv", ["c", "w", "b"], ["y"], strides=stride, pads=pads))
    constants |= {"w": random.standard_normal((5, 12, *kernel)).astype(np.float32)}
    constants |= {"b": random.standard_normal(5).astype(np.float32)}
    after = rewritten_the_same(built(nodes, (1, 3, *size), **constants), "focus-into-conv")
    assert ops(after) == {"Conv": 1}


@pytest.mark.parametrize("block", [2, 3, 4])
def test_space_to_depth_becomes_a_convolution_too(block: int) -> None:
    weight = np.random.default_rng(2).standard_normal((4, 2 * block**2, 2, 2)).astype(np.float32)
    nodes = [node("SpaceToDepth", ["x"], ["u"], blocksize=block), node("Conv", ["u", "w"], ["y"])]
    after = rewritten_the_same(built(nodes, (1, 2, 24, 12), w=weight), "focus-into-conv")
    assert ops(after) == {"Conv": 1}


@pytest.mark.parametrize("what", ["dilations", "group", "read twice", "odd"])
def test_what_is_no_focus_is_left_alone(what: str) -> None:
    constants: dict[str, Any] = {f"s{i}": np.array([i % 2, i // 2]) for i in range(4)}
    constants |= {"e": np.array([99, 99 if what != "odd" else 9]), "a": np.array([2, 3]), "t": np.array([2, 2])}
    nodes = [node("Slice", ["x", f"s{i}", "e", "a", "t"], [f"u{i}"]) for i in range(4)]
    nodes.append(node("Concat", ["u0", "u1", "u2", "u3"], ["c"], axis=1))
    deep = 4 if what == "group" else 12
    attributes: dict[str, dict[str, Any]] = {"dilations": {"dilations": [2, 2]}, "group": {"group": 3}}
    how = attributes.get(what, {})
    nodes.append(node("Conv", ["c", "w"], ["y" if what != "read twice" else "v"], **how))
    if what == "read twice":
        nodes.append(node("Concat", ["c", "v"], ["y"], axis=1))
    weight = np.ones((6, deep, 1, 1), np.float32)
    loaded = read(built(nodes, (1, 3, 10, 10), w=weight, **constants))
    assert not find(loaded.ir, BY_NAME["focus-into-conv"])


# -- recurrent layers --------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    op=st.sampled_from(["LSTM", "GRU", "RNN"]),
    direction=st.sampled_from(["forward", "reverse", "bidirectional"]),
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    states=st.booleans(),
    wanted=st.sampled_from([("y",), ("", "y"), ("y", "h")]),
)
def test_constant_lengths_of_sequences(
    op: str, direction: str, lengths: list[int], states: bool, wanted: tuple[str, ...]
) -> None:
    random = np.random.default_rng(4)
    gates, ways, batch = {"LSTM": 4, "GRU": 3, "RNN": 1}[op], 2 if direction == "bidirectional" else 1, len(lengths)

    def drawn(*sizes: int) -> np.ndarray:
        return random.standard_normal(sizes).astype(np.float32)

    constants: dict[str, Any] = {"w": drawn(ways, gates * 3, 5), "r": drawn(ways, gates * 3, 3)}
    constants |= {"b": drawn(ways, 2 * gates * 3), "lens": np.array(lengths, np.int32)}
    inputs = ["x", "w", "r", "b", "lens"]
    if states:
        constants["h0"] = drawn(ways, batch, 3)
        inputs.append("h0")
        if op == "LSTM":
            constants["c0"] = drawn(ways, batch, 3)
            inputs.append("c0")
    nodes = [node(op, inputs, list(wanted), hidden_size=3, direction=direction)]
    if "h" in wanted:
        nodes[0].output[0] = "all"
        nodes += [node("ReduceSum", ["all"], ["sum"], keepdims=0), node("Add", ["sum", "h"], ["y"])]
    after = rewritten_the_same(built(nodes, (4, batch, 5), **constants), "constant-sequence-lengths")
    layers = [n for n in after.ir.graph if n.op_type == op]
    assert len(layers) == len(set(lengths))
    assert all(len(n.inputs) < 5 or n.inputs[4] is None for n in layers)
    if op != "RNN":
        assert on_the_cpu(after) == []


# -- six dimensions ----------------------------------------------------------------------------------------------------


def test_axes_of_one_label_are_merged_from_the_left() -> None:
    merged = merge_axes(["a", "a", "b", None, "c", "c"])
    assert merged is not None
    assert merged.groups == ((0, 1), (2, 3), (4,), (5,))
    assert merged.shape((2, 3, 4, 1, 5, 6)) == (6, 4, 5, 6)
    assert merge_axes(["a", "b", "c", "d", "e", "f"]) is None


def _step(draw: Any, number: int, x: str, sizes: list[int], constants: dict[str, Any]) -> tuple[Any, list[int]]:
    """One more node after x, of rank 6, and the shape it gives."""
    kind = draw(st.sampled_from(
        ["unary", "clip", "constant", "broadcast", "transpose", "softmax", "slice", "gather", "concat", "split",
         "where", "reduce", "expand", "matmul", "unsqueeze", "tile"]
    ))  # fmt: skip
    y, c = f"t{number}", f"c{number}"
    axis = draw(st.integers(0, len(sizes) - 1))
    if kind == "clip":
        constants |= {f"{c}_low": np.float32(-1), f"{c}_high": np.float32(1)}
        return [node("Clip", [x, f"{c}_low", f"{c}_high"], [y])], sizes
    if kind == "constant":
        constants[c] = np.full((1,) * len(sizes), 0.5, np.float32)
        return [node("Mul", [x, c], [y])], sizes
    if kind == "broadcast":
        kept = draw(st.integers(1, len(sizes)))
        ones = draw(st.sets(st.integers(0, len(sizes) - 1)))
        operand = [1 if i in ones else n for i, n in enumerate(sizes)][-kept:]
        constants[c] = np.random.default_rng(number).standard_normal(operand).astype(np.float32)
        op = draw(st.sampled_from(["Add", "Sub", "Mul", "Max"]))
        return [node(op, draw(st.sampled_from([[x, c], [c, x]])), [y])], sizes
    if kind == "transpose":
        perm = list(range(len(sizes)))
        at = draw(st.integers(0, len(sizes) - 1))
        perm = perm[at:] + perm[:at] if draw(st.booleans()) else draw(st.permutations(perm))
        return [node("Transpose", [x], [y], perm=perm)], [sizes[i] for i in perm]
    if kind == "softmax":
        return [node("Softmax", [x], [y], axis=axis)], sizes
    if kind == "slice" and sizes[axis] > 1:
        constants |= {f"{c}_s": np.array([1]), f"{c}_e": np.array([99]), f"{c}_a": np.array([axis - len(sizes)])}
        after = [n - 1 if i == axis else n for i, n in enumerate(sizes)]
        return [node("Slice", [x, f"{c}_s", f"{c}_e", f"{c}_a"], [y])], after
    if kind == "gather":
        constants[c] = np.array([sizes[axis] - 1, 0])
        return [node("Gather", [x, c], [y], axis=axis)], [2 if i == axis else n for i, n in enumerate(sizes)]
    if kind == "concat":
        doubled = [2 * n if i == axis else n for i, n in enumerate(sizes)]
        return [node("Neg", [x], [f"{y}_n"]), node("Concat", [x, f"{y}_n"], [y], axis=axis)], doubled
    if kind == "split" and sizes[axis] > 1:
        constants[c] = np.array([1, sizes[axis] - 1])
        nodes = [node("Split", [x, c], [f"{y}_a", f"{y}_b"], axis=axis), node("Add", [f"{y}_a", f"{y}_b"], [y])]
        return nodes, [sizes[axis] - 1 if i == axis else n for i, n in enumerate(sizes)]
    if kind == "where":
        constants[c] = np.random.default_rng(number).integers(0, 2, sizes[-2:]).astype(bool)
        constants[f"{c}_else"] = np.float32(0)
        return [node("Where", [c, x, f"{c}_else"], [y])], sizes
    if kind == "reduce":
        op = draw(st.sampled_from(["ReduceMean", "ReduceMax", "ReduceL2"]))
        return [node(op, [x], [y], axes=[axis, (axis + 1) % len(sizes)])], [
            1 if i in (axis, (axis + 1) % len(sizes)) else n for i, n in enumerate(sizes)
        ]
    if kind == "expand" and sizes[axis] == 1:
        wide = [3 if i == axis else n for i, n in enumerate(sizes)]
        constants[c] = np.array(wide)
        return [node("Expand", [x, c], [y])], wide
    if kind == "tile":
        repeats = draw(st.lists(st.sampled_from([1, 1, 1, 2]), min_size=len(sizes), max_size=len(sizes)))
        constants[c] = np.array(repeats)
        return [node("Tile", [x, c], [y])], [n * count for n, count in zip(sizes, repeats, strict=True)]
    if kind == "matmul":
        constants[c] = np.random.default_rng(number).standard_normal((sizes[-1], 2)).astype(np.float32)
        return [node("MatMul", [x, c], [y])], [*sizes[:-1], 2]
    if kind == "unsqueeze" and len(sizes) < 7:
        constants[c] = np.array([axis])
        return [node("Unsqueeze", [x, c], [y])], [*sizes[:axis], 1, *sizes[axis:]]
    return [node("Sigmoid", [x], [y])], sizes


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_six_dimensions_become_five_or_fewer(data: Any) -> None:
    sizes = data.draw(st.lists(st.sampled_from([1, 2, 3]), min_size=6, max_size=6))
    constants: dict[str, Any] = {"six": np.array(sizes), "flat": np.array([-1])}
    nodes = [node("Reshape", ["x", "six"], ["t"])]
    x, whole = "t", int(np.prod(sizes))
    for number in range(data.draw(st.integers(1, 5))):
        more, sizes = _step(data.draw, number, x, sizes, constants)
        nodes += more
        x = f"t{number}"
        if np.prod(sizes) > 4000:
            break
    nodes.append(node("Reshape", [x, "flat"], ["y"]))
    before = built(nodes, (whole,), opset=17, **constants)
    loaded = read(before)
    changes = apply(loaded.ir, BY_NAME["merge-dimensions"])
    same(before, model_bytes(loaded))
    if changes:
        onnx.checker.check_model(onnx.load_from_string(model_bytes(loaded)), full_check=True)
        assert all(len(shape(v)) <= MOST_RANK for n in loaded.ir.graph for v in n.outputs)


def test_windows_of_a_picture_run_on_the_npu() -> None:
    """The partition into windows of a Swin transformer: 6 dimensions, of which pairs stay together."""
    nodes = [
        node("Reshape", ["x", "windows"], ["u"]),
        node("Transpose", ["u"], ["v"], perm=[0, 1, 3, 2, 4, 5]),
        node("Softmax", ["v"], ["s"], axis=-1),
        node("Reshape", ["s", "rows"], ["y"]),
    ]
    data = built(nodes, (1, 8, 8, 16), windows=np.array([1, 2, 4, 2, 4, 16]), rows=np.array([4, 16, 16]))
    assert len(on_the_cpu(read(data))) == 4
    assert on_the_cpu(rewritten_the_same(data, "merge-dimensions")) == []


def deformable_attention() -> bytes:
    """Where a detector's queries look: offsets of 6 dimensions (queries, heads, levels, points, 2) around points."""
    queries, heads, levels, points, deep = 5, 2, 3, 4, 4
    random = np.random.default_rng(6)
    nodes = [
        node("MatMul", ["x", "to_offsets"], ["flat"]),
        node("Reshape", ["flat", "six"], ["offsets"]),
        node("Slice", ["x", "zero", "four", "last"], ["around"]),
        node("Unsqueeze", ["around", "places"], ["reference"]),
        node("Split", ["reference", "halves"], ["centre", "size"], axis=-1),
        node("Div", ["offsets", "points"], ["parts"]),
        node("Mul", ["parts", "size"], ["scaled"]),
        node("Add", ["scaled", "centre"], ["places_of"]),
        node("Mul", ["places_of", "two"], ["doubled"]),
        node("Sub", ["doubled", "one"], ["grid"]),
    ]
    constants: dict[str, Any] = {
        "to_offsets": random.standard_normal((8, heads * levels * points * 2)).astype(np.float32) / 4,
        "six": np.array([1, queries, heads, levels, points, 2]), "zero": np.array([0]), "four": np.array([4]),
        "last": np.array([-1]), "places": np.array([2, 3, 4]), "halves": np.array([2, 2]),
        "points": np.full((1, 1, 1, levels, 1, 1), points, np.float32), "two": np.float32(2), "one": np.float32(1),
        "pixels": np.array([heads, queries, points, 2]), "sum_over": np.array([-1]),
    }  # fmt: skip
    for level in range(levels):
        constants[f"level{level}"] = np.array(level)
        constants[f"map{level}"] = random.standard_normal((heads, deep, 6, 6)).astype(np.float32)
        nodes += [
            node("Gather", ["grid", f"level{level}"], [f"g{level}"], axis=3),
            node("Transpose", [f"g{level}"], [f"t{level}"], perm=[0, 2, 1, 3, 4]),
            node("Reshape", [f"t{level}", "pixels"], [f"p{level}"]),
            node("GridSample", [f"map{level}", f"p{level}"], [f"s{level}"], align_corners=0),
        ]
    nodes.append(node("Concat", [f"s{level}" for level in range(levels)], ["seen"], axis=-1))
    nodes.append(node("ReduceSum", ["seen", "sum_over"], ["y"], keepdims=0))
    return built(nodes, (1, queries, 8), **constants)


def test_deformable_attention_runs_on_the_npu() -> None:
    data = deformable_attention()
    assert on_the_cpu(read(data))
    assert on_the_cpu(rewritten_the_same(data, "merge-dimensions")) == []


def test_a_refusal_that_a_rewrite_mends_names_it_and_quantize_makes_it_first(tmp_path: Path) -> None:
    model = tmp_path / "attention.onnx"
    model.write_bytes(deformable_attention())
    refused = hexforge.check(model, "SM8650").refused
    assert refused
    assert all(node.reason is not None and node.reason.endswith(REMEDY) for node in refused)
    plain = hexforge.quantize(model, "random:4", "w8a16", tmp_path / "plain.onnx")
    assert plain.refused
    assert {node for node, _ in plain.refused} <= set(plain.rewritable)
    made = hexforge.quantize(model, "random:4", "w8a16", tmp_path / "rewritten.onnx", rewrite=True, quality=True)
    assert (made.refused, made.rewritable) == ((), ())
    assert set(made.rewritten) == {node.node for node in refused}
    assert made.quality is not None
    assert made.quality.sqnr_db > 25
    assert not hexforge.check(tmp_path / "rewritten.onnx", "SM8650", strict=True).refused


def test_a_refusal_that_no_rewrite_mends_names_none(tmp_path: Path) -> None:
    model = tmp_path / "det.onnx"
    model.write_bytes(built([node("Relu", ["x"], ["u"]), node("Det", ["u"], ["y"])], (1, 3, 3)))
    (only,) = hexforge.check(model, "SM8650").refused
    assert only.reason is not None
    assert REMEDY not in only.reason
    made = hexforge.quantize(model, "random:4", "w8a16", tmp_path / "q.onnx", rewrite=True)
    assert (made.rewritten, made.rewritable) == ((), ())
    assert made.refused


def test_inputs_and_outputs_of_six_dimensions_keep_them() -> None:
    nodes = [node("Relu", ["x"], ["u"]), node("Softmax", ["u"], ["y"], axis=-1)]
    after = rewritten_the_same(built(nodes, (1, 2, 3, 2, 2, 4)), "merge-dimensions")
    assert [len(shape(v)) for v in (*after.ir.graph.inputs, *after.ir.graph.outputs)] == [6, 6]
    assert set(on_the_cpu(after)) == {"Reshape"}
    assert not find(after.ir, BY_NAME["merge-dimensions"])
