# SPDX-License-Identifier: Apache-2.0
"""Graph writer: a subgraph of a .tflite becomes an ONNX graph, tensor by tensor and under the names that it has.

A quantized tensor is stored as its integers, behind a QuantizeLinear with the file's own scales, and whoever reads it
has a DequantizeLinear: the form in which the rest of hexforge knows quantized models. A tensor is stored in the layout
it is made in, which for a convolution of ONNX is channels first, and is transposed only where somebody needs the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

from hexforge.addons.tflite.model_file import OTHER_TYPES, TYPES, Subgraph, Tensor, TensorScales, TfliteModel, array_of
from hexforge.errors import UnsupportedError
from hexforge.ir import Array

_STORED = {np.dtype(t) for t in (np.int8, np.uint8, np.int16, np.uint16, np.int32)}
_SMALL = {"int4", "uint4"}
OPSET = 21
_NOT_INFERRED = (
    *(shape_inference.InferenceError, onnx.checker.ValidationError, onnx.defs.SchemaError),
    *(RuntimeError, ValueError, LookupError, TypeError),
)
"""What onnx's inference raises for a node that does not fit its op."""
_MOST_SHOWN = 4096
"""Elements of a constant that shapes may follow from."""


def channels_first(rank: int) -> tuple[int, ...]:
    """The permutation from channels last to channels first."""
    return (0, rank - 1, *range(1, rank - 1))


def channels_last(rank: int) -> tuple[int, ...]:
    """The permutation from channels first to channels last."""
    return (0, *range(2, rank), 1)


