# SPDX-License-Identifier: Apache-2.0
"""Makes QDQ models: one op, or a few, between DequantizeLinear and QuantizeLinear, and runs them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from hexforge.backends.cpu import CpuBackend
from hexforge.frontends.onnx.placing import Placement, place
from hexforge.frontends.onnx.unit import Unit
from hexforge.model.reader import read
from tests.frontends.onnx.parts import build, units

TYPES = {
    "uint8": TensorProto.UINT8, "int8": TensorProto.INT8, "uint16": TensorProto.UINT16, "int16": TensorProto.INT16,
    "int4": TensorProto.INT4, "uint4": TensorProto.UINT4, "int32": TensorProto.INT32, "float32": TensorProto.FLOAT,
    "int64": TensorProto.INT64, "bool": TensorProto.BOOL,
}  # fmt: skip
ONNX_DOMAIN, CONTRIB = "", "com.microsoft"


def numpy_type(dtype: str) -> np.dtype[Any]:
    """The numpy type of a name, ml_dtypes' for 4 bits."""
    return np.dtype(getattr(ml_dtypes, dtype) if dtype in ("int4", "uint4") else dtype)


def limits(dtype: str) -> tuple[int, int]:
    """Smallest and largest integer."""
    bits = int(dtype.lstrip("uint"))
    return (0, (1 << bits) - 1) if dtype.startswith("u") else (-(1 << bits - 1), (1 << bits - 1) - 1)


@dataclass(frozen=True)
class Quant:
    """How a tensor is quantized, in ONNX's words; `zero` None leaves the zero-point input out."""

    dtype: str
    scale: Any
    zero: Any = 0
    axis: int | None = None
    block: int = 0

    def _spread(self, values: Any, shape: tuple[int, ...]) -> np.ndarray:
        values = np.asarray(0 if values is None else values, np.float64)
        if self.block:
            assert self.axis is not None
            return np.repeat(values, self.block, axis=self.axis)
        if self.axis is None or values.ndim == 0:
            return values
        return values.reshape([-1 if i == self.axis % len(shape) else 1 for i in range(len(shape))])

    def real(self, q: np.ndarray) -> np.ndarray:
        """Exact real numbers of integers, in float64."""
        scale = np.asarray(self.scale, np.float32)
        return (q.astype(np.float64) - self._spread(self.zero, q.shape)) * self._spread(scale, q.shape)

    def steps(self, real: np.ndarray) -> np.ndarray:
        """Unrounded, limited integers of real numbers."""
        scale = np.asarray(self.scale, np.float32)
        exact = real.astype(np.float64) / self._spread(scale, real.shape) + self._spread(self.zero, real.shape)
        return np.clip(exact, *limits(self.dtype))


def covering(dtype: str, low: float, high: float, fill: float = 1.0) -> Quant:
    """Per-tensor quantization of low..high, 0 included, as calibration would choose it."""
    low, high = min(low, 0.0), max(high, 0.0)
    smallest, largest = limits(dtype)
    scale = float(np.float32(max((high - low) * fill, 1e-4) / (largest - smallest)))
    return Quant(dtype, scale, int(np.clip(round(smallest - low * fill / scale), smallest, largest)))


@dataclass
class Made:
    """A model under construction."""

    opset: int = 21
    domain: str = ONNX_DOMAIN
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    outputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    count: int = 0

    def name(self, stem: str) -> str:
        """A new name."""
        self.count += 1
        return f"{stem}{self.count}"

    def constant(self, array: Any, stem: str = "const") -> str:
        """A constant."""
        array = np.asarray(array)
        name = self.name(stem)
        dtype = helper.np_dtype_to_tensor_dtype(array.dtype)
        if array.dtype.name in ("int4", "uint4"):
            tensor = helper.make_tensor(name, dtype, array.shape, array.astype(np.int8).ravel().tolist())
        else:
            tensor = onnx.numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
        self.constants.append(tensor)
        return name

    def input(self, dtype: str, shape: Sequence[int], stem: str = "x") -> str:
        """A graph input."""
        name = self.name(stem)
        self.inputs.append(helper.make_tensor_value_info(name, TYPES[dtype], list(shape)))
        return name

    def output(self, name: str, dtype: str, shape: Sequence[int] | None) -> None:
        """Make a value a graph output."""
        self.outputs.append(helper.make_tensor_value_info(name, TYPES[dtype], shape))

    def node(self, op: str, inputs: Sequence[str], count: int = 1, domain: str = "", **attributes: Any) -> Any:
        """A node; its output name, or names where there are several."""
        outs = [self.name(op.lower()) for _ in range(count)]
        self.nodes.append(helper.make_node(op, inputs, outs, name=self.name(op), domain=domain, **attributes))
        return outs[0] if count == 1 else outs

    def _linear(self, op: str, x: str, quant: Quant) -> str:
        scale = self.constant(np.asarray(quant.scale, np.float32), "scale")
        inputs = [x, scale]
        if quant.zero is not None:
            inputs.append(self.constant(np.asarray(quant.zero).astype(numpy_type(quant.dtype)), "zero"))
        attributes = {} if quant.axis is None else {"axis": quant.axis}
        if quant.block:
            attributes["block_size"] = quant.block
        return str(self.node(op, inputs, domain=self.domain, **attributes))

    def dequantize(self, x: str, quant: Quant) -> str:
        """A DequantizeLinear."""
        return self._linear("DequantizeLinear", x, quant)

    def quantize(self, x: str, quant: Quant) -> str:
        """A QuantizeLinear."""
        return self._linear("QuantizeLinear", x, quant)

    def proto(self) -> onnx.ModelProto:
        """The finished model, checked."""
        graph = helper.make_graph(self.nodes, "qdq", self.inputs, self.outputs, self.constants)
        imports = [helper.make_opsetid("", self.opset)]
        if any(n.domain == CONTRIB for n in self.nodes):
            imports.append(helper.make_opsetid(CONTRIB, 1))
        return helper.make_model(graph, opset_imports=imports, ir_version=10)


