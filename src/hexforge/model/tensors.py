# SPDX-License-Identifier: Apache-2.0
"""Tensors: a model's constants as numpy views: copied out of the protobuf once, or mapped from external files."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
from onnx_ir import serde

from hexforge.errors import CapacityError, FormatError, ModelError
from hexforge.ir import Array
from hexforge.model.source import Source, graphs_of, label, locate, nodes_of

MOST_SPARSE_BYTES = 1 << 30  # a sparse initializer is made dense; a few bytes could ask for any size
MOST_ELEMENTS = 1 << 48


class Files:
    """External data of one model: each file is checked and mapped once."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._maps: dict[str, Array] = {}

    def bytes(self, tensor: onnx_ir.ExternalTensor, size_bytes: int) -> Array:
        """The bytes of an external tensor, a view of the mapped file."""
        subject = f"{self._source.where}: external data of {tensor.name!r}"
        data = self._map(str(tensor.location), subject)
        offset, length = tensor.offset or 0, size_bytes if tensor.length is None else tensor.length
        if length != size_bytes:
            raise FormatError(f"{subject} has {length} bytes; its shape and type need {size_bytes}")
        if offset < 0 or offset + length > data.size:
            raise FormatError(
                f"{subject} ends at byte {offset + length} of {tensor.location!r}, which has {data.size}; get it again"
            )
        return data[offset : offset + length]

    def _map(self, location: str, subject: str) -> Array:
        if location in self._maps:
            return self._maps[location]
        real = locate(location, self._source.folder, self._source.path, subject)
        try:
            empty = real.stat().st_size == 0
            mapped = np.empty(0, np.uint8) if empty else np.memmap(real, np.uint8, mode="r")
        except (OSError, ValueError) as error:
            raise FormatError(f"{subject}: {location!r} cannot be read: {error}") from None
        self._maps[location] = np.asarray(mapped)
        return self._maps[location]


def _external_tensors(proto: onnx.ModelProto) -> list[onnx.TensorProto]:
    """The tensors whose numbers lie in other files."""
    tensors = [t for graph in graphs_of(proto.graph) for t in graph.initializer]
    for owner in (proto.graph, *proto.functions):
        for node in nodes_of(owner):
            tensors += [t for a in node.attribute for t in (a.t, *a.tensors)]
    return [tensor for tensor in tensors if tensor.data_location == onnx.TensorProto.EXTERNAL]


def check_external(source: Source) -> None:
    """FormatError where what a model says of its external data is no place in a file."""
    for tensor in _external_tensors(source.proto):
        check_place(tensor, source.where)


def external_files(path: Path) -> list[Path]:
    """The files that hold numbers of an ONNX model, none for any other file; outside its folder is an error."""
    if path.suffix != ".onnx":
        return []
    try:
        proto = onnx.load(path, load_external_data=False)
    except Exception:  # whoever reads it says what is wrong with it
        return []
    places = {e.value: t.name for t in _external_tensors(proto) for e in t.external_data if e.key == "location"}
    return [locate(place, path.parent, path, f"{path}: external data of {name!r}") for place, name in places.items()]


def check_place(tensor: onnx.TensorProto, where: str) -> None:
    """The same of one external tensor."""
    for entry in tensor.external_data:
        if entry.key in ("offset", "length") and not (entry.value.isascii() and entry.value.isdigit()):
            raise FormatError(
                f"{where}: external data of {tensor.name!r} has the {entry.key} {entry.value!r}; it is a "
                "number of bytes, 0 or more: export the model again"
            )


def own_tensors(model: onnx_ir.Model, source: Source) -> None:
    """Replace every tensor of the model by one that holds a numpy array, so the protobuf can be let go."""
    files = Files(source)
    for graph in model.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None:
                value.const_value = owned(value.const_value, value.name or "", files, source.where)
                value.shape = onnx_ir.Shape(value.const_value.shape.numpy())
                value.dtype = value.const_value.dtype
        for node in graph:
            _own_attributes(node, files, source.where)
    for function in model.functions.values():
        for node in function.all_nodes():
            _own_attributes(node, files, source.where)


