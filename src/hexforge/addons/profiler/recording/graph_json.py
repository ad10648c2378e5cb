# SPDX-License-Identifier: Apache-2.0
"""A QNN graph as the JSON that dump_json_qnn_graph writes and Netron opens, and its ops as profiles name them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hexforge.addons.profiler.record import FIRST_NODE, INPUT, OUTPUT, START, ProfiledOp
from hexforge.ir import AxisScaleOffset, Graph, Node, Role, ScaleOffset, Value


@dataclass(frozen=True, slots=True)
class GraphOps:
    """The ops, and where each node is among them."""

    ops: tuple[ProfiledOp, ...]
    places: Mapping[str, int]
    """The place of each node's op among the ops, by the node's name."""
    readers: frozenset[int]
    """Places of nodes that read the graph's inputs."""
    writers: frozenset[int]
    """Places of nodes that write its outputs."""

    @property
    def input(self) -> int:
        """The place of the graph's input."""
        return 0

    @property
    def output(self) -> int:
        """The place of the graph's output."""
        return len(self.ops) - 1


def graph_ops(graph: Graph) -> GraphOps:
    """The ops of a graph in the order of its nodes, which is one in which they run."""
    nodes = graph.nodes
    places = {node.name: at for at, node in enumerate(nodes, 2)}
    ops: list[ProfiledOp] = [
        ProfiledOp(INPUT, "Input", "Input", result_bytes=sum(v.type.nbytes for v in graph.inputs)),
        ProfiledOp(START, "", "Start"),
    ]
    readers, writers = set(), set()
    for number, node in enumerate(nodes):
        place, reads = number + 2, set()
        for value in node.inputs:
            if value is None or value.is_static:
                continue
            if value.producer is None:
                readers.add(place)
                reads.add(0)
            else:
                reads.add(places[value.producer.name])
        if any(value.role is Role.APP_READ for value in node.outputs):
            writers.add(place)
        ops.append(
            ProfiledOp(
                FIRST_NODE + number,
                node.name,
                node.op.name,
                node.source,
                tuple(sorted(reads)),
                node.outputs[0].dtype.value,
                node.outputs[0].shape,
                sum(v.type.nbytes for v in node.outputs),
                macs(node),
                sum(v.type.nbytes for v in node.inputs if v is not None and v.is_static),
            )
        )
    size = sum(v.type.nbytes for v in graph.outputs)
    ops.append(ProfiledOp(OUTPUT, "Output", "Output", reads=tuple(sorted(writers)), result_bytes=size))
    return GraphOps(tuple(ops), places, frozenset(readers), frozenset(writers))


def macs(node: Node) -> int:
    """Multiply-accumulates of a node; 0 for one whose work is counted otherwise."""
    return node.op.work.macs(node.call) if node.op.work.macs is not None else 0


_ROLES = {Role.APP_WRITE: 0, Role.APP_READ: 1, Role.NATIVE: 3, Role.STATIC: 4}
"""Qnn_TensorType_t."""
_KINDS = {
    "INT": 0x0000,
    "UINT": 0x0100,
    "FLOAT": 0x0200,
    "SFIXED_POINT": 0x0300,
    "UFIXED_POINT": 0x0400,
    "BOOL": 0x0500,
}
_UINT32, _FLOAT32, _BOOL, _STRING, _INT32 = 0x0132, 0x0232, 0x0508, 0x0608, 0x0032
_UNDEFINED = 0x7FFFFFFF


def graph_json(graph: Graph, more: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, Any]:
    """The whole file; `more` are further scalars of nodes by name, shown as their attributes."""
    ids = {value: number for number, value in enumerate(graph.values.values(), 1)}
    parameters = sum(v.type.size for v in graph.values.values() if v.is_static)
    nodes = {node.name: _node(node, (more or {}).get(node.name, {})) for node in graph}
    return {
        "model.cpp": "N/A",
        "model.bin": "N/A",
        "converter_command": "hexforge",
        "copyright_str": "N/A",
        "op_types": sorted(Counter(node.op.name for node in graph)),
        "Total parameters": f"{parameters} ({sum(v.type.nbytes for v in graph.values.values() if v.is_static)} bytes)",
        "graph": {"tensors": {v.name: tensor_json(v, ids[v]) for v in graph.values.values()}, "nodes": nodes},
    }


def tensor_json(value: Value, number: int) -> dict[str, Any]:
    """A tensor without its data."""
    return {
        "id": number,
        "type": _ROLES[value.role],
        "dataFormat": 0,
        "data_type": data_type(value),
        "dims": list(value.shape),
        "quant_params": _quantization(value),
    }


def data_type(value: Value) -> int:
    """Qnn_DataType_t: the kind in the upper byte, the bits written in decimal in the lower."""
    name = value.dtype.qnn_name(value.encoding is not None).removeprefix("QNN_DATATYPE_")
    kind, _, bits = name.rpartition("_")
    return _KINDS[kind] | int(bits, 16) if kind in _KINDS else _UNDEFINED


def _quantization(value: Value) -> dict[str, Any]:
    encoding = value.encoding
    if encoding is None:
        return {"definition": 0x7FFFFFFF, "encoding": 0x7FFFFFFF}
    described: dict[str, Any] = {"definition": 1, "encoding": encoding.qnn_name}
    if isinstance(encoding, ScaleOffset):
        described["scale_offset"] = {"scale": encoding.scale, "offset": encoding.offset}
    elif isinstance(encoding, AxisScaleOffset):
        pairs = (
            zip(encoding.scales, encoding.offsets, strict=True)
            if encoding.offsets
            else ((s, 0) for s in encoding.scales)
        )
        listed = [{"scale": float(scale), "offset": int(offset)} for scale, offset in pairs]
        described["axis_scale_offset"] = {
            "axis": encoding.axis,
            "num_scale_offsets": len(listed),
            "scale_offsets": listed,
        }
    return described


def _node(node: Node, more: Mapping[str, Any]) -> dict[str, Any]:
    scalars: dict[str, Any] = {}
    tensors: dict[str, Any] = {}
    for name, value in (*node.params.items(), *more.items()):
        if isinstance(value, tuple | list | np.ndarray):
            array = np.asarray(value)
            code = _FLOAT32 if array.dtype.kind == "f" else _UINT32
            tensor = {"id": 0, "type": 4, "dataFormat": 0, "data_type": code, "dims": list(array.shape)}
            tensors[name] = {f"{node.name}_{name}": tensor | {"data": array.tolist()}}
        elif value is not None:
            scalars[name] = {str(_scalar(value)): value}
    return {
        "package": "qti.aisw",
        "type": node.op.name,
        "tensor_params": tensors,
        "scalar_params": scalars,
        "input_names": [v.name for v in node.inputs if v is not None],
        "output_names": [v.name for v in node.outputs],
        "macs_per_inference": str(node.op.work.macs(node.call)) if node.op.work.macs is not None else "",
    }


def _scalar(value: Any) -> int:
    if isinstance(value, bool):
        return _BOOL
    if isinstance(value, float):
        return _FLOAT32
    if isinstance(value, int):
        return _UINT32 if value >= 0 else _INT32
    return _STRING
