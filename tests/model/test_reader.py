# SPDX-License-Identifier: Apache-2.0
"""read(): what comes out of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.reference
import onnx_ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from hexforge.errors import CallError, ModelError
from hexforge.model.declarations import fix_shapes
from hexforge.model.load_check import RUNTIME_IR, load_problem
from hexforge.model.reader import read
from hexforge.model.simplifying import shapes


def text(body: str, opset: int = 17, extra: str = "") -> onnx.ModelProto:
    """A model from onnx's text form."""
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}{extra}]> {body}')


def types(model) -> list[str]:
    return [node.op_type for node in model.ir.graph]


def shape(model, index: int = 0) -> tuple[int, ...]:
    return tuple(model.ir.graph.outputs[index].shape)


FLATTEN = """agraph (float[N, 3, H, W] x) => (float[A, B] y) {
    s = Shape(x)
    i = Constant<value_ints: ints = [0]>()
    n = Gather<axis = 0>(s, i)
    m = Constant<value_ints: ints = [-1]>()
    d = Concat<axis = 0>(n, m)
    r = Reshape(x, d)
    y = Relu(r)
}"""


def test_shape_chains_fold_and_every_shape_is_known():
    model = read(text(FLATTEN), shapes={"x": [2, 3, 4, 5]})
    assert types(model) == ["Reshape", "Relu"]
    assert shape(model) == (2, 60)
    assert {f.op_type for f in model.folded} == {"Shape", "Constant", "Gather", "Concat"}
    assert model.node_count == 7
    assert all(node.version == 17 and node.name for node in model.ir.graph)
    model.require_static()


def test_declared_inputs_and_metadata_are_the_originals():
    proto = text(FLATTEN)
    proto.producer_name, proto.model_version, proto.doc_string = "me", 3, "text"
    proto.metadata_props.add(key="a", value="b")
    model = read(proto, dims={"N": 1, "H": 2, "W": 2})
    assert [(i.name, i.type, i.shape) for i in model.inputs] == [("x", "tensor(float)", ("N", 3, "H", "W"))]
    assert model.outputs[0].shape == ("A", "B")
    assert (model.metadata.producer_name, model.metadata.version, model.metadata.description) == ("me", 3, "text")
    assert model.metadata.custom_metadata_map == {"a": "b"}
    assert model.opset == 17


def test_unnamed_nodes_get_names_and_equal_names_are_told_apart():
    model = read(text("agraph (float[2] x) => (float[2] y) { a = Relu(x) b = Relu(a) y = Neg(b) }"))
    names = [n.name for n in model.ir.graph]
    assert len(set(names)) == 3
    assert names[2].startswith("Neg_")


def test_dynamic_dimensions_are_named_with_the_way_to_fix_them():
    model = read(text("agraph (float[N, 3, ?] x, float[2] z) => (float[N, 3, ?] y) { y = Relu(x) }"))
    with pytest.raises(CallError) as caught:
        model.require_static()
    message = str(caught.value)
    assert "'x'" in message
    assert "dimension 0 ('N')" in message
    assert "dimension 2 (unnamed)" in message
    assert "fix-shapes" in message
    assert "'z'" not in message


@pytest.mark.parametrize("mark", [-1, "?", ""])
def test_marks_of_unknown_dimensions(mark):
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2])
    dim = info.type.tensor_type.shape.dim[0]
    dim.Clear()
    if isinstance(mark, int):
        dim.dim_value = mark
    else:
        dim.dim_param = mark
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [info], [out])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    with pytest.raises(CallError, match="dimension 0"):
        read(proto).require_static()
    assert shape(read(proto, shapes={"x": [4, 2]})) == (4, 2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dims": {"M": 1}}, "no input has a dimension named 'M'"),
        ({"shapes": {"X": [1, 3, 4, 4]}}, "there are 'x'"),
        ({"shapes": {"x": [1, 3, 4]}}, "rank"),
        ({"dims": {"N": -1}}, "whole number"),
        ({"dims": {"N": 1.5}}, "whole number"),
    ],
)
def test_wrong_shapes_are_the_callers_error(arguments, words):
    with pytest.raises(CallError, match=words):
        read(text(FLATTEN), **arguments)


