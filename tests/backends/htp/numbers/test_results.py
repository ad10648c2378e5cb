# SPDX-License-Identifier: Apache-2.0
"""Results lie in memory that is used again once nobody holds it, and never while somebody does."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import hexforge
from benchmarks.sweep.__main__ import write_qdq
from benchmarks.sweep.engine_process import feeds
from benchmarks.sweep.layers import LayerWriter
from hexforge.backends.htp.numbers.segment import ResultMemory


@pytest.mark.parametrize("room", [False, True])
def test_results_that_are_held_stay(room: bool) -> None:
    results = ResultMemory(np.dtype(np.float32), (100, 200), room)
    held = [results.take() for _ in range(9)]
    for i, array in enumerate(held):
        array[...] = i
    assert [float(a.min()) for a in held] == [float(a.max()) for a in held] == list(range(9))
    part = held.pop()[3:5]
    results.take()[...] = -1.0
    assert float(part.min()) == float(part.max()) == 8.0, "a view holds its memory, too"


@pytest.mark.parametrize("room", [False, True])
def test_memory_is_used_again(room: bool) -> None:
    results = ResultMemory(np.dtype(np.uint8), (1 << 16,), room)
    addresses = {results.take().ctypes.data for _ in range(20)}
    assert len(addresses) == 1
    first, second = results.take(), results.take()
    assert first.ctypes.data != second.ctypes.data


@pytest.mark.skipif(sys.platform != "linux", reason="page faults are counted by Linux")
@pytest.mark.parametrize("kind", ["float", "qdq"])
def test_runs_make_no_page_faults(tmp_path: Path, kind: str) -> None:
    """A network of large tensors and large results, after a few runs."""
    import resource

    w = LayerWriter()
    x = w.input(1, 8, 160, 160)
    y = w.node("Relu", w.conv(x, 8, 24, (3, 3)))
    y = w.node("Add", y, w.silu(w.conv(y, 24, 24, (5, 5), 1, 24)))
    pooled = w.node("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    (tmp_path / "float.onnx").write_bytes(w.finish(y, pooled).SerializeToString())
    if kind == "qdq":
        write_qdq(tmp_path / "float.onnx", tmp_path / "qdq.onnx")
    session = hexforge.InferenceSession(str(tmp_path / f"{kind}.onnx"), providers=["QNNExecutionProvider"])
    given = feeds(session)
    for _ in range(5):
        session.run(None, given)
    counts = []
    for _ in range(5):  # what else the process does may touch new pages now and then
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(20):
            session.run(None, given)
        counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    assert min(counts) < 20, f"page faults of 20 runs each: {counts}"
