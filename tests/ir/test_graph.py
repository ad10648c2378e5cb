# SPDX-License-Identifier: Apache-2.0
"""Editing a graph: values that get another type, or are read from outside."""

from __future__ import annotations

import numpy as np
import pytest

import hexforge.ops  # noqa: F401 - fills the table
from hexforge.errors import ModelError
from hexforge.ir import DType, Graph, Role, TensorType
from hexforge.ir.verify import verify


def made() -> Graph:
    graph = Graph("g")
    x = graph.value("x", TensorType(DType.FLOAT32, (2,)), Role.APP_WRITE)
    c = graph.static(np.ones(2, np.float32), name="c")
    graph.node("ElementWiseAdd", [x, c], name="add", out="y")
    graph.node("Relu", [graph.values["y"]], name="relu", out="z")
    return graph


def test_retyped_values_have_data_of_their_type() -> None:
    graph = made()
    graph.expose({"z"})
    for value in graph.values.values():
        data = None if value.data is None else value.data.astype(np.float16)
        graph.retype(value, TensorType(DType.FLOAT16, value.shape), data)
    verify(graph)
    assert {v.dtype for v in graph.values.values()} == {DType.FLOAT16}


@pytest.mark.parametrize(
    ("name", "type", "data", "words"),
    [
        ("x", TensorType(DType.FLOAT16, (3,)), None, "cannot become"),
        ("x", TensorType(DType.FLOAT16, (2,)), np.ones(2, np.float16), "only STATIC ones have data"),
        ("c", TensorType(DType.FLOAT16, (2,)), None, "only STATIC ones have data"),
        ("c", TensorType(DType.FLOAT16, (2,)), np.ones(2, np.float32), "its data are float32"),
    ],
)
def test_retype_refuses_what_does_not_fit(name: str, type: TensorType, data: np.ndarray | None, words: str) -> None:
    graph = made()
    with pytest.raises(ModelError, match=words):
        graph.retype(graph.values[name], type, data)


def test_expose_names_all_outputs() -> None:
    graph = made()
    graph.expose({"y", "z", "x", "c"})
    assert [v.name for v in graph.outputs] == ["y", "z"]
    graph.expose({"z"})
    assert [v.name for v in graph.outputs] == ["z"]
    assert graph.values["y"].role is Role.NATIVE
    assert [v.name for v in graph.inputs] == ["x"]
