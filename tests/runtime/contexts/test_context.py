# SPDX-License-Identifier: Apache-2.0
"""Contexts: the same bits from a file as from a fresh compile, stored once, believed only when whole."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexforge.ops
from hexforge import _native
from hexforge.backend import Backend
from hexforge.backends.cpu import CpuBackend
from hexforge.backends.htp.backend import HtpBackend
from hexforge.errors import CallError, FormatError, HexforgeError, UnsupportedError
from hexforge.formats.container import Container, Writer
from hexforge.ir import Array, DType, Graph, Role, ScaleOffset, TensorType
from hexforge.runtime.contexts.context import Context
from hexforge.runtime.contexts.context_builder import ContextBuilder, PreparedGraph

U8 = ScaleOffset(0.05, -128)


def net(size: int = 6, name: str = "net", seed: int = 0) -> Graph:
    """A convolution with a clamp, a table, an index op that has no kernel, and a sum."""
    rng = np.random.default_rng(seed)
    made = Graph(name)
    x = made.value("x", TensorType(DType.UINT8, (1, size, size, 8), U8), Role.APP_WRITE)
    weight = rng.integers(-127, 128, (3, 3, 8, 16)).astype(np.int8)
    kernel = made.static(weight, ScaleOffset(0.01), name="w")
    mid = TensorType(DType.UINT8, (1, size, size, 16), U8)
    conv = made.node("Conv2d", [x, kernel], [made.value("c", mid)], stride=(1, 1), pad_amount=((1, 1), (1, 1)))
    act = made.node(
        "Sigmoid", [conv.outputs[0]], [made.value("s", TensorType(mid.dtype, mid.shape, ScaleOffset(1 / 256)))]
    )
    y = made.value("y", mid, Role.APP_READ)
    made.node("ElementWiseAdd", [act.outputs[0], conv.outputs[0]], [y])
    return made


def feeds(graph: Graph) -> dict[str, Array]:
    rng = np.random.default_rng(1)
    return {v.name: rng.integers(0, 256, v.shape).astype(v.dtype.numpy) for v in graph.inputs}


def saved(path: Path, *graphs: Graph, backend: Callable[[], Backend] = HtpBackend, **more: Any) -> ContextBuilder:
    made = backend()
    builder = ContextBuilder(made.name, **more)
    for graph in graphs:
        builder.add(PreparedGraph(graph.name, made.compile(graph)))
    builder.writer().write(path)
    return builder


@pytest.mark.parametrize("backend", [HtpBackend, CpuBackend])
def test_a_program_from_a_file_gives_the_same_bits(tmp_path: Path, backend: Callable[[], Backend]) -> None:
    path = tmp_path / "a.bin"
    saved(path, net(), backend=backend)
    fresh = backend().compile(net())
    moved = tmp_path / "elsewhere" / "b.bin"
    moved.parent.mkdir()
    path.rename(moved)
    for source in (moved, moved.read_bytes()):
        program = Context(source).program("net")
        for name, array in fresh.run(feeds(net())).items():
            np.testing.assert_array_equal(program.run(feeds(net()))[name], array)
        assert program.graph.name == "net"
        assert [n.op.name for n in program.graph] == [n.op.name for n in fresh.graph]


@pytest.mark.parametrize("backend", [HtpBackend, CpuBackend])
def test_a_loaded_program_is_saved_as_it_was(tmp_path: Path, backend: Callable[[], Backend]) -> None:
    path = tmp_path / "a.bin"
    saved(path, net(), backend=backend)
    again = ContextBuilder(backend.name)  # type: ignore[attr-defined]
    again.add(PreparedGraph("net", Context(path).program("net")))
    assert again.writer().to_bytes() == path.read_bytes()


def test_a_loaded_program_keeps_what_it_runs_with(tmp_path: Path) -> None:
    """Neither the text of its graph nor its steps as Python objects: however many there are, it is the same."""
    graphs = []
    for count in (1, 2, 100):
        graph = net(4, f"net{count}")
        at = graph.outputs[0]
        for i in range(count):
            at.role = Role.NATIVE
            at = graph.node("ElementWiseAdd", [at, at], [graph.value(f"sum{i}", at.type, Role.APP_READ)]).outputs[0]
        graphs.append(graph)
    saved(tmp_path / "a.bin", *graphs)
    context, htp = Context(tmp_path / "a.bin"), HtpBackend()
    kept = [context.program("net1", htp)]
    grown = []
    for name in ("net2", "net100"):
        gc.collect()
        tracemalloc.start()
        kept.append(context.program(name, htp))
        gc.collect()
        grown.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
    assert grown[1] < grown[0] + 2048
    assert len(list(kept[2].graph)) == 103


def test_the_memory_of_constants_lives_as_long_as_a_program() -> None:
    """Arrays of a native program are kept by one view of each buffer; a buffer in use cannot be resized."""
    buffer = bytearray(64)
    views = [np.frombuffer(memoryview(buffer)[at : at + 8], np.uint8) for at in (0, 8, 16)]
    program = _native.Program(0)
    for view in views:
        program.constant_tensor(view)
    own = np.arange(8, dtype=np.uint8)
    program.constant_tensor(own.reshape(2, 4))
    count = sys.getrefcount(own)
    del views, view
    gc.collect()
    with pytest.raises(BufferError):
        buffer.extend(b"more")
    del program
    gc.collect()
    buffer.extend(b"more")
    assert sys.getrefcount(own) < count


def test_graphs_of_one_file_share_their_weights(tmp_path: Path) -> None:
    one, two = tmp_path / "one.bin", tmp_path / "two.bin"
    saved(one, net(6, "a"))
    builder = saved(two, net(6, "a"), net(12, "b"))
    sizes = [{s.kind: s.bytes for s in Container(p).sections} for p in (one, two)]
    assert sizes[1]["weights"] <= 1.05 * sizes[0]["weights"]
    assert builder.pool.put_bytes > 1.9 * (sizes[0]["weights"] - 2 * 4096) - 64 * 32
    context = Context(two)
    assert [g.name for g in context.graphs] == ["a", "b"]
    for size, name in ((6, "a"), (12, "b")):
        graph = net(size, name)
        want = HtpBackend().compile(net(size, name)).run(feeds(graph))["y"]
        np.testing.assert_array_equal(context.program(name).run(feeds(graph))["y"], want)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("%y", "%z", "other inputs or outputs than the table"),
        ("APP_WRITE", "NATIVE", "inputs or outputs|no node writes|producer"),
        ("STATIC at [0, 1152]", "STATIC absent", "constant 'w' has no data"),
        ("STATIC at [0, 1152]", "STATIC at [0, 1151]", "1152 bytes, not 1151"),
        ("STATIC at [0, 1152]", "STATIC at [9999999, 1152]", "refers to bytes"),
    ],
)
def test_a_cpu_program_is_what_the_table_says(tmp_path: Path, old: str, new: str, words: str) -> None:
    saved(tmp_path / "a.bin", net(), backend=CpuBackend)
    whole, other = Container(tmp_path / "a.bin"), Writer()
    program = whole.json("program", "0")
    assert old in program["graph"]
    for section in whole.sections:
        if section.kind == "program":
            other.add_json("program", "0", {"graph": program["graph"].replace(old, new)})
        else:
            other.add(section.kind, section.name, whole.section(section.kind, section.name))
    with pytest.raises(HexforgeError, match=words):
        Context(other.to_bytes()).program("net")


def test_mistakes_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    saved(path, net())
    context = Context(path)
    with pytest.raises(CallError, match="has no graph 'other'; it has net"):
        context.program("other")
    with pytest.raises(UnsupportedError, match="made for the htp backend, not cpu"):
        context.program("net", CpuBackend())
    with pytest.raises(CallError, match="no such file"):
        Context(tmp_path / "none.bin")
    with pytest.raises(CallError, match="has a graph 'net' already"):
        saved(tmp_path / "b.bin", net(), net())
    with pytest.raises(FormatError, match="not a hexforge context"):
        Context(b"\x00" * 100)
    with pytest.raises(FormatError, match="it is empty"):
        Context(b"")
    with pytest.raises(CallError, match="by path or as bytes, not as int"):
        Context(5)  # type: ignore[arg-type]
    with pytest.raises(FormatError, match=r"a\.bin: is a context, not an ONNX model; `hexforge wrap`"):
        hexforge.InferenceSession(path, providers=["QNNExecutionProvider"])
    assert not (tmp_path / "b.bin").exists()


def test_a_context_is_estimated_as_its_graph(tmp_path: Path) -> None:
    saved(tmp_path / "one.bin", net())
    saved(tmp_path / "two.bin", net(6, "a"), net(12, "b"))
    found = hexforge.estimate(tmp_path / "one.bin")
    assert found.latency_ms == pytest.approx(hexforge.estimate(HtpBackend().compile(net())).latency_ms)
    assert found.timeline.weight_bytes > 0
    with pytest.raises(CallError, match=r"has the graphs a, b; estimate Context"):
        hexforge.estimate(tmp_path / "two.bin")