@dataclass(frozen=True)
class Operand:
    """An input of the op of a case: integers with how they are quantized, or plain data; constant or not."""

    data: np.ndarray
    quant: Quant | None = None
    constant: bool = False

    @property
    def real(self) -> np.ndarray:
        """What the op computes with, floats as float64."""
        if self.quant is not None:
            return self.quant.real(self.data)
        return self.data.astype(np.float64) if self.data.dtype == np.float32 else self.data


@dataclass(frozen=True)
class Case:
    """One op between DQ and Q. `outs`: how each output is quantized, None where it is not."""

    op: str
    operands: Sequence[Operand | None]
    outs: Sequence[Quant | None]
    attributes: dict[str, Any] = field(default_factory=dict)
    opset: int = 21
    domain: str = ONNX_DOMAIN
    clip: tuple[float, float] | str | None = None
    op_domain: str = ""
    function: Callable[..., np.ndarray] | None = None
    """What the op computes, where onnx's reference evaluator is wrong."""

    def reference(self) -> list[np.ndarray]:
        """The op on exact real numbers in float64, by onnx's reference evaluator."""
        if self.function is not None:
            return [self.function(*(o.real for o in self.operands if o is not None), **self.attributes)]
        names = ["" if o is None else f"i{i}" for i, o in enumerate(self.operands)]
        outs = [f"o{i}" for i in range(len(self.outs))]
        node = helper.make_node(self.op, names, outs, domain=self.op_domain, **self.attributes)
        info = [helper.make_tensor_value_info(n, TensorProto.UNDEFINED, None) for n in names if n]
        result = [helper.make_tensor_value_info(n, TensorProto.UNDEFINED, None) for n in outs]
        graph = helper.make_graph([node], "reference", info, result)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)
        feeds = {n: o.real for n, o in zip(names, self.operands, strict=True) if o is not None}
        found = [np.asarray(a) for a in ReferenceEvaluator(model).run(None, feeds)]
        if self.clip == "Relu":
            return [np.maximum(found[0], 0)]
        return [np.clip(found[0], *self.clip)] if self.clip is not None else found

    def model(self, shapes: Sequence[tuple[int, ...]]) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
        """The QDQ model and its feeds; `shapes` of the outputs."""
        made = Made(self.opset, self.domain)
        feeds, names = {}, []
        for operand in self.operands:
            if operand is None:
                names.append("")
                continue
            if operand.constant:
                name = made.constant(operand.data)
            else:
                dtype = operand.data.dtype.name
                name = made.input(dtype, operand.data.shape)
                feeds[name] = operand.data
            names.append(name if operand.quant is None else made.dequantize(name, operand.quant))
        results = made.node(self.op, names, len(self.outs), domain=self.op_domain, **self.attributes)
        results = [results] if isinstance(results, str) else results
        for name, quant, shape in zip(results, self.outs, shapes, strict=True):
            if self.clip == "Relu":
                name = made.node("Relu", [name])
            elif self.clip is not None:
                bounds = [made.constant(np.float32(b)) for b in self.clip]
                name = made.node("Clip", [name, *bounds])
            if quant is None:
                dtype = "bool" if self.op in _PREDICATES else "int64" if self.op in _INDEXERS else "float32"
                made.output(name, dtype, shape)
            else:
                made.output(made.quantize(name, quant), quant.dtype, shape)
        return made.proto(), feeds


_PREDICATES = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
_INDEXERS = ("ArgMax", "ArgMin", "TopK")


def placed(model: onnx.ModelProto, **options: Any) -> tuple[list[Unit], list[Placement]]:
    """Units of a model and where the cpu backend puts them."""
    found = units(read(model).ir.graph, **options)
    return found, place(found, CpuBackend().unsupported)


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray], **options: Any) -> list[np.ndarray]:
    """The model's outputs on the cpu backend; every unit must be taken."""
    return evaluated(model, placed(model, **options)[1], feeds)


def evaluated(model: onnx.ModelProto, placements: list[Placement], feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The model's outputs by what was placed; every unit must be taken."""
    refused = [f"{p.unit.op}: {p.reason}" for p in placements if not p.taken]
    assert not refused, refused
    names = [o.name for o in model.graph.output]
    program = CpuBackend().compile(build([p.unit for p in placements], "test", names))
    results = program.run({v.name: feeds[v.name] for v in program.graph.inputs})
    return [results[n] for n in names]


def check(case: Case, slack: float = 1e-3) -> None:
    """The case is one QDQ unit, placed, and its outputs are the exact results rounded to nearest.

    `slack`, in steps of the output, is how near to a tie float rounding may flip the result.
    """
    expected = case.reference()
    model, feeds = case.model([e.shape for e in expected])
    found, placements = placed(model)
    kinds = [(u.kind, u.op) for u in found]
    assert [k for k, _ in kinds] == ["qdq"], kinds
    assert placements[0].taken, placements[0].reason
    for got, want, quant in zip(evaluated(model, placements, feeds), expected, case.outs, strict=True):
        assert got.shape == want.shape
        if quant is None and want.dtype.kind in "bi":
            np.testing.assert_array_equal(got, want)
        elif quant is None:
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
        else:
            assert got.dtype == numpy_type(quant.dtype)
            steps = quant.steps(want)
            error = np.abs(got.astype(np.float64) - steps)
            worst = math.nan if np.isnan(error).any() else float(error.max(initial=0))
            assert worst <= 0.5 + slack, (worst, got.ravel()[:8], steps.ravel()[:8])
