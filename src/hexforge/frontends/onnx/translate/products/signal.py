# SPDX-License-Identifier: Apache-2.0
"""Signal ops: STFT."""

from __future__ import annotations

from hexforge.frontends.onnx.translate.builder import Builder, translates
from hexforge.frontends.onnx.translate.compose import concat, scalar
from hexforge.frontends.onnx.unit import Refusal, Unit


@translates("STFT", writes=("Stft",))
def stft(b: Builder, u: Unit) -> None:
    """Stft with constant frame step and length; the length is the window's where it is not given."""
    x, window, onesided = b.real(u, 0), None, bool(b.attr(u, "onesided", 1))
    step, length = b.constant(u, 1, "frame_step"), b.constant(u, 3, "frame_length")
    if step is None:
        raise Refusal("frame_step is missing")
    if b.has(u, 2):
        window = b.real(u, 2)
    if length is None and window is None:
        raise Refusal("neither window nor frame_length says how long a frame is")
    size = int(length.ravel()[0]) if length is not None else window.shape[0] if window is not None else 0
    if window is not None and window.shape[0] < size:  # a short window is followed by zeros
        zeros = b.emit("Tile", [scalar(b, 0, window)], multiples=(size - window.shape[0],))
        window = concat(b, [window, zeros], 0)
    if len(x.shape) == 2:
        x = b.reshape(x, (*x.shape, 1))
    params = {"frame_step": int(step.ravel()[0]), "frame_length": size, "onesided": onesided}
    b.finish(u, b.emit("Stft", [x, window], None, **params))
