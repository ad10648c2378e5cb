# SPDX-License-Identifier: Apache-2.0
"""Ops as onnxruntime's QNN provider writes them: absent tensors, states of a layer, parameters that ask for nothing."""

from __future__ import annotations

import numpy as np
import pytest

from hexforge.errors import ModelError
from hexforge.frontends.qnn.declarations import QnnOp, QnnTensor
from hexforge.frontends.qnn.graph import build_graph


def tensor(name: str, shape: tuple[int, ...], kind: str = "NATIVE", data: bool = False) -> QnnTensor:
    values = np.ones(shape, np.float32) if data else None
    return QnnTensor(name, f"QNN_TENSOR_TYPE_{kind}", "QNN_DATATYPE_FLOAT_32", shape, data=values)


def test_an_absent_tensor_is_an_input_that_is_not_given() -> None:
    names = [(f"w{i}", (5, 4) if i < 3 else (5, 5)) for i in range(6)]
    weights = [tensor(name, shape, "STATIC", data=True) for name, shape in names]
    absent = QnnTensor("null_tensor", "QNN_TENSOR_TYPE_NULL", "QNN_DATATYPE_UNDEFINED", ())
    op = QnnOp(
        "gru", "Gru", (tensor("x", (1, 3, 4), "APP_WRITE"), *weights, *[absent] * 6),
        (tensor("y", (1, 3, 5), "APP_READ"), tensor("h", (1, 3, 5), "APP_READ")), {"time_major": True},
    )  # fmt: skip
    graph = build_graph("g", [op])
    assert [v.shape for v in graph.outputs] == [(1, 3, 5), (1, 3, 5)]  # the op's own state is [3, 5]
    assert next(n for n in graph.nodes if n.op.name == "Gru").inputs[7:] in ((), (None,) * 6)


@pytest.mark.parametrize(("given", "taken"), [(20.0, True), (1.0, False)])
def test_a_parameter_that_asks_for_nothing_is_left_out(given: float, taken: bool) -> None:
    params = {"operation": 7, "beta": 1.0, "threshold": given}
    op = QnnOp("s", "ElementWiseNeuron", (tensor("x", (3,), "APP_WRITE"),), (tensor("y", (3,), "APP_READ"),), params)
    if taken:
        assert build_graph("g", [op]).nodes[0].op.name == "ElementWiseNeuron"
    else:
        with pytest.raises(ModelError, match="no parameter named threshold"):
            build_graph("g", [op])


def test_the_older_spelling_of_an_axis() -> None:
    op = QnnOp("n", "L2Norm", (tensor("x", (2, 3), "APP_WRITE"),), (tensor("y", (2, 3), "APP_READ"),), {"axis": 1})
    assert build_graph("g", [op]).nodes[0].params["axes"] == (1,)


def test_a_cell_is_a_sequence_of_one_step() -> None:
    weights = [tensor(f"w{i}", (5, 4) if i < 3 else (5, 5), "STATIC", data=True) for i in range(6)]
    bias = [tensor(f"b{i}", (5,), "STATIC", data=True) for i in range(3)]
    state = [tensor(name, (2, 5), "APP_WRITE") for name in ("h0", "c0")]
    outputs = tuple(tensor(name, (2, 5), "APP_READ") for name in ("y", "c", "h"))
    op = QnnOp("cell", "Lstm", (tensor("x", (2, 4), "APP_WRITE"), *weights, *bias, *state), outputs)
    graph = build_graph("g", [op])
    assert [v.shape for v in graph.outputs] == [(2, 5)] * 3
    assert next(n for n in graph.nodes if n.op.name == "Lstm").params["time_major"] is True
