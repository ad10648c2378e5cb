# SPDX-License-Identifier: Apache-2.0
"""Tables: any chain of elementwise nodes with one dynamic source is a function of its integers, exact by construction.

8-bit sources give 256 entries, 16-bit sources and float16 values 65536. The chain is evaluated once, node by node, on
every value the source can have; intermediate tensors are rounded exactly as they would be.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from hexforge.backends.htp.numbers.arithmetic import binary
from hexforge.backends.htp.numbers.file_arrays import kept_halves
from hexforge.backends.htp.numbers.float_results import in_float32, rounding, without_infinity
from hexforge.backends.htp.numbers.halves import every_half, matrix_half, vector_patterns
from hexforge.backends.htp.numbers.storage import computes_in_float32, storage, stored, to_model_type
from hexforge.chips.soc import DEFAULT_ARCH
from hexforge.ir import Array, Call, Graph, Node, Role, TensorType, Value
from hexforge.ops.evaluate import evaluate


@dataclass(frozen=True, slots=True)
class Chain:
    """Nodes, in order, that compute `output` from `source` alone."""

    source: Value
    nodes: tuple[Node, ...]
    output: Value


def has_table(source: TensorType, output: TensorType) -> bool:
    """True where a look-up from one kind of storage to the other exists."""
    kinds = storage(source).kind, storage(output).kind
    return kinds[0] == kinds[1] != "raw" or kinds in (("u8", "s16"), ("s16", "u8"))


def _is_tabled(type: TensorType) -> bool:
    return storage(type).kind in ("u8", "s16", "f32")


def chains(graph: Graph) -> list[Chain]:
    """The maximal chains of a graph; no node is in two of them."""
    roots: dict[Value, tuple[Value, tuple[Node, ...]]] = {}
    for node in graph:
        root = _root(node, roots)
        if root is not None:
            roots[node.outputs[0]] = root
    taken: set[Node] = set()
    result = []
    for node in reversed(graph.nodes):
        entry = roots.get(node.outputs[0]) if len(node.outputs) == 1 else None
        if entry is None or node in taken:
            continue
        source, nodes = _without_inner_readers(entry, node)
        if not has_table(source.type, node.outputs[0].type):
            continue  # an earlier node may still end a chain
        if any(n in taken for n in nodes):
            continue
        taken.update(nodes)
        result.append(Chain(source, nodes, node.outputs[0]))
    return result


def _border(node: Node) -> bool:
    """True where floats enter or leave as float32: a table over float16 values would round them."""
    if node.op.name == "Quantize":
        return node.inputs[0] is not None and node.inputs[0].role is Role.APP_WRITE
    return computes_in_float32(node) or (node.op.name == "Dequantize" and node.outputs[0].role is Role.APP_READ)


def _root(node: Node, roots: dict[Value, tuple[Value, tuple[Node, ...]]]) -> tuple[Value, tuple[Node, ...]] | None:
    if not (node.op.pointwise and node.op.gives_reals) or not _is_tabled(node.outputs[0].type) or _border(node):
        return None
    dynamic = [v for v in node.inputs if v is not None and v.data is None]
    scalars = [v for v in node.inputs if v is not None and v.data is not None]
    if not dynamic or any(v.type.size != 1 or len(v.shape) > len(node.outputs[0].shape) for v in scalars):
        return None
    if any(v.shape != node.outputs[0].shape or not _is_tabled(v.type) for v in dynamic):
        return None
    sources = {roots[v][0] if v in roots else v for v in dynamic}
    if len(sources) != 1:
        direct = set(dynamic)
        if len(direct) != 1:
            return None
        return direct.pop(), (node,)
    nodes: dict[Node, None] = {}
    for value in dynamic:
        nodes.update(dict.fromkeys(roots[value][1] if value in roots else ()))
    return sources.pop(), (*nodes, node)


def _without_inner_readers(entry: tuple[Value, tuple[Node, ...]], last: Node) -> tuple[Value, tuple[Node, ...]]:
    """The part of the chain after its last intermediate value that something outside the chain also reads."""
    source, nodes = entry
    inside = set(nodes)
    keep = list(nodes)
    for i in range(len(nodes) - 2, -1, -1):
        value = nodes[i].outputs[0]
        if value.role is Role.APP_READ or any(user not in inside for user in value.users):
            later = set(keep[keep.index(nodes[i]) + 1 :])
            reads = {v for n in later for v in n.inputs if v is not None and v.data is None}
            made = {n.outputs[0] for n in later}
            if reads - made == {value}:
                return value, tuple(n for n in nodes if n in later)
            return single_node_chain(last)
    return source, nodes


def single_node_chain(node: Node) -> tuple[Value, tuple[Node, ...]]:
    """A chain of this node alone where it has one dynamic source, else an empty chain."""
    dynamic = {v for v in node.inputs if v is not None and v.data is None}
    return (dynamic.pop(), (node,)) if len(dynamic) == 1 else (node.outputs[0], ())


def every_value(type: TensorType) -> Array:
    """Every value a stored tensor of this type can have, in the model's type."""
    own = storage(type)
    if own.kind == "u8":
        return to_model_type(np.arange(256).astype(np.uint8), type)
    if own.kind == "s16":
        return to_model_type(np.arange(-32768, 32768).astype(np.int16), type)
    return every_half()


