"""Fusions of arithmetic: activations and normalizations spelled out in elementwise ops.

They are matched only where no value between the ops is quantized, so that nothing but float rounding changes. A DQ
before and a Q after them are taken in.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from hexforge.frontends.onnx.fusions.net import Fusion, Net, attribute, known, near, other, plain, scalar, shape
from hexforge.frontends.onnx.translate.builder import TRANSLATORS, Builder, Translator
from hexforge.frontends.onnx.units.unit import Operand, Refusal, Unit
from hexforge.ir import Array, ScaleOffset

_DQ = ("DequantizeLinear", "com.microsoft:DequantizeLinear")
_Q = ("QuantizeLinear", "com.microsoft:QuantizeLinear")


def _plain_reader(net: Net, unit: Unit | None, *ops: str) -> Unit | None:
    found = net.reader(unit, *ops)
    return found if plain(found) else None


def _simple(op: str) -> Translator:
    def write(b: Builder, u: Unit) -> None:
        b.emit(op, [b.input(u, 0)], b.output(u))

    return write


# -- DQ -> Q ----------------------------------------------------------------------------------------------------


def _convert(net: Net, dq: Unit) -> Unit | None:
    q = net.reader(dq, *_Q)
    if q is None or "refuse" in dq.extra or "refuse" in q.extra or dq.kind != "node" or q.kind != "node":
        return None
    source, middle, target = dq.inputs[0], dq.outputs[0], q.outputs[0]
    if source is None or target is None or q.inputs[0] is None or middle is None:
        return None
    if q.inputs[0].value is not middle.value:
        return None
    if not isinstance(source.encoding, ScaleOffset) or not isinstance(target.encoding, ScaleOffset):
        return None
    return net.join("Convert", [dq, q], [source], [target])


# -- activations ------------------------------------------------------------------------------------------------


def _hard_swish(net: Net, gate: Unit) -> Unit | None:
    mul = _plain_reader(net, gate, "Mul")
    if not plain(gate) or mul is None:
        return None
    if not near(attribute(gate, "alpha", 0.2), 1 / 6) or not near(attribute(gate, "beta", 0.5), 0.5):
        return None
    index = other(mul, gate.outputs[0])
    x = gate.inputs[0]
    if index is None or x is None or not _same(mul.inputs[index], x):
        return None
    return net.quantized(net.join("HardSwish", [gate, mul], [x], mul.outputs))


def _same(a: Operand | None, b: Operand | None) -> bool:
    return a is not None and b is not None and a.value is b.value


def _erf_gelu(net: Net, erf: Unit) -> Unit | None:
    """x (1 + erf(x / sqrt 2)) / 2 with the product in any of its three orders."""
    scaled = net.before(erf.inputs[0], "Div", "Mul") if plain(erf) else None
    if scaled is None or not plain(scaled):
        return None
    x = _scaled_input(scaled)
    plus = _plain_reader(net, erf, "Add")
    if x is None or plus is None:
        return None
    one = other(plus, erf.outputs[0])
    product = _plain_reader(net, plus, "Mul")
    if one is None or not near(scalar(plus, one), 1.0) or product is None:
        return None
    second = other(product, plus.outputs[0])
    if second is None:
        return None
    core = [scaled, erf, plus, product]
    factor = product.inputs[second]
    half = net.before(factor, "Mul")
    if half is not None and plain(half) and _same(_halved(half), x):  # (x / 2) * (1 + erf)
        return _gelu(net, [*core, half], x, product)
    last = _plain_reader(net, product, "Mul")
    if last is None:
        return None
    third = other(last, product.outputs[0])
    if third is None:
        return None
    if _same(factor, x) and near(scalar(last, third), 0.5):  # x * (1 + erf) / 2
        return _gelu(net, [*core, last], x, last)
    if near(scalar(product, second), 0.5) and _same(last.inputs[third], x):  # x * ((1 + erf) / 2)
        return _gelu(net, [*core, last], x, last)
    return None


def _gelu(net: Net, parts: list[Unit], x: Operand, last: Unit) -> Unit | None:
    if shape(x) != shape(last.outputs[0]):
        return None
    return net.quantized(net.join("Gelu", parts, [x], last.outputs))


def _scaled_input(unit: Unit) -> Operand | None:
    """x of x / sqrt 2, or of x * sqrt 1/2."""
    if unit.op == "Div":
        return unit.inputs[0] if near(scalar(unit, 1), math.sqrt(2)) else None
    return next((unit.inputs[1 - i] for i in (0, 1) if near(scalar(unit, i), math.sqrt(0.5))), None)


def _halved(unit: Unit) -> Operand | None:
    return next((unit.inputs[1 - i] for i in (0, 1) if near(scalar(unit, i), 0.5)), None)


def _scaled_softmax(net: Net, mul: Unit) -> Unit | None:
    """Softmax of x times a constant; a Div is the product with the reciprocal."""
    softmax = _plain_reader(net, mul, "Softmax")
    if not plain(mul) or softmax is None:
        return None
    index = 1 if mul.op == "Div" or scalar(mul, 1) is not None else 0
    factor, x = scalar(mul, index), mul.inputs[1 - index]
    if factor is None or not math.isfinite(factor) or factor == 0 or shape(x) != shape(mul.outputs[0]):
        return None
    beta = 1 / factor if mul.op == "Div" else factor
    whole = net.quantized(net.join("ScaledSoftmax", [mul, softmax], [x], softmax.outputs, beta=beta))
    # the axis and opset are the Softmax's, also where a Q behind it was taken in
    return None if whole is None else replace(whole, target=softmax.target)


def _write_scaled_softmax(b: Builder, u: Unit) -> None:
    before = set(b.graph.nodes)
    translate = TRANSLATORS.get("Softmax")
    if translate is None:
        raise Refusal("QNN EP has no op builder for Softmax")
    translate(b, u)
    for node in b.graph.nodes:
        if node not in before and node.op.name == "Softmax":
            node.params["beta"] = float(u.extra["beta"])


# -- normalizations ---------------------------------------------------------------------------------------------


def _axes(unit: Unit) -> tuple[int, ...] | None:
    """Axes of a reduction with keepdims=1, counted from the front; None where they are not known."""
    size = shape(unit.inputs[0])
    if size is None or attribute(unit, "keepdims", 1) != 1:
        return None
    given = attribute(unit, "axes")
    if given is None:
        data = known(unit, 1)
        given = None if data is None else data.ravel().tolist()
    if not given:
        return None
    return tuple(sorted(int(a) % len(size) for a in given))


def _layer_norm(net: Net, mean: Unit) -> Unit | None:
    """(x - mean) / sqrt(mean((x - mean)^2) + epsilon), then weight and bias."""
    x, axes = mean.inputs[0], _axes(mean) if plain(mean) else None
    centered = _plain_reader(net, mean, "Sub")
    if axes is None or x is None or centered is None or not _same(centered.inputs[0], x):
        return None
    if not _same(centered.inputs[1], mean.outputs[0]):
        return None
    square = next(
        (r for r in net.readers(centered.outputs[0]) if r is not None and plain(r) and _is_square(r, centered)), None
    )
    variance = _plain_reader(net, square, "ReduceMean")
    plus = _plain_reader(net, variance, "Add")
    root = _plain_reader(net, plus, "Sqrt")
    divide = _plain_reader(net, root, "Div")
    if square is None or variance is None or plus is None or root is None or divide is None:
        return None
    index = other(plus, variance.outputs[0])
    epsilon = None if index is None else scalar(plus, index)
    if epsilon is None or epsilon <= 0 or _axes(variance) != axes:
        return None
    if not _same(divide.inputs[0], centered.outputs[0]) or not _same(divide.inputs[1], root.outputs[0]):
        return None
    parts = [mean, centered, square, variance, plus, root, divide]
    size = shape(x)
    assert size is not None
    weight, bias, last = None, None, divide
    scaled = _parameter(net, divide, "Mul", tuple(size[a] for a in axes), axes, len(size))
    if scaled is not None:
        parts.append(scaled[0])
        last, weight = scaled
        shifted = _parameter(net, last, "Add", tuple(size[a] for a in axes), axes, len(size))
        if shifted is not None:
            parts.append(shifted[0])
            last, bias = shifted
    inputs = [x, weight, bias]
    return net.quantized(net.join("LayerNorm", parts, inputs, last.outputs, axes=axes, epsilon=epsilon))


def _is_square(unit: Unit, of: Unit) -> bool:
    if unit.op == "Pow":
        return _same(unit.inputs[0], of.outputs[0]) and scalar(unit, 1) == 2.0
    return unit.op == "Mul" and all(_same(o, of.outputs[0]) for o in unit.inputs)


def _parameter(
    net: Net, unit: Unit, op: str, sizes: tuple[int, ...], axes: tuple[int, ...], rank: int
) -> tuple[Unit, Operand] | None:
    """The Mul or Add of a constant that runs along the (last) normalized axes, and that constant."""
    found = _plain_reader(net, unit, op)
    index = None if found is None else other(found, unit.outputs[0])
    if found is None or index is None or known(found, index) is None or axes[-1] != rank - 1:
        return None
    operand = found.inputs[index]
    given = shape(operand)
    if operand is None or given != sizes or axes != tuple(range(rank - len(axes), rank)):
        return None
    return found, operand


def _write_layer_norm(b: Builder, u: Unit) -> None:
    x, weight, bias = b.input(u, 0), b.optional(u, 1), b.optional(u, 2)
    if bias is not None and weight is None:
        weight = b.static(np.ones(bias.shape, np.float32))
    b.emit("LayerNorm", [x, weight, bias], b.output(u), axes=u.extra["axes"], epsilon=float(u.extra["epsilon"]))


def _l2_norm(net: Net, norm: Unit) -> Unit | None:
    """x / max(|x|, epsilon); the sum |x| + epsilon is another number and stays as it is."""
    axes, x = _axes(norm) if plain(norm) else None, norm.inputs[0]
    limit = _plain_reader(net, norm, "Max", "Clip")
    if axes is None or x is None or limit is None:
        return None
    if limit.op == "Max":
        index = other(limit, norm.outputs[0])
        epsilon = None if index is None else scalar(limit, index)
    else:
        given = attribute(limit, "min")
        epsilon = scalar(limit, 1) if given is None else float(given)
        upper = attribute(limit, "max") is not None or (len(limit.inputs) > 2 and limit.inputs[2] is not None)
        if upper:
            return None
    if epsilon is None or epsilon <= 0:
        return None
    parts = [norm, limit]
    expand = _plain_reader(net, limit, "Expand")
    if expand is not None:
        parts.append(expand)
    divide = _plain_reader(net, parts[-1], "Div")
    if divide is None or not _same(divide.inputs[0], x) or not _same(divide.inputs[1], parts[-1].outputs[0]):
        return None
    if shape(divide.outputs[0]) != shape(x):
        return None
    return net.quantized(net.join("L2Norm", [*parts, divide], [x], divide.outputs, axes=axes, epsilon=epsilon))


def _write_l2_norm(b: Builder, u: Unit) -> None:
    b.emit("L2Norm", [b.input(u, 0)], b.output(u), axes=u.extra["axes"], epsilon=float(u.extra["epsilon"]))


def _group_norm(net: Net, norm: Unit) -> Unit | None:
    """Channels reshaped into groups, normalized as if a group were one channel, reshaped back; weight and bias."""
    into, back = net.before(norm.inputs[0], "Reshape"), _plain_reader(net, norm, "Reshape")
    if into is None or back is None or not plain(into) or not plain(norm):
        return None
    x = into.inputs[0]
    size, grouped = shape(x), shape(into.outputs[0])
    scale, shift = known(norm, 1), known(norm, 2)
    if x is None or size is None or grouped is None or scale is None or shift is None:
        return None
    if len(size) < 3 or len(grouped) < 3 or shape(back.outputs[0]) != size or grouped[0] != size[0]:
        return None
    if grouped[1] < 1 or size[1] % grouped[1]:
        return None
    weight, bias = (np.repeat(v, size[1] // grouped[1]) for v in (scale, shift))
    parts, last = [into, norm, back], back
    scaled = _per_channel(net, last, "Mul", size)
    if scaled is not None:
        last, factor = scaled
        parts.append(last)
        weight, bias = weight * factor, bias * factor
    shifted = _per_channel(net, last, "Add", size)
    if shifted is not None:
        last, term = shifted
        parts.append(last)
        bias = bias + term
    epsilon = float(attribute(norm, "epsilon", 1e-5))
    extra = {"group": grouped[1], "epsilon": epsilon, "weight": weight, "bias": bias}
    return net.quantized(net.join("GroupNorm", parts, [x], last.outputs, **extra))


def _per_channel(net: Net, unit: Unit, op: str, size: tuple[int, ...]) -> tuple[Unit, Array] | None:
    """The Mul or Add of a constant for each channel of a channel-first tensor, and that constant."""
    found = _plain_reader(net, unit, op)
    index = None if found is None else other(found, unit.outputs[0])
    data = None if found is None or index is None else known(found, index)
    if found is None or data is None or shape(found.outputs[0]) != size:
        return None
    given = (1,) * (len(size) - data.ndim) + data.shape
    if given[1] not in (1, size[1]) or math.prod(given) != given[1]:
        return None
    return found, np.broadcast_to(data.ravel(), (size[1],))


def _write_group_norm(b: Builder, u: Unit) -> None:
    x, out = b.to_channel_last(b.input(u, 0)), b.output(u)
    inputs = [x, b.static(u.extra["weight"]), b.static(u.extra["bias"])]
    group, epsilon = u.extra["group"], u.extra["epsilon"]
    b.to_channel_first(b.emit("GroupNorm", inputs, out.type.with_shape(x.shape), group=group, epsilon=epsilon), out)


FUSIONS: tuple[Fusion, ...] = (
    Fusion("Convert", _DQ, _convert, _simple("Convert"), ("Convert",)),
    Fusion("HardSwish", ("HardSigmoid",), _hard_swish, _simple("HardSwish"), ("HardSwish",)),
    Fusion("Gelu", ("Erf",), _erf_gelu, _simple("Gelu"), ("Gelu",)),
    Fusion("ScaledSoftmax", ("Mul", "Div"), _scaled_softmax, _write_scaled_softmax, ("Softmax",)),
    Fusion("LayerNorm", ("ReduceMean",), _layer_norm, _write_layer_norm, ("LayerNorm",)),
    Fusion("GroupNorm", ("InstanceNormalization",), _group_norm, _write_group_norm, ("GroupNorm",)),
    Fusion("L2Norm", ("ReduceL2",), _l2_norm, _write_l2_norm, ("L2Norm",)),
)
