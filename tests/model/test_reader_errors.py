# SPDX-License-Identifier: Apache-2.0
"""read(): every kind of bad file, said in words."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from hexforge.errors import CallError, CapacityError, FormatError, HexforgeError, ModelError
from hexforge.model.reader import read
from tests.model.test_reader import text

SMALL = "agraph (float[2] x) => (float[2] y) { a = Relu(x) y = Neg(a) }"


def weighted() -> onnx.ModelProto:
    proto = text("agraph (float[2, 3] x) => (float[2, 4] y) { y = MatMul(x, w) }")
    proto.graph.initializer.append(numpy_helper.from_array(np.ones((3, 4), np.float32), "w"))
    return proto


# -- the file ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b"this is a text file, not a model\n" * 9, "text file"),
        (bytes(range(256)), "not an ONNX model"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        (b"\x18\x00\x00\x00ORTM" + bytes(40), "ORT format"),
        (b"\x08\x07", "no graph"),
    ],
)
def test_bad_bytes(tmp_path: Path, data: bytes, words: str):
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    for source in (path, str(path), data):
        with pytest.raises(FormatError, match=words):
            read(source)


def test_missing_file_and_folder(tmp_path: Path):
    with pytest.raises(FormatError, match="no such file"):
        read(tmp_path / "none.onnx")
    with pytest.raises(FormatError, match="folder"):
        read(tmp_path)
    with pytest.raises(CallError, match="not int"):
        read(3)  # type: ignore[arg-type]


def test_every_truncation_is_an_error_or_a_model():
    data = weighted().SerializeToString()
    for length in range(len(data) - 1):
        with pytest.raises(HexforgeError):
            read(data[:length])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10_000), st.integers(0, 255))
def test_a_damaged_byte_never_escapes_as_another_exception(position: int, byte: int):
    data = bytearray(weighted().SerializeToString())
    data[position % len(data)] = byte
    with contextlib.suppress(HexforgeError):
        read(bytes(data))


# -- external data ----------------------------------------------------------------------------------------------


def external(folder: Path, location: str = "w.bin", **fields: str) -> Path:
    proto = weighted()
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **fields}.items():
        tensor.external_data.add(key=key, value=value)
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    return folder / "m.onnx"


@pytest.mark.parametrize(
    ("location", "fields", "words"),
    [
        ("gone.bin", {}, "missing"),
        ("../w.bin", {}, "leaves the model's folder"),
        ("sub/../../w.bin", {}, "leaves the model's folder"),
        ("..\\w.bin", {}, "leaves the model's folder"),
        ("/etc/passwd", {}, "leaves the model's folder"),
        ("C:\\w.bin", {}, "leaves the model's folder"),
        ("w.bin", {"offset": "8", "length": "48"}, "ends at byte 56"),
        ("w.bin", {"offset": "999999"}, "ends at byte"),
        ("w.bin", {"length": "44"}, "need 48"),
        ("sub", {}, "not a file"),
    ],
)
def test_wrong_external_data(tmp_path: Path, location: str, fields: dict[str, str], words: str):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "sub").mkdir()
    for place in (tmp_path, folder):
        (place / "w.bin").write_bytes(bytes(48))
    with pytest.raises(FormatError, match=words):
        read(external(folder, location, **fields))


def test_external_data_by_a_link_out_of_the_folder(tmp_path: Path):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(bytes(48))
    (folder / "w.bin").symlink_to(tmp_path / "secret")
    with pytest.raises(FormatError, match="outside the model's folder"):
        read(external(folder))


def test_external_data_relative_to_the_working_folder(tmp_path: Path):
    (tmp_path / "w.bin").write_bytes(bytes(48))
    external(tmp_path)
    here = Path.cwd()
    try:
        os.chdir(tmp_path)
        assert read("m.onnx").node_count == 1
    finally:
        os.chdir(here)


# -- tensors ----------------------------------------------------------------------------------------------------


def test_tensors_whose_data_does_not_fit_their_shape():
    proto = weighted()
    proto.graph.initializer[0].raw_data = bytes(20)
    with pytest.raises(FormatError, match="has 20 bytes; its shape and type need 48"):
        read(proto)
    proto = weighted()
    proto.graph.initializer[0].ClearField("raw_data")
    proto.graph.initializer[0].dims[:] = [1 << 20, 1 << 20]
    with pytest.raises(FormatError, match="has 0 elements"):
        read(proto)
    proto.graph.initializer[0].dims[:] = [1 << 40, 1 << 40]
    with pytest.raises(FormatError, match="impossible shape"):
        read(proto)
    proto = weighted()
    proto.graph.initializer[0].data_type = 0
    with pytest.raises(HexforgeError, match="w"):
        read(proto)


@pytest.mark.parametrize(("type", "number"), [("UINT8", 300), ("INT8", -129), ("UINT16", -1), ("INT16", 40000)])
def test_numbers_outside_their_type(type: str, number: int):
    zero = onnx.TensorProto(name="z", data_type=onnx.TensorProto.DataType.Value(type), int32_data=[number])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["z"], ["y"])], "g", [], [], [zero])
    with pytest.raises(FormatError, match=f"tensor 'z' holds {number}, outside .* of {type}"):
        read(onnx.helper.make_model(graph).SerializeToString())


def test_sparse_initializers_that_lie():
    proto = text("agraph (float[2, 3] x) => (float[2, 3] y) { y = Add(x, w) }")
    values = numpy_helper.from_array(np.array([5, 6], np.float32), "w")
    indices = numpy_helper.from_array(np.array([1, 6], np.int64), "i")
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [2, 3]))
    with pytest.raises(FormatError, match="indices"):
        read(proto)
    proto.graph.sparse_initializer[0].dims[:] = [1 << 20, 1 << 20]
    with pytest.raises(CapacityError, match="made dense"):
        read(proto)


# -- structure --------------------------------------------------------------------------------------------------


def test_cycle():
    proto = text("agraph (float[2] x) => (float[2] y) { a = Add(x, b) b = Relu(a) y = Neg(b) }")
    with pytest.raises(ModelError, match=r"cycle: .*Add.*Relu"):
        read(proto)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("agraph (float[2] x) => (float[2] y) { y = Relu(x) y = Neg(x) }", "written twice, by 'y' \\(Relu\\)"),
        ("agraph (float[2] x) => (float[2] y) { x = Relu(x) y = Neg(x) }", "which is an input"),
        ("agraph (float[2] x) => (float[2] y) { y = Relu(q) }", "reads 'q', which nothing writes"),
        ("agraph (float[2] x) => (float[2] z) { y = Relu(x) }", "output 'z' is written by no node"),
        ("agraph (float[2] x, float[2] x) => (float[2] y) { y = Relu(x) }", "input 'x' is there twice"),
        ("agraph (float[2] x) => (float[2] y) { y = Relu(x, x) }", "has 2 inputs; the op takes 1"),
        ("agraph (float[2] x) => (float[2] y) { y = Add(x) }", "has 1 inputs; the op takes 2"),
        ("agraph (float[2] x) => (float[2] y) { y = Concat(x, x) }", "lacks its attribute 'axis'"),
        ("agraph (float[2] x) => (float[2] y) { y = Concat<axis = 0, axes = 0>(x, x) }", "which the op has not"),
        ('agraph (float[2] x) => (float[2] y) { y = Concat<axis = "0">(x, x) }', "attribute 'axis' is not INT"),
        (
            "agraph (float[2] x, bool c) => (float[2] y) { y = If(c) "
            "<then_branch = t () => (float[2] a) { a = Neg(q) }, else_branch = e () => (float[2] b) { b = Abs(x) }> }",
            "body 't' of 'y' \\(If\\): node 'a' \\(Neg\\) reads 'q'",
        ),
    ],
)
def test_malformed_graphs(body: str, words: str):
    with pytest.raises(ModelError, match=words):
        read(text(body))


def test_duplicate_initializers():
    proto = weighted()
    proto.graph.initializer.append(proto.graph.initializer[0])
    with pytest.raises(ModelError, match="initializer 'w' is there twice"):
        read(proto)


@pytest.mark.parametrize(("opset", "words"), [(5, "older than 7"), (99, "newer than")])
def test_opsets_out_of_range(opset: int, words: str):
    proto = text("agraph (float[2] x) => (float[2] y) { y = Add(x, x) }")
    proto.opset_import[0].version = opset
    with pytest.raises(ModelError, match=words):
        read(proto)


def test_an_old_opset_whose_ops_did_not_change_is_read():
    assert read(text("agraph (bool[2] x) => (bool[2] y) { y = Not(x) }", 1)).opset == 7


def test_no_opset():
    proto = text(SMALL)
    del proto.opset_import[:]
    with pytest.raises(ModelError, match="imports no opset"):
        read(proto)


def function(name: str, called: str, times: int = 1) -> onnx.FunctionProto:
    nodes = [helper.make_node(called, ["a"], [f"t{i}"], domain="f") for i in range(times)]
    nodes.append(helper.make_node("Sum", [f"t{i}" for i in range(times)], ["b"]))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    return helper.make_function("f", name, ["a"], ["b"], nodes, opsets)


def test_functions_in_a_circle_and_functions_that_explode():
    proto = text("agraph (float[2] x) => (float[2] y) { y = f.f0(x) }", 17, ', "f" : 1')
    proto.functions.extend([function("f0", "f1"), function("f1", "f0")])
    with pytest.raises(ModelError, match="circle"):
        read(proto)
    del proto.functions[:]
    proto.functions.extend(function(f"f{i}", f"f{i + 1}", 10) for i in range(9))
    with pytest.raises(CapacityError, match="inlined"):
        read(proto)


def test_ops_that_do_not_fit_their_inputs_are_read_and_left_to_be_refused():
    model = read(text("agraph (float[2, 3] x, float[5, 7] w) => (float[A, B] y) { y = MatMul(x, w) }"))
    (node,) = model.ir.graph
    assert node.outputs[0].shape is None or not node.outputs[0].shape.is_static()


# -- types of elements --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ("y = Conv(x, q)", r"not valid ONNX: node 'y' \(Conv\) reads 'q', which is int8; the op takes float"),
        ("y = MatMul(x, h)", "reads 'h', which is float16, with 'x', which is float; the op takes two of one type"),
        ("c = Cast<to = 6>(x) y = Add(x, c)", "reads 'c', which is int32, with 'x'"),
        ("s = Shape(x) y = Mul(x, s)", "reads 's', which is int64"),
    ],
)
def test_types_that_an_op_does_not_take(nodes: str, words: str):
    proto = text(f"agraph (float[2, 3, 4, 4] x) => (float[2, 3, 4, 4] y) {{ {nodes} }}")
    for name, kind in (("q", np.int8), ("h", np.float16)):
        proto.graph.initializer.append(numpy_helper.from_array(np.ones((3, 3, 1, 1), kind), name))
    with pytest.raises(ModelError, match=words):
        read(proto)


@pytest.mark.parametrize("op", ["AveragePool", "MaxPool", "LpPool"])
@pytest.mark.parametrize("opset", [11, 18, 22])
def test_a_window_larger_than_its_input_is_refused_before_onnxruntime_divides_by_nothing(op: str, opset: int):
    node = helper.make_node(op, ["x"], ["y"], name="p", kernel_shape=[7, 1], strides=[2, 50], pads=[2, 0, 2, 0])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, 1, 5])
    graph = helper.make_graph([node], "g", [x], [helper.make_empty_tensor_value_info("y")])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    with pytest.raises(ModelError, match=rf"node 'p' \({op}\): the window \[7, 1\] is larger than its input \[1, 5\]"):
        read(proto)
