# SPDX-License-Identifier: Apache-2.0
"""Step wiring: contexts with right checksums whose steps read and write other tensors than they were given.

Every kind of step is tried (the samples of all ops in float and in fixed point, and graphs of several), at every
instruction set. What a program loads must then run within its memory: inputs and outputs end at a guarded page, so that
a byte read or written behind them ends the process.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from fuzz.guarded_memory import GuardedMemory
from hexforge import _native
from hexforge.backends.htp.backend import HtpBackend
from hexforge.errors import HexforgeError
from hexforge.formats.container import Container, Writer
from hexforge.ir import DType, Graph, Role, Value
from hexforge.runtime.contexts.context import Context
from hexforge.runtime.contexts.context_builder import ContextBuilder, PreparedGraph
from tests.ops.test_samples import SAMPLES

BACKEND = HtpBackend(threads=1)
MOST_BYTES = 1 << 22
"""Of a graph's inputs and outputs, so that a run is quick."""
EDIT = struct.Struct("<BBBH")
"""What is edited, which step, which operand of it, and what it becomes."""


def _sample_graph(number: int) -> Graph:
    """A sample's graph in float, with 8 or with 16 bits; with other inputs than the first constant or not."""
    sample, form = SAMPLES[number % len(SAMPLES)], number // len(SAMPLES)
    if form % 3 and sample.quantizable:
        arrays, ins, outs = sample.quantized((DType.UINT8, DType.INT16)[form % 3 - 1])
    else:
        arrays = list(sample.inputs)
        ins = [None if a is None else sample.type(f"in{i}", a) for i, a in enumerate(arrays)]
        outs = [sample.type(f"out{i}", a) for i, a in enumerate(sample.expected)]
    made = Graph("sample")
    given: list[Value | None] = []
    for i, (type, array) in enumerate(zip(ins, arrays, strict=True)):
        if type is None:
            given.append(None)
        elif i and form >= 3 and (type.encoding is not None or type.dtype.is_float):
            given.append(made.value(f"in{i}", type, Role.STATIC, array))
        else:
            given.append(made.value(f"in{i}", type, Role.APP_WRITE))
    results = [made.value(f"out{i}", type, Role.APP_READ) for i, type in enumerate(outs)]
    made.node(sample.op, given, results, **sample.params)
    return made


def _made_graphs() -> tuple[Callable[[], Graph], ...]:
    from fuzz.targets import graph, steps_graph

    return graph, steps_graph


@functools.cache
def context_of(number: int) -> Container | None:
    """The context of a graph by its number; None where no native step runs in it, or the backend does not take it."""
    made = _made_graphs()
    try:
        graph = made[number]() if number < len(made) else _sample_graph(number - len(made))
        builder = ContextBuilder("htp")
        program = BACKEND.compile(graph)
        builder.add(PreparedGraph(program.graph.name, program))
    except HexforgeError:
        return None
    container = Container(builder.writer().to_bytes())
    stages = container.json("program", "0")["stages"]
    return container if any("steps" in stage for stage in stages) else None


def count() -> int:
    """How many graphs there are."""
    return len(_made_graphs()) + 6 * len(SAMPLES)


def step_wiring(data: bytes) -> None:
    """Two bytes name a graph, one an instruction set; each five behind them edit how its steps are wired."""
    if len(data) < 3:
        return
    number, level = struct.unpack_from("<HB", data)
    container = context_of(number % count())
    if container is None:
        return
    program = container.json("program", "0")
    segments = [stage for stage in program["stages"] if "steps" in stage]
    body = data[3:]
    for what, step, operand, value in EDIT.iter_unpack(body[: len(body) // EDIT.size * EDIT.size]):
        edit(segments[step % len(segments)], what, step // len(segments), operand, value)
    made = Writer()
    made.add("info", "", container.section("info", ""))
    made.add_json("program", "0", program)
    made.add("weights", "", container.section("weights", ""))
    levels = _native.levels()
    _native.set_level(levels[level % len(levels)])
    try:
        run_guarded(made.to_bytes())
    finally:
        _native.set_level(levels[-1])


def edit(segment: dict[str, Any], what: int, step: int, operand: int, value: int) -> None:
    """Change one thing of a segment: an operand, a tensor's place, the order of steps, a step left out."""
    steps, tensors = segment["steps"], segment["tensors"]
    if not steps:
        return
    chosen = steps[step % len(steps)]
    side = chosen[1] if what & 8 and chosen[1] else chosen[2]
    at = operand % max(1, len(side))
    kind = what % 8
    if kind <= 3 and side:  # another tensor, mostly one that is large enough
        size = _size(tensors[side[at]])
        fitting = [i for i, t in enumerate(tensors) if _size(t) >= size or kind == 3]
        side[at] = fitting[value % len(fitting)]
    elif kind == 4 and side and isinstance(tensor := tensors[side[at]], list):  # elsewhere, or of another size
        tensor[1 + value % 2] = max(0, tensor[1 + value % 2] + (value // 2 % 513 - 256))
    elif kind == 5:
        other = value % len(steps)
        steps[step % len(steps)], steps[other] = steps[other], chosen
    elif kind == 6:
        del steps[step % len(steps)]
    elif kind == 7:
        segment["arena_bytes"] = max(0, segment["arena_bytes"] + value % 257 - 128)


def _size(tensor: Any) -> int:
    """A tensor's bytes."""
    if isinstance(tensor, dict):
        return int(np.dtype(tensor["dtype"]).itemsize * np.prod(tensor["shape"], dtype=np.int64))
    return int(tensor[2])


def run_guarded(file: bytes) -> None:
    """Load a context and run its graphs, inputs and outputs guarded; a HexforgeError is as good as a result."""
    memory = GuardedMemory()
    try:
        found = Context(file)
        for row in found.graphs:
            program = found.program(row.name, BACKEND)
            if sum(type.size for _, type in (*row.inputs, *row.outputs)) > MOST_BYTES:
                continue
            ins = {n: memory.array(np.zeros(t.shape, t.dtype.numpy)) for n, t in row.inputs}
            outs = {n: memory.array(np.zeros(t.shape, t.dtype.numpy)) for n, t in row.outputs}
            program.run_into(ins, outs)
    except HexforgeError:
        pass
    finally:
        memory.release()


def seeds() -> Iterable[bytes]:
    """Every graph as it is, and with the first operand of a step in its place."""
    for number in range(count()):
        if context_of(number) is not None:
            yield struct.pack("<HB", number, number) + EDIT.pack(8, 1, 0, 0)