def pooled(size: int, ir_version: int = 10) -> onnx.ModelProto:
    """A convolution, its average over the picture and a dense layer, declared with fixed sizes all through."""
    weight = numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "w")
    dense = numpy_helper.from_array(np.ones((4, 2), np.float32), "d")
    shape = numpy_helper.from_array(np.array([1, 4 * (size - 2) ** 2]), "s")
    values = {"x": (1, 3, size, size), "c": (1, 4, size - 2, size - 2), "y": (1, 2), "z": (1, 4 * (size - 2) ** 2)}
    made = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in values.items()}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("ReduceMean", ["c"], ["m"], axes=[2, 3], keepdims=0),
        helper.make_node("MatMul", ["m", "d"], ["y"]),
        helper.make_node("Reshape", ["c", "s"], ["z"]),
    ]
    graph = helper.make_graph(nodes[:3], "g", [made["x"]], [made["y"]], [weight, dense], value_info=[made["c"]])
    if size == 9:  # this one is made for its size
        graph = helper.make_graph(nodes, "g", [made["x"]], [made["y"], made["z"]], [weight, dense, shape])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=ir_version)


def test_a_fixed_size_is_given_another_where_the_model_allows_it(tmp_path):
    model = read(pooled(8), shapes={"x": [1, 3, 20, 12]})
    assert {v.name: tuple(v.shape or ()) for n in model.ir.graph for v in n.outputs}["c"] == (1, 4, 18, 10)
    onnx.save(pooled(8), tmp_path / "m.onnx")
    fix_shapes(tmp_path / "m.onnx", tmp_path / "larger.onnx", {"x": [2, 3, 20, 12]})
    x = np.random.default_rng(0).standard_normal((2, 3, 20, 12)).astype(np.float32)
    (y,) = onnx.reference.ReferenceEvaluator(str(tmp_path / "larger.onnx")).run(None, {"x": x})
    assert y.shape == (2, 2)
    assert read(tmp_path / "larger.onnx").inputs[0].shape == (2, 3, 20, 12)


@pytest.mark.parametrize(("size", "given"), [(8, [1, 4, 8, 8]), (8, [1, 3, 2, 2]), (9, [1, 3, 10, 9])])
def test_a_fixed_size_that_nodes_are_made_for_stays(size, given, tmp_path):
    with pytest.raises(ModelError, match=r"fixed as \d+, is \d+.*the model does not allow it"):
        read(pooled(size), shapes={"x": given})
    onnx.save(pooled(size), tmp_path / "m.onnx")
    with pytest.raises(ModelError, match="the model does not allow it"):
        fix_shapes(tmp_path / "m.onnx", tmp_path / "other.onnx", {"x": given})
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


@pytest.mark.parametrize("ir_version", [14, 99])
def test_files_made_of_a_newer_ir_version_are_ones_that_onnxruntime_loads(ir_version, tmp_path):
    onnx.save(pooled(8, ir_version), tmp_path / "m.onnx")
    assert load_problem(tmp_path / "m.onnx") is not None
    fix_shapes(tmp_path / "m.onnx", tmp_path / "fixed.onnx", {"x": [1, 3, 8, 8]})
    assert load_problem(tmp_path / "fixed.onnx") is None
    assert read(tmp_path / "m.onnx").ir.ir_version == RUNTIME_IR


def test_quantization_survives():
    def constant(name, array):
        return numpy_helper.from_array(np.asarray(array), name)

    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["wf"]),
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["wm"], domain="com.microsoft"),
        helper.make_node("Add", ["xf", "wf"], ["a"]),
        helper.make_node("Add", ["a", "wm"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
        [constant("w", np.array([1, 2], np.int8)), constant("s", np.float32(0.5)), constant("z", np.int8(0))],
    )
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("com.microsoft", 1)]
    model = read(helper.make_model(graph, opset_imports=opsets))
    assert sorted(types(model)) == sorted(n.op_type for n in nodes)
    assert shape(model) == (2,)


