# SPDX-License-Identifier: Apache-2.0
"""Contexts whose steps say what they should not: refused, or run within their memory. `make sanitize` watches."""

from __future__ import annotations

import numpy as np
import pytest

from fuzz.step_wiring import EDIT, context_of, count, step_wiring
from fuzz.targets import BACKEND, TARGETS, context_bytes, seeds
from hexforge.errors import FormatError
from hexforge.formats.container import Container, Writer
from hexforge.runtime.contexts.context import Context


@pytest.mark.parametrize("target", ["container", "context", "steps"])
def test_changed_bytes(target: str) -> None:
    rng = np.random.default_rng(7)
    for seed in seeds(target):
        TARGETS[target](seed)
        for _ in range(40):
            data = np.frombuffer(seed, np.uint8).copy()
            places = rng.integers(0, data.size, rng.integers(1, 6))
            data[places] = rng.choice(np.frombuffer(b"0123456789-[]{}\x00\x7f\x80\xff", np.uint8), places.size)
            TARGETS[target](data.tobytes())
    if target == "steps":
        for _ in range(150):
            TARGETS[target](rng.integers(0, 256, 44, np.uint8).tobytes())


def test_a_step_wired_to_an_input_is_refused() -> None:
    """Kernels read a vector at a time; an input is the caller's array, which may end where memory does."""
    parts = Container(context_bytes())
    program = parts.json("program", "0")
    steps = program["stages"][0]["steps"]
    copied = {outs[0]: ins[0] for kind, ins, outs, _ in steps if kind == "copy"}
    assert copied
    for step in steps:
        if step[0] != "copy":
            step[1] = [copied.get(tensor, tensor) for tensor in step[1]]
    made = Writer()
    made.add("info", "", parts.section("info", ""))
    made.add_json("program", "0", program)
    made.add("weights", "", parts.section("weights", ""))
    with pytest.raises(FormatError, match="conv_u8 reads up to 64 bytes behind an input that has 0 there"):
        Context(made.to_bytes()).program("g", BACKEND)


def test_steps_wired_otherwise_stay_within_their_memory() -> None:
    """A short run of the fuzzer; a byte read or written behind an input or output ends the process."""
    rng = np.random.default_rng(11)
    numbers = [number for number in range(count()) if context_of(number) is not None]
    assert len(numbers) > 900
    for _ in range(500):
        data = int(rng.choice(numbers)).to_bytes(2, "little") + bytes([rng.integers(256)])
        step_wiring(data + rng.integers(0, 256, EDIT.size * rng.integers(1, 4), np.uint8).tobytes())
