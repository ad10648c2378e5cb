# SPDX-License-Identifier: Apache-2.0
"""Lstm and Gru: weights of all gates side by side; fixed-point tensors go through float."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hexforge.backends.htp.numbers.halves import LARGEST_FLOAT16, matrix_half
from hexforge.backends.htp.numbers.lower.adapt import half_table, real
from hexforge.backends.htp.numbers.lower.native_steps import Lowering, lowers
from hexforge.backends.htp.numbers.storage import Storage
from hexforge.ir import Array, Node, Value


def _constants(node: Node) -> dict[str, Array] | None:
    """The weights and biases by name as float16 values; None where one is computed at run time, or past float16."""
    by_name = {}
    for name, value in zip((n.rstrip("?") for n in node.op.inputs), node.inputs, strict=False):
        if value is None or name in ("in", "h0", "c0"):
            continue
        if value.data is None:
            return None
        by_name[name] = matrix_half(real(value))
        if np.any(np.abs(by_name[name]) > LARGEST_FLOAT16):
            return None
    return by_name


def _input(lowering: Lowering, value: Value) -> Value | str | None:
    """A tensor as float16 values."""
    own = lowering.storage(value)
    if own.kind == "f32":
        return value
    if not own.fixed:
        return None
    like = Storage("f32", np.dtype(np.float32), own.shape)
    wide, ready = lowering.temp(like, value.name), lowering.temp(like, value.name)
    scale = float(np.float32(own.scale))
    lowering.emit(f"dequantize_{own.kind}", [value], [wide], count=own.size, scale=scale, zero_point=own.zero_point)
    lowering.emit("round_half", [wide], [ready], count=own.size)
    return ready


def _write(lowering: Lowering, node: Node, step: str, ins: list[Value | str], attributes: dict[str, Any]) -> bool:
    """Write the step; outputs in fixed point are quantized afterwards."""
    outs: list[Value | str] = []
    after: list[tuple[str, Value, Storage]] = []
    for value in node.outputs:
        own = lowering.storage(value)
        if own.kind == "f32":
            outs.append(value)
        elif own.fixed:
            name = lowering.temp(replace(own, kind="f32", dtype=np.dtype(np.float32)), value.name)
            outs.append(name)
            after.append((name, value, own))
        else:
            return False
    lowering.emit(step, ins, outs, **attributes, sigmoid=half_table("sigmoid"), tanh=half_table("tanh"))
    for name, value, own in after:
        scale = float(np.float32(own.scale))
        lowering.emit(f"quantize_{own.kind}", [name], [value], count=own.size, scale=scale, **own.output())
    return True


def _sequence(node: Node, units: int) -> dict[str, Any]:
    x = node.operand(0)
    major = bool(node.params["time_major"])
    time, batch = x.shape[:2] if major else (x.shape[1], x.shape[0])
    return {
        "time": time, "batch": batch, "features": x.shape[2], "units": units, "time_major": int(major),
        "reverse": int(node.params["direction"] == 1),
    }  # fmt: skip


def _states(lowering: Lowering, node: Node, *names: str) -> tuple[list[Value | str], dict[str, int]] | None:
    """The input and the initial states that are given."""
    order = [n.rstrip("?") for n in node.op.inputs]
    assert node.inputs[0] is not None
    first = _input(lowering, node.inputs[0])
    if first is None:
        return None
    ins, flags = [first], {}
    for name in names:
        at = order.index(name)
        value = node.inputs[at] if at < len(node.inputs) else None
        flags[f"has_{name[0]}"] = int(value is not None)
        if value is not None:
            ready = _input(lowering, value)
            if ready is None:
                return None
            ins.append(ready)
    return ins, flags


@lowers("Lstm")
def lstm(lowering: Lowering, node: Node) -> bool:
    """Long short-term memory with peepholes, projection and coupled gates; layer norm and reset are the reference's."""
    given = _constants(node)
    if given is None or "reset" in given or any(name.startswith("norm_") for name in given):
        return False
    gates = [g for g in "ifco" if f"W_x{g}" in given]
    units, size = given["W_xf"].shape[0], given["W_hf"].shape[1]
    zeros = np.zeros(units, np.float32)
    states = _states(lowering, node, "h0", "c0")
    if states is None:
        return False
    attributes: dict[str, Any] = {
        **_sequence(node, units), **states[1], "size": size, "gates": len(gates),
        "wx": np.ascontiguousarray(np.concatenate([given[f"W_x{g}"] for g in gates]).T),
        "wh": np.ascontiguousarray(np.concatenate([given[f"W_h{g}"] for g in gates]).T),
        "bias": np.concatenate([given.get(f"b_{g}", zeros) for g in gates]),
        "cell_clip": float(node.params["cell_clip_threshold"]),
        "output_clip": float(node.params["output_clip_threshold"]),
    }  # fmt: skip
    if any(f"W_c{g}" in given for g in "ifo"):
        attributes["peephole"] = np.concatenate([given.get(f"W_c{g}", zeros) for g in "ifo"])
    if "W_proj" in given:
        attributes["projection"] = np.ascontiguousarray(given["W_proj"].T)
        attributes["projection_bias"] = given.get("b_proj", np.zeros(size, np.float32))
    return _write(lowering, node, "lstm_f32", states[0], attributes)


@lowers("Gru")
def gru(lowering: Lowering, node: Node) -> bool:
    """Gated recurrent unit, reset before or after the product."""
    given = _constants(node)
    if given is None:
        return False
    units = given["W_xz"].shape[0]
    zeros = np.zeros(units, np.float32)
    states = _states(lowering, node, "h0")
    if states is None:
        return False
    attributes: dict[str, Any] = {
        **_sequence(node, units), **states[1], "linear": int(bool(node.params["linear_before_reset"])),
        **{f"w{k}": np.ascontiguousarray(np.concatenate([given[f"W_{k}{g}"] for g in "zrn"]).T) for k in "xh"},
        **{f"bias_{k}": np.concatenate([given.get(f"b_{k}{g}", zeros) for g in "zrn"]) for k in "xh"},
    }  # fmt: skip
    return _write(lowering, node, "gru_f32", states[0], attributes)