def test_huge_constant_of_shape_stays_a_view():
    model = read(
        text("""agraph (float[1] x) => (float[M, K] y, float[A] z) {
            s = Constant<value_ints: ints = [100000, 100000]>()
            c = ConstantOfShape<value: tensor = float[1] {2.0}>(s)
            t = Constant<value_float: float = 3.0>()
            d = Mul(c, t)
            y = Add(d, x)
            m = ReduceMax<keepdims = 0>(c)
            z = Add(m, x)
        }""")
    )
    assert sorted(types(model)) == ["Add", "Add", "Mul", "ReduceMax"]
    multiply = next(n for n in model.ir.graph if n.op_type == "Mul")
    array = multiply.inputs[0].const_value.numpy()
    assert array.shape == (100000, 100000)
    assert array.strides == (0, 0)
    assert array[5, 7] == 2.0


def test_expand_of_a_constant_and_split_of_a_constant_fold():
    model = read(
        text("""agraph (float[4, 3] x) => (float[4, 3] y) {
            c = Constant<value_floats: floats = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]>()
            a, b = Split(c)
            s = Constant<value_ints: ints = [4, 3]>()
            e = Expand(a, s)
            f = Add(x, e)
            y = Add(f, b)
        }""", 13)
    )  # fmt: skip
    assert types(model) == ["Add", "Add"]
    first, second = model.ir.graph
    np.testing.assert_array_equal(first.inputs[1].const_value.numpy(), np.broadcast_to([1, 2, 3], (4, 3)))
    np.testing.assert_array_equal(second.inputs[1].const_value.numpy(), [4, 5, 6])


