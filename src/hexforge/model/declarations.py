# SPDX-License-Identifier: Apache-2.0
"""Declarations: what a model says of itself, its inputs and outputs, and the writing of a copy with fixed shapes."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from hexforge.errors import CallError, ModelError
from hexforge.formats.files import require_another_file, write_atomically
from hexforge.model.load_check import RUNTIME_IR, load_problem
from hexforge.model.source import ModelSource, Source, open_source


@dataclass(frozen=True, slots=True)
class Declared:
    """An input or output as the model declares it, in onnxruntime's words; a dimension is a number, a name or None."""

    name: str
    type: str
    shape: tuple[int | str | None, ...] | None
    dtype: np.dtype[Any] | None
    """The numpy type of a tensor's elements; None for strings, sequences and the like."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a model says of itself, under onnxruntime's names."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: Mapping[str, str]


def metadata(proto: onnx.ModelProto) -> Metadata:
    """What a model says of itself."""
    return Metadata(
        proto.producer_name,
        proto.graph.name,
        proto.domain,
        proto.doc_string,
        proto.graph.doc_string,
        proto.model_version,
        {p.key: p.value for p in proto.metadata_props},
    )


def declare(info: onnx.ValueInfoProto) -> Declared:
    """An input or output of a model, as its protobuf declares it."""
    type = info.type
    tensor = type.tensor_type if type.HasField("tensor_type") else None
    dtype = shape = None
    if tensor is not None:
        if tensor.elem_type not in onnx.TensorProto.DataType.values():
            raise ModelError(f"input or output {info.name!r} has the unknown data type {tensor.elem_type}")
        if tensor.elem_type not in (onnx.TensorProto.UNDEFINED, onnx.TensorProto.STRING):
            dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
        if tensor.HasField("shape"):
            shape = tuple(_declared_dimension(d) for d in tensor.shape.dim)
    return Declared(info.name, _type_text(type), shape, dtype)


def _declared_dimension(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    if dim.HasField("dim_value"):
        return dim.dim_value if dim.dim_value >= 0 else None
    return dim.dim_param or None


def _type_text(type: onnx.TypeProto) -> str:
    kind = type.WhichOneof("value")
    if kind == "tensor_type":
        return f"tensor({_element_text(type.tensor_type.elem_type)})"
    if kind == "sparse_tensor_type":
        return f"sparse_tensor({_element_text(type.sparse_tensor_type.elem_type)})"
    if kind == "sequence_type":
        return f"seq({_type_text(type.sequence_type.elem_type)})"
    if kind == "optional_type":
        return f"optional({_type_text(type.optional_type.elem_type)})"
    if kind == "map_type":
        return f"map({_element_text(type.map_type.key_type)},{_type_text(type.map_type.value_type)})"
    return ""


def _element_text(code: int) -> str:
    return onnx.TensorProto.DataType.Name(code).lower() if code in onnx.TensorProto.DataType.values() else str(code)


def open_inputs(proto: onnx.ModelProto) -> dict[str, InputShape]:
    """The inputs whose shapes a model leaves open, as it declares them."""
    graph = proto.graph
    initializers = {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
    declared = {v.name: declare(v) for v in graph.input if v.name not in initializers}
    return {
        name: value.shape
        for name, value in declared.items()
        if value.type.startswith("tensor") and (value.shape is None or not all(isinstance(d, int) for d in value.shape))
    }


# -- fixing shapes -----------------------------------------------------------------------------------------------


def is_named(symbol: str | None) -> bool:
    """False for the marks some exporters write where a dimension has no name."""
    return bool(symbol) and symbol not in ("?", "-1", "None")


LARGEST_SIZE = 2**32 - 1  # QNN dimensions are uint32

InputShape = tuple[int | str | None, ...] | None


def check_sizes(
    declared: Mapping[str, InputShape], shapes: Mapping[str, Sequence[int]], dims: Mapping[str, int], where: str
) -> tuple[dict[str, tuple[int, ...]], dict[str, int | None]]:
    """Check what is to be fixed against the inputs: the shapes given, and the number of every symbolic name.

    A size that the model declares fixed may be given another number: `resize_inputs` says whether the model allows it.
    An input's own shape wins over its names. A name that has two sizes then says nothing, which is None:
    onnxruntime does not hold inputs to it either.
    """
    symbols = dict.fromkeys(d for shape in declared.values() for d in shape or () if isinstance(d, str))
    bound: dict[str, int] = {}
    for name, number in dims.items():
        if name not in symbols:
            raise CallError(f"{where}: no input has a dimension named {name!r}{_name_hint(name, symbols)}")
        bound[name] = _size(number, f"dimension {name!r}")
    fixed: dict[str, tuple[int, ...]] = {}
    given: dict[str, set[int]] = {name: {number} for name, number in bound.items()}
    for name, sizes in shapes.items():
        if name not in declared:
            raise CallError(f"{where}: has no input {name!r}{_name_hint(name, declared)}")
        shape = tuple(_size(d, f"a dimension of input {name!r}") for d in sizes)
        known = declared[name]
        if known is not None:
            if len(known) != len(shape):
                raise CallError(f"{where}: input {name!r} has rank {len(known)}, the shape given has rank {len(shape)}")
            for old, new in zip(known, shape, strict=True):
                if isinstance(old, str) and is_named(old):
                    given.setdefault(old, set()).add(new)
        fixed[name] = shape
    for name, shape_declared in declared.items():
        sizes_known = tuple(bound.get(d, d) if isinstance(d, str) else d for d in shape_declared or ())
        if name not in fixed and shape_declared and all(isinstance(d, int) for d in sizes_known):
            fixed[name] = tuple(d for d in sizes_known if isinstance(d, int))
    return fixed, {name: next(iter(sizes)) if len(sizes) == 1 else None for name, sizes in given.items()}


def resize_inputs(opened: Source, shapes: Mapping[str, Sequence[int]]) -> None:
    """Give inputs of fixed sizes others, in place.

    ModelError where onnxruntime does not run the model with them: its nodes are made for the sizes it declares.
    """
    graph = opened.proto.graph
    changed = overridden_sizes({info.name: declare(info).shape for info in graph.input}, shapes)
    if not changed:
        return
    for info in graph.input:
        dims = info.type.tensor_type.shape.dim if info.type.HasField("tensor_type") else ()
        given = shapes.get(info.name, ())
        if len(given) != len(dims):
            continue  # which is an error of its own
        for dim, size in zip(dims, given, strict=True):
            if dim.HasField("dim_value") and dim.dim_value >= 0 and dim.dim_value != size:
                dim.dim_value = _size(size, f"a dimension of input {info.name!r}")
    opened.proto.ir_version = min(opened.proto.ir_version, RUNTIME_IR)
    opened.attach()
    del graph.value_info[:]
    for info in graph.output:
        for dim in info.type.tensor_type.shape.dim if info.type.HasField("tensor_type") else ():
            dim.Clear()  # it follows from the nodes
    problem = load_problem(opened.proto.SerializeToString(), opened.folder, run=True)
    if problem is not None:
        raise ModelError(
            f"{opened.where}: {'; '.join(changed)}: the model does not allow it: its nodes are made for the size that "
            f"it declares, so export it again for another; onnxruntime says: {problem}"
        )


def overridden_sizes(declared: Mapping[str, InputShape], shapes: Mapping[str, Sequence[int]]) -> list[str]:
    """Which sizes that a model declares fixed are given other numbers, each in words."""
    changed: list[str] = []
    for name, known in declared.items():
        given = shapes.get(name, ())
        if known is None or len(given) != len(known):  # the latter is an error of its own
            continue
        changed += [
            f"dimension {axis} of input {name!r}, fixed as {old}, is {new}"
            for axis, (old, new) in enumerate(zip(known, given, strict=True))
            if isinstance(old, int) and old >= 0 and old != new
        ]
    return changed


def _size(number: int, where: str) -> int:
    if isinstance(number, bool) or not hasattr(number, "__index__") or not 0 <= number.__index__() <= LARGEST_SIZE:
        raise CallError(f"{where} must be a whole number from 0 to {LARGEST_SIZE}, not {number!r}")
    return number.__index__()


def _name_hint(name: str, known: Iterable[str]) -> str:
    names = list(known)
    close = difflib.get_close_matches(name, names, 1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; there are {', '.join(map(repr, names))}" if names else "; all are static"


def fix_shapes(
    source: str | os.PathLike[str],
    dest: str | os.PathLike[str],
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    constants: Mapping[str, Any] | None = None,
    *,
    must_load: bool = True,
) -> None:
    """Write a copy of a model with its inputs' shapes fixed, and inputs of `constants` constant.

    External data stays where it is, so keep the folder. With `must_load` a file that onnxruntime
    would not load is not written.
    """
    target = Path(dest)
    require_another_file(target, Path(source))
    opened = open_source(source)
    proto = opened.proto
    external = any(t.data_location == onnx.TensorProto.EXTERNAL for t in proto.graph.initializer)
    if external and target.resolve().parent != Path(source).resolve().parent:
        raise CallError(f"{target}: the model has external data, so write beside it, in {Path(source).parent}")
    initializers = {t.name for t in proto.graph.initializer}
    inputs = {v.name: v for v in proto.graph.input if v.name not in initializers}
    declared = {name: declare(v).shape for name, v in inputs.items()}
    fixed, bound = check_sizes(declared, shapes or {}, dims or {}, opened.where)
    resize_inputs(opened, fixed)
    for name, shape in fixed.items():
        tensor = inputs[name].type.tensor_type
        del tensor.shape.dim[:]
        tensor.shape.SetInParent()
        tensor.shape.dim.extend(onnx.TensorShapeProto.Dimension(dim_value=d) for d in shape)
    for info in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        for dim in info.type.tensor_type.shape.dim if info.type.HasField("tensor_type") else ():
            if dim.dim_param in bound:
                number = bound[dim.dim_param]
                dim.Clear()
                if number is not None:
                    dim.dim_value = number
    from hexforge.model.constant_inputs import pinned_value  # which needs what opening a context does without

    for name, number in (constants or {}).items():
        declaration = declare(inputs[name]) if name in inputs else Declared(name, "", None, None)
        exact = pinned_value(name, number, inputs, declaration.dtype, declaration.shape, opened.where)
        proto.graph.input.remove(inputs[name])
        proto.graph.initializer.append(onnx.numpy_helper.from_array(exact, name))
    proto.ir_version = min(proto.ir_version, RUNTIME_IR)
    fixed_model, folder = proto.SerializeToString(), Path(source).resolve().parent if external else None
    problem = load_problem(fixed_model, folder) if must_load else None
    if problem is not None and load_problem(Path(source)) is None:  # one that never loaded is fixed all the same
        raise ModelError(f"{target}: is not written: with these sizes onnxruntime would not load it: {problem}")
    write_atomically(target, fixed_model)


_BATCH = ("n", "b", "bs")
_PICTURE = ("height", "width", "h", "w", "size", "imgsz")
_SOUNDS = ("audio", "wave", "speech")
_LONG = ("audio", "samples", "wave", "frames_in", "time_steps")
PICTURE_SIZE, SEQUENCE_SIZE, AUDIO_SIZE = 224, 128, 16_000


@dataclass(frozen=True, slots=True)
class FixedSizes:
    """Sizes for `read`: those given, and a batch of one where none was."""

    dims: Mapping[str, int]
    shapes: Mapping[str, tuple[int, ...]]
    note: str = ""
    """What was assumed, for people; empty where nothing was."""
    overridden: str = ""
    """Which sizes that the model fixes were given others, for people; empty where none was."""


def with_batch_of_one(
    source: ModelSource, dims: Mapping[str, int] | None = None, shapes: Mapping[str, Sequence[int]] | None = None
) -> FixedSizes:
    """The sizes given, with 1 for every open dimension that is a batch; the others stay open."""
    return batch_of_one(declared_inputs(source), dims or {}, shapes or {})


def declared_inputs(source: ModelSource) -> dict[str, InputShape]:
    """The inputs of a model with the shapes that it declares."""
    proto = open_source(source, schemas=False).proto
    constants = {t.name for t in proto.graph.initializer}
    return {v.name: declare(v).shape for v in proto.graph.input if v.name not in constants}


def batch_of_one(
    declared: Mapping[str, InputShape], dims: Mapping[str, int], shapes: Mapping[str, Sequence[int]]
) -> FixedSizes:
    """The sizes given for inputs as a model declares them, with 1 for every open dimension that is a batch."""
    fixed = {name: tuple(shape) for name, shape in shapes.items()}
    named = dict(dims)
    fixed_names = {d for name in fixed for d in declared.get(name) or () if isinstance(d, str)}
    assumed: list[str] = []
    for name, shape in declared.items():
        if shape is None or name in fixed or not any(_is_open(d) for d in shape):
            continue
        for dim in shape:
            if (
                isinstance(dim, str)
                and is_named(dim)
                and dim not in fixed_names | named.keys()
                and _is_batch(dim, declared)
            ):
                named[dim] = 1
                assumed.append(f"{dim} is 1")
        unnamed = [axis for axis, d in enumerate(shape) if _is_open(d) and not (isinstance(d, str) and is_named(d))]
        sizes = [named.get(d) if isinstance(d, str) else d for d in shape]
        if unnamed == [0] and len(shape) > 1 and all(isinstance(s, int) and s >= 0 for s in sizes[1:]):
            fixed[name] = (1, *(s for s in sizes[1:] if s is not None))
            assumed.append(f"the batch of {name!r} is 1")
    return FixedSizes(named, fixed, ", ".join(assumed), "; ".join(overridden_sizes(declared, shapes)))


def suggested_size(symbol: str | None, axis: int, shape: Sequence[Any], name: str = "") -> int:
    """A size that suits an open dimension, by its name and its place in the input called `name`."""
    words = (symbol or "").lower()
    if axis == 0 or "batch" in words:  # an input of one dimension has a value for each of the batch
        return SEQUENCE_SIZE if len(shape) == 1 and "batch" not in words and words not in _BATCH else 1
    if words in _BATCH and not any("batch" in str(dim).lower() for dim in shape):
        return 1
    if len(shape) == 3 and axis == 1 and not symbol and isinstance(shape[0], int):
        return 1  # the state of a recurrent layer: [layers, batch, width]
    if any(word in words for word in _LONG) or (len(shape) == 2 and any(word in name.lower() for word in _SOUNDS)):
        return AUDIO_SIZE
    if words in _PICTURE or len(shape) == 4 or any(word in words for word in ("height", "width")):
        return PICTURE_SIZE
    return SEQUENCE_SIZE


def _is_open(dim: int | str | None) -> bool:
    return not isinstance(dim, int) or dim < 0


def _is_batch(symbol: str, declared: Mapping[str, InputShape]) -> bool:
    """True for a name that says so, or where it is the first but not the only dimension of every input that has it."""
    words = symbol.lower()
    places = [
        (axis, len(shape or ())) for shape in declared.values() for axis, dim in enumerate(shape or ()) if dim == symbol
    ]
    if "batch" in words or (words in _BATCH and any(place == 0 for place, _ in places)):
        return True
    return all(place == 0 and rank > 1 for place, rank in places) and not any(
        word in words for word in ("len", "seq", "time", "height", "width", "tokens")
    )
