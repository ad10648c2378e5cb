# SPDX-License-Identifier: Apache-2.0
"""Native contexts: hostile files given to the reader without Python, whose results must be those of Python's road.

Inputs and outputs end at a guarded page, so that a byte read or written behind them ends the process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import numpy as np

from fuzz.guarded_memory import GuardedMemory
from fuzz.step_wiring import MOST_BYTES, context_of, count, edit
from hexforge import _native
from hexforge.errors import HexforgeError
from hexforge.formats.container import Writer
from hexforge.ir import Array
from hexforge.runtime.contexts.context import Context

_PIECES = [
    b"0",
    b"9",
    b"-1",
    b"1e9",
    b"[",
    b"]",
    b"{",
    b"}",
    b",",
    b":",
    b'"',
    b"\\u00e9",
    b"null",
    b"9" * 19,
    b"\x00",
    b"\xff",
]


def open_and_run(file: bytes, graph: str = "") -> dict[str, Array]:
    """Outputs by name of a graph (or of every graph, one after the other) for zeros; HexforgeError where it refuses."""
    memory = GuardedMemory()
    try:
        found = _native.CompiledContext.open_memory(np.frombuffer(file, np.uint8))
        results: dict[str, Array] = {}
        for name in [graph] if graph else found.graphs:
            made = found.graph(name)
            if sum(tensor[4] for tensor in (*made.inputs, *made.outputs)) > MOST_BYTES:
                continue
            ins = [memory.array(np.zeros(tensor[4], np.uint8)) for tensor in made.inputs]
            outs = [memory.array(np.zeros(tensor[4], np.uint8)) for tensor in made.outputs]
            made.run(ins, outs, 1)
            results |= {tensor[0]: out.copy() for tensor, out in zip(made.outputs, outs, strict=True)}
        return results
    finally:
        memory.release()


def require_same(file: bytes, graph: str, wanted: Mapping[str, Array]) -> None:
    """AssertionError where a graph that Python's road ran gives other bits without Python; it may refuse it."""
    try:
        results = open_and_run(file, graph)
    except HexforgeError:
        return
    for name, result in results.items():
        assert result.tobytes() == np.ascontiguousarray(wanted[name]).tobytes(), f"{graph}: {name} has other bits"


def sample_contexts() -> Iterator[bytes]:
    """Contexts of every kind of step."""
    for number in range(count()):
        if (container := context_of(number)) is not None:
            yield bytes(container.view)


def hostile_contexts(amount: int, seed: int) -> Iterator[bytes]:
    """Contexts with bytes, numbers, places, arrays and steps that are others, mostly with right checksums."""
    rng = np.random.default_rng(seed)
    whole = [container for number in range(0, count(), 7) if (container := context_of(number)) is not None]
    for _ in range(amount):
        container = whole[rng.integers(len(whole))]
        kind = rng.integers(6)
        if kind == 0:
            yield _changed(bytes(container.view), rng)[: rng.integers(len(container)) if rng.integers(4) == 0 else None]
            continue
        info, program = (bytes(container.section(*key)) for key in (("info", ""), ("program", "0")))
        weights = bytes(container.section("weights", ""))
        if kind == 1:
            info = _edited(info, rng)
        elif kind == 2:
            program = _edited(program, rng)
        elif kind == 3:
            weights = _changed(weights, rng)[: rng.integers(len(weights)) if rng.integers(8) == 0 else None]
        made = Writer()
        made.add("info", "", info)
        if kind > 3:
            data = container.json("program", "0")
            segments = [stage for stage in data["stages"] if "steps" in stage]
            for what, step, operand, value in rng.integers(0, (256, 256, 256, 65536), (rng.integers(1, 4), 4)).tolist():
                edit(segments[step % len(segments)], what, step // len(segments), operand, value)
            made.add_json("program", "0", data)
        else:
            made.add("program", "0", program)
        made.add("weights", "", weights)
        yield made.to_bytes()


def _changed(data: bytes, rng: np.random.Generator) -> bytes:
    """Some bytes are others."""
    array = np.frombuffer(data, np.uint8).copy()
    places = rng.integers(0, array.size, rng.integers(1, 6))
    array[places] = rng.integers(0, 256, places.size)
    return array.tobytes()


def _edited(text: bytes, rng: np.random.Generator) -> bytes:
    """Some characters of JSON are others, more or fewer."""
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(len(text)))
        text = text[:at] + _PIECES[rng.integers(len(_PIECES))] + text[at + int(rng.integers(3)) :]
    return text


def native_context(data: bytes) -> None:
    """Contents with right checksums, split by NUL NUL, to both roads."""
    parts = [*data.split(b"\0\0", 2), b"", b""]
    base = next(container for number in range(count()) if (container := context_of(number)) is not None)
    made = Writer()
    made.add("info", "", parts[0] or base.section("info", ""))
    made.add("program", "0", parts[1] or base.section("program", "0"))
    made.add("weights", "", parts[2] or base.section("weights", ""))
    compare_roads(made.to_bytes())


def compare_roads(file: bytes) -> None:
    """Run a context on both roads; each may refuse it."""
    try:
        python = Context(file)
        for row in python.graphs:
            if sum(type.nbytes for _, type in (*row.inputs, *row.outputs)) > MOST_BYTES:
                continue
            wanted = python.program(row.name).run({n: np.zeros(t.shape, t.dtype.numpy) for n, t in row.inputs})
            require_same(file, row.name, wanted)
    except HexforgeError:
        with contextlib.suppress(HexforgeError):
            open_and_run(file)
