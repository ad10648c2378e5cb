# SPDX-License-Identifier: Apache-2.0
"""Normalizations: softmax, batch, layer, instance, group, RMS and L2 normalization, local response."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hexforge.ir import ALONG_AXIS, Array, Call, Follows, Layout, Measure, Param, TensorType, Work, define

_EPSILON = Param("epsilon", "float32", default=1e-12)
_AXES = Param("axes", "uint32", rank=1)


def _infer_softmax(call: Call) -> tuple[TensorType, ...]:
    call.axis(call["axis"])
    return (TensorType(call.input(0).dtype, call.input(0).shape),)


def _shifted(call: Call, x: Array) -> Array:
    """beta * x less its maximum: exp cannot overflow."""
    scaled = x if call["beta"] == 1 else call["beta"] * x
    return np.asarray(scaled - scaled.max(axis=call["axis"], keepdims=True, initial=-np.inf))


def _softmax(call: Call, x: Array) -> Array:
    e = np.exp(_shifted(call, x))
    return np.asarray(e / e.sum(axis=call["axis"], keepdims=True))


def _log_softmax(call: Call, x: Array) -> Array:
    shifted = _shifted(call, x)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=call["axis"], keepdims=True)))


def _passes(lanes: int, lookups: int = 0) -> Measure:
    """Work of an op that goes over its input that many times."""
    return Measure(
        lanes=lambda call: lanes * call.input(0).size,
        lookups=(lambda call: lookups * call.input(0).size) if lookups else None,
    )


for _name, _function, _doc in (
    ("Softmax", _softmax, "exp(beta x) divided by its sum along an axis."),
    ("LogSoftmax", _log_softmax, "Logarithm of Softmax, without computing it."),
):
    define(
        _name,
        "in",
        params=(Param("axis", "uint32"), Param("beta", "float32", default=1.0)),
        infer=_infer_softmax,
        reference=_function,
        kind=Work.SOFTMAX,
        work=_passes(4, 1),
        layout=ALONG_AXIS,
        doc=_doc,
    )


def _infer_masked_softmax(call: Call) -> tuple[TensorType, ...]:
    x, mask = call.input(0), call.input(1)
    call.axis(call["axis"])
    behind = x.shape[len(x.shape) - len(mask.shape) :]
    if len(mask.shape) > len(x.shape) or any(m not in (1, n) for m, n in zip(mask.shape, behind, strict=True)):
        raise call.fail(f"a mask {list(mask.shape)} does not broadcast to {list(x.shape)}")
    return (TensorType(x.dtype, x.shape),)


def _masked_softmax(call: Call, x: Array, mask: Array) -> Array:
    kept = np.broadcast_to((mask != 0) == bool(call["keep"]), x.shape)
    scaled = call["beta"] * x
    most = scaled.max(axis=call["axis"], keepdims=True, where=kept, initial=-np.inf)
    e = np.where(kept, np.exp(np.where(kept, scaled - most, 0)), 0)
    total = e.sum(axis=call["axis"], keepdims=True)
    return np.asarray(e / np.where(total == 0, 1, total))


define(
    "MaskedSoftmax",
    "in mask",
    params=(
        Param("axis", "uint32"),
        Param("beta", "float32", default=1.0),
        Param("keep", "uint32", default=1, choices={"ZERO": 0, "NONZERO": 1}),
    ),
    infer=_infer_masked_softmax,
    reference=_masked_softmax,
    kind=Work.SOFTMAX,
    work=_passes(4, 1),
    doc="Softmax over the elements that a mask keeps, which is where it is zero or elsewhere; 0 at all others.",
)


def _check_vector(call: Call, index: int, size: int) -> None:
    if call.has(index) and call.input(index).shape != (size,):
        name = call.op.inputs[index].rstrip("?")
        raise call.fail(f"{name} has shape {list(call.input(index).shape)}, not [{size}]")


def _infer_channels(call: Call) -> tuple[TensorType, ...]:
    """Output like the input; weight and bias have one element per channel, the last axis."""
    shape = call.input(0).shape
    if not shape:
        raise call.fail("a scalar has no channels")
    _check_vector(call, 1, shape[-1])
    _check_vector(call, 2, shape[-1])
    return (TensorType(call.input(0).dtype, shape),)


def _affine(x: Array, weight: Array | None, bias: Array | None) -> Array:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _standardized(x: Array, axes: tuple[int, ...], epsilon: float, scale: bool = True) -> Array:
    """x less its mean over `axes`, divided by the standard deviation where `scale`."""
    centered = x - x.mean(axis=axes, keepdims=True)
    if not scale:
        return np.asarray(centered)
    variance = np.square(centered).mean(axis=axes, keepdims=True)
    return np.asarray(centered / np.sqrt(variance + epsilon))


def _rms(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    return np.asarray(x / np.sqrt(np.square(x).mean(axis=axes, keepdims=True) + epsilon))


define(
    "Batchnorm",
    "in weight bias?",
    infer=_infer_channels,
    reference=lambda call, x, weight, bias=None: _affine(x, weight, bias),
    kind=Work.AFFINE,
    work=_passes(1),
    doc="in * weight + bias, per channel (the last axis).",
)

_REGIONS = {"ACROSS_SPATIAL": 0, "ACROSS_CHANNEL": 1, "ACROSS_ALL": 2}


def _infer_instance_norm(call: Call) -> tuple[TensorType, ...]:
    if len(call.input(0).shape) < 3:
        raise call.fail(f"{list(call.input(0).shape)} has no spatial axes between batch and channels")
    if call["region"] not in (0, 1, 2) or call["mode"] not in (0, 1):
        raise call.fail(f"mode {call['mode']} or region {call['region']} is unknown")
    return _infer_channels(call)


def _instance_norm(call: Call, x: Array, weight: Array | None = None, bias: Array | None = None) -> Array:
    spatial, channel = tuple(range(1, x.ndim - 1)), (x.ndim - 1,)
    axes = (spatial, channel, spatial + channel)[call["region"]]
    if call["mode"] == 1:
        return _affine(_rms(x, axes, call["epsilon"]), weight, bias)
    return _affine(_standardized(x, axes, call["epsilon"], call["normalize_variance"]), weight, bias)


define(
    "InstanceNorm",
    "in weight? bias?",
    params=(
        _EPSILON,
        Param("mode", "uint32", default=0, choices={"MU_SIGMA": 0, "RMS": 1}),
        Param("normalize_variance", "bool", default=True),
        Param("region", "uint32", default=0, choices=_REGIONS),
    ),
    infer=_infer_instance_norm,
    reference=_instance_norm,
    kind=Work.IMAGE_NORM,
    work=_passes(5),
    doc="Each instance normalized over its spatial axes (or channels, or both), then weight and bias per channel.",
)


def _axes(call: Call) -> tuple[int, ...]:
    return tuple(sorted(call.axis(a) for a in call["axes"]))


def _infer_axes_norm(call: Call) -> tuple[TensorType, ...]:
    axes, shape = _axes(call), call.input(0).shape
    if not axes or len(set(axes)) != len(axes):
        raise call.fail(f"axes {list(axes)} must be given, each once")
    sizes = tuple(shape[a] for a in axes)
    for index in (1, 2):
        if call.has(index) and call.input(index).shape != sizes:
            name = call.op.inputs[index].rstrip("?")
            raise call.fail(f"{name} has shape {list(call.input(index).shape)}, not {list(sizes)} of axes {list(axes)}")
    return (TensorType(call.input(0).dtype, shape),)


def _along(x: Array, axes: tuple[int, ...], values: Array | None) -> Array | None:
    return None if values is None else values.reshape([n if i in axes else 1 for i, n in enumerate(x.shape)])


def _axes_norm(normalize: Callable[[Array, tuple[int, ...], float], Array]) -> Callable[..., Array]:
    def reference(call: Call, x: Array, weight: Array | None = None, bias: Array | None = None) -> Array:
        axes = _axes(call)
        return _affine(normalize(x, axes, call["epsilon"]), _along(x, axes, weight), _along(x, axes, bias))

    return reference


for _name, _function, _doc in (
    ("LayerNorm", _axes_norm(_standardized), "Less the mean, divided by the standard deviation over `axes`."),
    ("RmsNorm", _axes_norm(_rms), "Divided by the root of the mean square over `axes`."),
):
    define(
        _name,
        "in weight? bias?",
        params=(_EPSILON, _AXES),
        infer=_infer_axes_norm,
        reference=_function,
        kind=Work.NORM,
        work=_passes(5),
        doc=f"{_doc} Then times weight plus bias.",
    )


def _infer_group_norm(call: Call) -> tuple[TensorType, ...]:
    (out,) = _infer_channels(call)
    if len(out.shape) < 2 or call["group"] < 1 or out.shape[-1] % call["group"]:
        raise call.fail(f"the channels of {list(out.shape)} do not divide into {call['group']} groups")
    return (out,)


def _group_norm(call: Call, x: Array, weight: Array | None = None, bias: Array | None = None) -> Array:
    grouped = x.reshape(x.shape[0], -1, call["group"], x.shape[-1] // call["group"])
    return _affine(_standardized(grouped, (1, 3), call["epsilon"]).reshape(x.shape), weight, bias)


define(
    "GroupNorm",
    "in weight? bias?",
    params=(_EPSILON, Param("group", "uint32")),
    infer=_infer_group_norm,
    reference=_group_norm,
    kind=Work.IMAGE_NORM,
    work=_passes(5),
    doc="Each group of channels of each instance normalized, then weight and bias per channel.",
)


def _l2_norm(call: Call, x: Array) -> Array:
    norm = np.sqrt(np.square(x).sum(axis=_axes(call), keepdims=True))
    return np.asarray(x / np.maximum(norm, call["epsilon"]))


define(
    "L2Norm",
    "in",
    params=(_AXES, _EPSILON),
    infer=_infer_axes_norm,
    reference=_l2_norm,
    kind=Work.NORM,
    work=_passes(3),
    layout=Layout(free=True, params={"axes": Follows.AXES}),
    doc="Divided by the larger of epsilon and the Euclidean norm over `axes`.",
)


def _infer_lrn(call: Call) -> tuple[TensorType, ...]:
    shape = call.input(0).shape
    if call["radius"] < 0 or call["region"] not in (0, 1):
        raise call.fail(f"radius {call['radius']} or region {call['region']} is out of range")
    if call["region"] == 1 and len(shape) < 3:
        raise call.fail(f"{list(shape)} has no spatial axes between batch and channels")
    return (TensorType(call.input(0).dtype, shape),)


def _lrn(call: Call, x: Array) -> Array:
    total = np.square(x)
    axes = (x.ndim - 1,) if call["region"] == 0 else range(1, x.ndim - 1)
    for axis in axes:
        # a window wider than the axis covers all of it: shifts beyond the axis add nothing
        radius, size = min(int(call["radius"]), x.shape[axis] - 1), x.shape[axis]
        square, total = total, total.copy()
        for shift in range(1, radius + 1):
            for to, of in ((slice(shift, None), slice(0, size - shift)), (slice(0, size - shift), slice(shift, None))):
                target = tuple(to if i == axis else slice(None) for i in range(x.ndim))
                total[target] += square[tuple(of if i == axis else slice(None) for i in range(x.ndim))]
    return np.asarray(x / np.power(call["bias"] + call["alpha"] * total, call["beta"]))


define(
    "Lrn",
    "in",
    params=(
        Param("alpha", "float32", default=1.0),
        Param("beta", "float32", default=0.5),
        Param("bias", "float32", default=1.0),
        Param("radius", "int32"),
        Param("region", "uint32", default=0, choices={"ACROSS_CHANNEL": 0, "WITHIN_CHANNEL": 1}),
    ),
    infer=_infer_lrn,
    reference=_lrn,
    kind=Work.NORM,
    work=_passes(3, 1),
    doc="x / (bias + alpha * sum of squares within radius)^beta, along channels or over the spatial window.",
)
