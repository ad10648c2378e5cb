# SPDX-License-Identifier: Apache-2.0
"""Limits of convolutions, matrix products, recurrent ops, attention and signal ops."""

from __future__ import annotations

import onnx_ir

from hexforge.frontends.onnx.ep_limits.subject import EpRule, Evidence, Subject, builder, preparation, validation

_NONPAD_KV_SEQLEN = 6


def _einsum_kind(equation: str) -> str:
    """Which of the EP's five patterns an equation is, "" for none."""
    left, arrow, result = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow or len(terms) != 2 or not all(map(str.isalpha, (*terms, result))):
        return ""
    first, second = terms
    rank = len(first)
    if rank == len(second) == len(result) and rank >= 2:
        inner = (first[:-1], first[-1])
        if first[:-2] == second[:-2] and result[:-1] == inner[0]:
            if (second[-2], second[-1]) == (inner[1], result[-1]):
                return "product"
            if (second[-1], second[-2]) == (inner[1], result[-1]):
                return "product with the second transposed"
        if rank == 4 and _both_transposed(first, second, result):
            return "product with both transposed"
    if (rank, len(second), len(result)) == (4, 3, 4) and result[:3] == first[:3]:
        ends = second[2] == first[3] and second[1] == result[3]
        if ends and second[0] == first[1]:
            return "broadcast product"
        if ends and second[0] == first[2]:
            return "broadcast sum of products"
    return ""


def _both_transposed(first: str, second: str, result: str) -> bool:
    """As in bchq,bkhc->bkhq."""
    batch, inner, heads, columns = tuple(first)
    return second == batch + second[1] + heads + inner and result == batch + second[1] + heads + columns


def _einsum(subject: Subject) -> bool:
    return not _einsum_kind(str(subject.attr("equation", "")))


def _einsum_bits(subject: Subject) -> bool:
    kind = _einsum_kind(str(subject.attr("equation", "")))
    return subject.unit.quantized and (
        kind == "broadcast sum of products" or (subject.bits(0) == 16 and subject.bits(1) == 16)
    )


def _flat_bias(subject: Subject) -> bool:
    """A stored bias is one row: any other becomes an addition of 32-bit integers, which the HTP does not have."""
    columns = subject.out_shape()[-1:]
    return subject.bits(2) == 32 and subject.shape(2) not in (columns, (1, *columns))


def _five_by_few(subject: Subject) -> bool:
    """Rank 5 by a vector, or by a constant matrix: FullyConnected has no such input."""
    first, second = subject.rank(0), subject.rank(1)
    if subject.bits(1) == 16 and subject.computed(0) and subject.computed(1):
        return False
    return first == 5 and (second == 1 or (second == 2 and not subject.computed(1)))


def _lone_dynamic(subject: Subject) -> bool:
    """True but for what the EP fuses: DynamicQuantizeLinear, a product or DequantizeLinear, then Cast and Mul.

    A bias that is added in codes, before the Cast, makes it something else.
    """
    node = subject.unit.target
    maker = next((n for n in subject.unit.nodes if n.op_type == "DynamicQuantizeLinear"), None)
    if maker is not None:
        readers = [user for user in maker.outputs[0].consumers() if user.op_type != "DequantizeLinear"]
        return not maker.outputs[0].uses() or not all(map(_is_scaled_product, readers))
    source = None if node.inputs[0] is None else node.inputs[0].producer()
    return source is None or source.op_type != "DynamicQuantizeLinear" or not _is_scaled_product(node)


def _is_scaled_product(node: onnx_ir.Node) -> bool:
    """Whether a node is a product of integers that is read by a Cast alone, and that by a Mul alone."""
    if node.op_type not in ("ConvInteger", "MatMulInteger"):
        return False
    casts = node.outputs[0].consumers()
    return [cast.op_type for cast in casts] == ["Cast"] and [
        user.op_type for user in casts[0].outputs[0].consumers()
    ] == ["Mul"]


LIMITS: tuple[EpRule, ...] = (
    validation("Conv", lambda s: s.rank() == 5 and s.dilated, "dilations in three dimensions; use dilations of 1"),
    validation(
        "Conv ConvTranspose",
        lambda s: s.bits(0) > 0 and s.computed(2),
        "a bias computed at run time where the data is quantized; make it a constant",
    ),
    validation(
        "Conv ConvTranspose",
        lambda s: s.rank() != 4 and s.bits(1) == 16 and s.computed(1),
        "16-bit weights computed at run time but for two dimensions; make them constants, or 8-bit",
    ),
    builder("ConvTranspose", lambda s: s.dilated, "dilations; use dilations of 1"),
    builder(
        "QLinearConv", lambda s: s.computed(3), "weights computed at run time; make them constants", Evidence.OBSERVED
    ),
    builder("Gemm", lambda s: s.attr("alpha", 1.0) != 1, "alpha other than 1; multiply the weights by it"),
    builder("Gemm", lambda s: s.attr("beta", 1.0) not in (0, 1), "beta other than 1 or 0; multiply the bias by it"),
    validation(
        "Gemm", _flat_bias, "a quantized bias that is not one row of the output; give one number for each column"
    ),
    validation(
        "Gemm",
        lambda s: s.bits(1) == 16 and s.computed(1) and not s.computed(2) and not s.plain_out(),
        "16-bit weights computed at run time, with no bias or a constant one; make them constants, or use MatMul",
    ),
    validation(
        "MatMul", _five_by_few, "5 dimensions by a vector or a constant matrix; reshape the first to 4 or fewer"
    ),
    builder("Einsum", _einsum, "this equation; write it with MatMul, Transpose, Mul and ReduceSum"),
    validation("Einsum", _einsum_bits, "this equation where it is quantized to these bits; write it with MatMul"),
    builder(
        "ConvInteger MatMulInteger DynamicQuantizeLinear",
        _lone_dynamic,
        "dynamic quantization but for MatMulInteger or ConvInteger with Cast and Mul behind it; quantize statically",
    ),
    builder(
        "LSTM GRU",
        lambda s: bool(s.attr("activations")),
        "the attribute activations, even with its default; leave it out",
    ),
    builder(
        "LSTM GRU", lambda s: s.attr("layout", 0) == 1, "layout=1; use 0, with Transpose around it", Evidence.DOCUMENTED
    ),
    builder(
        "Attention",
        lambda s: s.plain(3) == "BOOL",
        "a bool attn_mask; give a float one that is added",
        Evidence.OBSERVED,
    ),
    builder(
        "Attention",
        lambda s: s.given(_NONPAD_KV_SEQLEN),
        "nonpad_kv_seqlen; mask the padding with attn_mask",
        Evidence.OBSERVED,
    ),
    builder(
        "Attention",
        lambda s: s.attr("softmax_precision") is not None,
        "softmax_precision; leave it out",
        Evidence.OBSERVED,
    ),
    builder(
        "GroupQueryAttention",
        lambda s: True,
        "GroupQueryAttention; write attention with MatMul, a mask and Softmax, or as Attention of opset 23",
        Evidence.OBSERVED,
    ),
    preparation("STFT", lambda s: s.dequantized_bits(2) > 0, "a quantized window; leave this node in float"),
)