class Names:
    """Names of a model's values and nodes, none of which is given twice."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._taken)

    def unique(self, wanted: str) -> str:
        """The name that is wanted, with a number behind it where it is taken."""
        wanted = wanted or "value"
        count = self._taken.get(wanted)
        if count is None:
            self._taken[wanted] = 1
            return wanted
        self._taken[wanted] = count + 1
        return self.unique(f"{wanted}_{count}")


@dataclass(slots=True)
class StateVariable:
    """A variable that a model keeps between its runs: an input, and an output with what it is next."""

    input: onnx.ValueInfoProto
    value: str


def _reads(nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
    """The names that nodes read, those in the bodies of control flow, too."""
    for node in nodes:
        yield from node.input
        for attribute in node.attribute:
            yield from _reads(attribute.g.node)


class GraphWriter:
    """The ONNX graph of one subgraph while it is written."""

    def __init__(
        self, model: TfliteModel, subgraph: Subgraph, names: Names, outer: Sequence[str] | None = None, depth: int = 0
    ) -> None:
        self.model, self.subgraph, self.names, self.depth = model, subgraph, names, depth
        self.tensors = subgraph.tensors
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.known: dict[int, Array] = {}
        """Constants by tensor, and what follows from constants alone, such as weights stored as float16."""
        self._forms: list[dict[bool, str]] = [{} for _ in self.tensors]
        self._must_be_last = {*subgraph.inputs, *subgraph.outputs}
        self._names = [t.name if t.type in OTHER_TYPES else names.unique(t.name) for t in self.tensors]
        self._has_open_batch = any(
            tensor.signature[:1] == (-1,) for tensor in map(self.tensors.__getitem__, subgraph.inputs)
        )
        self.owner = ""
        self.states: dict[str, StateVariable] = {}
        self.beginnings: dict[str, Array] = {}
        """What variables begin with, where the file says so."""
        self.handles: dict[int, str] = {}
        """Names of variables by the tensors that stand for them."""
        self.types: dict[str, onnx.TypeProto] = {}
        """What each value is, as far as it follows from the inputs: what a file declares may be a placeholder."""
        self.constants: dict[str, onnx.TensorProto] = {}
        """Small constants by name, which the types of others follow from."""
        for place, index in enumerate(subgraph.inputs):
            self._forms[index][False] = self._names[index] if outer is None else outer[place]
            if outer is None and self.tensors[index].type not in OTHER_TYPES:
                self.types[self._names[index]] = self.declared(index).type

    # -- constants ----------------------------------------------------------------------------------------------

    def constant(self, index: int) -> Array | None:
        """The values of a constant, integers where it is quantized; None for what is computed."""
        tensor = self.tensors[index]
        is_given = tensor.data is not None or 0 in tensor.shape
        if index not in self.known and is_given and not self._forms[index]:
            self.known[index] = array_of(self.tensors[index], self.model.where)
        return self.known.get(index)

    def make_known(self, index: int, values: Array) -> None:
        """A tensor that was written is a constant."""
        self._forms[index] = {}
        self.known[index] = values

    def real(self, index: int) -> Array | None:
        """The numbers that a constant stands for."""
        values, quantization = self.constant(index), self.quantization(index)
        if values is None or quantization is None:
            return values
        scales, zeros = np.array(quantization.scales, np.float32), np.array(quantization.zero_points, np.int64)
        if len(scales) > 1:
            around = [-1 if axis == quantization.axis else 1 for axis in range(values.ndim)]
            scales, zeros = scales.reshape(around), zeros.reshape(around)
        real: Array = ((values.astype(np.int64) - zeros) * scales.astype(np.float64)).astype(np.float32)
        return real

    def quantization(self, index: int) -> TensorScales | None:
        """The scales of a tensor of integers; None for one that is not quantized."""
        tensor = self.tensors[index]
        if tensor.type in OTHER_TYPES:
            return None
        is_integer = np.dtype(TYPES[tensor.type]).kind in "iu" or tensor.type_name in ("int4", "uint4", "int2")
        return tensor.quantization if is_integer else None

    def initializer(self, values: Array, wanted: str) -> str:
        """A constant of the graph."""
        name = self.names.unique(wanted)
        made = numpy_helper.from_array(np.ascontiguousarray(values).reshape(values.shape), name)
        self.initializers.append(made)
        self.types[name] = helper.make_tensor_type_proto(made.data_type, values.shape)
        if values.size <= _MOST_SHOWN:
            self.constants[name] = made
        return name

    def size(self, index: int, axis: int) -> int | None:
        """A size of a tensor; None where it is open: for the application to say, or computed while the model runs.

        Files leave sizes open that follow from those of their inputs, or have a placeholder for them, as LiteRT
        computes all of them again. An open batch is the one that the file has.
        """
        tensor, forms = self.tensors[index], self._forms[index]
        for first, name in forms.items():
            dims = self.types[name].tensor_type.shape.dim if name in self.types else ()
            place = channels_first(len(tensor.shape)).index(axis) if first else axis
            if place < len(dims) and dims[place].HasField("dim_value"):
                return int(dims[place].dim_value)
        is_open = axis < len(tensor.signature) and tensor.signature[axis] == -1
        return None if is_open and not (axis == 0 and self._has_open_batch) else tensor.shape[axis]

    def elements(self, value: str) -> int | None:
        """How many elements a value has; None where that does not follow from the inputs."""
        dims = self.types[value].tensor_type.shape.dim if value in self.types else None
        if dims is None or not all(dim.HasField("dim_value") for dim in dims):
            return None
        return math.prod(int(dim.dim_value) for dim in dims)

    def note(self, value: str, shape: Sequence[int | None]) -> None:
        """Know sizes of a value that onnx's inference does not."""
        kind = self.types[value].tensor_type.elem_type if value in self.types else onnx.TensorProto.FLOAT
        self.types[value] = helper.make_tensor_type_proto(kind, shape)

    def state(self, index: int, name: str = "") -> StateVariable:
        """The variable of a name, of the type and shape of a tensor where this is the first that is heard of it.

        A tensor that is a variable itself needs no name.
        """
        key = name or self._names[index]
        if key not in self.states:
            own = self.names.unique(name) if name else key
            self.states[key] = StateVariable(self.declared(index, own), own)
            quantization = self.quantization(index)
            if not name and quantization is not None:
                self.beginnings[key] = np.array(quantization.zero_points)
        return self.states[key]

    # -- reading ------------------------------------------------------------------------------------------------

    def is_only_first(self, index: int) -> bool:
        """Whether a tensor is stored with its channels first and in no other layout."""
        return self._forms[index].keys() == {True}

    def read(self, index: int, first: bool = False) -> str:
        """The value of a tensor as real numbers, in the layout that is wanted."""
        values = self.constant(index)
        if values is not None:
            order = channels_first(values.ndim) if first else range(values.ndim)
            return self.read_constant(index, tuple(order))
        stored, quantization = self.stored(index, first), self.quantization(index)
        return stored if quantization is None else self.dequantize(stored, index, quantization)

    def stored(self, index: int, first: bool = False) -> str:
        """The value of a computed tensor as it is stored."""
        forms, tensor = self._forms[index], self.tensors[index]
        if self.constant(index) is not None and False not in forms:
            forms[False] = self.initializer(self._storable(index), self._names[index])
        if not forms:
            raise UnsupportedError(f"tensor {tensor.name!r} is read before anything writes it")
        if first not in forms:
            rank = len(tensor.shape)
            order = channels_first(rank) if first else channels_last(rank)
            value, quantization = forms[not first], self.quantization(index)
            if quantization is not None:
                value = self.dequantize(value, index, quantization)
            value = self.add("Transpose", [value], perm=order)
            if quantization is not None:
                value = self.quantize(value, index, quantization)
            forms[first] = self._named(value, index, first)
        return forms[first]

    def read_constant(self, index: int, order: tuple[int, ...], shape: Sequence[int] = ()) -> str:
        """A constant with its axes in another order, and then in another shape that keeps the quantized axis."""
        values, quantization = self._storable(index), self.quantization(index)
        moved = values.transpose(order).reshape(shape or [values.shape[axis] for axis in order])
        if values.dtype.name not in _SMALL and values.dtype not in _STORED and quantization is not None:
            quantization = None
        name = self.initializer(moved, self._names[index])
        if quantization is None:
            return name
        axis = order.index(quantization.axis) if len(quantization.scales) > 1 else 0
        return self.dequantize(name, index, quantization, axis, values.dtype)

    def _storable(self, index: int) -> Array:
        """A constant in a type that ONNX can dequantize."""
        values, quantization = self.constant(index), self.quantization(index)
        assert values is not None
        if quantization is not None and values.dtype == np.int64:  # the bias of a model with 16-bit activations
            if values.size and (values.min() < -(1 << 31) or values.max() >= 1 << 31):
                real = self.real(index)
                assert real is not None
                return real
            return values.astype(np.int32)
        if values.dtype.name == "int2":
            return values.astype(np.int8)
        return values

    def dequantize(
        self, value: str, index: int, quantization: TensorScales, axis: int = 0, dtype: np.dtype | None = None
    ) -> str:
        """The real numbers of integers."""
        inputs, attributes = self._parameters(index, quantization, axis, dtype)
        made: str = self.add("DequantizeLinear", [value, *inputs], **attributes)
        return made

    def quantize(self, value: str, index: int, quantization: TensorScales) -> str:
        """The integers of real numbers."""
        inputs, attributes = self._parameters(index, quantization, quantization.axis, None)
        made: str = self.add("QuantizeLinear", [value, *inputs], **attributes)
        return made

    def _parameters(
        self, index: int, quantization: TensorScales, axis: int, dtype: np.dtype | None
    ) -> tuple[list[str], dict[str, Any]]:
        dtype = dtype or np.dtype(TYPES[self.tensors[index].type])
        scales, zeros = np.array(quantization.scales, np.float32), np.array(quantization.zero_points)
        single = len(scales) == 1
        scale = self.initializer(scales.reshape(()) if single else scales, f"{self._names[index]}/scale")
        if dtype == np.int32:  # which has no zero point in ONNX
            return [scale], {} if single else {"axis": axis}
        zeros = zeros.astype(dtype)
        zero = self.initializer(zeros.reshape(()) if single else zeros, f"{self._names[index]}/zero_point")
        return [scale, zero], {} if single else {"axis": axis}

    # -- writing ------------------------------------------------------------------------------------------------

    def add(self, op_type: str, inputs: Iterable[str], count: int = 1, domain: str = "", **attributes: Any) -> Any:
        """A node; the name of its value, or the names where it has several."""
        outputs = [self.names.unique(f"{self.owner}/{op_type}") for _ in range(count)]
        given = {name: value for name, value in attributes.items() if value is not None}
        self.nodes.append(helper.make_node(op_type, list(inputs), outputs, domain=domain, **given))
        self._infer(self.nodes[-1])
        return outputs[0] if count == 1 else tuple(outputs)

    def _infer(self, node: onnx.NodeProto) -> None:
        """Note what a node writes, as far as onnx's inference says."""
        try:
            schema = onnx.defs.get_schema(node.op_type, OPSET, node.domain)
            types = {name: self.types[name] for name in node.input if name in self.types}
            shown = {name: self.constants[name] for name in node.input if name in self.constants}
            opset = [helper.make_opsetid("", OPSET)]
            self.types |= shape_inference.infer_node_outputs(schema, node, types, shown, opset_imports=opset)
        except _NOT_INFERRED:
            return  # its outputs stay open, and whoever needs to know their sizes says so

    def write(self, index: int, value: str, first: bool = False) -> None:
        """A tensor has this value of real numbers; it is quantized where the file says so."""
        quantization = self.quantization(index)
        if quantization is not None:
            value = self.quantize(value, index, quantization)
        self.store(index, value, first)

    def store(self, index: int, value: str, first: bool = False) -> None:
        """A tensor has this value, as it is stored."""
        self._forms[index] = {first: self._named(value, index, first)}
        self.known.pop(index, None)

    def _named(self, value: str, index: int, first: bool) -> str:
        """The value under the tensor's own name, or under one with the layout where the other layout has that."""
        taken = first if index in self._must_be_last else bool(self._forms[index])
        name = (
            self.names.unique(f"{self._names[index]}/{'first' if first else 'last'}") if taken else self._names[index]
        )
        for node in reversed(self.nodes):
            if value in node.output:
                node.output[list(node.output).index(value)] = name
                break
        else:
            self.nodes.append(helper.make_node("Identity", [value], [name]))
            if value in self.types:
                self.types[name] = self.types[value]
            return name
        if value in self.types:
            self.types[name] = self.types[value]
        for state in self.states.values():
            state.value = name if state.value == value else state.value
        for node in self.nodes:
            for place, read in enumerate(node.input):
                if read == value:
                    node.input[place] = name
        return name

    def declared_inputs(self) -> list[onnx.ValueInfoProto]:
        """The inputs of the subgraph."""
        return [self.declared(index) for index in dict.fromkeys(self.subgraph.inputs)]

    def declared_outputs(self) -> list[onnx.ValueInfoProto]:
        """The outputs of the subgraph, each written by a node of its own."""
        self.owner = "outputs"
        outputs: list[onnx.ValueInfoProto] = []
        for index in self.subgraph.outputs:
            stored = self.stored(index)
            written = any(stored in node.output for node in self.nodes)
            if not written or any(stored == output.name for output in outputs):
                stored = self._copied(stored, f"{stored}/output")
            outputs.append(self.declared(index, stored))
        return outputs

    def finish(self, name: str) -> onnx.GraphProto:
        """The graph, with the inputs and outputs of the subgraph, and those of variables behind them."""
        inputs, outputs = self.declared_inputs(), self.declared_outputs()
        for variable, state in self.states.items():
            inputs.append(state.input)
            outputs.append(onnx.ValueInfoProto())
            outputs[-1].CopyFrom(state.input)
            outputs[-1].name = self._copied(state.value, f"{variable}/next")
        read = set(_reads(self.nodes))
        constants = [values for values in self.initializers if values.name in read]
        return helper.make_graph(self.nodes, name, inputs, outputs, constants)

    def _copied(self, value: str, wanted: str) -> str:
        name = self.names.unique(wanted)
        self.nodes.append(helper.make_node("Identity", [value], [name]))
        return name

    def declared(self, index: int, name: str = "") -> onnx.ValueInfoProto:
        """A tensor as an input or output."""
        tensor: Tensor = self.tensors[index]
        if tensor.type in OTHER_TYPES:
            raise UnsupportedError(f"tensor {tensor.name!r} is of type {tensor.type_name}, which is not translated")
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(TYPES[tensor.type]))
        is_open = -1 in tensor.signature
        shape: Sequence[int | str | None] = [None] * len(tensor.shape) if is_open else tensor.shape
        if is_open and index in self.subgraph.inputs:
            name = name or self._names[index]
            shape = [self.size(index, n) or f"{name}_{n}" for n in range(len(tensor.shape))]
        return helper.make_tensor_value_info(name or self._names[index], kind, shape)
