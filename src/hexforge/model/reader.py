# SPDX-License-Identifier: Apache-2.0
"""Reader: an ONNX model, from a file nobody vouches for to a simplified onnx-ir Model."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx_ir
from onnx_ir import serde
from onnx_ir.passes import common

from hexforge.errors import CallError, HexforgeError, ModelError
from hexforge.model.constant_inputs import pin_inputs
from hexforge.model.declarations import (
    Declared,
    Metadata,
    check_sizes,
    declare,
    is_named,
    metadata,
    resize_inputs,
    suggested_size,
)
from hexforge.model.element_types import check_element_types
from hexforge.model.flat_graph import LateShapes, flat_model, is_flat_proto
from hexforge.model.load_check import RUNTIME_IR
from hexforge.model.simplifying.full_pools import require_full_pools
from hexforge.model.simplifying.inlining import inline_functions
from hexforge.model.simplifying.simplify import name_nodes, simplify
from hexforge.model.simplifying.tidying import is_flat
from hexforge.model.source import ModelSource, Source, open_source
from hexforge.model.tensors import check_external, make_dense, own_tensors

INITIALIZERS_APART = 4
"""The IR version from which on an initializer need not be an input."""


@dataclass(frozen=True, slots=True)
class FoldedNode:
    """A node of the original model that is gone: its result is constant, unused, or what it reads."""

    name: str
    op_type: str


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A model as read: `ir` simplified, the rest as the file has it."""

    ir: onnx_ir.Model
    path: Path | None
    inputs: tuple[Declared, ...]
    outputs: tuple[Declared, ...]
    metadata: Metadata
    opset: int
    declared_opset: int
    """The opset that the file declares; `opset` is newer where that is older than the oldest that is read."""
    folded: tuple[FoldedNode, ...]
    node_count: int

    @property
    def name(self) -> str:
        """The name for messages: the file's, or the graph's."""
        return self.path.name if self.path is not None else self.metadata.graph_name or "model"

    def copied(self) -> Model:
        """A copy that may be edited while this model stays as it is; constants are shared."""
        return replace(self, ir=self.ir.clone())

    def edited(self, ir: onnx_ir.Model) -> Model:
        """This model with other nodes and the outputs that these have; the caller gives `ir` away."""
        declared = {output.name: output for output in self.outputs}
        outputs = (declared.get(str(v.name)) or declare(serde.serialize_value(v)) for v in ir.graph.outputs)
        return replace(self, ir=ir, outputs=tuple(outputs))

    def dynamic(self) -> list[tuple[str, list[tuple[int, str | None]]]]:
        """Inputs that are not static: name, and (axis, symbolic name) of each open dimension."""
        dynamic: list[tuple[str, list[tuple[int, str | None]]]] = []
        for value in self.ir.graph.inputs:
            if value.shape is None:
                if isinstance(value.type, (onnx_ir.TensorType, type(None))):
                    dynamic.append((value.name or "", [(-1, None)]))
                continue
            open_dims = [(i, d.value) for i, d in enumerate(value.shape) if not isinstance(d, int)]
            if open_dims:
                dynamic.append((value.name or "", open_dims))
        return dynamic

    def require_static(self) -> None:
        """CallError that names every dynamic input and dimension, and how to fix them, if there is one."""
        dynamic = self.dynamic()
        if not dynamic:
            return
        descriptions = [
            f"input {name!r}: " + ", ".join(_dimension_text(axis, symbol) for axis, symbol in dims)
            for name, dims in dynamic
        ]
        unnamed = [name for name, dims in dynamic if any(not is_named(s) for _, s in dims)]
        shapes = {v.name: v.shape for v in self.ir.graph.inputs}
        sizes = {
            symbol: suggested_size(symbol, axis, tuple(shapes[name] or ()), name)
            for name, dims in dynamic
            if name not in unnamed
            for axis, symbol in dims
        }
        symbols = list(sizes)
        flags = [
            *(f"--dim {s}={n}" for s, n in sizes.items()),
            *(f"--shape {n}={_example(n, shapes[n])}" for n in unnamed),
        ]
        option = "; in a session: SessionOptions.add_free_dimension_override_by_name" if symbols else ""
        raise CallError(
            f"{self.name}: QNN needs static shapes, and these are dynamic: {'; '.join(descriptions)}. "
            f"Fix them with `hexforge fix-shapes`, or say them to the command: {' '.join(flags)}"
            f"{option}"
        )


def _dimension_text(axis: int, symbol: str | None) -> str:
    if axis < 0:
        return "its shape is not declared"
    return f"dimension {axis} ({symbol!r})" if is_named(symbol) else f"dimension {axis} (unnamed)"


def _example(name: str, shape: onnx_ir.Shape | None) -> str:
    if shape is None:
        return "1,3,224,224"
    sizes = (
        d if isinstance(d, int) else suggested_size(d.value, axis, tuple(shape), name) for axis, d in enumerate(shape)
    )
    return ",".join(map(str, sizes))


