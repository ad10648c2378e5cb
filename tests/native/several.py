# SPDX-License-Identifier: Apache-2.0
"""Running one native step of any number of outputs: at every instruction set and thread count, all the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fuzz.guarded_memory import GuardedMemory
from hexforge import _native
from tests.native.kernels import LEVELS, assert_bits


def run_all(
    kind: str, ins: Sequence[np.ndarray], outs: Sequence[np.ndarray], attributes: dict[str, Any]
) -> list[np.ndarray]:
    """The step's outputs, shaped and typed like `outs`; its inputs have the room behind them that it declares."""
    ins = [np.ascontiguousarray(a) for a in ins]
    program, room = _native.Program(0), _native.step_rooms()[kind]
    tensors = [program.input_tensor(a.nbytes, room) for a in ins]
    program.step(kind, tensors, [program.output_tensor(a.nbytes) for a in outs], attributes)
    memory = GuardedMemory()
    ins = [memory.with_room(a, room) for a in ins]
    first: list[np.ndarray] | None = None
    try:
        for level in LEVELS:
            _native.set_level(level)
            for threads in (1, 2, 2):
                got = [np.full(a.shape, 77, a.dtype) for a in outs]
                program.run(ins, got, threads)
                first = got if first is None else first
                for one, other in zip(got, first, strict=True):
                    assert_bits(one, other, f"{kind} at {level} with {threads} threads")
    finally:
        _native.set_level(LEVELS[-1])
        memory.release()
    assert first is not None
    return first


def halves(rng: np.random.Generator, shape: tuple[int, ...], scale: float = 4.0) -> np.ndarray:
    """Random float32 array of float16 values."""
    return (rng.standard_normal(shape) * scale).astype(np.float16).astype(np.float32)
