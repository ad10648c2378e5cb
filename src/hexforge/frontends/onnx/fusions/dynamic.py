# SPDX-License-Identifier: Apache-2.0
"""Fusions of dynamic quantization: a DynamicQuantizeLinear with the products it feeds, as products of real numbers.

The execution provider does so: the chip has no encoding that is known only at run time. The integers of the weights are
read as the real numbers that they stand for; the input is not rounded to 8 bits, so results are nearer to the model's
that was quantized, and differ from onnxruntime's CPU provider by the rounding that is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hexforge.frontends.onnx.fusions.net import Fusion, Net
from hexforge.frontends.onnx.translate.builder import Builder
from hexforge.frontends.onnx.translate.products_conv import convolve
from hexforge.frontends.onnx.translate.products_matmul import multiply
from hexforge.frontends.onnx.unit import Operand, Unit, UnitKind, detail_of
from hexforge.patterns.dynamic_products import DynamicProduct, dynamic_product


@dataclass(frozen=True, slots=True, eq=False)
class DynamicReader:
    """One reader of the quantized input: a product of real numbers, or (None) a DequantizeLinear."""

    product: DynamicProduct | None
    parts: tuple[Unit, ...]
    output: Operand


@dataclass(frozen=True, slots=True, eq=False)
class DynamicProducts:
    """What a DynamicQuantizeLinear feeds."""

    rows: tuple[DynamicReader, ...]


def _dynamic(net: Net, quantize: Unit) -> Unit | None:
    codes, scale, zero = quantize.outputs
    if codes is None or scale is None or quantize.kind is not UnitKind.NODE:
        return None
    readers = net.readers_anywhere(codes.value)
    rows = [None if unit is None else _product(net, unit, codes, scale, zero) for unit in readers]
    products = [row for row in rows if row is not None]
    if not products or len(products) < len(rows):
        return None
    parts = [quantize, *(part for row in products for part in row.parts)]
    outputs = [row.output for row in products]
    return net.join(
        UnitKind.DYNAMIC, parts, [quantize.inputs[0]], outputs, DynamicProducts(tuple(products)), refused=True
    )


def _product(net: Net, unit: Unit, codes: Operand, scale: Operand, zero: Operand | None) -> DynamicReader | None:
    """A reader of the codes as a product of real numbers; None for one that reads them otherwise."""
    if unit.kind is not UnitKind.NODE or not _same(unit, 0, codes):
        return None
    if unit.op == "DequantizeLinear":
        whole = _same(unit, 1, scale) and (_same(unit, 2, zero) if len(unit.inputs) > 2 else False)
        return DynamicReader(None, (unit,), unit.outputs[0]) if whole and unit.outputs[0] else None
    product = dynamic_product(unit.target)
    parts = [] if product is None else [net.unit_of(node) for node in product.nodes]
    plain = [part for part in parts if part is not None and part.kind is UnitKind.NODE]
    output = plain[-1].outputs[0] if plain and len(plain) == len(parts) else None
    return None if output is None else DynamicReader(product, tuple(plain), output)


def _same(unit: Unit, index: int, operand: Operand | None) -> bool:
    given = unit.inputs[index] if index < len(unit.inputs) else None
    return given is not None and operand is not None and given.value is operand.value


def _write_dynamic(b: Builder, u: Unit) -> None:
    for index, row in enumerate(detail_of(u, DynamicProducts).rows):
        product = row.product
        if product is None:
            b.finish(u, b.real(u, 0), index)
            continue
        node = product.node
        single = replace(u, target=node, outputs=(row.output,))
        weight = b.static(product.weight, name=f"{node.inputs[1].name}_real")  # type: ignore[union-attr]
        if node.op_type == "ConvInteger":
            bias = None if product.bias is None else b.static(product.bias, name=f"{node.name}_bias")
            convolve(b, single, b.real(u, 0), weight, bias)
        else:
            multiply(b, single, b.real(u, 0), weight)


FUSIONS: tuple[Fusion, ...] = (
    Fusion(
        UnitKind.DYNAMIC, ("DynamicQuantizeLinear",), _dynamic, _write_dynamic,
        ("Conv2d", "Conv3d", "DepthWiseConv2d", "FullyConnected", "MatMul"),
    ),
)  # fmt: skip