@pytest.mark.parametrize("reduction", ["none", "add", "mul"])
def test_scatter_nd_of_constants_folds_as_onnx_defines_it(reduction):
    given = {
        "data": np.arange(24, dtype=np.float32).reshape(4, 3, 2),
        "indices": np.array([[[0, 1], [3, 2]], [[-1, 2], [1, 0]]]),
        "updates": np.arange(100, 108, dtype=np.float32).reshape(2, 2, 2),
    }
    node = helper.make_node("ScatterND", list(given), ["c"], reduction=reduction)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, 3, 2]) for n in "xy")
    tensors = [numpy_helper.from_array(array, name) for name, array in given.items()]
    graph = helper.make_graph([node, helper.make_node("Add", ["x", "c"], ["y"])], "g", [x], [y], tensors)
    model = read(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    assert types(model) == ["Add"]
    expected = onnx.reference.ReferenceEvaluator(node).run(None, given)[0]  # type: ignore[index]
    np.testing.assert_array_equal(model.ir.graph.initializers["c"].const_value.numpy(), expected)


def test_scatter_nd_out_of_range_is_left_to_be_refused():
    model = read(
        text("""agraph (float[2] x) => (float[2] y)
        <float[2] d = {0, 0}, int64[1, 1] i = {5}, float[1] u = {1}> { c = ScatterND(d, i, u) y = Add(x, c) }""")
    )
    assert types(model) == ["ScatterND", "Add"]


def test_folding_can_be_left_out():
    model = read(text(FLATTEN), shapes={"x": [2, 3, 4, 5]}, fold=False)
    assert "Shape" in types(model)


def test_random_ops_are_not_folded():
    body = "agraph () => (float[2] y) { c = Constant<value_floats: floats = [0.5, 0.5]>() y = Bernoulli(c) }"
    model = read(text(body))
    assert types(model) == ["Bernoulli"]


@pytest.mark.parametrize("opset", [7, 10, 12, 13])
def test_dropout_and_identity_go(opset):
    nodes = "a = Relu(x) b = Dropout(a) c = Identity(b) d = Neg(c) y = Identity(d)"
    model = read(text(f"agraph (float[2] x) => (float[2] y) {{ {nodes} }}", opset))
    assert types(model) == ["Relu", "Neg"]
    assert [v.name for v in model.ir.graph.outputs] == ["y"]


def test_every_output_is_written_by_a_node_under_its_name():
    model = read(
        text("""agraph (float[2] x) => (float[2] same, float[2] one, float[2] two, float[2] k) {
            same = Identity(x)
            one = Relu(x)
            two = Identity(one)
            k = Constant<value_floats: floats = [1.0, 2.0]>()
        }""")
    )
    assert [v.name for v in model.ir.graph.outputs] == ["same", "one", "two", "k"]
    assert all(v.producer() is not None for v in model.ir.graph.outputs)
    assert sorted(types(model)) == ["Identity", "Identity", "Identity", "Relu"]


def test_if_with_a_known_condition_is_inlined_with_its_captures():
    model = read(
        text("""agraph (float[2] x) => (float[2] y) {
            s = Shape(x)
            n = Constant<value_ints: ints = [2]>()
            e = Equal(s, n)
            z = Constant<value_ints: ints = [0]>()
            c = Squeeze(e, z)
            y = If(c) <
                then_branch = t () => (float[2] a) { h = Neg(x) a = Relu(h) },
                else_branch = f () => (float[2] b) { b = Abs(x) }
            >
        }""")
    )
    assert types(model) == ["Neg", "Relu"]
    assert model.ir.graph.outputs[0].name == "y"


def test_if_with_an_open_condition_and_loop_stay():
    model = read(
        text("""agraph (float[2] x, bool c) => (float[2] y) {
            k = Constant<value_floats: floats = [1.0, 2.0]>()
            y = If(c) <
                then_branch = t () => (float[2] a) { a = Add(x, k) },
                else_branch = f () => (float[2] b) { b = Abs(x) }
            >
        }""")
    )
    assert types(model) == ["If"]
    assert shape(model) == (2,)


def test_functions_are_inlined():
    proto = text("agraph (float[2] x) => (float[2] y) { y = my.twice(x) }", 17, ', "my" : 1')
    proto.functions.append(
        helper.make_function(
            "my", "twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 17)]
        )
    )
    model = read(proto)
    assert types(model) == ["Add"]
    assert not model.ir.functions


def test_unknown_custom_op_is_read_and_what_follows_is_unknown():
    body = "agraph (float[2] x) => (float[2] z) { y = my.thing(x) w = Relu(y) z = Neg(w) }"
    model = read(text(body, 17, ', "my" : 1'))
    assert types(model) == ["thing", "Relu", "Neg"]
    assert next(iter(model.ir.graph)).outputs[0].shape is None


def test_initializers_that_are_also_inputs_are_constants():
    proto = text("agraph (float[2] x, float[2] w) => (float[2] y) { y = Add(x, w) }")
    proto.graph.initializer.append(numpy_helper.from_array(np.ones(2, np.float32), "w"))
    model = read(proto)
    assert [i.name for i in model.inputs] == ["x"]
    assert [v.name for v in model.ir.graph.inputs] == ["x"]


def test_sparse_initializers_become_dense():
    proto = text("agraph (float[2, 3] x) => (float[2, 3] y) { y = Add(x, w) }")
    values = numpy_helper.from_array(np.array([5, 6], np.float32), "w")
    indices = numpy_helper.from_array(np.array([1, 5], np.int64), "i")
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [2, 3]))
    (add,) = read(proto).ir.graph
    np.testing.assert_array_equal(add.inputs[1].const_value.numpy(), [[0, 5, 0], [0, 0, 6]])


def test_nodes_out_of_order_are_sorted():
    proto = text("agraph (float[2] x) => (float[2] y) { a = Relu(x) y = Neg(a) }")
    first, second = proto.graph.node[0], proto.graph.node[1]
    proto.graph.ClearField("node")
    proto.graph.node.extend([second, first])
    assert types(read(proto)) == ["Relu", "Neg"]


def test_outputs_a_node_leaves_out_have_no_name():
    proto = text("agraph (float[1, 2, 4] x) => (float[1, 1, 3] h) { unused, h = LSTM<hidden_size = 3>(x, w, r) }")
    proto.graph.initializer.append(numpy_helper.from_array(np.ones((1, 12, 4), np.float32), "w"))
    proto.graph.initializer.append(numpy_helper.from_array(np.ones((1, 12, 3), np.float32), "r"))
    (lstm,) = read(proto).ir.graph
    assert [v.name for v in lstm.outputs] == ["", "h"]


