# SPDX-License-Identifier: Apache-2.0
"""What ops declare of themselves: parameters that follow a permutation of axes, and kinds of work."""

from __future__ import annotations

import numpy as np
import pytest

import hexforge.ops  # noqa: F401 - fills the table
from hexforge.ir import Call, Op, Work, table
from hexforge.ir.fixed_point import permute_type
from hexforge.ops.evaluate import evaluate
from hexforge.patterns.permutation import expanded_type
from tests.ops.sample import Sample
from tests.ops.test_samples import SAMPLES

MOVEMENT = {Work.TRANSPOSE, Work.RESHAPE, Work.CONCAT, Work.SLICE, Work.GATHER, Work.DEPTH_TO_SPACE, Work.MOVE}
PRODUCTS = {Work.CONV, Work.DEPTHWISE, Work.TRANSPOSED_CONV, Work.FULLY_CONNECTED, Work.MATMUL, Work.RECURRENT}


def _is_free(sample: Sample) -> bool:
    """True where the op says that the axes of this very sample may be permuted, each for itself."""
    node = sample.node()
    layout = node.op.layout
    index = node.inputs[layout.flat] if layout.flat is not None else None
    return (
        layout.free
        and not layout.merges
        and not (layout.adds and node.params[layout.adds])
        and (index is None or len(index.shape) == 1)
    )


@pytest.mark.parametrize("op", [*table()], ids=lambda op: op.name)
def test_layout_speaks_of_parameters_the_op_has(op: Op) -> None:
    layout = op.layout
    named = {*layout.params, *filter(None, (layout.keeps, layout.loses, layout.adds))}
    assert named <= {p.name for p in op.params}
    assert layout.free or not named
    assert layout.together or not layout.pointwise


@pytest.mark.parametrize("op", [*table()], ids=lambda op: op.name)
def test_kind_of_work_agrees_with_the_amounts(op: Op) -> None:
    assert (op.kind in MOVEMENT) == (op.work.units == ("moved_bytes",))
    assert op.work.units
    if op.kind in PRODUCTS:
        assert "macs" in op.work.units


@pytest.mark.parametrize("turn", ["reversed", "rotated"])
@pytest.mark.parametrize("sample", [s for s in SAMPLES if _is_free(s)], ids=lambda s: s.op + s.id)
def test_a_free_op_computes_the_same_in_another_order_of_axes(sample: Sample, turn: str) -> None:
    node = sample.node()
    op, layout = node.op, node.op.layout
    rank = len(node.outputs[0].shape if layout.pointwise or op.variadic else node.call.input(0).shape)
    axes = list(range(rank))
    perm = tuple(reversed(axes)) if turn == "reversed" else (*axes[1:], *axes[:1])
    arrays, ins = list(sample.inputs), list(node.call.ins)
    for i, (array, type) in enumerate(zip(arrays, ins, strict=True)):
        if array is not None and type is not None and (layout.together or i == 0):
            full = expanded_type(type, rank)
            arrays[i], ins[i] = array.reshape(full.shape).transpose(perm), permute_type(full, perm)
    lost = layout.lost(node.params, rank)
    kept = [a for a in axes if a not in lost]
    out_perm = tuple(kept.index(a) for a in perm if a not in lost)
    wanted = [a.transpose(out_perm) for a in sample.expected]
    outs = tuple(permute_type(t, out_perm) for t in node.call.outs)
    call = Call(op, tuple(ins), outs, op.complete(layout.permuted(node.params, perm)))
    assert [t.shape for t in op.infer(call)] == [a.shape for a in wanted]
    for got, want in zip(evaluate(call, arrays), wanted, strict=True):
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=1e-5, atol=1e-6)


def test_bound_ops_are_those_that_have_channels_or_axes_of_their_own() -> None:
    bound = {op.name for op in table() if not op.layout.free}
    assert {"Conv2d", "PoolMax2d", "Batchnorm", "DepthToSpace", "Resize", "MatMul", "Transpose"} <= bound
    assert not bound & {op.name for op in table() if op.name.startswith("ElementWise")}
