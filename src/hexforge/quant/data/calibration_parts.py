# SPDX-License-Identifier: Apache-2.0
"""Calibration parts: a float model as consecutive pieces that give all their tensors, few in memory at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx
import onnx_ir
import onnxruntime
from onnx_ir import serde

from hexforge.errors import ModelError
from hexforge.ir import Array
from hexforge.patterns.nodes import reads

PART_BYTES = 64 << 20
"""The most bytes of tensors that one part gives."""

ARENA_BYTES = 256 << 20
"""The bytes of all parts' tensors up to which each part keeps its memory for the next sample, which is faster."""

_INLINE_BYTES = 1 << 16  # larger constants are handed over beside the model, without copies
_UNKNOWN_BYTES = 1 << 20  # of a tensor whose shape depends on the data


@dataclass(eq=False)
class CalibrationPart:
    """Some consecutive nodes as a model of their own, run by onnxruntime's CPU provider."""

    model: onnx_ir.Model
    nodes: Sequence[onnx_ir.Node]
    inputs: Sequence[onnx_ir.Value]
    outputs: Sequence[onnx_ir.Value]
    last_read: Collection[str]
    """Values that no later part reads."""
    arena: bool
    threads: int = 0
    """Of onnxruntime; 0: one for each processor."""

    @cached_property
    def _session(self) -> onnxruntime.InferenceSession:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.enable_cpu_mem_arena = self.arena
        options.intra_op_num_threads = self.threads
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        graph = onnx.GraphProto(name="part")
        graph.input.extend(_info(v) for v in self.inputs)
        graph.output.extend(_info(v) for v in self.outputs)
        graph.node.extend(serde.serialize_node(node) for node in self.nodes)
        constants = dict.fromkeys(v for n in self.nodes for v in reads(n) if v.const_value is not None)
        beside: dict[str, onnxruntime.OrtValue] = {}
        for value in constants:
            graph.initializer.append(_constant(value, beside))
        proto = onnx.ModelProto(ir_version=max(self.model.ir_version, 8), graph=graph)
        proto.functions.extend(serde.serialize_function(f) for f in self.model.functions.values())
        for domain, version in self.model.opset_imports.items():
            proto.opset_import.append(onnx.helper.make_opsetid(domain, version))
        if beside:
            options.add_external_initializers(list(beside), list(beside.values()))
        try:
            return onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # its classes share no other base
            raise ModelError(f"onnxruntime cannot load the model for calibration: {_first_line(error)}") from None

    @cached_property
    def names(self) -> list[str]:
        """The names of the outputs."""
        return [str(v.name) for v in self.outputs]

    def run(self, values: Mapping[str, Array]) -> list[Array]:
        """Every output, in order."""
        session = self._session
        try:
            outputs: list[Array] = session.run(self.names, {str(v.name): values[str(v.name)] for v in self.inputs})
        except Exception as error:
            raise ModelError(f"onnxruntime cannot run the model: {_first_line(error)}") from None
        return outputs


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _info(value: onnx_ir.Value) -> onnx.ValueInfoProto:
    info = serde.serialize_value(value)
    if info.type.HasField("tensor_type"):  # a declared shape may be wrong, and onnxruntime would believe it
        for dim in info.type.tensor_type.shape.dim:
            dim.Clear()
    return info


def _constant(value: onnx_ir.Value, beside: dict[str, onnxruntime.OrtValue]) -> onnx.TensorProto:
    tensor, name = value.const_value, str(value.name)
    assert tensor is not None
    if tensor.nbytes <= _INLINE_BYTES or tensor.dtype.numpy().kind not in "fiub":
        proto = serde.serialize_tensor(onnx_ir.Tensor(tensor.numpy(), tensor.dtype))
        proto.name = name
        return proto
    beside[name] = onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(tensor.numpy()))
    proto = onnx.TensorProto(name=name, data_type=int(tensor.dtype), dims=tensor.shape.numpy())
    proto.data_location = onnx.TensorProto.EXTERNAL
    for key, text in (("location", "beside"), ("offset", "0"), ("length", str(tensor.nbytes))):
        proto.external_data.add(key=key, value=text)
    return proto


def split(model: onnx_ir.Model, watched: Collection[str], part_bytes: int = PART_BYTES) -> list[CalibrationPart]:
    """The model in parts whose watched tensors take at most part_bytes each (or are one node's)."""
    nodes = _needed(model, watched)
    readers = {value: i for i, node in enumerate(nodes) for value in reads(node)}  # the last node that reads it
    arena = sum(_bytes(v) for n in nodes for v in n.outputs if v.name in watched) <= ARENA_BYTES
    parts, end = [], 0
    for piece in _pieces(nodes, readers, watched, part_bytes):
        end += len(piece)
        own = dict.fromkeys(v for n in piece for v in n.outputs if v.name)
        read = dict.fromkeys(v for n in piece for v in reads(n) if v.const_value is None and v not in own)
        outputs = [v for v in own if v.name in watched or readers.get(v, -1) >= end]
        done = [str(v.name) for v in (*read, *own) if readers.get(v, -1) < end]
        parts.append(CalibrationPart(model, piece, list(read), outputs, done, arena))
    return parts


def _needed(model: onnx_ir.Model, watched: Collection[str]) -> list[onnx_ir.Node]:
    """The nodes that watched tensors come from."""
    read_later: set[onnx_ir.Value] = set()
    nodes: list[onnx_ir.Node] = []
    for node in reversed(model.graph):
        if any(v in read_later or v.name in watched for v in node.outputs):
            read_later.update(reads(node))
            nodes.append(node)
    return nodes[::-1]


def _pieces(
    nodes: Sequence[onnx_ir.Node], readers: Mapping[onnx_ir.Value, int], watched: Collection[str], part_bytes: int
) -> Iterator[list[onnx_ir.Node]]:
    piece: list[onnx_ir.Node] = []
    size, awkward = 0, -1  # a value that numpy has no type for must be used up before a cut
    for i, node in enumerate(nodes):
        more = sum(_bytes(v) for v in node.outputs if v.name in watched)
        if piece and size + more > part_bytes and awkward < i:
            yield piece
            piece, size = [], 0
        piece.append(node)
        size += more
        awkward = max([awkward, *(readers.get(v, -1) for v in node.outputs if not _has_numpy_type(v))])
    if piece:
        yield piece


def _has_numpy_type(value: onnx_ir.Value) -> bool:
    if not isinstance(value.type, onnx_ir.TensorType) or value.dtype is None:
        return False
    return value.dtype.name.rstrip("0123456789") in ("FLOAT", "DOUBLE", "INT", "UINT", "BOOL")


def _bytes(value: onnx_ir.Value) -> int:
    if value.shape is None or value.dtype is None or not all(isinstance(d, int) for d in value.shape):
        return _UNKNOWN_BYTES
    return int(np.prod(value.shape.numpy(), dtype=np.int64) * value.dtype.itemsize)
