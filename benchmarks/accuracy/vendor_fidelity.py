# SPDX-License-Identifier: Apache-2.0
"""How near hexforge is to the vendor's emulator: single QDQ ops, integers in and out.

    python -m benchmarks.accuracy.vendor_fidelity

Tolerances are what exact rounding was measured to differ by: 1 LSB at 8 bits, a figure per op at 16 bits.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

from benchmarks.peers import vendor
from benchmarks.peers.engines import hexforge_session

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Op:
    """One node with quantized inputs and output."""

    type: str
    shapes: Sequence[tuple[int, ...]]
    """Of the run-time inputs."""
    weights: Sequence[tuple[int, ...]] = ()
    """Of constant inputs that follow: a matrix or filter, then a bias."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    axes: Sequence[int] = ()
    """A constant input after the others."""
    low: float = -3.0
    lsb16: int | None = None
    """Most it may differ at 16 bits, of 65536; None: not known, only printed."""


_PLANE = (1, 16, 20, 20)
OPS = {
    "Conv 3x3": Op("Conv", [_PLANE], [(32, 16, 3, 3), (32,)], {"pads": [1] * 4}, lsb16=23),
    "Conv 1x1": Op("Conv", [_PLANE], [(32, 16, 1, 1), (32,)], lsb16=23),
    "Conv depthwise": Op("Conv", [_PLANE], [(16, 1, 3, 3), (16,)], {"group": 16, "pads": [1] * 4}, lsb16=23),
    "Gemm": Op("Gemm", [(4, 64)], [(48, 64), (48,)], {"transB": 1}, lsb16=8),
    "MatMul, two activations": Op("MatMul", [(1, 2, 24, 32), (1, 2, 32, 24)], lsb16=336),
    "Add": Op("Add", [_PLANE, _PLANE], lsb16=1),
    "Sub": Op("Sub", [_PLANE, _PLANE], lsb16=1),
    "Mul": Op("Mul", [_PLANE, _PLANE], lsb16=1),
    "Relu": Op("Relu", [_PLANE]),
    "Sigmoid": Op("Sigmoid", [_PLANE], low=-8, lsb16=5),
    "Tanh": Op("Tanh", [_PLANE]),
    "Gelu": Op("Gelu", [_PLANE], lsb16=15),
    "HardSwish": Op("HardSwish", [_PLANE], low=-5),
    "Elu": Op("Elu", [_PLANE]),
    "Exp": Op("Exp", [_PLANE]),
    "Sqrt": Op("Sqrt", [_PLANE], low=0),
    "LeakyRelu": Op("LeakyRelu", [_PLANE], attributes={"alpha": 0.1}),
    "Softmax": Op("Softmax", [(1, 8, 64)], attributes={"axis": -1}, low=-6, lsb16=16),
    "LayerNormalization": Op("LayerNormalization", [(1, 8, 64)], [(64,), (64,)]),
    "AveragePool": Op("AveragePool", [_PLANE], attributes={"kernel_shape": [2, 2], "strides": [2, 2]}),
    "GlobalAveragePool": Op("GlobalAveragePool", [_PLANE]),
    "MaxPool": Op("MaxPool", [_PLANE], attributes={"kernel_shape": [2, 2], "strides": [2, 2]}),
    "ReduceMean": Op("ReduceMean", [(1, 8, 64)], axes=[2]),
}
_SAME_ENCODING = ("MaxPool",)
_FIXED16 = {"Sigmoid": (1 / 65536, 0), "Tanh": (1 / 32768, 32768)}  # what QNN makes of these outputs


