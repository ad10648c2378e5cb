# SPDX-License-Identifier: Apache-2.0
"""Matrix products: MatMul, Gemm and their kin, Einsum as a sequence of them, and MatMulNBits."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from hexforge.frontends.onnx.translate.builder import (
    Builder,
    binary,
    less_zero_point,
    reduce,
    scaled_output,
    translates,
)
from hexforge.frontends.onnx.unit import Refusal, Unit
from hexforge.ir import Array, AxisScaleOffset, Block, DType, Encoding, ScaleOffset, TensorType, Value
from hexforge.ir.types import NumberArray


@translates("MatMul", writes=("FullyConnected", "MatMul"))
def matmul(b: Builder, u: Unit) -> None:
    """numpy's matmul; a constant matrix on the right makes it a FullyConnected."""
    multiply(b, u, b.input(u, 0), b.input(u, 1))


@translates("QLinearMatMul", "com.microsoft:QLinearMatMul", writes=("FullyConnected", "MatMul"))
def qlinear_matmul(b: Builder, u: Unit) -> None:
    """MatMul of fixed-point tensors; the encodings come with the unit."""
    if any(o is None or o.encoding is None for o in (u.inputs[0], u.inputs[3], u.outputs[0])):
        raise Refusal("scales and zero points must be constant to become encodings")
    multiply(b, u, b.input(u, 0), b.input(u, 3))


def multiply(b: Builder, u: Unit, x: Value, y: Value) -> None:
    """Write x @ y to the unit's output, in its encoding; vectors as numpy's matmul takes them."""
    out = b.output(u)
    if y.data is not None and len(y.shape) == 2 and x.shape:
        if x.shape[-1] != y.shape[0]:
            raise Refusal(f"cannot multiply {list(x.shape)} by {list(y.shape)}")
        weight = b.transpose(y, (1, 0))
        b.emit("FullyConnected", [x, weight], out, keep_dims=True)
        return
    if not x.shape or not y.shape:
        raise Refusal("a scalar is no matrix")
    left = b.reshape(x, (1, *x.shape)) if len(x.shape) == 1 else x
    right = b.reshape(y, (*y.shape, 1)) if len(y.shape) == 1 else y
    if left is x and right is y:
        b.emit("MatMul", [x, y], out)
        return
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    b.finish(u, b.emit("MatMul", [left, right], out.type.with_shape((*batch, left.shape[-2], right.shape[-1]))))


def _row(b: Builder, bias: Value, width: int) -> Value | None:
    """A bias as a vector of `width`, None where it is more than one row."""
    if bias.shape == (width,):
        return bias
    if bias.shape == (1, width) and not hasattr(bias.encoding, "axis"):
        return b.reshape(bias, (width,))
    if bias.type.size == 1 and bias.data is not None and not hasattr(bias.encoding, "axis"):
        return b.static(np.broadcast_to(bias.data.reshape(1), (width,)), bias.encoding, f"{bias.name}_row")
    return None


@translates("Gemm", writes=("ElementWiseAdd", "ElementWiseMultiply", "FullyConnected", "MatMul"))
def gemm(b: Builder, u: Unit) -> None:
    """alpha A' B' + beta C; a FullyConnected where that is all, else MatMul and the rest of it."""
    alpha, beta = float(b.attr(u, "alpha", 1.0)), float(b.attr(u, "beta", 1.0))
    flip_a, flip_b = bool(b.attr(u, "transA", 0)), bool(b.attr(u, "transB", 0))
    out, given = b.output(u), b.has(u, 2) and beta != 0
    row = _row(b, b.input(u, 2), out.shape[-1]) if given and beta == 1 else None
    if alpha == 1 and given == (row is not None):
        x, y = b.input(u, 0), b.input(u, 1)
        if y.data is not None:
            x = b.transpose(x, (1, 0)) if flip_a else x
            b.emit("FullyConnected", [x, y if flip_b else b.transpose(y, (1, 0)), row], out)
        else:
            b.emit("MatMul", [x, y, row], out, transpose_in0=flip_a, transpose_in1=flip_b)
        return
    constant = row is not None and row.data is not None
    if alpha > 0 and (constant or not given) and out.encoding is not None:
        # a matrix that is constant could take alpha into its scale; this keeps it one weight for all that read it
        inputs = [b.input(u, 0), b.input(u, 1), *([_divided(b, row, alpha)] if row is not None else [])]
        flips = {"transpose_in0": flip_a, "transpose_in1": flip_b}
        if scaled_output(b, u, alpha, lambda to: b.emit("MatMul", inputs, to, **flips)):
            return
    if not u.quantized and not out.dtype.is_float and (alpha, beta) != (1, 1):
        raise Refusal(f"alpha {alpha} and beta {beta} on {out.dtype.value}; leave them 1, or cast to float")
    product = b.emit("MatMul", [b.real(u, 0), b.real(u, 1)], transpose_in0=flip_a, transpose_in1=flip_b)
    product = binary(b, "Multiply", product, alpha) if alpha != 1 else product
    if given:
        c = b.real(u, 2)
        product = binary(b, "Add", product, binary(b, "Multiply", c, beta) if beta != 1 else c)
    b.finish(u, product)


