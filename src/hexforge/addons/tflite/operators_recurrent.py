# SPDX-License-Identifier: Apache-2.0
"""Recurrent: LSTMs, RNNs and SVDF, with the state that a file keeps between its runs.

A tensor that the file calls a variable is an input with what it is, and an output NAME/next with what it is next. An
LSTM that ONNX's operator computes is that one; all others, such as those that limit their cells, which ONNX's cannot,
are written out step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from hexforge.addons.tflite.model_file import FusedActivation
from hexforge.addons.tflite.operator_call import OperatorCall, Translation
from hexforge.ir import Array

MOST_STEPS = 512
"""Of a sequence that is written out."""
_NORM_EPSILON = 1e-8
_ONNX_ORDER = "iofc"
Step = Callable[[str], str]
"""From what a step adds by the input to what comes out of it."""


@dataclass(frozen=True, slots=True)
class Direction:
    """Where the inputs of one direction are: its weights one after the other, its states, and factors of norms."""

    weights: int
    output_state: int
    cell_state: int = -1
    norms: int = -1
    is_reverse: bool = False


_FORWARD = Direction(1, 18, 19, 20)
_BOTH_LSTM = (Direction(1, 35, 36), Direction(18, 37, 38, is_reverse=True))
_BOTH_RNN = (Direction(1, 4), Direction(5, 8, is_reverse=True))


# -- states and sequences ---------------------------------------------------------------------------------------------


def _state(call: OperatorCall, place: int, shape: Sequence[int] = ()) -> str:
    """The real numbers of a state, in another shape where one is given."""
    index = call.inputs[place]
    stored, quantization = call.writer.state(index).value, call.writer.quantization(index)
    if shape:
        stored = call.reshape(stored, shape)
    return stored if quantization is None else call.writer.dequantize(stored, index, quantization)


def _keep(call: OperatorCall, place: int, value: str, is_reshaped: bool = True) -> None:
    """A state is this after the run."""
    index = call.inputs[place]
    quantization = call.writer.quantization(index)
    kept = value if quantization is None else call.writer.quantize(value, index, quantization)
    call.writer.state(index).value = call.reshape(kept, call.tensor(place).shape) if is_reshaped else kept


def _require_state(call: OperatorCall, *places: int) -> None:
    for place in places:
        if not call.tensor(place).is_variable:
            raise call.refuse(f"its state (input {place}) is no variable; convert it again by a newer converter")


def _time_axis(call: OperatorCall) -> int | None:
    """The axis of the steps; None for an operator that does one."""
    if "time_major" not in call.options:
        return None
    if call.rank() != 3:
        raise call.refuse(f"its sequence has {call.rank()} dimensions instead of 3; the file is damaged")
    return 0 if call.options["time_major"] else 1


def _projected(call: OperatorCall, weights: Array, bias: Array | None) -> str:
    """What all steps add by their inputs, at once."""
    constants = [call.array(values, np.float32) for values in (weights, bias) if values is not None]
    if call.rank() == 2:
        return call.node("Gemm", call.read(0), *constants, transB=1)
    rows = call.as_input(call.reshape(call.read(0), [-1, weights.shape[1]]), 0)
    return call.reshape(call.node("Gemm", rows, *constants, transB=1), [*call.shape(0)[:2], weights.shape[0]])


def _over_time(call: OperatorCall, projected: str, direction: Direction, step: Step) -> str:
    """The outputs of all steps, in the order of their inputs."""
    axis = _time_axis(call)
    if axis is None:
        return step(projected)
    count = call.size(0, axis)
    if not 0 < count <= MOST_STEPS:
        raise call.refuse(f"it goes over {count} steps, of which at most {MOST_STEPS} are written out; use fewer")
    parts = call.nodes("Split", count, projected, axis=axis, num_outputs=count)
    order = range(count - 1, -1, -1) if direction.is_reverse else range(count)
    results = {number: step(parts[number]) for number in order}
    return call.node("Concat", *(results[number] for number in range(count)), axis=axis)


def _state_of_step(call: OperatorCall, place: int) -> str:
    """A state with an axis for the steps, as a step's input has it."""
    axis, shape = _time_axis(call), list(call.tensor(place).shape)
    return _state(call, place, () if axis is None else [*shape[:axis], 1, *shape[axis:]])


