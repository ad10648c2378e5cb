# SPDX-License-Identifier: Apache-2.0
"""Node units: every node of the model in exactly one unit, QDQ groups first, then fusions, then single nodes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import onnx_ir

from hexforge.errors import HexforgeError, ModelError
from hexforge.frontends.onnx.unit import Operand, Refusal, Unit, UnitKind, onnx_dtype, onnx_shape, single
from hexforge.frontends.onnx.unit_encodings import (
    DOMAINS,
    QUANTIZED_OPS,
    encodings_of,
    first_input,
    is_dequantize,
    is_quantize,
)
from hexforge.ir import DType, Encoding, TensorType
from hexforge.ir.fixed_point import quantize
from hexforge.model.op_table import OPS, OnnxOp, QdqCandidate, same_type
from hexforge.model.simplifying.tidying import sort_graph
from hexforge.model.tensors import stored_bytes
from hexforge.ops.packages import custom_op
from hexforge.patterns.nodes import is_clamp, operand


def node_units(graph: onnx_ir.Graph, *, offload_io_quantization: bool = False) -> list[Unit]:
    """The units of a graph in topological order.

    The graph is edited where units need it, without changing what it computes: a QuantizeLinear of a constant becomes
    a constant, and a DequantizeLinear that several units take is copied for each.
    """
    try:
        sort_graph(graph)
    except ValueError:
        raise ModelError(f"graph {graph.name}: nodes form a cycle; no order can run them") from None
    _fold_quantized_constants(graph)
    grouping = _Grouping(graph)
    for node in tuple(graph):
        grouping.group(node)
    units = grouping.finish()
    return [_offloaded(unit) for unit in units] if offload_io_quantization else units


_SPREAD_BYTES = 64 << 20


def _fold_quantized_constants(graph: onnx_ir.Graph) -> None:
    """Replace QuantizeLinear of a float constant by the integers, so that it reads like a stored weight."""
    for node in tuple(graph):
        if not is_quantize(node) or node.outputs[0].is_graph_output():
            continue
        tensor = first_input(node).const_value
        if tensor is None or tensor.nbytes > max(stored_bytes(tensor), _SPREAD_BYTES):
            continue  # quantizing a view that repeats a few elements would spread it out
        data = tensor.numpy()
        old = node.outputs[0]
        try:
            type = TensorType(onnx_dtype(old), onnx_shape(old), encodings_of(node)[-1])
        except (Refusal, HexforgeError):
            continue
        real = data if data.dtype == np.float32 else data.astype(np.float64)
        new = onnx_ir.Value(
            name=old.name, shape=old.shape, type=old.type, const_value=onnx_ir.Tensor(quantize(real, type))
        )
        old.replace_all_uses_with(new)
        graph.remove(node, safe=True)
        graph.register_initializer(new)


def _of_package(target: onnx_ir.Node) -> OnnxOp | None:
    """How an op of a registered package is grouped: all its inputs and outputs in one integer type."""
    custom = custom_op(target.domain, target.op_type)
    return None if custom is None else OnnxOp(custom.op.quant, (same_type,), clip=False)


class _Grouping:
    """Takes nodes into QDQ units; what is left becomes single units."""

    def __init__(self, graph: onnx_ir.Graph) -> None:
        self.graph = graph
        self.taken: set[onnx_ir.Node] = set()
        self.units: list[Unit] = []
        self._encodings: dict[onnx_ir.Node, Encoding | None] = {}
        self._names: set[str | None] | None = None

    def encoding(self, node: onnx_ir.Node) -> Encoding | None:
        """Encoding of a Q or DQ node, None where it has no good one."""
        if node not in self._encodings:
            try:
                (self._encodings[node],) = encodings_of(node).values()
            except (Refusal, HexforgeError):
                self._encodings[node] = None
        return self._encodings[node]

    def group(self, target: onnx_ir.Node) -> None:
        """Make `target` a QDQ unit if the op table allows it."""
        op = OPS.get(target.op_type) if target.domain in DOMAINS else _of_package(target)
        if op is None or target in self.taken:
            return
        dq = self._dequantized(target, op)
        if not dq:
            return
        outputs = self._quantized(target, op)
        if outputs is None:
            return
        q, clip = outputs
        ins, outs = {}, {}
        for i, node in dq.items():
            encoding = self.encoding(node)
            if encoding is None:
                return
            ins[i] = (onnx_dtype(first_input(node)), encoding)
        for i, node in q.items():
            encoding = self.encoding(node)
            if encoding is None:
                return
            outs[i] = (onnx_dtype(node.outputs[0]), encoding)
        candidate = QdqCandidate(target, ins, outs)
        if all(check(candidate) for check in op.checks):
            self._add(target, dq, q, clip, ins, outs)

    def _dequantized(self, target: onnx_ir.Node, op: OnnxOp) -> dict[int, onnx_ir.Node] | None:
        """The DQ nodes by input position; None where they are not the ones the op wants."""
        dq = {
            i: producer
            for i, v in enumerate(target.inputs)
            if v is not None and is_dequantize(producer := v.producer()) and producer is not None
        }
        present = {i for i, v in enumerate(target.inputs) if v is not None}
        required = present if op.rule.data is None else set(op.rule.data)
        if not required <= dq.keys() <= required | set(op.optional):
            return None
        return dq

    def _quantized(
        self, target: onnx_ir.Node, op: OnnxOp
    ) -> tuple[dict[int, onnx_ir.Node], onnx_ir.Node | None] | None:
        """The Q nodes by output position and the clip before the first; None where the op wants others."""
        present = [i for i, v in enumerate(target.outputs) if v.name]
        if op.quantized == "none":
            return {}, None
        required = [0] if op.quantized == "first" else present
        clip = self._clip(target) if op.clip and len(present) == 1 else None
        q = {}
        for i in required:
            user = self._only_user((clip or target).outputs[0 if clip is not None else i])
            if user is not None and is_quantize(user):
                q[i] = user
        if len(q) == len(required) and required:
            return q, clip
        return ({}, None) if op.quantized == "maybe" and not q else None

    def _clip(self, target: onnx_ir.Node) -> onnx_ir.Node | None:
        """The Relu, or Clip with constant bounds, that alone reads the target and that alone a Q reads."""
        user = self._only_user(target.outputs[0])
        clamps = user is not None and is_clamp(user) and is_quantize(self._only_user(user.outputs[0]))
        return user if clamps else None

    def _only_user(self, value: onnx_ir.Value) -> onnx_ir.Node | None:
        users = value.consumers()
        if len(users) != 1 or value.is_graph_output() or users[0].graph is not self.graph:
            return None
        # a tensor that scales others is not read as data
        return users[0] if users[0].inputs[0] is value and value not in users[0].inputs[1:] else None

    def _add(
        self,
        target: onnx_ir.Node,
        dq: dict[int, onnx_ir.Node],
        q: dict[int, onnx_ir.Node],
        clip: onnx_ir.Node | None,
        ins: Mapping[int, tuple[DType, Encoding]],
        outs: Mapping[int, tuple[DType, Encoding]],
    ) -> None:
        own = {node: self._own(node, target) for node in dict.fromkeys(dq.values())}
        scales = [p for node in own.values() for p in self._scale_producers(node)]
        inputs = tuple(
            Operand(first_input(own[dq[i]]), ins[i][1]) if i in dq else None if v is None else Operand(v)
            for i, v in enumerate(target.inputs)
        )
        outputs = tuple(
            Operand(q[i].outputs[0], outs[i][1]) if i in q else Operand(v) if v.name else None
            for i, v in enumerate(target.outputs)
        )
        nodes = (*scales, *own.values(), target, *((clip,) if clip else ()), *q.values())
        self.taken.update(nodes)
        # a float result of fixed-point inputs is no QNN op: the target computes on real numbers
        dequantized = not q and OPS[target.op_type].quantized == "maybe"
        self.units.append(Unit(UnitKind.QDQ, target, inputs, outputs, nodes, clip, dequantized=dequantized))

    def _scale_producers(self, node: onnx_ir.Node) -> list[onnx_ir.Node]:
        """The DQ that makes a blockwise weight's scales, where only this node reads it."""
        scale = operand(node, 1)
        producer = None if scale is None else scale.producer()
        if scale is None or producer is None or producer in self.taken or len(scale.consumers()) != 1:
            return []
        return [] if scale.is_graph_output() else [producer]

    def _own(self, node: onnx_ir.Node, target: onnx_ir.Node) -> onnx_ir.Node:
        """`node` itself if only `target` reads it, else a copy for `target`."""
        value = node.outputs[0]
        if len(value.consumers()) == 1 and not value.is_graph_output():
            return node
        name = self._unique(f"{value.name}_copy")
        output = onnx_ir.Value(name=name, shape=value.shape, type=value.type)
        copy = onnx_ir.Node(
            node.domain, node.op_type, node.inputs, node.attributes.values(), outputs=[output], version=node.version,
            name=f"{node.name}_{name}" if node.name else None,
        )  # fmt: skip
        self.graph.insert_before(target, copy)
        for i, v in enumerate(target.inputs):
            if v is value:
                target.replace_input_with(i, output)
        return copy

    def _unique(self, stem: str) -> str:
        if self._names is None:
            self._names = {v.name for n in self.graph.all_nodes() for v in (*n.inputs, *n.outputs) if v is not None}
            self._names |= {v.name for v in (*self.graph.inputs, *self.graph.initializers.values())}
        name = next(n for i in itertools.count() if (n := f"{stem}{i}") not in self._names)
        self._names.add(name)
        return name

    def finish(self) -> list[Unit]:
        """All units in topological order of their targets."""
        position = {node: i for i, node in enumerate(self.graph)}
        alone = [single_unit(node) for node in position if node not in self.taken]
        return sorted(self.units + alone, key=lambda unit: position[unit.target])


