# SPDX-License-Identifier: Apache-2.0
"""Contexts read and run by native code alone: the bits of Python's road, and no byte believed."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fuzz.native_context import compare_roads, hostile_contexts, open_and_run, sample_contexts
from hexforge import _native
from hexforge.backends.htp.backend import HtpBackend
from hexforge.errors import CallError, FormatError, HexforgeError, UnsupportedError
from hexforge.formats.container import Container, Writer
from hexforge.ir import Array, DType, Graph, Role, ScaleOffset, TensorType, Value
from hexforge.runtime.contexts.context import Context
from hexforge.runtime.contexts.context_builder import ContextBuilder, PreparedGraph
from tests.addons.adapters.test_adapters import CHANGED, OTHER, Made
from tests.backends.htp.numbers.test_states import _program as state_program
from tests.runtime.contexts.test_context import net, saved

CompiledContext = _native.CompiledContext


def opened(data: bytes) -> _native.CompiledContext:
    return CompiledContext.open_memory(np.frombuffer(data, np.uint8))


def random_feeds(values: Sequence[Value], seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    arrays: list[Array] = []
    for value in values:
        if value.dtype.is_float:
            arrays.append(rng.standard_normal(value.shape).astype(value.dtype.numpy))
        elif value.encoding is not None:
            low, high = value.dtype.range
            arrays.append(rng.integers(low, high, value.shape, endpoint=True).astype(value.dtype.numpy))
        else:
            arrays.append(rng.integers(0, 2, value.shape).astype(value.dtype.numpy))
    return arrays


def run(graph: _native.CompiledGraph, values: Sequence[Value], given: list[Array]) -> list[Array]:
    results = [np.full(v.shape, 77).astype(v.dtype.numpy) for v in values]
    graph.run(given, results)
    return results


def compare(data: bytes, seed: int = 0) -> int:
    """How many graphs of a context give the same bits on both roads; all that have native kernels only do."""
    python, native, same = Context(data), opened(data), 0
    for row in python.graphs:
        program = python.program(row.name)
        if program.facts.references:
            with pytest.raises(UnsupportedError, match="has no native kernel"):
                native.graph(row.name)
            continue
        graph = native.graph(row.name)
        inputs, outputs = row.values()
        given = random_feeds(inputs, seed)
        try:
            wanted = program.run({v.name: array for v, array in zip(inputs, given, strict=True)})
        except CallError:
            with pytest.raises(CallError):
                run(graph, outputs, given)
            continue
        for value, result in zip(outputs, run(graph, outputs, given), strict=True):
            assert result.tobytes() == np.ascontiguousarray(wanted[value.name]).tobytes(), (row.name, value.name)
        same += 1
    return same


def test_samples_of_every_op_give_the_same_bits() -> None:
    assert sum(compare(data) for data in sample_contexts()) > 900


def test_a_file_and_its_bytes_say_the_same(tmp_path: Path) -> None:
    saved(tmp_path / "c.bin", net(), net(8, "second", 1))
    data = (tmp_path / "c.bin").read_bytes()
    assert compare(data) == 2
    python, native = Context(data), CompiledContext.open_file(str(tmp_path / "c.bin"))
    assert native.graphs == [g.name for g in python.graphs]
    assert (native.backend, native.producer) == (python.info.backend, python.info.producer)
    ids = []
    for row in python.graphs:
        graph = native.graph(row.name)
        for values, tensors in zip(row.values(), (graph.inputs, graph.outputs), strict=True):
            for value, (name, number, dtype, dims, size, tile, scales, offsets, bitwidth) in zip(
                values, tensors, strict=True
            ):
                encoding = value.encoding
                assert isinstance(encoding, ScaleOffset)
                assert (name, dtype, tuple(dims), size) == (
                    value.name,
                    value.dtype.value,
                    value.shape,
                    value.type.nbytes,
                )
                assert (scales, offsets, bitwidth, tile) == ([encoding.scale], [encoding.offset], 0, 0)
                ids.append(number)
    assert ids == [1, 2, 3, 4]


def typed_graph(dtype: DType, encoding: ScaleOffset | None) -> Graph:
    made = Graph("g")
    like = TensorType(dtype, (2, 5), encoding)
    x = made.value("x", like, Role.APP_WRITE)
    made.node("ElementWiseAdd", [x, x], [made.value("y", like, Role.APP_READ)])
    return made


@pytest.mark.parametrize(
    ("dtype", "encoding"),
    [
        (DType.INT8, ScaleOffset(0.1)),
        (DType.UINT16, ScaleOffset(0.001, -32768)),
        (DType.INT16, ScaleOffset(0.001)),
        (DType.FLOAT16, None),
        (DType.FLOAT32, None),
    ],
    ids=lambda v: v.value if isinstance(v, DType) else "",
)
def test_buffers_lie_anywhere_and_hold_whole_batches(dtype: DType, encoding: ScaleOffset | None) -> None:
    graph = typed_graph(dtype, encoding)
    program = HtpBackend().compile(graph)
    builder = ContextBuilder("htp")
    builder.add(PreparedGraph("g", program))
    native = opened(builder.writer().to_bytes()).graph("g")
    given = [random_feeds(graph.inputs, seed)[0] for seed in range(3)]
    wanted = b"".join(program.run({"x": array})["y"].tobytes() for array in given)
    batch = np.frombuffer(b"".join(array.tobytes() for array in given), np.uint8)
    odd, out = np.empty(batch.size + 1, np.uint8)[1:], np.empty(batch.size + 1, np.uint8)[1:]
    odd[:] = batch
    native.run([odd], [out])
    assert out.tobytes() == wanted
    native.run([odd], [odd])  # what is written may be what was read
    assert odd.tobytes() == wanted


def test_calls_that_do_not_fit_are_refused() -> None:
    builder = ContextBuilder("htp")
    builder.add(PreparedGraph("net", HtpBackend().compile(net())))
    context = opened(builder.writer().to_bytes())
    with pytest.raises(CallError, match="has no graph 'other'; it has net"):
        context.graph("other")
    graph = context.graph("net")
    x, y = np.zeros((1, 6, 6, 8), np.uint8), np.zeros((1, 6, 6, 16), np.uint8)
    with pytest.raises(CallError, match="input 'x' has 287 bytes, it must be 288"):
        graph.run([x.reshape(-1)[1:]], [y])
    with pytest.raises(CallError, match="output 'y'"):
        graph.run([x], [np.zeros(1152, np.uint8)])
    with pytest.raises(CallError, match="has 1 inputs and 1 outputs, and was given 2 and 1"):
        graph.run([x, x], [y])


def test_contexts_of_other_backends_are_refused(tmp_path: Path) -> None:
    from hexforge.backends.cpu import CpuBackend

    saved(tmp_path / "c.bin", net(), backend=CpuBackend)
    with pytest.raises(UnsupportedError, match="made for the cpu backend; only contexts of htp run without Python"):
        CompiledContext.open_file(str(tmp_path / "c.bin")).graph("net")


def test_eight_threads_run_one_graph() -> None:
    graph = net(12)
    program = HtpBackend().compile(graph)
    builder = ContextBuilder("htp")
    builder.add(PreparedGraph("net", program))
    native = opened(builder.writer().to_bytes()).graph("net")
    given = [random_feeds(graph.inputs, seed)[0] for seed in range(8)]
    wanted = [program.run({"x": array})["y"] for array in given]

    def many(number: int) -> bool:
        result = np.empty_like(wanted[number])
        for _ in range(200):
            result[:] = 0
            native.run([given[number]], [result], 2)
            if not np.array_equal(result, wanted[number]):
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(many, range(8)))


@pytest.mark.parametrize("dtype", [DType.UINT8, DType.UINT16, DType.FLOAT32], ids=lambda d: d.value)
def test_a_cache_may_be_one_buffer_before_and_after(dtype: DType) -> None:
    program = state_program(dtype)
    builder = ContextBuilder("htp")
    builder.add(PreparedGraph("cache", program))
    native = opened(builder.writer().to_bytes()).graph("cache")
    given = random_feeds(program.inputs)
    names = [value.name for value in program.inputs]
    given[names.index("place")][:] = 4
    wanted = run(native, program.outputs, given)
    python = program.run(dict(zip(names, given, strict=True)))
    results = [np.empty(v.shape, v.dtype.numpy) for v in program.outputs]
    where = [value.name for value in program.outputs].index("present")
    results[where] = given[names.index("past")]
    native.run(given, results)
    for value, ours, other in zip(program.outputs, results, wanted, strict=True):
        assert ours.tobytes() == other.tobytes() == python[value.name].tobytes(), value.name


def test_adapters_come_and_go(tmp_path: Path) -> None:
    made = Made(tmp_path)
    python, native = Context(made.context), CompiledContext.open_file(str(made.context))
    row = python.graphs[0]
    inputs, outputs = row.values()
    given = random_feeds(inputs)
    graph = native.graph(row.name)
    base = run(graph, outputs, given)[0]
    for name, changed in (("one", CHANGED), ("two", OTHER)):
        file = made.adapter(name, changed)
        python.apply(file)
        native.apply_adapter(np.frombuffer(file.read_bytes(), np.uint8))
        wanted = python.program(row.name).run({v.name: a for v, a in zip(inputs, given, strict=True)})
        assert run(graph, outputs, given)[0].tobytes() == wanted[outputs[0].name].tobytes() != base.tobytes()
    native.remove_adapters()
    assert run(graph, outputs, given)[0].tobytes() == base.tobytes()
    other = Made(tmp_path, bits=16)
    foreign = np.frombuffer(other.adapter("foreign", CHANGED).read_bytes(), np.uint8)
    with pytest.raises(CallError, match="was made for another base"):
        native.apply_adapter(foreign)
    assert run(graph, outputs, given)[0].tobytes() == base.tobytes()


def test_the_timeline_is_the_schematic_of_the_file() -> None:
    rows = [["a", "Conv2d", 0.0, 1.5, 3000, "HMX", 64, 0, ["a", "b"]], ["c", "Relu", 1.5, 1, 20, "HVX", 0, 0, []]]
    schematic: dict[str, Any] = {
        "soc": "SM8650", "num_hvx_threads": 4, "vtcm_mb": 4, "core_mhz": 2077.0, "accelerator_us": 2.5,
        "latency_us": 50.0, "dram_bytes": 1, "vtcm_peak_bytes": 2, "rows": rows,
        "columns": ["name", "op", "start_us", "us", "cycles", "bound", "weight_bytes", "spill_bytes", "nodes"],
    }  # fmt: skip
    builder = ContextBuilder("htp")
    builder.add(PreparedGraph("net", HtpBackend().compile(net()), schematics={"SM8650": schematic}))
    context = opened(builder.writer().to_bytes())
    assert context.timeline("net", "SM8650") == [tuple(row[:5]) for row in rows]
    assert context.timeline("net") == []


# -- files that are not what they should be ---------------------------------------------------------------------------


def test_damage_is_found_where_it_is() -> None:
    builder = ContextBuilder("htp")
    builder.add(PreparedGraph("net", HtpBackend().compile(net())))
    data = builder.writer().to_bytes()
    for at, message in (
        (3, "is not a hexforge context"),
        (20, "header is damaged"),
        (4100, "section info '' is damaged"),
    ):
        hostile = bytearray(data)
        hostile[at] ^= 1
        with pytest.raises(FormatError, match=message) as native:
            opened(bytes(hostile))
        with pytest.raises(FormatError, match=message) as python:
            Context(bytes(hostile))
        assert native.value.offset == python.value.offset
    for size in (0, 7, 63, 4096, len(data) - 1):
        with pytest.raises(FormatError):
            opened(data[:size])


def test_forms_of_arrays_that_do_not_hold() -> None:
    parts = Container(context_with_table())
    program = parts.json("program", "0")
    text = repr(program)
    assert "'steps': 1" in text
    weights = np.frombuffer(parts.section("weights", ""), np.uint8).copy()
    places = [
        a["at"] for s in program["stages"][0]["steps"] for a in s[3].values() if isinstance(a, dict) and "steps" in a
    ]
    for place in range(places[0][0], places[0][0] + 40):
        changed = weights.copy()
        changed[place] ^= 0x15
        made = Writer()
        made.add("info", "", parts.section("info", ""))
        made.add_json("program", "0", program)
        made.add("weights", "", changed.data)
        with pytest.raises(FormatError, match="a table's steps are damaged"):
            opened(made.to_bytes()).graph("g")


def context_with_table() -> bytes:
    """One that looks a function of 16 bits up."""
    made = Graph("g")
    x = made.value("x", TensorType(DType.INT16, (1, 64, 64, 1), ScaleOffset(0.001)), Role.APP_WRITE)
    like = TensorType(DType.INT16, (1, 64, 64, 1), ScaleOffset(1 / 32768))
    made.node("Sigmoid", [x], [made.value("y", like, Role.APP_READ)])
    builder = ContextBuilder("htp")
    builder.add(PreparedGraph("g", HtpBackend().compile(made)))
    return builder.writer().to_bytes()


def test_a_table_of_16_bits_is_made_whole() -> None:
    assert compare(context_with_table()) == 1


def test_hostile_contexts_are_refused_or_run_in_their_memory() -> None:
    """`make sanitize` watches; python -m fuzz native_context goes on."""
    ran = refused = 0
    for data in hostile_contexts(2000, seed=5):
        try:
            open_and_run(data)
            ran += 1
        except HexforgeError:
            refused += 1
    assert ran > 50
    assert refused > 500


def test_what_both_roads_run_has_the_same_bits() -> None:
    for data in hostile_contexts(200, seed=6):
        compare_roads(data)
