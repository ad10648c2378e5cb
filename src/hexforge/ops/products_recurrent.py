# SPDX-License-Identifier: Apache-2.0
"""Recurrent ops: Lstm and Gru over a whole sequence. Inputs are projected in one product, only time is a loop."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hexforge.ir import Array, Call, Measure, Param, TensorType, Work, define

_DIRECTION = Param("direction", "uint32", default=0, choices={"FORWARD": 0, "REVERSE": 1})
_TIME_MAJOR = Param("time_major", "bool", default=False)

_LSTM_INPUTS = (
    "in",
    "W_xf", "W_xc", "W_xo", "W_hf", "W_hc", "W_ho", "b_f", "b_c", "b_o", "h0?", "c0?",
    "norm_i?", "norm_f?", "norm_c?", "norm_o?", "W_xi?", "W_hi?", "W_ci?", "W_cf?", "W_co?", "b_i?",
    "W_proj?", "b_proj?", "reset?",
)  # fmt: skip
_LSTM = {name.rstrip("?"): i for i, name in enumerate(_LSTM_INPUTS)}
_GRU_INPUTS = (
    "in", "W_xz", "W_xr", "W_xn", "W_hz", "W_hr", "W_hn", "b_xz?", "b_xr?", "b_xn?", "b_hz?", "b_hr?", "b_hn?", "h0?",
)  # fmt: skip
_GRU = {name.rstrip("?"): i for i, name in enumerate(_GRU_INPUTS)}


def _sigmoid(x: Array) -> Array:
    return np.asarray(0.5 * np.tanh(0.5 * x) + 0.5)  # no overflow for any x


def _sequence(call: Call) -> tuple[int, int, int]:
    """Time steps, batch and features of the input."""
    shape = call.input(0).shape
    if len(shape) != 3:
        order = "[time, batch, features]" if call["time_major"] else "[batch, time, features]"
        raise call.fail(f"in has shape {list(shape)}, not {order}")
    if call["direction"] not in (0, 1):
        raise call.fail(f"direction {call['direction']} is neither FORWARD (0) nor REVERSE (1)")
    return (shape[0], shape[1], shape[2]) if call["time_major"] else (shape[1], shape[0], shape[2])


def _check(call: Call, index: int, *shapes: tuple[int, ...]) -> None:
    if call.has(index) and call.input(index).shape not in shapes:
        name = call.op.inputs[index].rstrip("?")
        raise call.fail(f"{name} has shape {list(call.input(index).shape)}, not {list(shapes[0])}")


def _infer_lstm(call: Call) -> tuple[TensorType, ...]:
    time, batch, features = _sequence(call)
    units = call.input(1).shape[0] if call.input(1).shape else 0
    projected = call.has(_LSTM["W_proj"])
    size = call.input(_LSTM["W_proj"]).shape[0] if projected else units
    for name, index in _LSTM.items():
        if name.startswith("W_x"):
            _check(call, index, (units, features))
        elif name.startswith("W_h"):
            _check(call, index, (units, size))
        elif name.startswith(("W_c", "norm_")) or name in ("b_f", "b_c", "b_o", "b_i"):
            _check(call, index, (units,))
    _check(call, _LSTM["h0"], (batch, size), (1, batch, size))
    _check(call, _LSTM["c0"], (batch, units), (1, batch, units))
    _check(call, _LSTM["W_proj"], (size, units))
    _check(call, _LSTM["b_proj"], (size,))
    if call.has(_LSTM["W_xi"]) != call.has(_LSTM["W_hi"]):
        raise call.fail("W_xi and W_hi must be given together, or neither (the input gate is then 1 - forget gate)")
    dtype = call.input(0).dtype
    whole = (time, batch, size) if call["time_major"] else (batch, time, size)
    return TensorType(dtype, whole), TensorType(dtype, (batch, units)), TensorType(dtype, (batch, size))


def _normalized(x: Array, weight: Array) -> Array:
    centered = x - x.mean(axis=-1, keepdims=True)
    return np.asarray(centered / np.sqrt(np.square(centered).mean(axis=-1, keepdims=True) + 1e-8) * weight)


def _state(given: Array | None, shape: tuple[int, int], like: Array, cleared: bool) -> Array:
    return np.zeros(shape, like.dtype) if given is None or cleared else given.reshape(shape)


def _lstm(call: Call, *arrays: Array | None) -> tuple[Array, Array, Array]:
    given = dict(zip(_LSTM, (*arrays, *[None] * (len(_LSTM) - len(arrays))), strict=True))
    x = given["in"]
    assert x is not None
    x = x if call["time_major"] else np.swapaxes(x, 0, 1)
    time, batch, _ = x.shape
    gates = [g for g in "ifco" if given[f"W_x{g}"] is not None]
    inputs = np.concatenate([given[f"W_x{g}"] for g in gates])
    hidden = np.concatenate([given[f"W_h{g}"] for g in gates]).T
    units, size = inputs.shape[0] // len(gates), hidden.shape[0]
    cleared = given["reset"] is not None and bool(np.any(given["reset"]))
    h, c = _state(given["h0"], (batch, size), x, cleared), _state(given["c0"], (batch, units), x, cleared)
    projected = np.matmul(x, inputs.T)
    normalized = any(given[f"norm_{g}"] is not None for g in gates)
    biases = {g: given[f"b_{g}"] for g in gates}
    if not normalized:  # the biases are the same at every step
        projected += np.concatenate([b if (b := biases[g]) is not None else np.zeros(units, x.dtype) for g in gates])

    def activate(gate: str, value: Array, cell: Array) -> Array:
        peephole = given.get(f"W_c{gate}")
        value = value if peephole is None else value + peephole * cell
        norm, bias = given[f"norm_{gate}"], biases[gate]
        value = value if norm is None else _normalized(value, norm)
        value = value if bias is None or not normalized else value + bias
        return np.tanh(value) if gate == "c" else _sigmoid(value)

    out = np.empty((time, batch, size), x.dtype)
    for t in range(time)[:: -1 if call["direction"] == 1 else 1]:
        steps = dict(zip(gates, np.split(projected[t] + h @ hidden, len(gates), axis=1), strict=True))
        forget = activate("f", steps["f"], c)
        admit = activate("i", steps["i"], c) if "i" in steps else 1 - forget
        c = forget * c + admit * activate("c", steps["c"], c)
        if call["cell_clip_threshold"] > 0:
            c = np.clip(c, -call["cell_clip_threshold"], call["cell_clip_threshold"])
        h = activate("o", steps["o"], c) * np.tanh(c)
        if given["W_proj"] is not None:
            h = h @ given["W_proj"].T
            h = h if given["b_proj"] is None else h + given["b_proj"]
            if call["output_clip_threshold"] > 0:
                h = np.clip(h, -call["output_clip_threshold"], call["output_clip_threshold"])
        out[t] = h
    return (out if call["time_major"] else np.swapaxes(out, 0, 1)), c, h


def _macs(call: Call) -> int:
    """Every weight matrix is multiplied once per step and batch."""
    time, batch, _ = _sequence(call)
    return time * batch * sum(t.size for t in call.ins[1:] if t is not None and len(t.shape) == 2)


def _gates(functions: int) -> Callable[[Call], int]:
    """A few functions per unit, step and batch."""

    def count(call: Call) -> int:
        time, batch, _ = _sequence(call)
        return functions * time * batch * call.input(1).shape[0]

    return count


_WORK = Measure(macs=_macs, lanes=_gates(6), lookups=_gates(5))


define(
    "Lstm",
    " ".join(_LSTM_INPUTS),
    "out c h",
    params=(
        _DIRECTION,
        Param("cell_clip_threshold", "float32", default=0.0),
        Param("output_clip_threshold", "float32", default=0.0),
        _TIME_MAJOR,
    ),
    infer=_infer_lstm,
    reference=_lstm,
    kind=Work.RECURRENT,
    work=_WORK,
    doc="Long short-term memory; peepholes, layer norm and projection where given, coupled gates without W_xi.",
)


def _infer_gru(call: Call) -> tuple[TensorType, ...]:
    time, batch, features = _sequence(call)
    units = call.input(1).shape[0] if call.input(1).shape else 0
    for name, index in _GRU.items():
        if name.startswith("W_x"):
            _check(call, index, (units, features))
        elif name.startswith("W_h"):
            _check(call, index, (units, units))
        elif name.startswith("b_"):
            _check(call, index, (units,))
    _check(call, _GRU["h0"], (batch, units), (1, batch, units))
    whole = (time, batch, units) if call["time_major"] else (batch, time, units)
    return TensorType(call.input(0).dtype, whole), TensorType(call.input(0).dtype, (batch, units))


def _gru(call: Call, *arrays: Array | None) -> tuple[Array, Array]:
    given = dict(zip(_GRU, (*arrays, *[None] * (len(_GRU) - len(arrays))), strict=True))
    x = given["in"]
    assert x is not None
    x = x if call["time_major"] else np.swapaxes(x, 0, 1)
    time, batch, _ = x.shape
    weights = {kind: np.concatenate([given[f"W_{kind}{g}"] for g in "zrn"]).T for kind in "xh"}
    units = weights["h"].shape[0]
    zeros = np.zeros(units, x.dtype)
    bias = {k: np.concatenate([b if (b := given[f"b_{k}{g}"]) is not None else zeros for g in "zrn"]) for k in "xh"}
    projected = np.matmul(x, weights["x"]) + bias["x"]
    h = _state(given["h0"], (batch, units), x, cleared=False)
    out = np.empty((time, batch, units), x.dtype)
    gates = slice(0, 2 * units)
    for t in range(time)[:: -1 if call["direction"] == 1 else 1]:
        if call["linear_before_reset"]:
            recurrent = h @ weights["h"] + bias["h"]
            update, reset = np.split(_sigmoid(projected[t][:, gates] + recurrent[:, gates]), 2, axis=1)
            new = np.tanh(projected[t][:, 2 * units :] + reset * recurrent[:, 2 * units :])
        else:
            recurrent = h @ weights["h"][:, gates] + bias["h"][gates]
            update, reset = np.split(_sigmoid(projected[t][:, gates] + recurrent), 2, axis=1)
            recurrent = (reset * h) @ weights["h"][:, 2 * units :] + bias["h"][2 * units :]
            new = np.tanh(projected[t][:, 2 * units :] + recurrent)
        h = out[t] = (1 - update) * new + update * h
    return (out if call["time_major"] else np.swapaxes(out, 0, 1)), h


define(
    "Gru",
    " ".join(_GRU_INPUTS),
    "out h",
    params=(_DIRECTION, Param("linear_before_reset", "bool", default=False), _TIME_MAJOR),
    infer=_infer_gru,
    reference=_gru,
    kind=Work.RECURRENT,
    work=_WORK,
    doc="Gated recurrent unit: update, reset and new gates; linear_before_reset resets after the product.",
)
