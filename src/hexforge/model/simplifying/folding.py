# SPDX-License-Identifier: Apache-2.0
"""Folding: nodes whose result is known become constants, in one walk that infers shapes as it goes."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from types import NoneType
from typing import Any

import numpy as np
import onnx_ir

from hexforge.ir import Array
from hexforge.model.simplifying.known_values import KnownValues, Replacement, constant_array, read_constant
from hexforge.model.simplifying.node_keys import Key, computation_key
from hexforge.model.simplifying.shapes import InferredTypes, infer_node
from hexforge.model.simplifying.tidying import fix_names, has_body
from hexforge.model.simplifying.value_rules import apply_rule
from hexforge.model.tensors import repeat_constant, stored_bytes

SMALL_BYTES = 4 << 20
"""Results up to this size are always folded; larger ones only where the inputs hold as much."""
LARGE_BYTES = 1 << 30
"""Constants above this are left alone: folding them would double what the model needs."""

KEPT = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "EPContext"})
RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
OWN = frozenset({"ConstantOfShape", "ScatterND"})
"""Folded by a rule of their own: onnx's definition writes them out, or element by element."""
NOT_EVALUATED = KEPT | RANDOM | OWN
DATA_DEPENDENT = frozenset({"NonZero", "Unique", "Compress", "NonMaxSuppression"})

logging.getLogger("onnx_ir").addHandler(logging.NullHandler())  # what it warns of is found out and said here


