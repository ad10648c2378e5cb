# SPDX-License-Identifier: Apache-2.0
"""LSTM and GRU: an op for each direction, or for each sequence where lengths differ; and STFT."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hexforge.frontends.onnx.translate.builder import Builder, binary, concat, part, scalar, translates
from hexforge.frontends.onnx.unit import Refusal, Unit
from hexforge.ir import Value

_Weights = Callable[[int], list[Value | None]]


def _checked(b: Builder, u: Unit, activations: tuple[str, ...]) -> tuple[int, ...]:
    """The directions (0 forward, 1 reverse); Refusal for what the QNN op cannot do."""
    direction = b.attr(u, "direction", "forward")
    directions = {"forward": (0,), "reverse": (1,), "bidirectional": (0, 1)}.get(direction)
    if directions is None:
        raise Refusal(f"direction {direction!r} is not forward, reverse or bidirectional")
    given = [str(a).lower() for a in b.attr(u, "activations", None) or activations * len(directions)]
    if given != [a.lower() for a in activations] * len(directions):
        raise Refusal(f"activations {', '.join(given)}; QNN has {', '.join(activations)} only")
    if b.attr(u, "clip", None):
        raise Refusal("clip limits the gates' inputs, which QNN does not; drop it")
    return directions


def _lengths(b: Builder, u: Unit, time: int) -> list[int] | None:
    """Lengths of the sequences of a batch, None where all are full."""
    given = b.constant(u, 4, "sequence_lens")
    lengths = [] if given is None else [int(n) for n in given.ravel()]
    if any(not 1 <= n <= time for n in lengths):
        raise Refusal(f"sequence_lens {lengths} are not within 1..{time}")
    return None if all(n == time for n in lengths) else lengths


def _gates(b: Builder, weights: Value, direction: int, names: str) -> dict[str, Value]:
    """A stacked weight or bias [directions, gates * hidden, ...] cut into its gates."""
    rows = part(b, weights, 0, direction, direction + 1)
    rows = b.reshape(rows, rows.shape[1:])
    hidden = rows.shape[0] // len(names)
    return {name: part(b, rows, 0, i * hidden, (i + 1) * hidden) for i, name in enumerate(names)}


def _sum(b: Builder, x: Value, y: Value) -> Value:
    if x.data is not None and y.data is not None:
        return b.static(x.data + y.data, name=f"{x.name}_sum")
    return binary(b, "Add", x, y)


def _state(b: Builder, u: Unit, index: int, direction: int, axis: int) -> Value | None:
    """The initial state [batch, hidden] of a direction; `axis` is the one of the directions."""
    if not b.has(u, index):
        return None
    state = part(b, b.real(u, index), axis, direction, direction + 1)
    return b.reshape(state, (state.type.size // state.shape[-1], state.shape[-1]))


def _sweep(
    b: Builder, op: str, x: Value, inputs: _Weights, lengths: list[int] | None, batch_axis: int, direction: int,
    **params: bool,
) -> list[Value]:  # fmt: skip
    """One direction over all sequences; `inputs(i)` gives the op's other inputs for sequence i (-1: all)."""
    params = {**params, "time_major": batch_axis == 1}
    if lengths is None:
        return [*b.emit_many(op, [x, *inputs(-1)], None, direction=direction, **params)]
    rows: list[list[Value]] = []
    time = x.shape[1 - batch_axis]
    for i, length in enumerate(lengths):
        row = part(b, part(b, x, batch_axis, i, i + 1), 1 - batch_axis, 0, length)
        out, *states = b.emit_many(op, [row, *inputs(i)], None, direction=direction, **params)
        if length < time:
            amount = [(0, time - length if axis == 1 - batch_axis else 0) for axis in range(3)]
            out = b.emit("Pad", [out], scheme=0, pad_amount=amount)
        rows.append([out, *states])
    whole = concat(b, [row[0] for row in rows], batch_axis)
    return [whole, *(concat(b, [row[i] for row in rows], 0) for i in range(1, len(rows[0])))]


