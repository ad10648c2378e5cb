# SPDX-License-Identifier: Apache-2.0
"""Fusions of dynamic quantization: a DynamicQuantizeLinear with the products it feeds, as products of real numbers.

The execution provider does so: the chip has no encoding that is known only at run time. The integers of the weights are
read as the real numbers that they stand for; the input is not rounded to 8 bits, so results are nearer to the model's
that was quantized, and differ from onnxruntime's CPU provider by the rounding that is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import onnx_ir

from hexforge.frontends.onnx.fusions.net import Fusion, Net, constant_input, operand_shape, other_input
from hexforge.frontends.onnx.translate.builder import Builder
from hexforge.frontends.onnx.translate.products.conv import convolve
from hexforge.frontends.onnx.translate.products.matmul import multiply
from hexforge.frontends.onnx.unit import Operand, Unit, UnitKind, constant, detail_of
from hexforge.ir import Array


@dataclass(frozen=True, slots=True, eq=False)
class DynamicProduct:
    """One reader of the quantized input: a product with its weights as real numbers, or (None) a DequantizeLinear."""

    node: onnx_ir.Node
    weight: Array | None
    parts: tuple[Unit, ...]
    output: Operand


@dataclass(frozen=True, slots=True, eq=False)
class DynamicProducts:
    """What a DynamicQuantizeLinear feeds."""

    rows: tuple[DynamicProduct, ...]


def _dynamic(net: Net, quantize: Unit) -> Unit | None:
    codes, scale, zero = quantize.outputs
    if codes is None or scale is None or quantize.kind is not UnitKind.NODE:
        return None
    readers = net.readers(codes)
    rows = [None if unit is None else _product(net, unit, codes, scale, zero) for unit in readers]
    products = [row for row in rows if row is not None]
    if not products or len(products) < len(rows):
        return None
    parts = [quantize, *(part for row in products for part in row.parts)]
    outputs = [row.output for row in products]
    return net.join(
        UnitKind.DYNAMIC, parts, [quantize.inputs[0]], outputs, DynamicProducts(tuple(products)), refused=True
    )


def _product(net: Net, unit: Unit, codes: Operand, scale: Operand, zero: Operand | None) -> DynamicProduct | None:
    """A reader of the codes as a product of real numbers; None for one that reads them otherwise."""
    if unit.kind is not UnitKind.NODE or not _same(unit, 0, codes):
        return None
    if unit.op == "DequantizeLinear":
        whole = _same(unit, 1, scale) and (_same(unit, 2, zero) if len(unit.inputs) > 2 else False)
        return DynamicProduct(unit.target, None, (unit,), unit.outputs[0]) if whole and unit.outputs[0] else None
    if unit.op not in ("MatMulInteger", "ConvInteger") or not _same(unit, 2, zero):
        return None
    weight = constant(unit.inputs[1].value) if unit.inputs[1] is not None else None
    offset = constant_input(unit, 3) if len(unit.inputs) > 3 and unit.inputs[3] is not None else np.int32(0)
    cast = net.reader(unit, "Cast")
    scaled = net.reader(cast, "Mul")
    if weight is None or offset is None or cast is None or scaled is None or scaled.outputs[0] is None:
        return None
    index = other_input(scaled, cast.outputs[0])
    factor = None if index is None else scaled.inputs[index]
    steps = net.before(factor, "Mul")
    parts = [unit, cast, scaled]
    step: Array = np.ones((), np.float32)
    if factor is not None and factor.value is scale.value:
        pass  # by the input's scale alone: whatever the weights' is, follows
    elif (
        steps is not None
        and (place := other_input(steps, scale)) is not None
        and (by := constant_input(steps, place)) is not None
    ):
        parts.append(steps)
        step = by
    else:
        return None
    real = _real(unit, weight, np.asarray(offset), np.asarray(step))
    kept = operand_shape(scaled.outputs[0]) == operand_shape(
        unit.outputs[0]
    )  # a scale of more dimensions would add some
    return DynamicProduct(unit.target, real, tuple(parts), scaled.outputs[0]) if real is not None and kept else None


def _real(unit: Unit, weight: Array, offset: Array, step: Array) -> Array | None:
    """The weights as real numbers; None where a scale or a zero point is for something else than an output channel."""
    columns = unit.op == "MatMulInteger"
    count = weight.shape[-1] if columns else weight.shape[0]
    rest = (1,) * (0 if columns else weight.ndim - 1)
    if offset.size not in (1, count) or (offset.size > 1 and offset.ndim > 1):
        return None
    if step.size > 1:  # broadcast against the output, whose channels are last, or second
        lead = step.shape if columns else step.shape[: len(step.shape) - (weight.ndim - 2)]
        if step.size != count or lead[-1:] != (count,):
            return None
    shaped = [array.reshape((count, *rest) if array.size > 1 else ()) for array in (offset, step)]
    made: Array = (weight.astype(np.float32) - shaped[0].astype(np.float32)) * shaped[1].astype(np.float32)
    return made


def _same(unit: Unit, index: int, operand: Operand | None) -> bool:
    given = unit.inputs[index] if index < len(unit.inputs) else None
    return given is not None and operand is not None and given.value is operand.value


def _write_dynamic(b: Builder, u: Unit) -> None:
    for index, row in enumerate(detail_of(u, DynamicProducts).rows):
        if row.weight is None:
            b.finish(u, b.real(u, 0), index)
            continue
        single = replace(u, target=row.node, outputs=(row.output,))
        weight = b.static(row.weight, name=f"{row.node.inputs[1].name}_real")  # type: ignore[union-attr]
        if row.node.op_type == "ConvInteger":
            convolve(b, single, b.real(u, 0), weight, None)
        else:
            multiply(b, single, b.real(u, 0), weight)


FUSIONS: tuple[Fusion, ...] = (
    Fusion(
        UnitKind.DYNAMIC, ("DynamicQuantizeLinear",), _dynamic, _write_dynamic,
        ("Conv2d", "Conv3d", "DepthWiseConv2d", "FullyConnected", "MatMul"),
    ),
)  # fmt: skip