def _divided(b: Builder, bias: Value, divisor: float) -> Value:
    """A constant bias divided by a number: its steps are smaller, its integers what they are."""
    assert bias.data is not None
    match bias.encoding:
        case ScaleOffset():
            encoding: Encoding | None = replace(bias.encoding, scale=bias.encoding.scale / divisor)
        case AxisScaleOffset():
            encoding = replace(bias.encoding, scales=tuple(scale / divisor for scale in bias.encoding.scales))
        case _:
            return b.static((bias.data / divisor).astype(bias.data.dtype))
    return b.static(bias.data, encoding)


@translates(
    "com.microsoft:FusedMatMul",
    "com.microsoft:TransposeMatMul",
    writes=("ElementWiseMultiply", "FullyConnected", "MatMul"),
)
def fused_matmul(b: Builder, u: Unit) -> None:
    """alpha times the product of operands transposed in their last axes, or with the first axis moved inwards."""
    alpha = float(b.attr(u, "alpha", 1.0))
    values = [b.real(u, 0), b.real(u, 1)]
    for i, name in enumerate(("transBatchA", "transBatchB")):
        rank = len(values[i].shape)
        if b.attr(u, name, 0) and rank > 2:
            values[i] = b.transpose(values[i], (*range(1, rank - 1), 0, rank - 1))
    names = ("transA", "transB")
    flips = [bool(b.attr(u, name, 0)) and len(v.shape) > 1 for name, v in zip(names, values, strict=True)]
    if any(len(v.shape) < 2 for v in values) and (any(flips) or alpha != 1):
        raise Refusal("a vector operand with alpha or a transposed partner; use MatMul on matrices")
    if any(len(v.shape) < 2 for v in values):
        multiply(b, u, *values)
        return
    product = b.emit("MatMul", values, transpose_in0=flips[0], transpose_in1=flips[1])
    b.finish(u, binary(b, "Multiply", product, alpha) if alpha != 1 else product)


@translates("MatMulInteger", writes=("ElementWiseSubtract", "FullyConnected", "MatMul"))
def matmul_integer(b: Builder, u: Unit) -> None:
    """int32 product of 8-bit tensors less their zero points."""
    # a zero point for each row of A, each column of B
    multiply(b, u, less_zero_point(b, u, 0, 1), less_zero_point(b, u, 1))


@translates("com.microsoft:Inverse", writes=("Inverse",))
def inverse(b: Builder, u: Unit) -> None:
    """Inverse of square matrices."""
    b.emit("Inverse", [b.input(u, 0)], b.output(u))


@translates("Softmax", writes=("Softmax",))
@translates("LogSoftmax", writes=("LogSoftmax",))
def softmax(b: Builder, u: Unit) -> None:
    """Softmax or LogSoftmax."""
    write_softmax(b, u, 1.0)