def _own_attributes(node: onnx_ir.Node, files: Files, where: str) -> None:
    for name, attribute in node.attributes.items():
        if attribute.is_ref():
            continue
        if attribute.type == onnx_ir.AttributeType.TENSOR:
            tensor = owned(attribute.value, f"{node.name}.{name}", files, where)  # as_tensor checks a protocol, slowly
            node.attributes[name] = onnx_ir.AttrTensor(name, tensor)
        elif attribute.type == onnx_ir.AttributeType.TENSORS:
            tensors = [owned(t, f"{node.name}.{name}", files, where) for t in attribute.as_tensors()]
            node.attributes[name] = onnx_ir.AttrTensors(name, tensors)


def owned(tensor: onnx_ir.TensorProtocol, name: str, files: Files, where: str) -> onnx_ir.TensorProtocol:
    """A tensor that holds a numpy array, in place of one that reads a protobuf or a file."""
    subject = f"{where}: tensor {name!r}"
    dims = tuple(int(d) for d in tensor.shape.numpy())
    size = math.prod(dims)
    if any(d < 0 for d in dims) or size > MOST_ELEMENTS:
        raise FormatError(f"{subject} has the impossible shape {list(dims)}")
    if tensor.dtype is onnx_ir.DataType.UNDEFINED:
        raise FormatError(f"{subject} has no data type")
    if isinstance(tensor, onnx_ir.ExternalTensor):
        size_bytes = math.ceil(size * tensor.dtype.bitwidth / 8)
        return _view(files.bytes(tensor, size_bytes), tensor.dtype, dims, tensor.name)
    if isinstance(tensor, serde.TensorProtoTensor):
        return _copied(tensor, dims, size, subject)
    if isinstance(tensor, onnx_ir.StringTensor):
        if tensor.size != len(tensor.string_data()):
            raise FormatError(f"{subject} has {len(tensor.string_data())} strings; its shape needs {tensor.size}")
        return onnx_ir.StringTensor(list(tensor.string_data()), shape=onnx_ir.Shape(dims), name=tensor.name)
    return tensor


TYPED_FIELDS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")
"""Fields of a TensorProto that list numbers."""


def _copied(tensor: serde.TensorProtoTensor, dims: tuple[int, ...], size: int, subject: str) -> onnx_ir.TensorProtocol:
    proto, dtype = tensor.raw, tensor.dtype
    size_bytes = math.ceil(size * dtype.bitwidth / 8)
    if proto.HasField("raw_data"):
        data = np.frombuffer(proto.raw_data, np.uint8)
        if data.size != size_bytes:
            raise FormatError(f"{subject} has {data.size} bytes; its shape and type need {size_bytes}")
        return _view(data, dtype, dims, tensor.name)
    count = max(len(getattr(proto, field)) for field in TYPED_FIELDS)
    complex_parts = 2 if dtype in (onnx_ir.DataType.COMPLEX64, onnx_ir.DataType.COMPLEX128) else 1
    packed = size_bytes if dtype.bitwidth < 8 and dtype.bitwidth != 6 else size * complex_parts
    if count != packed:
        raise FormatError(f"{subject} has {count} elements; its shape and type need {packed}")
    if proto.int32_data and dtype.bitwidth in (8, 16) and dtype.is_integer():
        numbers, limits = np.array(proto.int32_data), np.iinfo(dtype.numpy())
        outside = numbers[(numbers < limits.min) | (numbers > limits.max)]
        if outside.size:
            raise FormatError(f"{subject} holds {outside[0]}, outside {limits.min} to {limits.max} of {dtype.name}")
    try:
        return onnx_ir.Tensor(np.array(tensor.numpy()), dtype, name=tensor.name)
    except (AssertionError, ValueError, TypeError) as error:
        raise FormatError(f"{subject} cannot be read: {error}") from None


