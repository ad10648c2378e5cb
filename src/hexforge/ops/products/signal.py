# SPDX-License-Identifier: Apache-2.0
"""Signal ops: short-time Fourier transform, Hadamard transform."""

from __future__ import annotations

import numpy as np

from hexforge.ir import Array, Call, Measure, Param, TensorType, Work, define


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