def read(
    source: ModelSource | Source,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    fold: bool = True,
    folder: str | os.PathLike[str] | None = None,
    constants: Mapping[str, Any] | None = None,
) -> Model:
    """Read a model; `shapes` fixes inputs by name, `dims` fixes symbolic dimensions, `folder` holds external data.

    `constants` makes constants of inputs: what they are called, and their value. A source that is open already is given
    away.
    """
    opened = source
    if not isinstance(opened, Source):
        opened = open_source(opened, None if folder is None else Path(folder), detach=True)
    check_element_types(opened)
    resize_inputs(opened, shapes or {})
    proto = opened.proto
    graph, initializers = proto.graph, {t.name for t in proto.graph.initializer}
    initializers |= {t.values.name for t in graph.sparse_initializer}
    declared_inputs = tuple(declare(v) for v in graph.input if v.name not in initializers | set(constants or ()))
    declared_outputs = tuple(declare(v) for v in graph.output)
    if len({v.name for v in graph.output}) < len(graph.output):  # one that is named twice is written once
        once = {v.name: v for v in reversed(graph.output)}
        kept = [once[name] for name in dict.fromkeys(v.name for v in graph.output)]
        del graph.output[:]
        graph.output.extend(kept)
    facts, node_count = metadata(proto), len(graph.node)
    model, late_shapes = _deserialize(opened)
    path, declared_opset = opened.path, opened.opset
    where = opened.where
    del proto, graph, opened, source  # the protobuf goes before anything else is made: it holds a copy of the weights
    inline_functions(model, where)
    flat = is_flat(model)
    if not flat or any(value.is_initializer() for value in model.graph.inputs):
        common.RemoveInitializersFromInputsPass()(model)
    # IR 3 has no initializer that is no input; one newer than onnxruntime's would be written into every file made of it
    model.ir_version = min(max(model.ir_version, INITIALIZERS_APART), RUNTIME_IR)
    bound = _fix_inputs(model, flat, shapes or {}, dims or {}, where)
    pin_inputs(model, constants or {}, where)
    name_nodes(model, flat)
    before = [(node.name or "", node.op_type) for node in model.graph]
    declared = {value: functools.partial(_late_shape, shape, bound) for value, shape in late_shapes.items()}
    simplify(model, where, fold, declared)
    require_full_pools(model, where)
    after = {node.name for node in model.graph}
    folded = tuple(FoldedNode(name, op_type) for name, op_type in before if name not in after)
    opset = model.opset_imports.get("", 0)
    return Model(model, path, declared_inputs, declared_outputs, facts, opset, declared_opset, folded, node_count)


def _deserialize(source: Source) -> tuple[onnx_ir.Model, LateShapes]:
    """The model, and the shapes that it declares for values and that are not read yet."""
    flat = is_flat_proto(source.proto)
    if not flat:
        source.attach()
        make_dense(source)
        check_external(source)
    try:
        if flat:
            return flat_model(source)
        model = serde.deserialize_model(source.proto)
        own_tensors(model, source)
    except HexforgeError:
        raise
    except (serde.SerdeError, NotImplementedError, ValueError, TypeError, UnicodeDecodeError) as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise ModelError(f"{source.where}: cannot be read: {cause}") from None
    return model, {}


def _fix_inputs(
    model: onnx_ir.Model, flat: bool, shapes: Mapping[str, Sequence[int]], dims: Mapping[str, int], where: str
) -> Mapping[str, int | None]:
    """Give inputs their sizes; what every named dimension is then, None where inputs differ in it."""
    inputs = {v.name or "": v for v in model.graph.inputs}
    declared = {
        name: None if v.shape is None else tuple(d if isinstance(d, int) else d.value for d in v.shape)
        for name, v in inputs.items()
    }
    fixed, bound = check_sizes(declared, shapes, dims, where)
    for name, shape in fixed.items():
        inputs[name].shape = onnx_ir.Shape(shape)
        if inputs[name].type is None:
            raise ModelError(f"{where}: input {name!r} has no data type")
    for graph in (model.graph,) if flat else model.graphs():
        for value in (*graph.inputs, *(v for n in graph for v in n.outputs)):
            if value.shape is not None and value.const_value is None:
                value.shape = onnx_ir.Shape([_bound(d, bound) for d in value.shape])
    return bound


def _late_shape(declared: Callable[[], onnx_ir.Shape | None], bound: Mapping[str, int | None]) -> onnx_ir.Shape | None:
    shape = declared()
    return None if shape is None else onnx_ir.Shape([_bound(d, bound) for d in shape])


def _bound(dim: int | onnx_ir.SymbolicDim, bound: Mapping[str, int | None]) -> int | onnx_ir.SymbolicDim:
    """A dimension with its name replaced by its number; -1 and the like become unknown."""
    if isinstance(dim, int):
        return dim if dim >= 0 else onnx_ir.SymbolicDim(None)
    if not isinstance(dim.value, str) or dim.value not in bound:
        return dim
    number = bound[dim.value]
    return onnx_ir.SymbolicDim(None) if number is None else number