def _row(b: Builder, state: Value | None, index: int) -> Value | None:
    return state if state is None or index < 0 else part(b, state, 0, index, index + 1)


def _write(b: Builder, u: Unit, results: Sequence[Sequence[Value]], order: Sequence[int], layout: int) -> None:
    """Y with an axis for the directions, then the final states, each where the node asks for it."""
    for index, which in enumerate(order):
        if not b.wants(u, index):
            continue
        values = [result[which] for result in results]
        axis = (2 if layout else 1) if index == 0 else (1 if layout else 0)
        shaped = [b.reshape(v, (*v.shape[:axis], 1, *v.shape[axis:])) for v in values]
        b.finish(u, concat(b, shaped, axis), index)


@translates("LSTM", writes=("Concat", "ElementWiseAdd", "Lstm", "Pad", "StridedSlice"))
def lstm(b: Builder, u: Unit) -> None:
    """Lstm per direction; peepholes and both layouts."""
    directions, layout = _checked(b, u, ("Sigmoid", "Tanh", "Tanh")), int(b.attr(u, "layout", 0))
    if b.attr(u, "input_forget", 0):
        raise Refusal("input_forget couples the forget gate to the input gate; QNN couples them the other way")
    x, weights, recurrent = (b.real(u, i) for i in range(3))
    lengths = _lengths(b, u, x.shape[layout])
    results = []
    for i, direction in enumerate(directions):
        w, r = _gates(b, weights, i, "iofc"), _gates(b, recurrent, i, "iofc")
        if b.has(u, 3):
            halves = _gates(b, b.real(u, 3), i, "iofcIOFC")
            bias = {g: _sum(b, halves[g], halves[g.upper()]) for g in "iofc"}
        else:
            none = b.static(np.broadcast_to(np.zeros(1, x.dtype.numpy), w["i"].shape[:1]))
            bias = dict.fromkeys("iofc", none)
        peep: dict[str, Value] = _gates(b, b.real(u, 7), i, "iof") if b.has(u, 7) else {}
        h, c = (_state(b, u, index, i, 1 if layout else 0) for index in (5, 6))
        gates = [s[g] for s in (w, r, bias) for g in "fco"]
        tail = [None] * 4 + [w["i"], r["i"], peep.get("i"), peep.get("f"), peep.get("o"), bias["i"]]

        def inputs(
            row: int,
            gates: list[Value] = gates,
            states: tuple[Value | None, ...] = (h, c),
            tail: list[Value | None] = tail,
        ) -> list[Value | None]:
            return [*gates, *(_row(b, s, row) for s in states), *tail]

        results.append(_sweep(b, "Lstm", x, inputs, lengths, 0 if layout else 1, direction))
    _write(b, u, results, (0, 2, 1), layout)


@translates("GRU", writes=("Concat", "Gru", "Pad", "StridedSlice"))
def gru(b: Builder, u: Unit) -> None:
    """Gru per direction."""
    directions, layout = _checked(b, u, ("Sigmoid", "Tanh")), int(b.attr(u, "layout", 0))
    x, weights, recurrent = (b.real(u, i) for i in range(3))
    lengths = _lengths(b, u, x.shape[layout])
    results = []
    for i, direction in enumerate(directions):
        w, r = _gates(b, weights, i, "zrn"), _gates(b, recurrent, i, "zrn")
        bias: list[Value | None] = [None] * 6
        if b.has(u, 3):
            bias = [*_gates(b, b.real(u, 3), i, "zrnZRN").values()]
        gates = [*w.values(), *r.values(), *bias]
        h = _state(b, u, 5, i, 1 if layout else 0)

        def inputs(row: int, gates: list[Value | None] = gates, h: Value | None = h) -> list[Value | None]:
            return [*gates, _row(b, h, row)]

        linear = bool(b.attr(u, "linear_before_reset", 0))
        results.append(_sweep(b, "Gru", x, inputs, lengths, 0 if layout else 1, direction, linear_before_reset=linear))
    _write(b, u, results, (0, 1), layout)


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