class _Writer:
    """A model of one op between Dequantize and Quantize."""

    def __init__(self, op: Op, bits: int) -> None:
        self.op, self.dtype = op, np.dtype(np.uint8 if bits == 8 else np.uint16)
        self.top = 2**bits - 1
        self.random = np.random.default_rng(sum(map(ord, op.type)) + bits)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.floats: dict[str, Array] = {}
        self.feeds: dict[str, Array] = {}

    def constant(self, name: str, array: Any) -> str:
        """A constant."""
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def encoded(self, name: str, scale: float, zero: Any) -> list[str]:
        """The names of the scale and the zero point of a tensor."""
        return [self.constant(f"{name}_scale", np.float32(scale)), self.constant(f"{name}_zero", zero)]

    def write(self) -> onnx.ModelProto:
        """The model; `feeds` holds inputs for it."""
        op, inputs = self.op, []
        scales = []
        for i, shape in enumerate(op.shapes):
            scale = np.float32((3.0 - op.low) / self.top)
            zero: Any = self.dtype.type(round(-op.low / scale))
            self.feeds[f"x{i}"] = self.random.integers(0, self.top, shape, self.dtype, endpoint=True)
            self.floats[f"r{i}"] = (self.feeds[f"x{i}"].astype(np.float32) - np.float32(zero)) * scale
            inputs.append(self.dequantized(f"x{i}", f"r{i}", scale, zero))
            scales.append((scale, zero))
        if op.weights:
            fan_in = float(np.prod(op.weights[0][1:])) if len(op.weights[0]) > 1 else 1.0
            step = np.float32(1 / 127 / fan_in**0.5)
            if len(op.weights[0]) > 1:
                zero = np.int8(0)
                weight = self.random.integers(-127, 127, op.weights[0], np.int8, endpoint=True)
            else:  # the emulator takes normalization scales as uint8 only
                zero = np.uint8(10)
                weight = self.random.integers(100, 255, op.weights[0], np.uint8, endpoint=True)
            inputs.append(self.dequantized(self.constant("w", weight), "rw", step, zero))
            self.floats["rw"] = (weight.astype(np.float32) - np.float32(zero)) * step
            bias_step = np.float32(scales[0][0] * step)
            bias = np.round(self.random.normal(0, 0.3, op.weights[1]) / bias_step).astype(np.int32)
            inputs.append(self.dequantized(self.constant("b", bias), "rb", bias_step, np.int32(0)))
            self.floats["rb"] = bias.astype(np.float32) * bias_step
        if op.axes:
            inputs.append(self.constant("axes", np.array(op.axes, np.int64)))
        self.nodes.append(helper.make_node(op.type, inputs, ["ry"], name="target", **op.attributes))
        result = self.result()
        scale, zero = self.output_encoding(result, scales[0])
        self.nodes.append(helper.make_node("QuantizeLinear", ["ry", *self.encoded("y", scale, zero)], ["y"]))
        kind = helper.np_dtype_to_tensor_dtype(self.dtype)
        graph = helper.make_graph(
            self.nodes,
            "op",
            [helper.make_tensor_value_info(n, kind, a.shape) for n, a in self.feeds.items()],
            [helper.make_tensor_value_info("y", kind, result.shape)],
            self.constants,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)

    def dequantized(self, name: str, real: str, scale: Any, zero: Any) -> str:
        """The real numbers of a quantized tensor."""
        self.nodes.append(helper.make_node("DequantizeLinear", [name, *self.encoded(name, scale, zero)], [real]))
        return real

    def output_encoding(self, result: Array, of_input: tuple[Any, Any]) -> tuple[Any, Any]:
        """Just wide enough for the result, zero included."""
        if self.op.type in _SAME_ENCODING:
            return of_input
        if self.op.type == "Softmax":  # as quantizers write it, whatever the largest result is
            return np.float32(1 / self.top), self.dtype.type(0)
        if self.dtype == np.uint16 and self.op.type in _FIXED16:
            return np.float32(_FIXED16[self.op.type][0]), np.uint16(_FIXED16[self.op.type][1])
        low, high = min(0.0, float(result.min())), max(0.0, float(result.max()))
        scale = np.float32((high - low) / self.top)
        return scale, self.dtype.type(round(-low / scale))

    def result(self) -> Array:
        """What onnxruntime computes with real numbers."""
        infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, self.floats[n].shape) for n in self.floats]
        outputs = [helper.make_empty_tensor_value_info("ry")]
        graph = helper.make_graph(
            [self.nodes[-1]], "float", infos, outputs, [c for c in self.constants if c.name == "axes"]
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        output: Array = session.run(None, self.floats)[0]
        return output


@dataclass(frozen=True, slots=True)
class Difference:
    """How far two engines are apart on one op."""

    name: str
    bits: int
    lsb: int
    """Largest difference; -1 where the emulator did not run it."""
    same: float
    """Share of equal elements."""
    limit: int | None
    said: str = ""

    @property
    def kept(self) -> bool:
        """True within the tolerance, or where there is none."""
        return self.lsb >= 0 and (self.limit is None or self.lsb <= self.limit)


def differences(names: Sequence[str] = ()) -> list[Difference]:
    """Every op at 8 and 16 bits, on both."""
    chosen = [(name, bits) for name in names or OPS for bits in (8, 16)]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        cases = []
        for i, (name, bits) in enumerate(chosen):
            writer = _Writer(OPS[name], bits)
            path = Path(folder) / f"{i}.onnx"
            path.write_bytes(writer.write().SerializeToString())
            cases.append(vendor.Case(path, writer.feeds))
        for (name, bits), case, theirs in zip(chosen, cases, vendor.run(cases), strict=True):
            limit = 1 if bits == 8 else OPS[name].lsb16
            if not theirs.whole:
                said = theirs.error or f"placed {theirs.nodes}"
                rows.append(Difference(name, bits, -1, 0.0, limit, said))
                continue
            ours = hexforge_session(case.model, 1).run(None, dict(case.feeds))[0]
            apart = np.abs(ours.astype(np.int64) - theirs.outputs["y"].astype(np.int64))
            rows.append(Difference(name, bits, int(apart.max()), float((apart == 0).mean()), limit))
    return rows


def table(rows: Sequence[Difference]) -> Table:
    """The differences, an op per line."""
    made = Table(
        "op", "bits", "largest difference, LSB", "equal, %", "tolerance, LSB", "", title="Against the emulator"
    )
    for row in rows:
        tolerance = "-" if row.limit is None else str(row.limit)
        if row.lsb < 0:
            made.add_row(row.name, str(row.bits), "-", "-", tolerance, f"not run: {row.said[:80]}")
            continue
        verdict = "" if row.limit is None else "met" if row.kept else "[bold red]missed"
        made.add_row(row.name, str(row.bits), str(row.lsb), f"{100 * row.same:.1f}", tolerance, verdict)
    return made


def sqnr(reference: Mapping[str, Array], outputs: Mapping[str, Array]) -> float:
    """Signal to quantization noise over all outputs, in dB."""
    signal = noise = 0.0
    for name, expected in reference.items():
        real = np.asarray(expected, np.float64)
        signal += float((real**2).sum())
        noise += float(((real - np.asarray(outputs[name], np.float64)) ** 2).sum())
    if not signal or not noise:
        return float("-inf") if noise else float("inf")
    return float(10 * np.log10(signal / noise))


def main() -> int:
    """Print the table; 1 if a tolerance is exceeded."""
    if why := vendor.missing():
        print(f"no vendor emulator: {why}", file=sys.stderr)
        return 2
    rows = differences()
    Console(width=120).print(table(rows))
    return 0 if all(row.kept or row.lsb < 0 for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
