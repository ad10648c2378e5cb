# SPDX-License-Identifier: Apache-2.0
"""Dynamic products: products of codes that are made at run time, read as the products of real numbers that they are.

onnxruntime's quantize_dynamic writes DynamicQuantizeLinear, ConvInteger or MatMulInteger, Cast and Mul for a product,
older versions with the bias as codes between them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir
from onnx_ir import Node, Value

from hexforge.ir import Array
from hexforge.patterns.language import anything, find_at, one_of, op
from hexforge.patterns.nodes import ONNX, data, is_op, operand, other, shape, source

BIAS, FACTOR = anything(), anything()
PRODUCT = op("ConvInteger MatMulInteger")
SUM = op("Add", PRODUCT, BIAS)
REAL = op("Cast", one_of(SUM, PRODUCT), where=lambda cast: cast.outputs[0].dtype == onnx_ir.DataType.FLOAT)
SCALED = op("Mul", REAL, FACTOR)


@dataclass(frozen=True, slots=True, eq=False)
class QuantizedAtRunTime:
    """A tensor that is quantized at run time."""

    real: Value
    codes: Value
    scale: Value
    zero: Value | None


def codes_read(node: Node, index: int) -> QuantizedAtRunTime | None:
    """What a node reads of a DynamicQuantizeLinear at a position."""
    value, maker = operand(node, index), source(node, index)
    if maker is None or not is_op(maker, "DynamicQuantizeLinear") or value is not maker.outputs[0]:
        return None
    real = operand(maker, 0)
    if real is None or value is None:
        return None
    return QuantizedAtRunTime(real, value, maker.outputs[1], maker.outputs[2] if len(maker.outputs) > 2 else None)


@dataclass(frozen=True, slots=True, eq=False)
class DynamicProduct:
    """A product of a tensor that is quantized at run time by a weight that is not, as a product of real numbers."""

    node: Node
    """The ConvInteger or MatMulInteger."""
    nodes: tuple[Node, ...]
    """All nodes of it but the DynamicQuantizeLinear of its input; the last writes the result."""
    x: Value
    weight: Array
    bias: Array | None


def dynamic_product(node: Node) -> DynamicProduct | None:
    """ConvInteger or MatMulInteger, [the Add of a bias in codes,] Cast, Mul by both scales; None for anything else."""
    match = find_at(SCALED, (PRODUCT,), ONNX, node)
    codes, weights = codes_read(node, 0), _weights(node)
    if match is None or codes is None or weights is None or operand(node, 2) is not codes.zero:
        return None
    factor = match[FACTOR]
    step = weights.step(factor, codes.scale)
    real = None if step is None else weights.real(step)
    if step is None or real is None or shape(match.last.outputs[0]) != shape(node.outputs[0]):
        return None
    *sums, cast, last = match.nodes
    nodes: list[Node | None] = [*sums]
    bias = None
    if SUM in match:
        chain = _bias_chain(match[BIAS])
        bias = data(operand(chain[-1], 0)) if chain else None
        steps = weights.step(operand(chain[-1], 1), codes.scale) if chain else None
        if bias is None or steps is None or not np.array_equal(steps, step) or node.op_type != "ConvInteger":
            return None
        nodes += [*chain, _product_of_scales(operand(chain[-1], 1))]
        bias = np.broadcast_to(bias.ravel(), weights.codes_shape[:1])
    nodes += [_product_of_scales(factor), weights.maker, cast, last]
    return DynamicProduct(node, tuple(dict.fromkeys(n for n in nodes if n is not None)), codes.real, real, bias)


def _product_of_scales(value: Value | None) -> Node | None:
    node = None if value is None else value.producer()
    return node if is_op(node, "Mul") else None


@dataclass(frozen=True, slots=True, eq=False)
class _Weights:
    """The second operand of a product of codes."""

    node: Node
    codes: Array | None
    """Constant codes; None where a constant is quantized at run time, as onnxruntime does with Constant nodes."""
    offset: Array
    maker: Node | None = None
    """The DynamicQuantizeLinear of a constant."""

    @property
    def codes_shape(self) -> tuple[int, ...]:
        """Its shape."""
        return shape(operand(self.node, 1))

    def step(self, factor: Value | None, scale: Value) -> Array | None:
        """What the scale of the data is multiplied by in a factor: the scale of the weights, or 1; None otherwise."""
        if factor is scale and self.maker is None:
            return np.ones((), np.float32)
        maker = None if factor is None else factor.producer()
        by = other(maker, scale) if maker is not None and is_op(maker, "Mul") else None
        if self.maker is not None:
            return np.ones((), np.float32) if by is self.maker.outputs[1] else None
        return data(by)

    def real(self, step: Array) -> Array | None:
        """Weights as real numbers; None where a scale or zero point is for something else than an output channel."""
        if self.codes is None:
            return None if self.maker is None else data(operand(self.maker, 0))
        return real_weight(self.codes, self.offset, step, columns=self.node.op_type == "MatMulInteger")


def _weights(node: Node) -> _Weights | None:
    dynamic = codes_read(node, 1)
    if dynamic is not None:
        whole = data(dynamic.real) is not None and operand(node, 3) is dynamic.zero
        return _Weights(node, None, np.zeros((), np.int32), source(node, 1)) if whole else None
    codes = data(operand(node, 1))
    offset = np.zeros((), np.int32) if operand(node, 3) is None else data(operand(node, 3))
    return None if codes is None or offset is None else _Weights(node, codes, offset)


def _bias_chain(value: Value) -> list[Node]:
    """The nodes of a bias in codes, Reshape(Cast(Floor(bias / (scale * step)))), the Div last; none otherwise."""
    node, chain = value.producer(), []
    while node is not None and is_op(node, "Reshape", "Unsqueeze"):
        chain.append(node)
        node = source(node)
    for ops in (("Cast",), ("Floor", "Round"), ("Div",)):
        if node is None or not is_op(node, *ops):
            return []
        chain.append(node)
        node = source(node)
    return chain


def real_weight(weight: Array, offset: Array, step: Array, *, columns: bool) -> Array | None:
    """Weights as real numbers; None where a scale or a zero point is for something else than an output channel."""
    count = weight.shape[-1] if columns else weight.shape[0]
    rest = (1,) * (0 if columns else weight.ndim - 1)
    if offset.size not in (1, count) or (offset.size > 1 and offset.ndim > 1):
        return None
    if step.size > 1:  # broadcast against the result, whose channels are last, or second
        lead = step.shape if columns else step.shape[: len(step.shape) - (weight.ndim - 2)]
        if step.size != count or lead[-1:] != (count,):
            return None
    shaped = [array.reshape((count, *rest) if array.size > 1 else ()).astype(np.float32) for array in (offset, step)]
    real: Array = (weight.astype(np.float32) - shaped[0]) * shaped[1]
    return real
