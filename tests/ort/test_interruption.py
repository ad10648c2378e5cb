# SPDX-License-Identifier: Apache-2.0
"""A run ends soon after RunOptions.terminate is set or Ctrl-C is pressed: inside a program, not only between two."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import hexforge
from hexforge.errors import HexforgeError


@pytest.fixture(scope="module")
def session() -> hexforge.InferenceSession:
    """One program of many steps, each of some milliseconds."""
    weight = numpy_helper.from_array(np.full((64, 64, 3, 3), 1e-3, np.float32), "w")
    names = ["x", *(f"v{i}" for i in range(200))]
    nodes = [helper.make_node("Conv", [a, "w"], [b], pads=[1] * 4) for a, b in itertools.pairwise(names)]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, 64, 96, 96)) for n in (names[0], names[-1])]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [weight])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return hexforge.InferenceSession(made.SerializeToString(), providers=["QNNExecutionProvider"])


X = {"x": np.zeros((1, 64, 96, 96), np.float32)}


def ended_after(
    seconds: float, act: Callable[[], None], run: Callable[[], object], error: type[BaseException]
) -> float:
    """How long a run went on after something was done to it."""
    at: list[float] = []

    def later() -> None:
        time.sleep(seconds)
        at.append(time.perf_counter())
        act()

    thread = threading.Thread(target=later)
    thread.start()
    with pytest.raises(error):
        run()
    end = time.perf_counter()
    thread.join()
    return end - at[0]


def test_terminate_ends_a_program_that_runs(session: hexforge.InferenceSession) -> None:
    began = time.perf_counter()
    session.run(None, X)
    whole = time.perf_counter() - began
    options = hexforge.RunOptions()
    late = ended_after(
        whole / 10, lambda: setattr(options, "terminate", True), lambda: session.run(None, X, options), HexforgeError
    )
    assert late < whole / 2, (late, whole)
    options.terminate = False
    session.run(None, X, options)


def test_ctrl_c_ends_a_program_that_runs(session: hexforge.InferenceSession) -> None:
    began = time.perf_counter()
    session.run(None, X)
    whole = time.perf_counter() - began
    late = ended_after(
        whole / 10, lambda: signal.raise_signal(signal.SIGINT), lambda: session.run(None, X), KeyboardInterrupt
    )
    assert late < whole / 2, (late, whole)
