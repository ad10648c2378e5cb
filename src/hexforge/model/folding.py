"""Folding: nodes whose result is known become constants, in one walk that infers shapes as it goes."""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np
import onnx_ir
from onnxscript.optimizer import _constant_folding as folding

from hexforge.model.shapes import infer_node
from hexforge.model.tensors import spread, stored_bytes

SMALL_BYTES = 4 << 20
"""Results up to this size are always folded; larger ones only where the inputs hold as much."""
LARGE_BYTES = 1 << 30
"""Constants above this are left alone: folding them would double what the model needs."""

KEPT = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "EPContext"})
RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
OWN = frozenset({"ConstantOfShape", "ScatterND"})
"""Folded here: the base's evaluator writes them out, or element by element."""
DATA_DEPENDENT = frozenset({"NonZero", "Unique", "Compress", "NonMaxSuppression"})

for _library in ("onnxscript", "onnx_ir"):
    logging.getLogger(_library).addHandler(logging.NullHandler())  # what they warn of is found out and said here


class Fold(folding.FoldConstantsPass):  # type: ignore[misc]
    """onnxscript's folding, one walk in order: a node's shape is inferred, then it is folded if it can be."""

    def __init__(self, model: onnx_ir.Model) -> None:
        super().__init__(
            shape_inference=True, input_size_limit=1 << 62, output_size_limit=1 << 62, should_fold=self._wanted
        )
        self._model = model

    def _do_inference(self, node: onnx_ir.Node) -> None:
        infer_node(node, self._model.opset_imports, self._model.ir_version)

    def process_node(self, node: onnx_ir.Node, is_function: bool) -> Any:
        """The replacement of a node, None where it stays."""
        opset = self._model.opset_imports.get(node.domain, 1)
        if node.op_type in ("SplitToSequence", "ConcatFromSequence") and opset < 13:
            return None  # the ops it would be rewritten to have another form in these opsets
        if node.op_type == "CastLike" and "saturate" in node.attributes:
            infer_node(node, self._model.opset_imports, self._model.ir_version)
            return None  # the Cast it would be rewritten to loses the attribute
        try:
            found = super().process_node(node, is_function)
        except RuntimeError:
            return None  # a malformed node; whoever translates or runs it says so
        return found if found is not None else self._spread(node) or self._scatter(node) or self._several(node, opset)

    def replace_node(self, node: onnx_ir.Node, replacement: Any, root: Any) -> None:
        """As the base does, with the name kept where one node becomes one node."""
        super().replace_node(node, replacement, root)
        if len(replacement.new_nodes) == 1 and replacement.new_nodes[0].op_type not in ("Identity", "Constant"):
            replacement.new_nodes[0].name = node.name

    def visit_attribute(self, attr: onnx_ir.Attr) -> None:
        """Bodies stay as they are: one that is never run need not fit these shapes, and would become malformed."""

    def _wanted(self, node: onnx_ir.Node) -> bool:
        if node.domain or node.op_type in KEPT | RANDOM | OWN or len(node.outputs) != 1:
            return False
        return self._is_cheap(node)

    def _is_cheap(self, node: onnx_ir.Node) -> bool:
        held = 0
        for value in node.inputs:
            tensor = None if value is None else value.const_value
            if tensor is None:
                continue
            if tensor.dtype is onnx_ir.DataType.STRING:
                return False
            stored = stored_bytes(tensor)
            if tensor.nbytes > max(stored, SMALL_BYTES):
                return False  # a view that repeats a few elements; computing on it would spread it out
            held += stored
        written = 0
        for value in node.outputs:
            if value.dtype in (None, onnx_ir.DataType.STRING) or value.shape is None or not value.shape.is_static():
                return node.op_type in DATA_DEPENDENT and held <= SMALL_BYTES // 64
            written += math.ceil(math.prod(value.shape.numpy()) * value.dtype.bitwidth / 8)
        return held <= LARGE_BYTES and (written <= SMALL_BYTES or written <= held)

    def _prepare_folded_tensor(self, node: onnx_ir.Node, name: str, result: Any) -> onnx_ir.TensorProtocol | None:
        value = next((v for v in node.outputs if v.name == name), node.outputs[0])
        if not isinstance(result, (np.ndarray, np.generic)):
            return None
        array = np.asarray(result)
        dtype = value.dtype
        if dtype is not None and dtype is not onnx_ir.DataType.STRING and dtype.numpy() != array.dtype:
            return None  # an evaluator that answers in another type is not to be trusted
        if value.shape is not None and value.shape.is_static() and value.shape.numpy() != array.shape:
            return None
        return onnx_ir.Tensor(array, name=name)

    def _replaced(self, node: onnx_ir.Node, tensors: list[onnx_ir.TensorProtocol]) -> Any:
        values = []
        for value, tensor in zip(node.outputs, tensors, strict=True):
            type, shape = onnx_ir.TensorType(tensor.dtype), onnx_ir.Shape(tensor.shape.numpy())
            new = onnx_ir.Value(name=value.name, type=type, shape=shape, const_value=tensor)
            assert node.graph is not None
            node.graph.register_initializer(new)
            values.append(new)
        return folding.Replacement(values, [])

    def _spread(self, node: onnx_ir.Node) -> Any:
        """ConstantOfShape, and Expand of a constant: a view that repeats its elements, of any size."""
        if node.domain or node.op_type not in ("ConstantOfShape", "Expand") or not _constant_inputs(node):
            return None
        *data, dims = (v.const_value.numpy() for v in node.inputs if v is not None and v.const_value is not None)
        if dims.ndim != 1 or dims.size > 64 or np.any(dims < 0) or math.prod(dims.tolist()) >= 1 << 60:
            return None
        shape = tuple(int(d) for d in dims)
        if node.op_type == "ConstantOfShape":
            given = node.attributes.get("value")
            element = np.zeros(1, np.float32) if given is None else given.as_tensor().numpy()
            if element.size != 1:
                return None
            element = element.reshape(())
        else:
            element = data[0]
            try:
                shape = np.broadcast_shapes(element.shape, shape)
            except ValueError:
                return None
        return self._replaced(node, [spread(element, shape, node.outputs[0].name)])

    def _scatter(self, node: onnx_ir.Node) -> Any:
        """ScatterND of constants."""
        if node.domain or node.op_type != "ScatterND" or not _constant_inputs(node) or not self._is_cheap(node):
            return None
        data, indices, updates = (v.const_value.numpy() for v in node.inputs if v is not None and v.const_value)
        given = node.attributes.get("reduction")
        reduction, result = "none" if given is None else given.as_string(), np.array(data)
        where = tuple(np.moveaxis(indices, -1, 0))
        try:
            if reduction == "none":
                result[where] = updates
            else:
                _REDUCTIONS[reduction].at(result, where, updates)
        except (IndexError, ValueError, KeyError, TypeError):
            return None  # a malformed node; whoever translates or runs it says so
        return self._replaced(node, [onnx_ir.tensor(result, name=node.outputs[0].name)])

    def _several(self, node: onnx_ir.Node, opset: int) -> Any:
        """A node with several outputs (Split, TopK…), which the base leaves."""
        if len(node.outputs) < 2 or node.domain or node.op_type in KEPT | RANDOM or not _constant_inputs(node):
            return None
        if not all(v.name for v in node.outputs):
            return None
        if any(a.type in _BODIES for a in node.attributes.values()) or not self._is_cheap(node):
            return None
        if node.op_type == "Split":
            return self._split(node)
        arrays = [None if v is None or v.const_value is None else v.const_value.numpy() for v in node.inputs]
        attributes = {
            name: onnx_ir.serde.serialize_tensor(a.as_tensor()) if a.type == onnx_ir.AttributeType.TENSOR else a.value
            for name, a in node.attributes.items()
        }
        found = folding._reference_evaluator.evaluate(node.domain, node.op_type, opset, *arrays, **attributes)
        if not isinstance(found, (tuple, list)) or len(found) != len(node.outputs):
            return None
        tensors = [
            self._prepare_folded_tensor(node, v.name or "", array) for v, array in zip(node.outputs, found, strict=True)
        ]
        ready = [t for t in tensors if t is not None]
        return self._replaced(node, ready) if len(ready) == len(tensors) else None

    def _split(self, node: onnx_ir.Node) -> Any:
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
_BODIES = (onnx_ir.AttributeType.GRAPH, onnx_ir.AttributeType.GRAPHS)


def _constant_inputs(node: onnx_ir.Node) -> bool:
    given = [v for v in node.inputs if v is not None]
    return bool(given) and all(v.const_value is not None and not v.is_graph_input() for v in given)
