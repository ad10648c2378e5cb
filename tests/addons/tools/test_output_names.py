# SPDX-License-Identifier: Apache-2.0
"""Graphs and tensors of a context may be called anything; what is written of them stays in the folder, apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import hexforge
from hexforge.addons.tools.raw import OutputType, write_results
from hexforge.cli import main
from hexforge.ir import DType, TensorType
from hexforge.runtime.contexts.request import ContextRequest


def test_graph_names_are_no_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    names = ("../../x", str(tmp_path / "absolute"), "a/b", "a_b")
    hexforge.compile([model] * 4, "four.bin", "SM8650", ContextRequest(graph_names=names))
    np.ones(4, np.float32).tofile("x.raw")
    Path("list.txt").write_text("x.raw\n")
    line = "tool qnn-net-run --retrieve_context four.bin --backend libQnnHtp.so --output_dir out --input_list"
    with pytest.raises(SystemExit, match="0"):
        main([*line.split(), ",".join(["list.txt"] * 4)])
    written = sorted(path.relative_to("out").parts[0] for path in Path("out").rglob("y.raw"))
    assert len(written) == 4
    assert {"_._.._x", "a_b", "a_b~2"} < set(written)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]


def test_tensors_of_one_plain_name_are_two_files(tmp_path: Path) -> None:
    type = TensorType(DType.FLOAT32, (2,))
    outputs = {name: np.full(2, i, np.float32) for i, name in enumerate(("a/b", "a_b", "a_b_native"))}
    write_results(tmp_path, 0, [outputs], dict.fromkeys(outputs, type), list(outputs), OutputType.FLOAT_AND_NATIVE)
    files = {path.stem: np.fromfile(path, np.float32)[0] for path in (tmp_path / "Result_0").iterdir()}
    assert files == {
        "a_b": 1, "a_b_native": 1, "a_b~2": 0, "a_b~2_native": 0, "a_b_native~2": 2, "a_b_native~2_native": 2,
    }  # fmt: skip
