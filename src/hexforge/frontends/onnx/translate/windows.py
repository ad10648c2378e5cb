# SPDX-License-Identifier: Apache-2.0
"""The windows of convolutions and pools: kernel, strides, dilations and pads as ONNX attributes give them."""

from __future__ import annotations

from dataclasses import dataclass

from hexforge.frontends.onnx.translate.builder import Builder
from hexforge.frontends.onnx.unit import Refusal, Unit

Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Window:
    """Per spatial axis: kernel size, stride, dilation, (before, after) pads."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pads: Pairs

    @property
    def extent(self) -> tuple[int, ...]:
        """Elements from the first to the last tap."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True))

    @property
    def dilated(self) -> bool:
        """True where taps lie apart."""
        return any(d > 1 and k > 1 for k, d in zip(self.kernel, self.dilation, strict=True))

    def unsqueezed(self) -> Window:
        """A one-dimensional window as a two-dimensional one of height 1."""
        return Window((1, *self.kernel), (1, *self.stride), (1, *self.dilation), ((0, 0), *self.pads))


def numbers(b: Builder, u: Unit, name: str, dims: int, default: int, least: int) -> tuple[int, ...]:
    """An attribute of `dims` integers, each at least `least`."""
    value = tuple(int(v) for v in b.attr(u, name) or (default,) * dims)
    if len(value) != dims or min(value) < least:
        raise Refusal(f"{name} {list(value)} must be {dims} numbers of at least {least}")
    return value


def explicit_pads(b: Builder, u: Unit, dims: int) -> Pairs:
    """The pads attribute, axis by axis."""
    flat = numbers(b, u, "pads", 2 * dims, 0, 0)
    return tuple((flat[i], flat[i + dims]) for i in range(dims))


def window(b: Builder, u: Unit, sizes: tuple[int, ...], kernel: tuple[int, ...] | None = None) -> Window:
    """The window of a Conv or pool over spatial `sizes`; auto_pad resolved.

    The SAME pads of a dilated pool are those that it would have without dilations, as onnxruntime's kernels have it.
    """
    dims, pools = len(sizes), kernel is None
    kernel = numbers(b, u, "kernel_shape", dims, 0, 1) if kernel is None else kernel
    stride, dilation = numbers(b, u, "strides", dims, 1, 1), numbers(b, u, "dilations", dims, 1, 1)
    auto = b.attr(u, "auto_pad", "NOTSET")
    pads = explicit_pads(b, u, dims) if auto == "NOTSET" else ((0, 0),) * dims
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        pairs = []
        for n, k, s, d in zip(sizes, kernel, stride, dilation, strict=True):
            total = (-(-n // s) - 1) * s + (k if pools else d * (k - 1) + 1) - n
            if total < 0 and pools and any(each > 1 for each in dilation):
                raise Refusal(f"auto_pad {auto} with dilations and strides beyond the window; give pads")
            total = max(total, 0)
            small, large = total // 2, total - total // 2
            pairs.append((small, large) if auto == "SAME_UPPER" else (large, small))
        pads = tuple(pairs)
    elif auto not in ("NOTSET", "VALID"):
        raise Refusal(f"auto_pad {auto!r} is unknown; use NOTSET, VALID, SAME_UPPER or SAME_LOWER")
    return Window(kernel, stride, dilation, pads)