@pytest.mark.parametrize(
    ("call", "inputs", "expected"),
    [
        ("com.microsoft.Gelu(x)", "", (2, 8)),
        ("com.microsoft.QuickGelu(x)", "", (2, 8)),
        ("com.microsoft.FusedMatMul<transB = 1>(x, w)", ", float[5, 8] w", (2, 5)),
        ("com.microsoft.MatMulNBits<K = 8, N = 6, block_size = 16>(x, w, s)", ", uint8[6, 1, 8] w, float[6] s", (2, 6)),
        ("com.microsoft.QuantizeLinear(x, s, z)", ", float s, uint16 z", (2, 8)),
        ("SimplifiedLayerNormalization<axis = -1>(x, s)", ", float[8] s", (2, 8)),
        ("com.microsoft.QLinearAdd(x, s, z, w, s, z, s, z)", ", float[4, 1, 8] w, float s, float z", (4, 2, 8)),
        ("com.microsoft.FusedConv(i, k)", ", float[1, 3, 8, 8] i, float[4, 3, 3, 3] k", (1, 4, 6, 6)),
    ],
)
def test_ops_onnx_does_not_know_have_shapes(call, inputs, expected):
    body = f"agraph (float[2, 8] x{inputs}) => (float[A] y) {{ a = {call} b = Shape(a) y = Identity(b) }}"
    model = read(text(body, 17, ', "com.microsoft" : 1'))
    (identity,) = model.ir.graph
    assert tuple(identity.inputs[0].const_value.numpy()) == expected


def test_external_data_is_mapped_not_loaded(tmp_path: Path):
    weights = np.arange(12, dtype=np.float32).reshape(3, 4)
    proto = text("agraph (float[2, 3] x) => (float[2, 4] y) { y = MatMul(x, w) }")
    proto.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    model = read(tmp_path / "m.onnx")
    (node,) = model.ir.graph
    array = node.inputs[1].const_value.numpy()
    np.testing.assert_array_equal(array, weights)
    assert not array.flags.owndata
    with pytest.raises(CallError, match="by path"):
        read((tmp_path / "m.onnx").read_bytes())
    data = (tmp_path / "m.onnx").read_bytes()
    assert read(data, folder=tmp_path).node_count == 1


def test_external_data_beyond_memory_is_only_mapped(tmp_path: Path):
    size = 1 << 35  # 32 GB, a file without blocks
    proto = text("agraph (int64[1] x) => (int8[1] y) { y = Gather(w, x) }")
    tensor = proto.graph.initializer.add(name="w", data_type=TensorProto.INT8, dims=[size])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.bin")
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(size)
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    (gather,) = read(tmp_path / "m.onnx").ir.graph
    assert gather.inputs[0].const_value.numpy().nbytes == size


def test_a_linked_model_may_have_its_data_beside_what_it_links_to(tmp_path: Path):
    proto = text("agraph (float[2, 3] x) => (float[2, 4] y) { y = MatMul(x, w) }")
    proto.graph.initializer.append(numpy_helper.from_array(np.ones((3, 4), np.float32), "w"))
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    snapshot.mkdir()
    onnx.save(proto, blobs / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    (snapshot / "m.onnx").symlink_to(blobs / "m.onnx")
    (snapshot / "w.bin").symlink_to(blobs / "w.bin")
    assert read(snapshot / "m.onnx").node_count == 1


def test_four_bit_and_bfloat16_constants_keep_their_values():
    proto = text("agraph (float[3] x) => (float[3] y) { y = Identity(x) k = Cast<to = 1>(x) }", 21)
    proto.graph.initializer.append(helper.make_tensor("q", TensorProto.INT4, [3], [1, -2, 7]))
    proto.graph.initializer.append(helper.make_tensor("b", TensorProto.BFLOAT16, [1], [1.5]))
    proto.graph.node.append(helper.make_node("DequantizeLinear", ["q", "s"], ["d"]))
    proto.graph.initializer.append(numpy_helper.from_array(np.array(1, np.float32), "s"))
    proto.graph.node.append(helper.make_node("Cast", ["b"], ["e"], to=1))
    for name in ("d", "e"):
        proto.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
    model = read(proto)
    dequantize = next(n for n in model.ir.graph if n.op_type == "DequantizeLinear")
    assert dequantize.inputs[0].const_value.numpy().astype(int).tolist() == [1, -2, 7]
    identity = next(n for n in model.ir.graph if n.outputs[0].name == "e")
    assert identity.inputs[0].const_value.numpy().tolist() == [1.5]


@pytest.mark.parametrize(
    ("shapes", "dims"),
    [({"a": [1, 4, 8], "b": [1, 6, 8]}, {}), ({"b": [1, 6, 8]}, {"seq": 4}), ({"a": [1, 4, 8]}, {"seq": 6})],
)
def test_inputs_that_share_a_name_may_have_two_sizes(tmp_path: Path, shapes, dims):
    made = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, "seq", 8]) for n in "abx"}
    nodes = [helper.make_node("Relu", ["b"], ["x"]), helper.make_node("Concat", ["a", "x"], ["y"], axis=1)]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, None, 8])
    graph = helper.make_graph(nodes, "g", [made["a"], made["b"]], [y], value_info=[made["x"]])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert shape(read(proto, shapes=shapes, dims=dims)) == (1, 10, 8)
    source, dest = tmp_path / "m.onnx", tmp_path / "fixed.onnx"
    onnx.save(proto, source)
    fix_shapes(source, dest, shapes, dims)
    inputs = [np.ones((1, size, 8), np.float32) for size in (4, 6)]
    (joined,) = onnxruntime.InferenceSession(dest).run(None, dict(zip("ab", inputs, strict=True)))
    assert joined.shape == (1, 10, 8)


