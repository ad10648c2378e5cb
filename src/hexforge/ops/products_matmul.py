# SPDX-License-Identifier: Apache-2.0
"""Matrix ops: product, fully connected layer, inverse; and transforms of signals, which are products."""

from __future__ import annotations

import math

import numpy as np

from hexforge.ir import Array, AxisScaleOffset, Call, Measure, Param, QuantRule, TensorType, Work, define
from hexforge.ops.pointwise_elementwise import broadcast, same_dtype


def product(a: Array, b: Array) -> Array:
    """a @ b; integers exactly (wrapping in int64), through BLAS where float64 holds every sum."""
    if a.dtype.kind == "f" or not a.size or not b.size:
        return np.asarray(np.matmul(a, b))
    largest = max(abs(int(a.min())), abs(int(a.max()))) * max(abs(int(b.min())), abs(int(b.max())))
    if largest * a.shape[-1] < 1 << 53:
        return np.asarray(np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.int64))
    return np.asarray(np.matmul(a.astype(np.int64), b.astype(np.int64)))


def _flip(array: Array, flipped: bool) -> Array:
    return np.swapaxes(array, -1, -2) if flipped else array


def _matmul_dims(call: Call) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of the operands after their transpositions."""
    shapes = []
    for index, name in ((0, "transpose_in0"), (1, "transpose_in1")):
        shape = call.input(index).shape
        if len(shape) < 2:
            raise call.fail(f"in{index} has shape {list(shape)}; it needs at least 2 dimensions")
        shapes.append((*shape[:-2], shape[-1], shape[-2]) if call[name] else shape)
    return shapes[0], shapes[1]


def _infer_matmul(call: Call) -> tuple[TensorType, ...]:
    a, b = _matmul_dims(call)
    if a[-1] != b[-2]:
        raise call.fail(f"cannot multiply {list(a)} by {list(b)}: {a[-1]} is not {b[-2]}")
    encoding = call.input(1).encoding
    if call["transpose_in1"] and isinstance(encoding, AxisScaleOffset) and encoding.axis == len(b) - 1:
        raise call.fail("scales of in1 run along the axis that is summed over; use one per output column")
    if call.has(2) and call.input(2).shape not in ((b[-1],), (1,)):
        raise call.fail(f"bias has shape {list(call.input(2).shape)}, not [{b[-1]}]")
    return (TensorType(same_dtype(call, 0, 1), (*broadcast(call, a[:-2], b[:-2]), a[-2], b[-1])),)


def _matmul(call: Call, a: Array, b: Array, bias: Array | None = None) -> Array:
    out = product(_flip(a, call["transpose_in0"]), _flip(b, call["transpose_in1"]))
    return out if bias is None else out + bias


define(
    "MatMul",
    "in0 in1 bias?",
    params=(Param("transpose_in0", "bool", default=False), Param("transpose_in1", "bool", default=False)),
    infer=_infer_matmul,
    reference=_matmul,
    kind=Work.MATMUL,
    work=Measure(macs=lambda call: call.out().size * _matmul_dims(call)[0][-1]),
    quant=QuantRule(weight=1, weight_axis=-1, bias=2, bilinear=True),
    doc="Matrix product over the last two axes, the others broadcast.",
)


def _infer_fully_connected(call: Call) -> tuple[TensorType, ...]:
    shape, weight = call.input(0).shape, call.input(1).shape
    if len(weight) != 2:
        raise call.fail(f"weight has shape {list(weight)}, not [out, in]")
    if call.has(2) and call.input(2).shape != weight[:1]:
        raise call.fail(f"bias has shape {list(call.input(2).shape)}, not [{weight[0]}]")
    dtype = same_dtype(call, 0, 1)
    if call["keep_dims"]:
        if not shape or shape[-1] != weight[1]:
            raise call.fail(f"the last axis of {list(shape)} is not the {weight[1]} inputs of the weight")
        return (TensorType(dtype, (*shape[:-1], weight[0])),)
    if not weight[1] or math.prod(shape) % weight[1]:
        raise call.fail(f"{list(shape)} does not flatten to rows of {weight[1]}")
    return (TensorType(dtype, (math.prod(shape) // weight[1], weight[0])),)


def _fully_connected(call: Call, x: Array, weight: Array, bias: Array | None = None) -> Array:
    rows = math.prod(x.shape[:-1]) if call["keep_dims"] else x.size // max(weight.shape[1], 1)
    out = product(x.reshape(rows, weight.shape[1]), weight.T)
    out = out if bias is None else out + bias
    return out.reshape(*x.shape[:-1], weight.shape[0]) if call["keep_dims"] else out


define(
    "FullyConnected",
    "in weight bias?",
    params=(Param("keep_dims", "bool", default=False),),
    infer=_infer_fully_connected,
    reference=_fully_connected,
    kind=Work.FULLY_CONNECTED,
    work=Measure(macs=lambda call: call.out().size * call.input(1).shape[1]),
    quant=QuantRule(weight=1, weight_axis=0, bias=2, bilinear=True),
    doc="Rows of the input times the transposed weight [out, in], plus bias; keep_dims keeps the leading axes.",
)


def _infer_inverse(call: Call) -> tuple[TensorType, ...]:
    shape = call.input(0).shape
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise call.fail(f"{list(shape)} does not hold square matrices")
    return (TensorType(call.input(0).dtype, shape),)


def _inverse(call: Call, x: Array) -> Array:
    try:
        return np.linalg.inv(x)
    except np.linalg.LinAlgError:  # one singular matrix fails the batch: the others are still inverted
        flat = x.reshape(-1, *x.shape[-2:])
        out = np.full_like(flat, np.nan)
        regular = np.linalg.det(flat) != 0
        out[regular] = np.linalg.inv(flat[regular])
        return out.reshape(x.shape)


define(
    "Inverse",
    "in",
    infer=_infer_inverse,
    reference=_inverse,
    kind=Work.OTHER,
    work=Measure(macs=lambda call: call.out().size * call.out().shape[-1]),
    doc="Inverse of each square matrix; NaN for singular ones.",
)


def _infer_stft(call: Call) -> tuple[TensorType, ...]:
    shape, length, step = call.input(0).shape, call["frame_length"], call["frame_step"]
    if len(shape) != 3 or shape[2] not in (1, 2):
        raise call.fail(f"in has shape {list(shape)}, not [batch, samples, 1 (real) or 2 (complex)]")
    if step < 1 or not 1 <= length <= shape[1]:
        raise call.fail(f"frames of {length} every {step} do not fit {shape[1]} samples")
    if call.has(1) and call.input(1).shape != (length,):
        raise call.fail(f"window has shape {list(call.input(1).shape)}, not [{length}]")
    if call["onesided"] and shape[2] == 2:
        raise call.fail("onesided needs a real signal")
    frames = (shape[1] - length) // step + 1
    bins = length // 2 + 1 if call["onesided"] else length
    return (TensorType(call.input(0).dtype, (shape[0], frames, bins, 2)),)


def _stft(call: Call, x: Array, window: Array | None = None) -> Array:
    signal = x[..., 0] if x.shape[2] == 1 else x[..., 0] + 1j * x[..., 1]
    frames = np.lib.stride_tricks.sliding_window_view(signal, call["frame_length"], axis=1)[:, :: call["frame_step"]]
    frames = frames if window is None else frames * window
    bins = np.fft.rfft(frames) if call["onesided"] else np.fft.fft(frames)
    return np.stack([bins.real, bins.imag], axis=-1).astype(x.dtype, copy=False)


_AS_PRODUCT = Measure(
    macs=lambda call: call.out().size * call["frame_length"], moved_bytes=lambda call: call.out().nbytes
)
"""A matrix product, which is how a matrix unit does it."""


define(
    "Stft",
    "in window?",
    params=(Param("frame_step", "uint32"), Param("frame_length", "uint32"), Param("onesided", "bool", default=True)),
    infer=_infer_stft,
    reference=_stft,
    kind=Work.OTHER,
    work=_AS_PRODUCT,
    doc="Fourier transform of (windowed) frames of a signal; the last output axis is real and imaginary part.",
)


def _infer_hadamard(call: Call) -> tuple[TensorType, ...]:
    shape = call.input(0).shape
    if not shape or shape[-1] < 1 or shape[-1] & (shape[-1] - 1):
        raise call.fail(f"in has shape {list(shape)}; its last axis must be a power of two")
    return (TensorType(call.input(0).dtype, shape),)


def _hadamard(call: Call, x: Array) -> Array:
    size = x.shape[-1]
    out, half = x.astype(np.float64), 1
    while half < size:
        pairs = out.reshape(*x.shape[:-1], size // (2 * half), 2, half)
        out = np.stack([pairs[..., 0, :] + pairs[..., 1, :], pairs[..., 0, :] - pairs[..., 1, :]], axis=-2)
        half *= 2
    scaled = out.reshape(x.shape) * (call["scale"] / np.sqrt(size))
    return np.asarray(scaled.astype(x.dtype) if x.dtype.kind == "f" else scaled)


define(
    "HadamardTransform",
    "in",
    params=(Param("scale", "float32", default=1.0),),
    infer=_infer_hadamard,
    reference=_hadamard,
    kind=Work.OTHER,
    work=Measure(lanes=lambda call: call.out().size * (call.out().shape[-1].bit_length() - 1)),
    doc="The last axis times the orthonormal Hadamard matrix in natural order, times scale.",
)
