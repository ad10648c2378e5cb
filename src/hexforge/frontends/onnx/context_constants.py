# SPDX-License-Identifier: Apache-2.0
"""Constants: a model's constants by name, as its file has them: compared, traced to who reads them, replaced."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import onnx
import onnx_ir
from onnx_ir import serde

from hexforge.errors import CallError, ModelError
from hexforge.frontends.onnx.unit import Refusal, onnx_dtype
from hexforge.frontends.onnx.unit_encodings import encodings_of, is_dequantize
from hexforge.ir import Array, TensorType
from hexforge.ir.fixed_point import dequantize, quantize
from hexforge.model.reader import read
from hexforge.model.source import ModelSource

_ALONG = frozenset(("Identity", "Cast", "QuantizeLinear", "DequantizeLinear", "Transpose"))


class Constants:
    """The constants of a model: initializers, and what Constant nodes write."""

    def __init__(self, source: ModelSource, dims: Mapping[str, int] | None = None,
                 shapes: Mapping[str, Sequence[int]] | None = None,
                 constants: Mapping[str, Any] | None = None) -> None:  # fmt: skip
        model = read(source, dims=dims, shapes=shapes, constants=constants, fold=False)
        self.where = model.name
        self._ir = model.ir
        self._values = {str(v.name): v for v in model.ir.graph.initializers.values() if v.const_value is not None}

    @property
    def names(self) -> tuple[str, ...]:
        """What they are called."""
        return tuple(self._values)

    def array(self, name: str) -> Array:
        """A constant as it is stored."""
        tensor = self._value(name).const_value
        assert tensor is not None
        return tensor.numpy()

    def chip_bytes(self, names: Iterable[str]) -> int:
        """What constants take on a chip: integers as they are stored, real numbers in float16."""
        total = 0
        for name in names:
            tensor = self._value(name).const_value
            assert tensor is not None
            total += 2 * tensor.size if tensor.dtype.is_floating_point() else tensor.nbytes
        return total

    def changed(self, other: Constants) -> tuple[str, ...]:
        """Constants that are others in another model, which must be the same in all else, or ModelError."""
        subject = f"{other.where}: is not {self.where} with other constants"
        ours, theirs = list(self._ir.graph), list(other._ir.graph)
        if len(ours) != len(theirs):
            raise ModelError(f"{subject}: it has {len(theirs)} nodes, not {len(ours)}")
        for our_node, their_node in zip(ours, theirs, strict=True):
            if _described(our_node) != _described(their_node):
                raise ModelError(
                    f"{subject}: node {their_node.name!r} ({their_node.op_type}) is not {our_node.name!r} "
                    f"({our_node.op_type}), or has other inputs, outputs or attributes"
                )
        for side in ("inputs", "outputs"):
            kinds = [[(v.name, v.dtype, v.shape) for v in getattr(m._ir.graph, side)] for m in (self, other)]
            if kinds[0] != kinds[1]:
                raise ModelError(f"{subject}: its {side} are {kinds[1]}, not {kinds[0]}")
        if odd := sorted(self._values.keys() ^ other._values.keys()):
            raise ModelError(f"{subject}: constant {odd[0]!r} is only in one of them")
        changed = []
        for name in self._values:
            one_array, two_array = self.array(name), other.array(name)
            if (one_array.shape, one_array.dtype) != (two_array.shape, two_array.dtype):
                raise ModelError(
                    f"{subject}: constant {name!r} is {two_array.dtype.name}{list(two_array.shape)}, not "
                    f"{one_array.dtype.name}{list(one_array.shape)}"
                )
            if one_array.tobytes() != two_array.tobytes():
                changed.append(name)
        return tuple(changed)

    def read_by(self, nodes: Iterable[str]) -> set[str]:
        """Constants that some nodes (by name) compute with, as they are or after nodes that read nothing else."""
        by_name = {n.name: n for n in self._ir.graph}
        todo = [v for name in nodes if name in by_name for v in by_name[name].inputs if v is not None]
        constants: set[str] = set()
        seen: set[onnx_ir.Value] = set()
        while todo:
            value = todo.pop()
            if value in seen:
                continue
            seen.add(value)
            if value.name in self._values:
                constants.add(str(value.name))
            elif (producer := value.producer()) is not None and self._is_constant(producer):
                todo += [v for v in producer.inputs if v is not None]
        return constants

    def real(self, name: str) -> Array:
        """A constant as real numbers, in float64: dequantized where a DequantizeLinear reads it."""
        type = self._fixed_type(name)
        array = self.array(name)
        return array.astype(np.float64) if type is None else dequantize(array, type)

    def stored(self, name: str, real: Array) -> Array:
        """Real numbers as the constant stores them: in its own type, and with its own scales where it has some."""
        type, array = self._fixed_type(name), self.array(name)
        if real.shape != array.shape:
            raise CallError(f"{self.where}: constant {name!r} is {list(array.shape)}, not {list(real.shape)}")
        if not np.isfinite(real).all():
            raise CallError(f"{self.where}: constant {name!r} would have elements that are no numbers")
        return quantize(real, type) if type is not None else real.astype(array.dtype)

    def is_real(self, name: str) -> bool:
        """True for a constant that stands for real numbers: a float, or one that is dequantized."""
        array = self.array(name)
        return self._fixed_type(name) is not None or onnx_ir.DataType.from_numpy(array.dtype).is_floating_point()

    def output_first(self, name: str) -> bool | None:
        """Whether a matrix's rows are outputs (else its columns are), by who reads it; None where that is not told."""
        todo, answers = [(self._value(name), False)], set()
        while todo:
            value, turned = todo.pop()
            for use in value.uses():
                node, index = use.node, use.idx
                if node.op_type in _ALONG and index == 0:
                    perm = node.attributes.get("perm")
                    flips = node.op_type == "Transpose" and (perm is None or list(perm.as_ints()) == [1, 0])
                    todo.append((node.outputs[0], turned ^ flips))
                elif node.op_type == "MatMul":
                    answers.add((index == 0) ^ turned)
                elif node.op_type == "Gemm" and index < 2:
                    side = node.attributes.get("transA" if index == 0 else "transB")
                    transposed = side is not None and bool(side.as_int())
                    answers.add(((index == 0) ^ transposed) ^ turned)
                elif node.op_type == "Conv" and index == 1:
                    answers.add(not turned)
        return answers.pop() if len(answers) == 1 else None

    def replaced(self, arrays: Mapping[str, Array]) -> onnx.ModelProto:
        """The model with other constants."""
        before = {name: self._value(name).const_value for name in arrays}
        try:
            for name, array in arrays.items():
                old = before[name]
                assert old is not None
                self._values[name].const_value = onnx_ir.Tensor(array, dtype=old.dtype, name=name)
            return serde.serialize_model(self._ir)
        finally:
            for name, tensor in before.items():
                self._values[name].const_value = tensor

    def _value(self, name: str) -> onnx_ir.Value:
        if name not in self._values:
            raise CallError(f"{self.where}: has no constant {name!r}")
        return self._values[name]

    def _is_constant(self, node: onnx_ir.Node) -> bool:
        """True where a node computes with nothing but constants."""
        todo, seen = [node], {node}
        while todo:
            at = todo.pop()
            for value in at.inputs:
                if value is None or value.name in self._values:
                    continue
                producer = value.producer()
                if producer is None:
                    return False
                if producer not in seen:
                    seen.add(producer)
                    todo.append(producer)
        return True

    def _fixed_type(self, name: str) -> TensorType | None:
        """The fixed-point type a DequantizeLinear gives it, None where none reads it."""
        value = self._value(name)
        for use in value.uses():
            if use.idx == 0 and is_dequantize(use.node):
                try:
                    encoding = encodings_of(use.node).get(0)
                    shape = tuple(int(d) for d in self.array(name).shape)
                    return None if encoding is None else TensorType(onnx_dtype(value), shape, encoding)
                except Refusal as refusal:
                    raise ModelError(f"{self.where}: constant {name!r}: {refusal}") from None
        return None


def _described(node: onnx_ir.Node) -> tuple[object, ...]:
    attributes = sorted(
        (name, serde.serialize_attribute(a).SerializeToString(deterministic=True))
        for name, a in node.attributes.items()
    )
    ins, outs = ([None if v is None else v.name for v in side] for side in (node.inputs, node.outputs))
    return node.domain, node.op_type, node.overload, ins, outs, attributes


def updatable_names(
    constants: Constants, patterns: Sequence[str], nodes: Collection[str]
) -> tuple[tuple[str, ...], int]:
    """Constants that patterns name and some nodes read, and what they take on a chip."""
    chosen = [n for n in constants.names if any(fnmatchcase(n, p) for p in patterns)]
    read = constants.read_by(nodes) if chosen else set()
    names = tuple(name for name in chosen if name in read)
    return names, constants.chip_bytes(names)