def test_a_name_with_two_sizes_leaves_a_third_input_open():
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["seq"]) for n in "abcy"]
    graph = helper.make_graph([helper.make_node("Sum", list("abc"), ["y"])], "g", values[:3], values[3:])
    model = read(helper.make_model(graph, ir_version=8), shapes={"a": [4], "b": [1]})
    with pytest.raises(CallError, match="--shape c="):
        model.require_static()


def test_fix_shapes_writes_a_static_model(tmp_path: Path):
    source, dest = tmp_path / "m.onnx", tmp_path / "fixed.onnx"
    onnx.save(text(FLATTEN), source)
    fix_shapes(source, dest, dims={"N": 1}, shapes={"x": [1, 3, 4, 4]})
    fixed = onnx.load(dest)
    assert [d.dim_value for d in fixed.graph.input[0].type.tensor_type.shape.dim] == [1, 3, 4, 4]
    read(dest).require_static()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fixed.onnx", "m.onnx"]


def test_fix_shapes_keeps_external_data_beside_the_model(tmp_path: Path):
    proto = text("agraph (float[N, 3] x) => (float[N, 4] y) { y = MatMul(x, w) }")
    proto.graph.initializer.append(numpy_helper.from_array(np.ones((3, 4), np.float32), "w"))
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    fix_shapes(tmp_path / "m.onnx", tmp_path / "f.onnx", dims={"N": 2})
    assert shape(read(tmp_path / "f.onnx")) == (2, 4)
    (tmp_path / "sub").mkdir()
    with pytest.raises(CallError, match="external data"):
        fix_shapes(tmp_path / "m.onnx", tmp_path / "sub" / "f.onnx", dims={"N": 2})
    onnx.save(text(FLATTEN), tmp_path / "n.onnx")
    with pytest.raises(CallError, match="cannot be written"):
        fix_shapes(tmp_path / "n.onnx", tmp_path / "missing" / "f.onnx", dims={"N": 2})


def test_reading_does_not_change_the_proto_given():
    proto = text(FLATTEN)
    before = proto.SerializeToString()
    read(proto, dims={"N": 1})
    assert proto.SerializeToString() == before


def test_ir_is_an_onnx_ir_model_with_types_everywhere():
    model = read(text(FLATTEN), shapes={"x": [2, 3, 4, 5]})
    assert isinstance(model.ir, onnx_ir.Model)
    for node in model.ir.graph:
        for value in (*node.inputs, *node.outputs):
            assert value.name
            assert value.dtype is not None
            assert value.shape.is_static()


PLAIN = (*sorted(shapes._POINTWISE), *sorted(shapes._BROADCAST))