def _view(data: Array, dtype: onnx_ir.DataType, dims: tuple[int, ...], name: str) -> onnx_ir.TensorProtocol:
    shape = onnx_ir.Shape(dims)
    if dtype.bitwidth < 8:
        return onnx_ir.PackedTensor(data, dtype, shape=shape, name=name)
    if dtype is onnx_ir.DataType.BOOL:
        return onnx_ir.Tensor((data != 0).reshape(dims), dtype, name=name)  # bytes other than 0 and 1 are no numpy bool
    array = data.view(dtype.numpy().newbyteorder("<")).reshape(dims)
    return onnx_ir.Tensor(array, dtype, name=name)


# -- sparse -----------------------------------------------------------------------------------------------------


def make_dense(source: Source) -> None:
    """Turn sparse initializers and sparse Constant values into dense ones, in the protobuf."""
    proto, where = source.proto, source.where
    for graph in (proto.graph, *(a.g for n in nodes_of(proto.graph) for a in n.attribute if a.HasField("g"))):
        for sparse in graph.sparse_initializer:
            graph.initializer.append(_dense(sparse, f"{where}: sparse initializer {sparse.values.name!r}"))
        del graph.sparse_initializer[:]
    for owner in (proto.graph, *proto.functions):
        for node in nodes_of(owner):
            for attribute in node.attribute:
                if attribute.HasField("sparse_tensor") and node.op_type == "Constant":
                    dense = _dense(attribute.sparse_tensor, f"{where}: node {label(node)}")
                    attribute.CopyFrom(onnx.helper.make_attribute("value", dense))


def _dense(sparse: onnx.SparseTensorProto, subject: str) -> onnx.TensorProto:
    dims = tuple(sparse.dims)
    values, indices = (_plain(t, subject) for t in (sparse.values, sparse.indices))
    if any(d < 0 for d in dims) or math.prod(dims) * values.itemsize > MOST_SPARSE_BYTES:
        raise CapacityError(f"{subject}: its shape {list(dims)} is over {MOST_SPARSE_BYTES >> 20} MB when made dense")
    size = math.prod(dims)
    if indices.ndim == 2 and indices.shape == (values.size, len(dims)):
        inside = bool(np.all((indices >= 0) & (indices < np.array(dims))))
        flat = np.ravel_multi_index(tuple(indices.T), dims) if inside else None
    else:
        flat = indices if indices.shape == values.shape and np.all((indices >= 0) & (indices < size)) else None
    if flat is None or values.ndim != 1:
        raise FormatError(f"{subject}: its indices do not fit its shape {list(dims)}")
    dense = np.zeros(size, values.dtype)
    dense[flat] = values
    return onnx.numpy_helper.from_array(dense.reshape(dims), sparse.values.name)


def _plain(tensor: onnx.TensorProto, subject: str) -> Array:
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        raise ModelError(f"{subject}: sparse data in an external file is not read; make it dense")
    try:
        return onnx.numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError, AssertionError) as error:
        raise FormatError(f"{subject}: cannot be read: {error}") from None


def stored_bytes(tensor: onnx_ir.TensorProtocol) -> int:
    """Bytes a constant really holds: a broadcast view holds less than its shape says."""
    array = tensor.raw if isinstance(tensor, onnx_ir.Tensor) else None
    if not isinstance(array, np.ndarray):
        return int(tensor.nbytes)
    stored_dims = [int(d) for d, s in zip(array.shape, array.strides, strict=True) if s]
    return math.prod(stored_dims) * int(array.itemsize)


def unrepeated(array: Array) -> Array:
    """The array once along axes that repeat it (of stride 0): all that its least, its largest or a factor need."""
    return array[tuple(slice(0, 1) if s == 0 else slice(None) for s in array.strides)]


def repeated(array: Array, shape: tuple[int, ...]) -> Array:
    """The array over a larger shape without holding it; the array itself where that is its shape."""
    return array if array.shape == shape else np.broadcast_to(array, shape)


def repeat_constant(value: Array, shape: tuple[int, ...], name: str | None) -> onnx_ir.TensorProtocol:
    """A constant that repeats `value` over `shape` without holding it: a view with zero strides."""
    return onnx_ir.Tensor(np.broadcast_to(value, shape), name=name)