def write_softmax(b: Builder, u: Unit, beta: float) -> None:
    """Softmax of `beta` times the input along an axis; before opset 13 over all axes from there on, as one."""
    x, out, op = b.input(u, 0), b.output(u), u.target.op_type
    rank, flattens = len(x.shape), b.opset(u) < 13
    axis = int(b.attr(u, "axis", 1 if flattens else -1))
    if not rank or not -rank <= axis < rank + flattens:
        raise Refusal(f"axis {axis} is outside a tensor of {rank} dimensions")
    axis = axis % rank if axis < rank else rank
    if not flattens or axis == rank - 1:
        b.emit(op, [x], out, axis=axis, beta=beta)
        return
    rows = int(np.prod(x.shape[:axis]))
    flat = b.reshape(x, (rows, x.type.size // max(rows, 1)))
    b.finish(u, b.emit(op, [flat], out.type.with_shape(flat.shape), axis=1, beta=beta))


@dataclass(frozen=True, slots=True)
class _Term:
    """A value whose axes carry labels; axes of an ellipsis are labelled "0", "1"… counted from the right."""

    value: Value
    labels: str

    def size(self, labels: str) -> int:
        """Product of the sizes of some of the axes."""
        return math.prod(self.value.shape[self.labels.index(c)] for c in labels)


def _expand(term: str, rank: int) -> str:
    if "..." not in term:
        if len(term) != rank:
            raise Refusal(f"equation names {len(term)} axes ({term!r}) of a tensor of {rank} dimensions")
        return term
    hidden = rank - len(term) + 3
    if not 0 <= hidden <= 10:
        raise Refusal(f"equation term {term!r} does not fit a tensor of {rank} dimensions")
    return term.replace("...", "".join(str(i) for i in reversed(range(hidden))))


def parse(equation: str, ranks: list[int]) -> tuple[list[str], str]:
    """Labels of each operand's axes and of the output's."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise Refusal(f"equation {equation!r} is for {len(terms)} inputs, the node has {len(ranks)}")
    labels = [_expand(t, r) for t, r in zip(terms, ranks, strict=True)]
    joined = "".join(labels)
    hidden = "".join(sorted({c for c in joined if c.isdigit()}, reverse=True))
    if arrow:
        return labels, right.replace("...", hidden)
    return labels, hidden + "".join(sorted(c for c in set(joined) if c.isalpha() and joined.count(c) == 1))


def _diagonals(b: Builder, term: _Term) -> _Term:
    """Axes that share a label become one: their diagonal."""
    for label in dict.fromkeys(term.labels):
        while term.labels.count(label) > 1:
            first, second = [i for i, c in enumerate(term.labels) if c == label][:2]
            shape = term.value.shape
            n = shape[first]
            if n != shape[second]:
                raise Refusal(f"axes labelled {label!r} have sizes {n} and {shape[second]}")
            rest = [i for i in range(len(shape)) if i not in (first, second)]
            flat = b.transpose(term.value, (*rest, first, second))
            flat = b.reshape(flat, (*(shape[i] for i in rest), n * n))
            value = b.emit("Gather", [flat, b.static(np.arange(n, dtype=np.int32) * (n + 1))], axis=len(rest))
            term = _Term(value, "".join(term.labels[i] for i in rest) + label)
    return term


def _drop(b: Builder, term: _Term, needed: set[str], sizes: dict[str, int]) -> _Term:
    """Sum over axes nobody else names; drop axes of size 1 that broadcast."""
    extra = [i for i, c in enumerate(term.labels) if c not in needed]
    if extra:
        value = reduce(b, "Sum", term.value, extra, keep_dims=False)
        term = _Term(value, "".join(c for c in term.labels if c in needed))
    kept = [i for i, c in enumerate(term.labels) if term.value.shape[i] == sizes[c]]
    if len(kept) == len(term.labels):
        return term
    value = b.reshape(term.value, [term.value.shape[i] for i in kept])
    return _Term(value, "".join(term.labels[i] for i in kept))


def _arranged(b: Builder, term: _Term, labels: str) -> Value:
    return b.transpose(term.value, [term.labels.index(c) for c in labels])


def _contract(b: Builder, x: _Term, y: _Term, later: set[str], product: TensorType | None) -> _Term:
    """Two terms made one, summed over what they share and nobody needs later. `product` types the MatMul's output."""
    shared = "".join(c for c in x.labels if c in y.labels)
    summed, batch = ("".join(c for c in shared if (c in later) is keep) for keep in (False, True))
    left = "".join(c for c in x.labels if c not in shared)
    right = "".join(c for c in y.labels if c not in shared)
    sizes = {c: t.size(c) for t in (x, y) for c in t.labels}
    shape = tuple(sizes[c] for c in batch + left + right)
    if not summed:
        a = b.reshape(_arranged(b, x, batch + left), (*(sizes[c] for c in batch + left), *(1 for _ in right)))
        c = b.reshape(
            _arranged(b, y, batch + right), (*(sizes[c] for c in batch), *(1 for _ in left), *(sizes[c] for c in right))
        )
        return _Term(binary(b, "Multiply", a, c), batch + left + right)
    lead = (x.size(batch),) if batch else ()
    a = b.reshape(_arranged(b, x, batch + left + summed), (*lead, x.size(left), x.size(summed)))
    c = b.reshape(_arranged(b, y, batch + summed + right), (*lead, y.size(summed), y.size(right)))
    out = None if product is None else product.with_shape((*lead, a.shape[-2], c.shape[-1]))
    return _Term(b.reshape(b.emit("MatMul", [a, c], out), shape), batch + left + right)


def _single_product(u: Unit, labels: list[str], output: str) -> bool:
    """True where the equation is transposes around one MatMul, which keeps the encodings."""
    if len(labels) != 2 or any(len(set(t)) != len(t) for t in labels):
        return False
    alone = set(labels[0]) ^ set(labels[1])
    plain = all(o is not None and isinstance(o.encoding, ScaleOffset) for o in (*u.inputs, *u.outputs))
    return plain and alone <= set(output) and bool(set(labels[0]) & set(labels[1]) - set(output))


@translates("Einsum", writes=("ElementWiseMultiply", "Gather", "MatMul", "ReduceSum"))
def einsum(b: Builder, u: Unit) -> None:
    """Any equation, with ellipsis, repeated labels and any number of inputs."""
    shapes = [b.type_of(b.operand(u, i)).shape for i in range(len(u.inputs))]
    equation = str(b.attr(u, "equation"))
    labels, output = parse(equation, [len(s) for s in shapes])
    sizes: dict[str, int] = {}
    for shape, term in zip(shapes, labels, strict=True):
        for n, c in zip(shape, term, strict=True):
            if 1 not in (n, sizes.setdefault(c, n)) and sizes[c] != n:
                raise Refusal(f"axes labelled {c!r} have sizes {sizes[c]} and {n}")
            sizes[c] = n if sizes[c] == 1 else sizes[c]
    if set(output) - set(sizes) or len(set(output)) != len(output):
        raise Refusal(f"equation {equation!r} has an output axis that no input has, or one twice")
    direct = u.quantized and _single_product(u, labels, output)
    values = [b.input(u, i) if direct else b.real(u, i) for i in range(len(u.inputs))]
    typed = b.output(u).type if direct else None
    terms = [_diagonals(b, _Term(v, t)) for v, t in zip(values, labels, strict=True)]
    result = terms[0]
    for i, other in enumerate(terms[1:], 2):
        later = set(output).union(*(t.labels for t in terms[i:]))
        other = _drop(b, other, later | set(result.labels), sizes)
        result = _drop(b, result, later | set(other.labels), sizes)
        result = _contract(b, result, other, later, typed)
    b.finish(u, _arranged(b, _drop(b, result, set(output), sizes), output))


def unpack(packed: Array, bits: int, count: int) -> Array:
    """The first `count` unsigned numbers of each row of bytes, least significant bits first."""
    if bits == 8:
        return packed[..., :count]
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    numbers = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return numbers.reshape(*packed.shape[:-1], -1)[..., :count]


def _zero_points(b: Builder, u: Unit, rows: int, blocks: int, bits: int) -> Array:
    given = b.constant(u, 3, "zero_points")
    if given is None:
        return np.full((rows, blocks), 1 << bits - 1, np.uint8)
    if given.dtype == np.uint8:
        return unpack(given.reshape(rows, -1), bits, blocks)
    return given.reshape(rows, blocks)


@translates("com.microsoft:MatMulNBits", writes=("FullyConnected",))
def matmul_nbits(b: Builder, u: Unit) -> None:
    """A times the transposed weight [N, K], plus bias. Blocks that QNN cannot encode are dequantized here."""
    bits, block = int(b.attr(u, "bits", 4)), int(b.attr(u, "block_size", 0))
    depth, rows = int(b.attr(u, "K", 0)), int(b.attr(u, "N", 0))
    if bits not in (2, 4, 8):
        raise Refusal(f"weights of {bits} bits; 2, 4 and 8 are known")
    if block < 1 or depth < 1 or rows < 1:
        raise Refusal(f"K {depth}, N {rows} and block_size {block} must be positive")
    packed, scales = b.constant(u, 1, "B"), b.constant(u, 2, "scales")
    if packed is None or scales is None:
        raise Refusal("B and scales are missing")
    blocks = -(-depth // block)
    if packed.size != rows * blocks * ((block * bits + 7) // 8) or scales.size != rows * blocks:
        raise Refusal(f"B has {packed.size} bytes and {scales.size} scales, which do not fit K {depth} and N {rows}")
    x, out = b.input(u, 0), b.output(u)
    numbers = unpack(packed.reshape(rows, blocks, -1), bits, block)
    scales, zeros = scales.reshape(rows, blocks), _zero_points(b, u, rows, blocks, bits)
    groups = b.constant(u, 4, "g_idx")
    if groups is not None and (groups.size < depth or groups.min() < 0 or groups.max() >= blocks):
        raise Refusal(f"g_idx has {groups.size} groups from {groups.min()} to {groups.max()} for K {depth} of {blocks}")
    weight: Value
    if groups is not None:
        of = groups.reshape(-1)[:depth]
        real = (numbers.reshape(rows, -1)[:, :depth] - zeros.astype(np.float32)[:, of]) * scales[:, of]
        weight = b.static(real.astype(out.dtype.numpy))
    elif depth % block == 0 and zeros.dtype == np.uint8 and (scales > 0).all() and np.isfinite(scales).all():
        dtype = DType.UINT4 if bits == 4 else DType.UINT8
        encoding = Block(
            (1, block), NumberArray(scales), NumberArray(-zeros.astype(np.int16)), bits if bits != dtype.bits else 0
        )
        weight = b.static(numbers.reshape(rows, depth).astype(dtype.numpy), encoding)
    else:
        real = (numbers - zeros.astype(np.float32)[..., None]) * scales.astype(np.float32)[..., None]
        weight = b.static(real.reshape(rows, -1)[:, :depth].astype(out.dtype.numpy))
    bias = b.optional(u, 5)
    b.emit("FullyConnected", [x, weight, bias], out, keep_dims=True)
