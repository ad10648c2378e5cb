# SPDX-License-Identifier: Apache-2.0
"""The cpu backend: what it checks, keeps, frees and gives back."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import hexforge.ops  # noqa: F401 - fills the table
from hexforge.backends.cpu import CpuBackend, CpuProgram
from hexforge.errors import CallError, ModelError
from hexforge.ir.text import loads

TWO_OUTPUTS = """graph "g" {
  %x: float32[2, 3] = APP_WRITE
  %c: float32[3] = STATIC [1.0, 2.0, 3.0]
  add: %y = ElementWiseAdd(%x, %c) : float32[2, 3]
  t: %t = Transpose(%y) {perm=[1, 0]} : float32[3, 2]
  r: %r = Reshape(%x) : float32[2, 3]
  return %y, %t, %r
}"""


def program(text: str) -> CpuProgram:
    return CpuBackend().compile(loads(text))


def test_runs() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    out = program(TWO_OUTPUTS).run({"x": x})
    assert list(out) == ["y", "t", "r"]
    np.testing.assert_array_equal(out["y"], x + np.array([1, 2, 3], np.float32))
    np.testing.assert_array_equal(out["t"], out["y"].T)


def test_outputs_are_contiguous_and_own_their_memory() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    out = program(TWO_OUTPUTS).run({"x": x})
    arrays = [x, *out.values()]
    for i, array in enumerate(arrays):
        assert array.flags.c_contiguous
        assert not any(np.shares_memory(array, other) for other in arrays[i + 1 :])


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({}, "input 'x' is missing; its inputs are x"),
        ({"x": np.zeros((2, 3), np.float32), "z": np.zeros(1)}, "'z' is not an input"),
        ({"x": np.zeros((2, 3))}, r"input 'x' is float64\[2, 3\], it must be float32\[2, 3\]"),
        ({"x": np.zeros((3, 2), np.float32)}, r"input 'x' is float32\[3, 2\]"),
    ],
)
def test_wrong_feeds_are_named(feeds: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(CallError, match=message):
        program(TWO_OUTPUTS).run(feeds)


def test_a_wrong_graph_does_not_compile() -> None:
    with pytest.raises(ModelError, match="has shape"):
        program(TWO_OUTPUTS.replace(": float32[3, 2]", ": float32[2, 3]"))


def test_intermediates_are_freed() -> None:
    steps = "\n".join(f"  n{i}: %v{i + 1} = ElementWiseNeg(%v{i}) : float32[1000]" for i in range(20))
    text = f'graph "g" {{\n  %v0: float32[1000] = APP_WRITE\n{steps}\n  return %v20\n}}'
    compiled = program(text)
    assert [len(frees) for frees in compiled._frees] == [1] * 20


def test_threads_share_a_program() -> None:
    compiled, failures = program(TWO_OUTPUTS), []

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).standard_normal((2, 3)).astype(np.float32)
        for _ in range(50):
            if not np.array_equal(compiled.run({"x": x})["y"], x + np.array([1, 2, 3], np.float32)):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_constants_are_prepared_once_and_only_where_it_helps() -> None:
    text = """graph "g" {
  %x: float32[1, 4] = APP_WRITE
  %q: uint8[1, 4] {scale=0.5, offset=-3} = APP_WRITE
  %w: float32[4, 4] = STATIC splat 0.5
  %v: int8[4, 4] {axis=1, scales=[0.5, 0.25, 0.125, 1.0], offsets=[0, 0, 0, 0]} = STATIC splat 2
  a: %y = MatMul(%x, %w) : float32[1, 4]
  b: %z = MatMul(%q, %v) : uint8[1, 4] {scale=0.5, offset=-3}
  return %y, %z
}"""
    compiled = program(text)
    assert [step[0].prepared_bytes for step in compiled._steps] == [0, 64]  # int8 as float32: sums stay below 2**24
    out = compiled.run({"x": np.ones((1, 4), np.float32), "q": np.full((1, 4), 5, np.uint8)})
    np.testing.assert_array_equal(out["y"], [[2, 2, 2, 2]])
    np.testing.assert_array_equal(out["z"], [[8 * 2 * 0.5 + 3, 8 * 2 * 0.25 + 3, 8 * 2 * 0.125 + 3, 8 * 2 + 3]])
