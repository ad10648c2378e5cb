# SPDX-License-Identifier: Apache-2.0
"""The verifier names every fault: the node or tensor, the op, and what."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import hexforge.ops  # noqa: F401 - fills the table
from hexforge.errors import ModelError
from hexforge.ir import AxisScaleOffset, DType, Graph, Role, ScaleOffset, TensorType
from hexforge.ir.verify import verify

F32 = TensorType(DType.FLOAT32, (2, 3))
Q8 = TensorType(DType.UINT8, (2, 3), ScaleOffset(0.5, -128))


def small(type: TensorType = F32) -> Graph:
    """%y = Abs(Add(%x, %c))."""
    graph = Graph("g")
    x = graph.value("x", type, Role.APP_WRITE)
    c = graph.value("c", type, Role.STATIC, np.ones((2, 3), type.dtype.numpy))
    t = graph.value("t", type)
    graph.node("ElementWiseAdd", [x, c], [t], name="add")
    graph.node("ElementWiseAbs", [t], [graph.value("y", type, Role.APP_READ)], name="abs")
    return graph


def test_good_graphs_pass() -> None:
    verify(small())
    verify(small(Q8))


def _set(name: str, **fields: object) -> Callable[[Graph], None]:
    def change(graph: Graph) -> None:
        for field, value in fields.items():
            setattr(graph.values[name], field, value)

    return change


def _params(**params: object) -> Callable[[Graph], None]:
    def change(graph: Graph) -> None:
        given = {"operation": 0, "alpha": 1.0, "beta": 1.0, **params}
        node = graph.node("ElementWiseNeuron", [graph.values["y"]], operation=0, name="elu")
        node.params = {k: v for k, v in given.items() if v is not ...}

    return change


CHANGES: list[tuple[Callable[[Graph], None], str]] = [
    (_set("y", type=TensorType(DType.FLOAT32, (3, 2))), r"node 'abs' \(ElementWiseAbs\): output 'y' has shape"),
    (_set("y", type=TensorType(DType.INT32, (2, 3))), "output 'y' is int32, not float32"),
    (_set("y", type=TensorType(DType.FLOAT32, (2, 3), ScaleOffset(1.0))), "float32 cannot carry an encoding"),
    (_set("y", type=TensorType(DType.UINT8, (2, 3), ScaleOffset(float("nan")))), "scale nan is not a positive"),
    (_set("y", type=TensorType(DType.UINT8, (2, 3), ScaleOffset(1.0, -256))), "zero point 256 is outside 0..255"),
    (_set("x", type=TensorType(DType.FLOAT32, (4, 5))), r"'add' .*shapes \[4, 5\] and \[2, 3\] do not broadcast"),
    (_set("c", data=np.ones(3, np.float32)), r"tensor 'c': is float32\[2, 3\] but its data are float32\[3\]"),
    (_set("c", data=None), "'c': is STATIC but has no data"),
    (_set("t", role=Role.APP_WRITE), "'t': is APP_WRITE but written by 'add'"),
    (_set("x", role=Role.NATIVE), "'x': is NATIVE but no node writes it"),
    (_set("x", users={}), "'x': its users are not the nodes that read it"),
    (_set("t", producer=None), "'t': its producer is not the node that writes it"),
    (lambda g: g.values.pop("t") and None, "'t': used by a node but not one of the graph's"),  # type: ignore[list-item]
    (lambda g: g.set_inputs(g.nodes[0], [g.values["y"], g.values["c"]]), "reads 'y' before 'abs' writes it"),
    (lambda g: g.set_inputs(g.nodes[0], [g.values["x"]]), r"'add' \(ElementWiseAdd\): input 1 \(in1\) is missing"),
    (lambda g: g.set_inputs(g.nodes[0], [g.values["x"]] * 3), "has 3 inputs, not 2"),
    (_params(alpha=True), "parameter alpha is True, not float32"),
    (_params(operation=1.0), "parameter operation is 1.0, not uint32"),
    (_params(operation=-1), "parameter operation is -1, not uint32"),
    (_params(operation=99), r"parameter operation is 99, not one of ELU \(0\)"),
    (_params(gamma=1), "has no parameter 'gamma'"),
    (_params(beta=...), "parameter beta is missing"),
]


@pytest.mark.parametrize(("change", "message"), CHANGES, ids=[m for _, m in CHANGES])
def test_fault(change: Callable[[Graph], None], message: str) -> None:
    graph = small()
    change(graph)
    with pytest.raises(ModelError, match=message):
        verify(graph)


def test_per_axis_only_on_statics() -> None:
    per_axis = TensorType(DType.UINT8, (2, 3), AxisScaleOffset(0, (1.0, 2.0), (0, 0)))
    graph = small(Q8)
    graph.values["t"].type = per_axis
    with pytest.raises(ModelError, match=r"'t': has .*AXIS_SCALE_OFFSET, which only STATIC weights may have"):
        verify(graph)
    graph = small(Q8)
    graph.values["c"].type = per_axis
    verify(graph)


def test_predicates_are_never_fixed_point() -> None:
    graph = Graph("g")
    x = graph.value("x", Q8, Role.APP_WRITE)
    graph.node("ElementWiseEqual", [x, x], [graph.value("y", Q8, Role.APP_READ)])
    with pytest.raises(ModelError, match="is fixed point, which ElementWiseEqual never gives"):
        verify(graph)


def test_all_faults_at_once() -> None:
    graph = small()
    graph.values["c"].data = None
    graph.values["y"].type = TensorType(DType.INT32, (7,))
    with pytest.raises(ModelError, match=r"'c': .*; .*'abs'"):
        verify(graph)


def test_movement_keeps_fixed_point() -> None:
    graph = Graph("g")
    x = graph.value("x", Q8, Role.APP_WRITE)
    graph.node("Reshape", [x], [graph.value("y", TensorType(DType.UINT8, (6,)), Role.APP_READ)])
    with pytest.raises(ModelError, match="'y' is plain uint8, but its input is fixed point"):
        verify(graph)