class Fold:
    """One walk over the main graph in order: a node's shape is inferred, then it is folded if it can be.

    Bodies of control flow stay as they are: one that is never run need not fit these shapes.
    """

    def __init__(self, model: onnx_ir.Model, flat: bool) -> None:
        self._model = model
        self._flat = flat
        self._values = KnownValues()
        self._types: InferredTypes = {}
        self._folded: dict[Key, Array] = {}
        self._changed = False

    def run(self) -> bool:
        """Fold what can be folded; True where something changed."""
        graph = self._model.graph
        for node in graph:
            replacement = self._replacement(node)
            if replacement is not None:
                self._replace(node, replacement)
        for index, output in enumerate(graph.outputs):
            same = self._values.of(output)
            if isinstance(same, onnx_ir.Value) and _may_be_output(same, graph):
                same.name = output.name
                graph.outputs[index] = same
                self._changed = True
        if self._changed:
            fix_names(self._model, self._flat)  # new values may have names that others have
        return self._changed

    def _replacement(self, node: onnx_ir.Node) -> Replacement | None:
        """The replacement of a node, None where it stays."""
        opset = self._model.opset_imports.get(node.domain, 1)
        if node.op_type in ("SplitToSequence", "ConcatFromSequence") and opset < 13:
            return None  # the ops it would be rewritten to have another form in these opsets
        if node.op_type == "CastLike" and "saturate" in node.attributes:
            infer_node(node, self._model.opset_imports, self._model.ir_version, self._types)
            return None  # the Cast it would be rewritten to loses the attribute
        for index, value in enumerate(node.inputs):
            same = self._values.of(value)
            if isinstance(same, onnx_ir.Value):
                node.replace_input_with(index, same)
                self._changed = True
        if _is_constant(node):
            read_constant(node)
            key = None
        else:
            key = self._folding_key(node, opset)
            if key is not None and key in self._folded:
                return self._folded_before(node, self._folded[key])
            if self._flat or not has_body(node):
                infer_node(node, self._model.opset_imports, self._model.ir_version, self._types)
        replacement = self._new_replacement(node, opset)
        if key is not None and replacement is not None and not replacement.nodes:
            tensor = replacement.outputs[0].const_value
            if tensor is not None:
                self._folded[key] = tensor.numpy()
        return replacement

    def _new_replacement(self, node: onnx_ir.Node, opset: int) -> Replacement | None:
        """The replacement of a node whose types are known."""
        if node.domain in self._model.opset_imports:
            try:
                replacement = apply_rule(node, self._values, opset)
            except Exception:
                return None  # a malformed node; whoever translates or runs it says so
            replacement = replacement or self._computed(node, opset)
            if replacement is not None:
                return replacement
        return self._spread(node) or self._scatter(node) or self._several(node, opset)

    def _folding_key(self, node: onnx_ir.Node, opset: int) -> Key | None:
        """A node that reads constants only, by all that its constant follows from; None for other nodes."""
        if node.domain or len(node.outputs) != 1 or not _constant_inputs(node):
            return None
        output = node.outputs[0]
        if output.shape is not None or type(output.type) not in (onnx_ir.TensorType, NoneType):
            return None
        key = computation_key(node, opset, [constant_array(value) for value in node.inputs])
        return None if key is None else (output.dtype, *key)

    def _folded_before(self, node: onnx_ir.Node, array: Array) -> Replacement:
        """The constant that the same node of another layer became; one that can be written to is a copy."""
        output = node.outputs[0]
        own = array.copy() if array.flags.writeable else array
        output.dtype = onnx_ir.DataType.from_numpy(own.dtype)
        return self._replaced(node, [onnx_ir.Tensor(own, name=output.name)])

    def _replace(self, node: onnx_ir.Node, replacement: Replacement) -> None:
        """Put the replacement in place; the name is kept where one node becomes one node."""
        graph, inputs, name = self._model.graph, [v for v in node.inputs if v is not None], node.name
        if replacement.nodes:
            onnx_ir.convenience.replace_nodes_and_values(
                graph, node, [node], replacement.nodes, node.outputs, replacement.outputs
            )
        else:
            for output, value in zip(node.outputs, replacement.outputs, strict=True):
                value.type, value.shape = (
                    output.type or value.type,
                    value.shape if output.shape is None else output.shape,
                )
                value.const_value = output.const_value or value.const_value
                value.name = value.name if output.name is None else output.name
                output.replace_all_uses_with(value, replace_graph_outputs=True)
            graph.remove(node, safe=True)
        for value in inputs:
            if value.is_initializer() and not value.uses() and not value.is_graph_output():
                assert value.graph is not None
                assert value.name is not None
                value.graph.initializers.pop(value.name)
        if len(replacement.nodes) == 1 and replacement.nodes[0].op_type not in ("Identity", "Constant"):
            replacement.nodes[0].name = name
        self._changed = True

    def _computed(self, node: onnx_ir.Node, opset: int) -> Replacement | None:
        """A node of constants with one output, computed by onnx's own definition of the op."""
        if any(v is not None and (v.const_value is None or v.is_graph_input()) for v in node.inputs):
            return None
        if _is_constant(node) or has_body(node) or not self._wanted(node):
            return None
        result = _evaluated(node, opset, [constant_array(v) for v in node.inputs])
        if result is None or isinstance(result, (tuple, list)):
            return None
        tensor = self._folded_tensor(node.outputs[0], result)
        return None if tensor is None else self._replaced(node, [tensor])

    def _wanted(self, node: onnx_ir.Node) -> bool:
        if node.domain or node.op_type in NOT_EVALUATED or len(node.outputs) != 1:
            return False
        return self._is_cheap(node)

    def _is_cheap(self, node: onnx_ir.Node) -> bool:
        read_bytes = 0
        for value in node.inputs:
            tensor = None if value is None else value.const_value
            if tensor is None:
                continue
            if tensor.dtype is onnx_ir.DataType.STRING:
                return False
            stored = stored_bytes(tensor)
            if tensor.nbytes > max(stored, SMALL_BYTES):
                return False  # a view that repeats a few elements; computing on it would spread it out
            read_bytes += stored
        written = 0
        for value in node.outputs:
            if value.dtype in (None, onnx_ir.DataType.STRING) or value.shape is None or not value.shape.is_static():
                return node.op_type in DATA_DEPENDENT and read_bytes <= SMALL_BYTES // 64
            written += math.ceil(math.prod(value.shape.numpy()) * value.dtype.bitwidth / 8)
        return read_bytes <= LARGE_BYTES and (written <= SMALL_BYTES or written <= read_bytes)

    def _folded_tensor(self, value: onnx_ir.Value, result: Any) -> onnx_ir.TensorProtocol | None:
        if not isinstance(result, (np.ndarray, np.generic)):
            return None
        array = np.asarray(result)
        dtype = value.dtype
        if dtype is not None and dtype is not onnx_ir.DataType.STRING and dtype.numpy() != array.dtype:
            return None  # an evaluator that answers in another type is not to be trusted
        if value.shape is not None and value.shape.is_static() and value.shape.numpy() != array.shape:
            return None
        return onnx_ir.Tensor(array, name=value.name)

    def _replaced(self, node: onnx_ir.Node, tensors: list[onnx_ir.TensorProtocol]) -> Replacement:
        values = []
        for value, tensor in zip(node.outputs, tensors, strict=True):
            type, shape = onnx_ir.TensorType(tensor.dtype), onnx_ir.Shape(tensor.shape.numpy())
            new = onnx_ir.Value(name=value.name, type=type, shape=shape, const_value=tensor)
            assert node.graph is not None
            node.graph.register_initializer(new)
            values.append(new)
        return Replacement(values, ())

    def _spread(self, node: onnx_ir.Node) -> Replacement | None:
        """ConstantOfShape, and Expand of a constant: a view that repeats its elements, of any size."""
        if node.domain or node.op_type not in ("ConstantOfShape", "Expand") or not _constant_inputs(node):
            return None
        *data, dims = (v.const_value.numpy() for v in node.inputs if v is not None and v.const_value is not None)
        if dims.ndim != 1 or dims.size > 64 or np.any(dims < 0) or math.prod(dims.tolist()) >= 1 << 60:
            return None
        shape = tuple(int(d) for d in dims)
        if node.op_type == "ConstantOfShape":
            fill = node.attributes.get("value")
            element = np.zeros(1, np.float32) if fill is None else fill.as_tensor().numpy()
            if element.size != 1:
                return None
            element = element.reshape(())
        else:
            element = data[0]
            try:
                shape = np.broadcast_shapes(element.shape, shape)
            except ValueError:
                return None
        return self._replaced(node, [repeat_constant(element, shape, node.outputs[0].name)])

    def _scatter(self, node: onnx_ir.Node) -> Replacement | None:
        """ScatterND of constants."""
        if node.domain or node.op_type != "ScatterND" or not _constant_inputs(node) or not self._is_cheap(node):
            return None
        data, indices, updates = (v.const_value.numpy() for v in node.inputs if v is not None and v.const_value)
        attribute = node.attributes.get("reduction")
        reduction, result = "none" if attribute is None else attribute.as_string(), np.array(data)
        where = tuple(np.moveaxis(indices, -1, 0))
        try:
            if reduction == "none":
                result[where] = updates
            else:
                _REDUCTIONS[reduction].at(result, where, updates)
        except (IndexError, ValueError, KeyError, TypeError):
            return None  # a malformed node; whoever translates or runs it says so
        return self._replaced(node, [onnx_ir.tensor(result, name=node.outputs[0].name)])

    def _several(self, node: onnx_ir.Node, opset: int) -> Replacement | None:
        """A node with several outputs (Split, TopK…), of constants."""
        if len(node.outputs) < 2 or node.domain or node.op_type in KEPT | RANDOM or not _constant_inputs(node):
            return None
        if not all(v.name for v in node.outputs):
            return None
        if has_body(node) or not self._is_cheap(node):
            return None
        if node.op_type == "Split":
            return self._split(node)
        arrays = [None if v is None or v.const_value is None else v.const_value.numpy() for v in node.inputs]
        arrays_written = _evaluated(node, opset, arrays)
        if not isinstance(arrays_written, (tuple, list)) or len(arrays_written) != len(node.outputs):
            return None
        tensors = [self._folded_tensor(v, array) for v, array in zip(node.outputs, arrays_written, strict=True)]
        ready = [t for t in tensors if t is not None]
        return self._replaced(node, ready) if len(ready) == len(tensors) else None

    def _split(self, node: onnx_ir.Node) -> Replacement | None:
        """A Split in the sizes that were inferred: four opsets say them in four ways."""
        source, axis = node.inputs[0], node.attributes.get("axis")
        assert source is not None
        assert source.const_value is not None
        array, along = source.const_value.numpy(), 0 if axis is None else axis.as_int()
        sizes = [v.shape.numpy()[along] for v in node.outputs if v.shape is not None]
        if sum(sizes) != array.shape[along]:
            return None
        parts = np.split(array, np.cumsum(sizes)[:-1], along)
        return self._replaced(node, [onnx_ir.tensor(p, name=v.name) for v, p in zip(node.outputs, parts, strict=True)])


_REDUCTIONS: dict[str, np.ufunc] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _evaluated(node: onnx_ir.Node, opset: int, arrays: Sequence[Array | None]) -> Any:
    """What onnx's reference computes for a node, None where it cannot."""
    from onnx.reference.ops import load_op  # a model that folds nothing does without

    attributes = {
        name: onnx_ir.serde.serialize_tensor(a.as_tensor()) if a.type is onnx_ir.AttributeType.TENSOR else a.value
        for name, a in node.attributes.items()
    }
    try:
        return load_op(node.domain, node.op_type, opset).eval(*arrays, **attributes)
    except Exception:
        return None  # an op without a definition, or a malformed node; whoever translates or runs it says so


def _is_constant(node: onnx_ir.Node) -> bool:
    return node.op_type == "Constant" and not node.domain


def _may_be_output(value: onnx_ir.Value, graph: onnx_ir.Graph) -> bool:
    """True for what a node of the graph writes and is not an output already."""
    producer = value.producer()
    return producer is not None and producer.graph is graph and not value.is_graph_output()


def _constant_inputs(node: onnx_ir.Node) -> bool:
    inputs = [v for v in node.inputs if v is not None]
    return bool(inputs) and all(v.const_value is not None and not v.is_graph_input() for v in inputs)
