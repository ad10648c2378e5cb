# SPDX-License-Identifier: Apache-2.0
"""A flat model is read in one walk, to what onnx_ir's own reader and passes make of it."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_ir import serde
from onnx_ir.passes import common

from hexforge.demo import MODEL
from hexforge.errors import FormatError
from hexforge.model.flat_graph import flat_model, is_flat_proto
from hexforge.model.reader import read
from hexforge.model.simplifying import tidying
from hexforge.model.source import open_source
from hexforge.model.tensors import own_tensors


def _info(name, shape=(2, 3), type=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, type, shape)


def _model(nodes, initializers=(), infos=(), opset=17, inputs=None, outputs=None):
    graph = helper.make_graph(
        nodes, "g", inputs or [_info("x")], outputs or [_info("y")], list(initializers), value_info=list(infos)
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def _usual():
    """Nodes out of order, weights large and small, text and tensor attributes, an output left out, shapes declared."""
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    constants = [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(np.array([2, 32], np.int64), "s"),
                 helper.make_tensor("few", TensorProto.FLOAT, [2], [1.0, 2.0])]  # fmt: skip
    nodes = [
        helper.make_node("MatMul", ["a", "w"], ["b"], name="mm", doc_string="said"),
        helper.make_node("Reshape", ["c", "s"], ["e"]),
        helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(np.array([3], np.float32))),
        helper.make_node("Mul", ["x", "k"], ["a"]),
        helper.make_node("MaxPool", ["b"], ["c", ""], kernel_shape=[2], auto_pad="SAME_UPPER", strides=[2]),
        helper.make_node("Add", ["e", "few"], ["unused"]),
        helper.make_node("Relu", ["e"], ["y"]),
    ]
    infos = [_info("a", (1, 2, 64)), _info("b", ("n", 2, None)), _info("e", (9, 9))]
    return _model(nodes, constants, infos, inputs=[_info("x", (1, 2, 64))], outputs=[_info("y", (2, 32))])


def _text(model):
    return serde.serialize_model(model).SerializeToString(deterministic=True)


@pytest.mark.parametrize("made", [_usual, lambda: MODEL], ids=["usual", "demo"])
def test_a_flat_model_is_read_as_onnx_ir_reads_it(made):
    given = made()
    source = open_source(given if isinstance(given, onnx.ModelProto) else str(given))
    assert is_flat_proto(source.proto)
    wanted = serde.deserialize_model(source.proto)
    own_tensors(wanted, source)
    model, late = flat_model(source)
    for value, shape in late.items():
        value.shape = shape()
    assert _text(model) == _text(wanted)


def test_weights_beside_the_proto_are_those_of_the_file():
    data = _usual().SerializeToString()
    apart, whole = open_source(data, detach=True), open_source(data)
    assert list(apart.detached) == ["w"]
    assert len(apart.proto.SerializeToString()) < len(data) - 64 * 64 * 4
    assert _text(flat_model(apart)[0]) == _text(flat_model(whole)[0])
    apart.attach()
    assert apart.proto == whole.proto


def test_a_tensor_with_too_few_bytes_is_refused_beside_the_proto_as_in_it():
    model = _usual()
    model.graph.initializer[0].raw_data = model.graph.initializer[0].raw_data[:-4]
    with pytest.raises(FormatError, match="'w' has 16380 bytes; its shape and type need 16384"):
        read(model.SerializeToString())


def test_declared_shapes_are_taken_where_inference_has_none():
    nodes = [helper.make_node("NonZero", ["x"], ["found"]), helper.make_node("Cast", ["found"], ["y"], to=1)]
    infos = [_info("found", (2, 5), TensorProto.INT64)]
    model = read(_model(nodes, infos=infos, outputs=[_info("y", (2, 5))]))
    assert [value.shape.numpy() for node in model.ir.graph for value in node.outputs] == [(2, 5), (2, 5)]


def test_invalid_text_is_refused_wherever_it_is():
    whole = _usual().SerializeToString()
    for word in (b"said", b"auto_pad", b"unused", b"few"):
        at = whole.index(word)
        broken = whole[:at] + b"\xff" + whole[at + 1 :]
        with pytest.raises(FormatError, match="not valid UTF-8"):
            open_source(broken)


# -- tidying ------------------------------------------------------------------------------------------------------


def _batch_norm():
    ones = numpy_helper.from_array(np.ones(3, np.float32), "c")
    node = helper.make_node("BatchNormalization", ["x", *"cccc"], ["y", "m", "v"], training_mode=0)
    return _model([node], [ones, numpy_helper.from_array(np.ones(1, np.float32), "spare")])


def _absent():
    bounds = numpy_helper.from_array(np.array(0, np.float32), "low")
    dropped = helper.make_node("Dropout", ["x"], ["d", "mask"])
    return _model([dropped, helper.make_node("Clip", ["d", "low", ""], ["y"])], [bounds])


def _same_names():
    nodes = [helper.make_node("Relu", ["x"], ["a"], name="n"), helper.make_node("Relu", ["a"], ["y"], name="n")]
    return _model(nodes)


@pytest.mark.parametrize("made", [_usual, _batch_norm, _absent, _same_names])
def test_tidying_does_what_the_passes_of_onnx_ir_do(made):
    ours, theirs = serde.deserialize_model(made()), serde.deserialize_model(made())
    assert tidying.is_flat(ours)
    pairs = (
        (tidying.sort_nodes, common.TopologicalSortPass()),
        (tidying.lift_constants, common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)),
        (tidying.remove_unused, common.RemoveUnusedNodesPass()),
        (tidying.fix_names, common.NameFixPass()),
        (tidying.sort_nodes, common.TopologicalSortPass()),
    )
    for ours_does, pass_ in pairs:
        changed, modified = ours_does(ours, flat=True), pass_(theirs).modified
        assert changed is None or changed == modified
        assert _text(ours) == _text(theirs)


def test_a_model_with_a_body_is_not_flat():
    body = helper.make_graph([helper.make_node("Identity", ["x"], ["o"])], "b", [], [_info("o")])
    condition = numpy_helper.from_array(np.array(True), "c")
    model = _model([helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)], [condition])
    assert not is_flat_proto(model)
    assert not tidying.is_flat(serde.deserialize_model(model))
    assert isinstance(read(model).ir, onnx_ir.Model)
