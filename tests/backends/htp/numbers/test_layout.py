# SPDX-License-Identifier: Apache-2.0
"""Ops that only move elements give exactly what their references give, by native steps alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hexforge.backends.htp.backend import HtpBackend
from hexforge.ir import Call, DType, Graph, Role, ScaleOffset, TensorType, lookup
from hexforge.ops.evaluate import evaluate

TYPES = [
    (DType.UINT8, ScaleOffset(0.1, -3)),
    (DType.INT16, ScaleOffset(0.01)),
    (DType.FLOAT32, None),
    (DType.INT64, None),
]
CASES: list[tuple[str, list[tuple[int, ...]], dict[str, Any]]] = [
    ("Pack", [(2, 3)] * 4, {"axis": 0}),
    ("Pack", [(2, 3, 5)] * 3, {"axis": 1}),
    ("Pack", [(4,)] * 2, {"axis": 1}),
    ("UnPack", [(3, 4, 2)], {"axis": 0}),
    ("UnPack", [(3, 4, 2)], {"axis": 1}),
    ("UnPack", [(3, 4, 2)], {"axis": 2}),
    ("ChannelShuffle", [(1, 3, 2, 12)], {"axis": 3, "num_groups": 3}),
    ("ChannelShuffle", [(2, 6, 5)], {"axis": 1, "num_groups": 2}),
    ("BatchToSpace", [(12, 2, 3, 5)], {"block_size": (2, 3), "crops": ((0, 0), (0, 0))}),
    ("SpaceToBatch", [(2, 4, 9, 5)], {"block_size": (2, 3), "pad_amount": ((0, 0), (0, 0))}),
    ("Pad", [(2, 4, 5)], {"scheme": 1, "pad_amount": ((1, 2), (0, 0), (5, 1))}),
    ("Pad", [(2, 4, 5)], {"scheme": 2, "pad_amount": ((1, 0), (3, 2), (0, 4))}),
    ("Pad", [(2, 4, 5)], {"scheme": 3, "pad_amount": ((0, 0), (7, 0), (0, 9))}),
]


@pytest.mark.parametrize(("dtype", "encoding"), TYPES, ids=lambda t: getattr(t, "value", ""))
@pytest.mark.parametrize(("op", "shapes", "params"), CASES, ids=lambda c: c if isinstance(c, str) else "")
def test_moves(
    op: str, shapes: list[tuple[int, ...]], params: dict[str, Any], dtype: DType, encoding: ScaleOffset | None
) -> None:
    rng = np.random.default_rng(len(op))
    arrays = [rng.integers(0, 100, s).astype(dtype.numpy) for s in shapes]
    types = tuple(TensorType(dtype, s, encoding) for s in shapes)
    full = {p.name: params.get(p.name, p.default) for p in lookup(op).params}
    shape_of = {"BatchToSpace": (2, 4, 9, 5), "SpaceToBatch": (12, 2, 3, 5)}.get(op, shapes[0])
    if op == "UnPack":
        axis = params["axis"]
        parts = shapes[0][axis]
        outs = (TensorType(dtype, shapes[0][:axis] + shapes[0][axis + 1 :], encoding),) * parts
    elif op == "Pack":
        axis = params["axis"]
        outs = (TensorType(dtype, (*shapes[0][:axis], len(shapes), *shapes[0][axis:]), encoding),)
    elif op == "Pad":
        outs = (
            TensorType(dtype, tuple(n + sum(p) for n, p in zip(shape_of, params["pad_amount"], strict=True)), encoding),
        )
    else:
        outs = (TensorType(dtype, shape_of, encoding),)
    want = evaluate(Call(lookup(op), types, outs, full), arrays)
    graph = Graph("moves")
    ins = [graph.value(f"in{i}", t, Role.APP_WRITE) for i, t in enumerate(types)]
    made = [graph.value(f"out{i}", t, Role.APP_READ) for i, t in enumerate(outs)]
    graph.node(op, ins, made, **params)
    program = HtpBackend().compile(graph)
    assert not program.facts.references
    got = program.run({f"in{i}": a for i, a in enumerate(arrays)})
    for value, expected in zip(made, want, strict=True):
        np.testing.assert_array_equal(got[value.name], expected)


SHAPED: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    ("BatchToSpace", (12, 2, 3, 5), {"block_size": (2, 3), "crops": ((1, 0), (2, 1))}),
    ("SpaceToBatch", (2, 3, 7, 5), {"block_size": (2, 3), "pad_amount": ((1, 0), (0, 2))}),
    ("StridedSlice", (4, 6, 5), {"ranges": ((1, 3, 1), (9, 4, 2), (4, -1, -2)), "begin_mask": 2}),
    ("StridedSlice", (4, 6, 5), {"ranges": ((2, 0, 1), (0, 0, 1), (1, 9, 2)), "shrink_axes": 1, "end_mask": 6}),
    ("StridedSlice", (4, 6), {"ranges": ((3, 0, -1), (0, 1, 1), (0, 6, 4)), "new_axes_mask": 2, "end_mask": 1}),
    ("Shape", (4, 6, 5), {"start": 1}),
]


@pytest.mark.parametrize(("dtype", "encoding"), TYPES, ids=lambda t: getattr(t, "value", ""))
@pytest.mark.parametrize(("op", "shape", "params"), SHAPED, ids=lambda c: c if isinstance(c, str) else "")
def test_moves_of_other_shapes(
    op: str, shape: tuple[int, ...], params: dict[str, Any], dtype: DType, encoding: ScaleOffset | None
) -> None:
    array = np.random.default_rng(3).integers(0, 100, shape).astype(dtype.numpy)
    source = TensorType(dtype, shape, encoding)
    full = {p.name: params.get(p.name, p.default) for p in lookup(op).params}
    (plain,) = lookup(op).infer(Call(lookup(op), (source,), (), full))
    out = plain if op == "Shape" else TensorType(dtype, plain.shape, encoding)
    (want,) = evaluate(Call(lookup(op), (source,), (out,), full), [array])
    graph = Graph("moves")
    x = graph.value("x", source, Role.APP_WRITE)
    graph.node(op, [x], [graph.value("y", out, Role.APP_READ)], **params)
    program = HtpBackend().compile(graph)
    assert not program.facts.references
    np.testing.assert_array_equal(program.run({"x": array})["y"], want)


@pytest.mark.parametrize("op", ["IsNan", "IsInf"])
@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT16], ids=lambda t: t.value)
@pytest.mark.parametrize("inside", [False, True], ids=["given", "computed"])
def test_what_is_no_number(op: str, dtype: DType, inside: bool) -> None:
    """Of the application's float32 as IEEE 754 has it; of halves 65536 is infinity, and what is beyond no number."""
    numbers = np.array([0, 1, 65504, -65504, np.inf, -np.inf, np.nan, 1e-8], np.float32).astype(dtype.numpy)
    if inside:
        numbers = np.array([40000, -40000, 32768, -32768, 3, 0], dtype.numpy)
    graph = Graph("tests")
    like = TensorType(dtype, numbers.shape)
    x = graph.value("x", like, Role.APP_WRITE)
    if inside:
        x = graph.node("ElementWiseAdd", [x, x], [graph.value("twice", like)]).outputs[0]
    graph.node(op, [x], [graph.value("y", TensorType(DType.BOOL, numbers.shape), Role.APP_READ)])
    program = HtpBackend().compile(graph)
    assert not program.facts.references
    test = np.isnan if op == "IsNan" else np.isinf
    wanted = [[False, False, True, True, False, False], [True, True, False, False, False, False]][op == "IsNan"]
    np.testing.assert_array_equal(program.run({"x": numbers})["y"], wanted if inside else test(numbers))