def _numbers(call: OperatorCall, place: int, what: str) -> Array:
    values = call.writer.real(call.inputs[place]) if call.has(place) else None
    if values is None:
        raise call.refuse(f"its {what} (input {place}) are no constant; convert it with its weights inside")
    return values


def _activation(call: OperatorCall, value: str) -> str:
    return call.activated(value, call.options["activation"])


# -- LSTM -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LstmWeights:
    """The constants of one direction by gate: input, forget, cell and output (i is missing where it is 1 - f)."""

    of_input: dict[str, Array]
    of_state: dict[str, Array]
    of_cell: dict[str, Array]
    bias: dict[str, Array]
    norm: dict[str, Array]
    projection: Array | None
    projection_bias: Array | None


def _weights(call: OperatorCall, at: Direction) -> LstmWeights:
    def by_gate(first: int, gates: str, what: str) -> dict[str, Array]:
        places = {gate: first + number for number, gate in enumerate(gates)}
        return {gate: _numbers(call, place, what) for gate, place in places.items() if call.has(place)}

    base = at.weights
    of_input, of_state = by_gate(base, "ifco", "weights"), by_gate(base + 4, "ifco", "weights of its state")
    bias = by_gate(base + 11, "ifco", "biases")
    if not of_input.keys() == of_state.keys() >= set("fco") or not bias.keys() >= of_input.keys():
        raise call.refuse("it lacks weights of a gate; the file is damaged")
    projection, projection_bias = (
        _numbers(call, place, "projection") if call.has(place) else None for place in (base + 15, base + 16)
    )
    norm = by_gate(at.norms, "ifco", "factors of norms") if at.norms >= 0 else {}
    of_cell = by_gate(base + 8, "ifo", "weights of its cell")
    return LstmWeights(of_input, of_state, of_cell, bias, norm, projection, projection_bias)


def _lstm(call: OperatorCall, at: Direction) -> str:
    """The outputs of one direction."""
    if call.options.get("diagonal"):
        raise call.refuse("its recurrent weights are diagonals, which is not translated; convert it with whole ones")
    _require_state(call, at.output_state, at.cell_state)
    weights = _weights(call, at)
    is_plain = not weights.of_cell and not weights.norm and weights.projection is None and "i" in weights.of_input
    limits = call.options["cell_clip"] > 0 or call.options["proj_clip"] > 0
    tanh = call.options["activation"] == FusedActivation.TANH
    if is_plain and tanh and not limits and _time_axis(call) is not None and not call.is_quantized():
        return _onnx_lstm(call, at, weights)
    return _written_lstm(call, at, weights)


def _onnx_lstm(call: OperatorCall, at: Direction, weights: LstmWeights) -> str:
    axis = _time_axis(call)
    stacked = [
        call.array(np.concatenate([each[gate] for gate in _ONNX_ORDER])[None], np.float32)
        for each in (weights.of_input, weights.of_state)
    ]
    bias = np.concatenate([weights.bias[gate] for gate in _ONNX_ORDER])
    both = call.array(np.concatenate([bias, np.zeros_like(bias)])[None], np.float32)
    x = call.read(0) if axis == 0 else call.transpose(call.read(0), (1, 0, 2))
    states = [_state(call, place, (1, *call.tensor(place).shape)) for place in (at.output_state, at.cell_state)]
    outputs, hidden, cell = call.nodes(
        "LSTM", 3, x, *stacked, both, "", *states,
        hidden_size=len(bias) // 4, direction="reverse" if at.is_reverse else "forward",
    )  # fmt: skip
    for place, value in ((at.output_state, hidden), (at.cell_state, cell)):
        _keep(call, place, value)
    outputs = call.node("Squeeze", outputs, call.array([1], np.int64))
    return outputs if axis == 0 else call.transpose(outputs, (1, 0, 2))