def chain_key(chain: Chain) -> Hashable:
    """What decides a chain's table: chains of one key have one table."""
    numbers = {chain.source: 0}
    steps: list[Hashable] = []
    for number, node in enumerate(chain.nodes, 1):
        (out,) = node.outputs
        reads = tuple(
            None if v is None else numbers[v] if v.data is None else (_kind(v), v.data.shape, v.data.tobytes())
            for v in node.inputs
        )
        steps.append((node.op, tuple(node.params.items()), reads, _kind(out)))
        numbers[out] = number
    return _kind(chain.source), tuple(steps)


def _kind(value: Value) -> Hashable:
    return value.dtype, value.encoding


def _native(node: Node, arrays: list[Array | None]) -> Array | None:
    """What the kernel of a node with two fixed-point operands computes; None where it has none."""
    if len(arrays) != 2 or arrays[0] is None or arrays[1] is None or None in node.inputs:
        return None
    ins, out = [v.type for v in node.inputs if v is not None], node.outputs[0].type
    wide = [stored(np.asarray(a), t) for a, t in zip(arrays, ins, strict=True) if a is not None]
    result = binary(node.op.name, storage(ins[0]), storage(ins[1]), storage(out), wide[0], wide[1])
    return None if result is None else to_model_type(result, out)


def table(chain: Chain, arch: int = DEFAULT_ARCH) -> Array:
    """The stored output for every stored value of the source, as an architecture computes it."""
    values: dict[Value, Array] = {chain.source: every_value(chain.source.type)}
    count = (values[chain.source].size,)
    for node in chain.nodes:
        arrays: list[Array | None] = []
        types: list[TensorType | None] = []
        for value in node.inputs:
            if value is None:
                arrays.append(None)
                types.append(None)
            elif value.data is not None:
                data = value.data.reshape(())
                real = storage(value.type).kind == storage(node.outputs[0].type).kind == "f32"
                arrays.append(matrix_half(data) if real else data)
                types.append(TensorType(value.dtype, (), value.encoding))
            else:
                arrays.append(values[value])
                types.append(TensorType(value.dtype, count, value.encoding))
        out = node.outputs[0]
        exact = _native(node, arrays)
        if exact is not None:
            values[out] = exact
            continue
        call = Call(node.op, tuple(types), (TensorType(out.dtype, count, out.encoding),), node.params)
        result = evaluate(in_float32(call), arrays)
        if storage(out.type).kind != "f32":
            values[out] = result[0]
            continue
        values[out] = rounding(node, arch)(without_infinity(node, arrays, result[0]))
        if out is chain.output:
            return kept_halves(vector_patterns(values[out]))
    outputs = stored(values[chain.output], TensorType(chain.output.dtype, count, chain.output.encoding))
    return np.ascontiguousarray(outputs)