@pytest.mark.parametrize("op", [*PLAIN, "QuantizeLinear", "DequantizeLinear"])
def test_the_plainest_ops_write_what_their_schemas_say(op):
    """Their types are not asked of onnx's schemas, so they are held against them here."""
    second = {"Add": (3, 1), "Sub": (1,), "Mul": (5, 2, 3, 4), "Div": ()}
    linear = op.endswith("Linear")
    first = TensorProto.INT8 if op == "DequantizeLinear" else TensorProto.FLOAT
    infos = [helper.make_tensor_value_info("a", first, (2, 3, 4))]
    names, constants = ["a"], []
    if op in second:
        infos.append(helper.make_tensor_value_info("b", TensorProto.FLOAT, second[op]))
        names.append("b")
    if linear:
        constants = [
            numpy_helper.from_array(np.array(0.5, np.float32), "s"),
            numpy_helper.from_array(np.array(3, np.int8), "z"),
        ]
        names += ["s", "z"]
    out = helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph([helper.make_node(op, names, ["y"])], "g", infos, [out], constants)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    (want,) = onnx.shape_inference.infer_shapes(proto, strict_mode=True).graph.output
    (made,) = read(proto).ir.graph.outputs
    assert made.shape is not None
    assert made.shape.numpy() == tuple(d.dim_value for d in want.type.tensor_type.shape.dim)
    assert int(made.dtype or 0) == want.type.tensor_type.elem_type


SIZED: dict[str, tuple[str, list[tuple[int, ...]], dict[str, Any]]] = {
    "strided": ("Conv", [(2, 6, 13, 9), (8, 3, 3, 2)], {"strides": [2, 3], "pads": [1, 0, 2, 1], "group": 2}),
    "dilated": ("Conv", [(1, 4, 30), (5, 4, 3), (5,)], {"dilations": [4], "kernel_shape": [3]}),
    "same": ("Conv", [(1, 4, 7, 7), (4, 4, 3, 3)], {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    "too small": ("Conv", [(1, 4, 2, 2), (4, 4, 3, 3)], {}),
    "joined": ("Concat", [(2, 3, 4), (2, 1, 4), (2, 5, 4)], {"axis": -2}),
    "unequal": ("Concat", [(2, 3, 4), (3, 1, 4)], {"axis": 1}),
    "normalized": ("BatchNormalization", [(2, 3, 4), (3,), (3,), (3,), (3,)], {}),
    "pooled": ("GlobalAveragePool", [(2, 3, 4, 5)], {}),
}


@pytest.mark.parametrize("case", SIZED)
def test_sizes_that_are_counted_here_are_those_of_the_schemas(case):
    op, shapes, attributes = SIZED[case]
    infos = [helper.make_tensor_value_info(f"i{i}", TensorProto.FLOAT, shape) for i, shape in enumerate(shapes)]
    node = helper.make_node(op, [info.name for info in infos], ["y"], **attributes)
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    (wanted,) = onnx.shape_inference.infer_shapes(proto).graph.output
    (made,) = read(proto).ir.graph.outputs
    shape = [d.dim_value for d in wanted.type.tensor_type.shape.dim]
    assert ([] if made.shape is None else list(made.shape.numpy())) == shape


@pytest.mark.parametrize("opset", [11, 18, 21, 22])
@pytest.mark.parametrize("auto", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(
    ("size", "kernel", "stride"), [((9, 7), (2, 2), (3, 1)), ((6,), (2,), (3,)), ((7, 3, 4), (3, 3, 2), (1, 3, 2))]
)
def test_ceiled_pools_with_same_pads_have_the_shape_that_kernels_give(size, kernel, stride, auto, opset):
    infos = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 2, *size))]
    given = {"kernel_shape": kernel, "strides": stride, "auto_pad": auto}
    pools = ["AveragePool", "MaxPool"] + (["LpPool"] if opset >= 18 else [])
    nodes = [helper.make_node(op, ["x"], [op], ceil_mode=1, **given) for op in pools]
    outputs = [helper.make_empty_tensor_value_info(op) for op in pools]
    graph = helper.make_graph(nodes, "g", infos, outputs)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    for value in read(proto).ir.graph.outputs:
        assert value.shape.numpy() == (1, 2, *(-(-n // s) for n, s in zip(size, stride, strict=True)))
