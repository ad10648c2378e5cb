# SPDX-License-Identifier: Apache-2.0
"""LSTMs, RNNs and SVDF as files have them: where they run, what they keep between runs, and as integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hexforge
from hexforge.addons.tflite.compare import run_onnx
from hexforge.addons.tflite.convert import onnx_model
from hexforge.addons.tflite.model_file import parse
from hexforge.errors import UnsupportedError
from hexforge.ir import Array
from tests.addons.tflite.tflite_files import Made, MadeModel, MadeOperator, MadeSubgraph

RANDOM = np.random.default_rng(11)
INPUT, CELLS, STEPS = 3, 4, 6


def lstm(clip: float = 0.0, steps: int = STEPS, is_variable: bool = True) -> MadeModel:
    """An LSTM over a sequence, as converters of Keras write it."""
    weights = [Made(shape, data=RANDOM.uniform(-1, 1, shape)) for shape in [(CELLS, INPUT)] * 4 + [(CELLS, CELLS)] * 4]
    biases = [Made((CELLS,), data=RANDOM.uniform(-1, 1, CELLS)) for _ in range(4)]
    states = [Made((1, CELLS), is_variable=is_variable, name=name) for name in ("output_state", "cell_state")]
    tensors = [Made((1, steps, INPUT), name="x"), *weights, *biases, *states, Made((1, steps, CELLS), name="y")]
    places = [*range(9), -1, -1, -1, *range(9, 13), -1, -1, 13, 14, -1, -1, -1, -1]
    options = [("b", 4), ("f", clip), ("f", 0.0), ("?", False)]
    operator = MadeOperator("UNIDIRECTIONAL_SEQUENCE_LSTM", places, [15], options)
    return MadeModel([MadeSubgraph(tensors, [operator], [0], [15])])


def integer_lstm() -> MadeModel:
    """The same in 8 bits, with a cell of 16."""
    shapes = [(CELLS, INPUT)] * 4 + [(CELLS, CELLS)] * 4
    weights = [Made(s, np.int8, RANDOM.integers(-127, 128, s), 1 / 127, 0) for s in shapes]
    biases = [Made((CELLS,), np.int32, RANDOM.integers(-4000, 4000, CELLS), 1 / 64 / 127, 0) for _ in range(4)]
    output = Made((1, CELLS), np.int8, None, 1 / 128, 0, is_variable=True, name="output_state")
    cell = Made((1, CELLS), np.int16, None, 2.0**-11, 0, is_variable=True, name="cell_state")
    between = [Made((), np.int16, None, 2.0**-12, 0) for _ in range(4)] + [Made((), np.int8, None, 1 / 128, 0)]
    x = Made((1, STEPS, INPUT), np.int8, None, 1 / 64, 3, name="x")
    y = Made((1, STEPS, CELLS), np.int8, None, 1 / 128, 0, name="y")
    places = [*range(9), -1, -1, -1, *range(9, 13), -1, -1, 13, 14, -1, -1, -1, -1]
    options = [("b", 4), ("f", 0.0), ("f", 0.0), ("?", False)]
    tensors = [x, *weights, *biases, output, cell, y, *between]
    operator = MadeOperator("UNIDIRECTIONAL_SEQUENCE_LSTM", places, [15], options, intermediates=range(16, 21))
    return MadeModel([MadeSubgraph(tensors, [operator], [0], [15])])


def integer_svdf() -> MadeModel:
    """Four units of rank 2 over five steps, in 8 bits."""
    features = Made((8, INPUT), np.int8, RANDOM.integers(-127, 128, (8, INPUT)), 1 / 127, 0)
    over_time = Made((8, 5), np.int16, RANDOM.integers(-32767, 32768, (8, 5)), 1 / 32767, 0)
    bias = Made((4,), np.int32, RANDOM.integers(-40000, 40000, 4), 2.0**-11 / 32767, 0)
    state = Made((1, 40), np.int16, None, 2.0**-11, 0, is_variable=True, name="activation_state")
    x = Made((1, INPUT), np.int8, None, 1 / 64, 3, name="x")
    y = Made((1, 4), np.int8, None, 1 / 16, -128, name="y")
    operator = MadeOperator("SVDF", range(5), [5], [("i", 2), ("b", 1)])
    return MadeModel([MadeSubgraph([x, features, over_time, bias, state, y], [operator], [0], [5])])


def as_onnx(model: MadeModel) -> Any:
    return onnx_model(parse(model.content(), "made.tflite"))


def runs(model: MadeModel, *inputs: Array) -> list[Array]:
    """The outputs of runs one after the other, where what comes out of a variable goes in again."""
    made, states, results = as_onnx(model).SerializeToString(), list[Array](), []
    for values in inputs:
        result, *states = run_onnx(made, [values, *states])
        results.append(result)
    return results


def inputs(model: MadeModel) -> list[Array]:
    """Three inputs of a model."""
    x = model.subgraphs[0].tensors[0]
    if np.dtype(x.dtype) == np.int8:
        return [RANDOM.integers(-128, 128, x.shape).astype(np.int8) for _ in range(3)]
    return [RANDOM.uniform(-2, 2, x.shape).astype(np.float32) for _ in range(3)]


def test_states_are_inputs_and_outputs() -> None:
    made = as_onnx(lstm())
    assert [value.name for value in made.graph.input] == ["x", "output_state", "cell_state"]
    assert [value.name for value in made.graph.output] == ["y", "output_state/next", "cell_state/next"]
    assert {p.key: p.value for p in made.metadata_props}["begins as cell_state"] == "0"


def test_a_state_that_is_no_variable_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="is no variable"):
        as_onnx(lstm(is_variable=False))


def test_a_plain_lstm_is_one_node_and_others_are_steps() -> None:
    kinds = [node.op_type for node in as_onnx(lstm()).graph.node]
    assert kinds.count("LSTM") == 1
    written = [node.op_type for node in as_onnx(lstm(10.0)).graph.node]
    assert "LSTM" not in written
    assert written.count("Clip") == STEPS
    x = inputs(lstm())[0]
    rng_state = RANDOM.bit_generator.state
    plain = lstm()
    RANDOM.bit_generator.state = rng_state
    np.testing.assert_allclose(runs(lstm(10.0), x)[0], runs(plain, x)[0], atol=1e-6)


def test_a_sequence_that_is_too_long_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="513 steps, of which at most 512"):
        as_onnx(lstm(10.0, 513))
    as_onnx(lstm(0.0, 513))


@pytest.mark.parametrize("clip", [0.0, 10.0])
def test_it_runs_whole_on_the_npu(clip: float, tmp_path: Any) -> None:
    (tmp_path / "lstm.tflite").write_bytes(lstm(clip).content())
    assert hexforge.check(tmp_path / "lstm.tflite", "SM8650").totals["refused"] == 0
    assert hexforge.estimate(tmp_path / "lstm.tflite", hexforge.Deployment("SM8650", "float", "tflite")).latency_ms > 0


@pytest.mark.litert
@pytest.mark.parametrize("model", [lstm(), lstm(0.3), integer_lstm(), integer_svdf()],
                         ids=["plain", "limited", "integers", "svdf"])  # fmt: skip
def test_runs_go_on_as_they_do_in_litert(model: MadeModel) -> None:
    from ai_edge_litert.interpreter import Interpreter

    judge = Interpreter(model_content=model.content())
    judge.allocate_tensors()
    given = inputs(model)
    for values, got in zip(given, runs(model, *given), strict=True):
        judge.set_tensor(judge.get_input_details()[0]["index"], values)
        judge.invoke()
        wanted = judge.get_tensor(judge.get_output_details()[0]["index"])
        print(np.abs(wanted.astype(float) - got).max())
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-6 if got.dtype.kind == "f" else 1)