def _written_lstm(call: OperatorCall, at: Direction, weights: LstmWeights) -> str:
    gates = "".join(weights.of_input)
    state = {place: _state_of_step(call, place) for place in (at.output_state, at.cell_state)}

    def stacked(by_gate: dict[str, Array]) -> Array:
        return np.concatenate([by_gate[gate] for gate in gates])

    of_state = call.array(stacked(weights.of_state).T, np.float32)

    def step(projected: str) -> str:
        summed = call.node("Add", projected, call.node("MatMul", state[at.output_state], of_state))
        parts = dict(zip(gates, call.nodes("Split", len(gates), summed, axis=-1, num_outputs=len(gates)), strict=True))
        cell = state[at.cell_state]
        forget = call.node("Sigmoid", _gate(call, "f", parts["f"], cell, weights))
        new = _activation(call, _gate(call, "c", parts["c"], "", weights))
        if "i" in parts:
            taken = call.node("Sigmoid", _gate(call, "i", parts["i"], cell, weights))
        else:
            taken = call.node("Sub", call.array(1, np.float32), forget)
        cell = call.node("Add", call.node("Mul", forget, cell), call.node("Mul", taken, new))
        cell = _rounded(call, at.cell_state, _limited(call, cell, call.options["cell_clip"]))
        shown = call.node("Sigmoid", _gate(call, "o", parts["o"], cell, weights))
        output = call.node("Mul", shown, _activation(call, cell))
        if weights.projection is not None:
            output = call.node("MatMul", output, call.array(weights.projection.T, np.float32))
            if weights.projection_bias is not None:
                output = call.node("Add", output, call.array(weights.projection_bias, np.float32))
            output = _limited(call, output, call.options["proj_clip"])
        output = _rounded(call, at.output_state, output)
        state.update({at.output_state: output, at.cell_state: cell})
        return output

    projected = _projected(call, stacked(weights.of_input), None if weights.norm else stacked(weights.bias))
    outputs = _over_time(call, projected, at, step)
    for place, value in state.items():
        _keep(call, place, value, _time_axis(call) is not None)
    return outputs


def _gate(call: OperatorCall, name: str, value: str, cell: str, weights: LstmWeights) -> str:
    """What a gate's function is applied to: with what it sees of the cell, normalised where the file says so."""
    if cell and name in weights.of_cell:
        value = call.node("Add", value, call.node("Mul", cell, call.array(weights.of_cell[name], np.float32)))
    if not weights.norm:
        return value
    axis = call.array([-1], np.int64)
    centred = call.node("Sub", value, call.node("ReduceMean", value, axis))
    variance = call.node("ReduceMean", call.node("Mul", centred, centred), axis)
    spread = call.node("Sqrt", call.node("Add", variance, call.array(_NORM_EPSILON, np.float32)))
    scaled = call.node("Mul", call.node("Div", centred, spread), call.array(weights.norm[name], np.float32))
    return call.node("Add", scaled, call.array(weights.bias[name], np.float32))


def _limited(call: OperatorCall, value: str, limit: float) -> str:
    if limit <= 0:
        return value
    return call.node("Clip", value, call.array(-limit, np.float32), call.array(limit, np.float32))


def _rounded(call: OperatorCall, place: int, value: str) -> str:
    """A state of integers as those are, in each step."""
    return call.as_input(value, place)


def _lstm_of_one_step(call: OperatorCall) -> None:
    """One step: of the usual kernel, or of the basic one, whose states are plain inputs and outputs."""
    if call.options["kernel"] == 0:
        call.write(_lstm(call, _FORWARD))
        return
    if len(call.inputs) != 5 or len(call.outputs) != 4 or call.is_quantized():
        raise call.refuse("a basic LSTM is translated in float32; convert it to an operator for sequences")
    both = call.node("Concat", call.read(0), call.read(1), axis=-1)
    gates = call.node("Gemm", both, call.read(2), call.read(3), transB=1)
    taken, new, forget, shown = call.nodes("Split", 4, gates, axis=-1, num_outputs=4)
    kept = call.node("Mul", call.node("Sigmoid", forget), call.read(4))
    cell = call.node("Add", call.node("Mul", call.node("Sigmoid", taken), call.node("Tanh", new)), kept)
    output = call.node("Mul", call.node("Sigmoid", shown), call.node("Tanh", cell))
    for place, value in enumerate((output, cell, both, gates)):
        call.write(value, place)