def single_unit(node: onnx_ir.Node) -> Unit:
    """A single-node unit, with the encodings its scale inputs give the tensors at its border."""
    unit = single(node)
    if node.op_type not in QUANTIZED_OPS or node.domain not in DOMAINS:
        return unit
    try:
        encodings = encodings_of(node)
    except (Refusal, HexforgeError) as error:
        return replace(unit, refusal=str(error))
    inputs = tuple(
        Operand(o.value, encodings[i]) if o is not None and i in encodings else o for i, o in enumerate(unit.inputs)
    )
    outputs = tuple(
        Operand(o.value, encodings[-1]) if o is not None and i == 0 and -1 in encodings else o
        for i, o in enumerate(unit.outputs)
    )
    return replace(unit, inputs=inputs, outputs=outputs)


def _offloaded(unit: Unit) -> Unit:
    """Refuse the Q of a graph input and the DQ of a graph output, as offload_graph_io_quantization asks."""
    node = unit.target
    at_input = is_quantize(node) and first_input(node).is_graph_input()
    at_output = is_dequantize(node) and node.outputs[0].is_graph_output()
    if unit.kind is not UnitKind.NODE or not (at_input or at_output):
        return unit
    reason = "offload_graph_io_quantization=1 leaves quantization of graph inputs and outputs to the CPU"
    return replace(unit, refusal=f"{reason}; set it to 0 to run it here")