def _in_one_direction(call: OperatorCall, compute: Callable[[OperatorCall, Direction], str], at: Direction) -> None:
    call.write(compute(call, at))


def _in_both_directions(call: OperatorCall, compute: Callable[[Direction], str], at: Sequence[Direction]) -> None:
    """Outputs of both, side by side where the file merges them."""
    results = [compute(each) for each in at]
    if call.options["merge"]:
        call.write(call.node("Concat", *results, axis=-1))
        return
    for place, value in enumerate(results):
        call.write(value, place)


def _lstm_both(call: OperatorCall) -> None:
    if call.has(39):
        raise call.refuse("it has an auxiliary input, which is not translated; convert it as two LSTMs")
    _in_both_directions(call, partial(_lstm, call), _BOTH_LSTM)


# -- RNN and SVDF -----------------------------------------------------------------------------------------------------


def _rnn(call: OperatorCall, at: Direction) -> str:
    """h = activation(W x + R h + b), step by step."""
    _require_state(call, at.output_state)
    if call.is_quantized():
        raise call.refuse("it is translated in float32; LiteRT has no kernel of integers for it either")
    of_input, of_state, bias = (_numbers(call, at.weights + i, "weights") for i in range(3))
    state = [_state_of_step(call, at.output_state)]

    def step(projected: str) -> str:
        product = call.node("MatMul", state[0], call.array(of_state.T, np.float32))
        state[0] = _activation(call, call.node("Add", projected, product))
        return state[0]

    outputs = _over_time(call, _projected(call, of_input, bias), at, step)
    _keep(call, at.output_state, state[0], _time_axis(call) is not None)
    return outputs


def _rnn_both(call: OperatorCall) -> None:
    if call.has(9):
        raise call.refuse("it has an auxiliary input, which is not translated; convert it as two RNNs")
    _in_both_directions(call, partial(_rnn, call), _BOTH_RNN)


def _svdf(call: OperatorCall) -> None:
    """Features of the input join the last ones of each filter, whose weighted sums are added up by ranks."""
    _require_state(call, 4)
    features, over_time, rank = (
        _numbers(call, 1, "weights"),
        _numbers(call, 2, "weights over time"),
        call.options["rank"],
    )
    count, memory = over_time.shape
    if rank <= 0 or count % rank or features.shape[0] != count:
        raise call.refuse(f"its rank {rank} does not divide {count} filters; the file is damaged")
    batch = call.size(0, 0)
    new = call.node("MatMul", call.read(0), call.array(features.T, np.float32))
    past = _state(call, 4, [batch, count, memory])
    past = call.node("Slice", past, *(call.array([n], np.int64) for n in (1, memory, 2)))
    window = call.node("Concat", past, call.node("Unsqueeze", new, call.array([2], np.int64)), axis=2)
    window = call.as_input(window, 4)
    weighted = call.node("Mul", window, call.array(over_time, np.float32))
    weighted = call.reshape(weighted, [batch, count // rank, rank * memory])
    value = call.node("ReduceSum", weighted, call.array([2], np.int64), keepdims=0)
    if call.has(3):
        value = call.node("Add", value, call.read(3))
    call.write(_activation(call, value))
    _keep(call, 4, window)


_LSTM = "activation:b cell_clip:f proj_clip:f"
RECURRENT = {
    "BIDIRECTIONAL_SEQUENCE_LSTM": Translation(_lstm_both, f"{_LSTM} merge:? time_major:?=1"),
    "BIDIRECTIONAL_SEQUENCE_RNN": Translation(_rnn_both, "time_major:? activation:b merge:?"),
    "LSTM": Translation(_lstm_of_one_step, f"{_LSTM} kernel:b"),
    "RNN": Translation(partial(_in_one_direction, compute=_rnn, at=Direction(1, 4)), "activation:b"),
    "SVDF": Translation(_svdf, "rank:i activation:b"),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": Translation(
        partial(_in_one_direction, compute=_lstm, at=_FORWARD), f"{_LSTM} time_major:? asymmetric:? diagonal:?"
    ),
    "UNIDIRECTIONAL_SEQUENCE_RNN": Translation(
        partial(_in_one_direction, compute=_rnn, at=Direction(1, 4)), "time_major:? activation:b"
    ),
}
