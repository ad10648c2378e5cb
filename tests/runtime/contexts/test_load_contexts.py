# SPDX-License-Identifier: Apache-2.0
"""Contexts loaded several at once, cancelled, with a client's buffers, with little memory; and nothing left behind."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Callable
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hexforge.backend import Program
from hexforge.backends.htp.backend import HtpBackend
from hexforge.errors import CallError, FormatError, HexforgeError
from hexforge.formats.container import Container, checksum_of_pieces
from hexforge.ir import Array, Graph
from hexforge.runtime.contexts import load_contexts as loading
from hexforge.runtime.contexts.context import Context
from hexforge.runtime.contexts.context_builder import ContextBuilder, PreparedGraph
from hexforge.runtime.contexts.load_contexts import (
    ABORTED,
    TIMED_OUT,
    CancelledError,
    ContextConfig,
    Notice,
    Signal,
    load_context,
    load_contexts,
)
from tests.runtime.contexts.test_context import feeds, net, saved


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Three contexts, the last of two graphs."""
    paths = [tmp_path / f"{i}.bin" for i in range(3)]
    saved(paths[0], net(6, "a"))
    saved(paths[1], net(8, "b", seed=1))
    saved(paths[2], net(6, "c", seed=2), net(10, "d", seed=2))
    return paths


def want(graph: Graph) -> Array:
    return HtpBackend().compile(graph).run(feeds(graph))["y"]


def mapped(folder: Path) -> int:
    """How many maps of files in a folder this process has."""
    gc.collect()
    return sum(str(folder) in line for line in Path("/proc/self/maps").read_text().splitlines())


needs_proc = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")


def damage(path: Path, kind: str) -> None:
    section = next(s for s in Container(path).sections if s.kind == kind)
    data = bytearray(path.read_bytes())
    data[section.offset + 1] ^= 1
    path.write_bytes(data)


# -- several at once --------------------------------------------------------------------------------------------------


def test_every_graph_and_every_context_is_told(files: list[Path]) -> None:
    told: list[Notice] = []
    inside = threading.Lock()

    def on_graph(notice: Notice) -> None:
        assert inside.acquire(blocking=False), "two notifications at the same time"
        told.append(notice)
        inside.release()

    batch = load_contexts(files, on_graph=on_graph)
    assert not batch.errors
    graphs = {(Path(n.file).name, n.graph) for n in told}
    assert graphs == {("0.bin", "a"), ("1.bin", "b"), ("2.bin", "c"), ("2.bin", "d"), *((f.name, "") for f in files)}
    assert len(told) == len(graphs)
    for notice in told:
        assert notice.error is None
        assert notice.context is batch.loaded[notice.file].context
    programs = {n.graph: n.program for n in told if n.program is not None}
    for graph in (net(6, "a"), net(8, "b", seed=1), net(6, "c", seed=2), net(10, "d", seed=2)):
        program = programs[graph.name]
        assert program is not None
        np.testing.assert_array_equal(program.run(feeds(graph))["y"], want(graph))


def test_one_bad_file_does_not_keep_the_others(files: list[Path]) -> None:
    damage(files[1], "weights")
    told: list[Notice] = []
    batch = load_contexts([*files, files[0].with_name("none.bin")], on_graph=told.append)
    assert set(batch.loaded) == {str(files[0]), str(files[2])}
    assert set(batch.errors) == {str(files[1]), str(files[0].with_name("none.bin"))}
    assert isinstance(batch.errors[str(files[1])], FormatError)
    assert {Path(n.file).name for n in told if n.error} == {"1.bin", "none.bin"}


@needs_proc
def test_all_or_nothing(files: list[Path]) -> None:
    damage(files[1], "weights")
    files[2].write_bytes(b"something else")
    with pytest.raises(FormatError) as caught:
        load_contexts(files, all_or_nothing=True, threads=1)
    assert "contexts cannot be loaded, so none is" in str(caught.value)
    assert "1.bin: section weights '' is damaged" in str(caught.value)
    assert not mapped(files[0].parent)
    files[0].unlink()
    with pytest.raises(HexforgeError) as caught_both:
        load_contexts(files, all_or_nothing=True, threads=3)
    assert type(caught_both.value) in (HexforgeError, FormatError, CallError)
    assert not mapped(files[1].parent)


def test_lists_that_make_no_sense(files: list[Path]) -> None:
    for wrong in ([], [files[0], files[0]]):
        with pytest.raises(CallError, match="each once"):
            load_contexts(wrong)
    with pytest.raises(CallError, match="use load for each"):
        load_contexts(files, ContextConfig(weights=lambda name, offset, size: b""))


# -- signals ----------------------------------------------------------------------------------------------------------


def aborting(signal: Signal, at: int) -> Callable[..., Any]:
    """A backend that aborts while the program of its `at`-th graph is being made."""

    class Aborting(HtpBackend):
        calls = 0

        def load(self, name: str, inputs: Any, outputs: Any, data: Any, get: Any) -> Any:
            Aborting.calls += 1
            if Aborting.calls == at:
                signal.abort()
            return super().load(name, inputs, outputs, data, get)

    return Aborting


@needs_proc
@pytest.mark.parametrize("accelerated", [False, True])
def test_aborted_within_a_graph_leaves_nothing(files: list[Path], accelerated: bool) -> None:
    threads = threading.active_count()
    signal, told = Signal(), list[Notice]()
    how = ContextConfig(backend=aborting(signal, 2)(), init_acceleration=accelerated)
    with pytest.raises(CancelledError, match="aborted by its signal") as caught:
        load_context(
            files[2], how, signal=signal, on_graph=lambda n: told.append(Notice(n.file, n.graph, error=n.error))
        )
    assert caught.value.code == ABORTED
    assert ("d", True) in [(n.graph, n.error is not None) for n in told]
    assert told[-1].graph == ""
    assert told[-1].error is caught.value
    assert not mapped(files[2].parent)
    assert threading.active_count() == threads
    assert load_context(files[2]).programs.keys() == {"c", "d"}  # another signal, another loading


@pytest.mark.feature("Init cancellation", guide="3167-3176")
@needs_proc
def test_a_timeout_ends_it(files: list[Path]) -> None:
    class Slow(HtpBackend):
        def load(self, *given: Any, **more: Any) -> Any:
            threading.Event().wait(0.05)
            return super().load(*given, **more)

    with pytest.raises(CancelledError, match=r"not done after 0\.02 s") as caught:
        load_context(files[2], ContextConfig(backend=Slow()), signal=Signal(timeout_s=0.02))
    assert caught.value.code == TIMED_OUT
    assert not mapped(files[2].parent)
    assert load_context(files[2], ContextConfig(backend=Slow()), signal=Signal(timeout_s=60)).programs
    with pytest.raises(CallError, match="more than 0"):
        Signal(timeout_s=0)


@needs_proc
@pytest.mark.parametrize("all_or_nothing", [False, True])
def test_a_signal_ends_the_whole_list(files: list[Path], all_or_nothing: bool) -> None:
    threads = threading.active_count()
    signal = Signal()
    how = ContextConfig(backend=aborting(signal, 3)())
    with pytest.raises(CancelledError) as caught:
        load_contexts(files, how, signal=signal, all_or_nothing=all_or_nothing, threads=1)
    assert caught.value.code == ABORTED
    assert not mapped(files[0].parent)
    assert threading.active_count() == threads


def test_an_aborted_signal_loads_nothing_more(files: list[Path]) -> None:
    signal = Signal()
    signal.abort()
    with pytest.raises(CancelledError):
        load_context(files[0], signal=signal)


# -- buffers of the client's ------------------------------------------------------------------------------------------


def encrypted(path: Path) -> bytes:
    """Make a context's arrays unreadable in its file; the real ones."""
    section = next(s for s in Container(path).sections if s.kind == "weights")
    data = bytearray(path.read_bytes())
    real = bytes(data[section.offset : section.offset + section.bytes])
    data[section.offset : section.offset + section.bytes] = bytes(b ^ 0x5A for b in real)
    path.write_bytes(data)
    return real


@pytest.mark.parametrize("budget", [0, 1])
def test_weights_from_shared_memory_are_given_back(files: list[Path], budget: int) -> None:
    real = encrypted(files[2])
    with pytest.raises(FormatError, match="section weights '' is damaged"):
        load_context(files[2])
    shared = SharedMemory(create=True, size=len(real))
    asked, ended = [], []

    def provide(name: str, offset: int, size: int) -> Any:
        asked.append((name, offset, size))
        shared.buf[:size] = real  # type: ignore[index]
        return shared.buf

    def release(name: str, buffer: Any) -> None:
        ended.append(name)
        buffer.release()
        shared.close()  # fails where anything still refers to the memory

    found: Any = load_context(
        files[2], ContextConfig(weights=provide, release=release, file_read_memory_budget_mb=budget)
    )
    section = next(s for s in Container(files[2]).sections if s.kind == "weights")
    assert asked == [(str(files[2]), section.offset, section.bytes)]
    np.testing.assert_array_equal(found.programs["c"].run(feeds(net()))["y"], want(net(6, "c", seed=2)))
    program = found.programs["d"]
    del found
    gc.collect()
    assert not ended, "a program still uses it"
    np.testing.assert_array_equal(program.run(feeds(net(10)))["y"], want(net(10, "d", seed=2)))
    del program
    gc.collect()
    assert ended == [str(files[2])]
    shared.unlink()


def test_buffers_that_will_not_do(files: list[Path]) -> None:
    real = encrypted(files[0])
    ended: list[str] = []
    wrong: list[tuple[Any, type[HexforgeError], str]] = [
        (real[:-1], CallError, "it must be"),
        (memoryview(b"x" * 16 + real + b"x" * 16)[9:], CallError, "address"),
        ("text", CallError, "not a buffer"),
        (bytes(len(real)), FormatError, "section weights '' is damaged"),
    ]
    for given, kind, message in wrong:
        with pytest.raises(kind, match=message):
            load_context(
                files[0],
                ContextConfig(weights=lambda *_, given=given: given, release=lambda name, _: ended.append(name)),
            )
    gc.collect()
    assert ended == [str(files[0])]  # only the last was taken
    with pytest.raises(CallError, match="release"):
        ContextConfig(release=lambda *_: None)


# -- memory -----------------------------------------------------------------------------------------------------------

_PEAK = """
import sys
from pathlib import Path
from hexforge.runtime.contexts.load_contexts import ContextConfig, load_context
def kb(key):
    return int(next(l for l in Path("/proc/self/status").read_text().splitlines() if l.startswith(key)).split()[1])
load_context(sys.argv[1], ContextConfig(file_read_memory_budget_mb=1))  # whatever is imported on the way
before = kb("VmRSS")
Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
kept = load_context(sys.argv[2], ContextConfig(file_read_memory_budget_mb=int(sys.argv[3])))
print(kb("VmHWM") - before)
"""


@needs_proc
def test_a_budget_bounds_the_memory_of_loading(tmp_path: Path) -> None:
    tiny, large = tmp_path / "tiny.bin", tmp_path / "large.bin"
    saved(tiny, net())
    builder = ContextBuilder("htp")
    builder.add(PreparedGraph("net", HtpBackend().compile(net())))
    builder.pool.put(np.random.default_rng(0).integers(0, 256, 64 << 20, np.uint8))
    builder.writer().write(large)

    def peak_kb(budget: int) -> int:
        command = [sys.executable, "-c", _PEAK, str(tiny), str(large), str(budget)]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert peak_kb(0) > 60 << 10, "without a budget the whole file is read"
    assert peak_kb(4) < 16 << 10


@pytest.mark.feature("File read memory budget", guide="147-153, 347-355")
def test_the_budget_is_what_the_guide_says(files: list[Path]) -> None:
    for budget in (1, 10_000):  # more than the file has is all of it
        found = load_context(files[0], ContextConfig(file_read_memory_budget_mb=budget))
        np.testing.assert_array_equal(found.programs["a"].run(feeds(net()))["y"], want(net(6, "a")))
    for wrong in (-1, 1.5, True):
        with pytest.raises(CallError, match="number of MB"):
            ContextConfig(file_read_memory_budget_mb=wrong)  # type: ignore[arg-type]
    with pytest.raises(CallError, match="is for files"):
        load_context(files[0].read_bytes(), ContextConfig(file_read_memory_budget_mb=1))
    for kind in ("info", "program", "weights"):
        whole = files[1].read_bytes()
        damage(files[1], kind)
        for how in (
            ContextConfig(),
            ContextConfig(file_read_memory_budget_mb=1),
            ContextConfig(init_acceleration=True),
        ):
            with pytest.raises(FormatError, match=rf"1\.bin: section {kind}"):
                load_context(files[1], how)
        files[1].write_bytes(whole)


@pytest.mark.feature("Init acceleration", guide="187-193, 412-418")
def test_accelerated_loading_gives_the_same(files: list[Path]) -> None:
    told: list[str] = []
    found = load_context(
        files[2], ContextConfig(init_acceleration=True, graphs=["d"]), on_graph=lambda n: told.append(n.graph)
    )
    assert told == ["d", ""]
    np.testing.assert_array_equal(found.programs["d"].run(feeds(net(10)))["y"], want(net(10, "d", seed=2)))
    assert isinstance(found.context, Context)


@pytest.mark.feature("Init acceleration", guide="187-193, 412-418")
@pytest.mark.parametrize("accelerated", [False, True])
def test_accelerated_loading_makes_programs_while_arrays_are_verified(
    files: list[Path], accelerated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that on two processors it takes as long as the longer of both, and not as both one after the other."""
    verified, made = threading.Event(), threading.Event()
    verify, program = loading._verify, Context.program
    order: list[str] = []

    def slow_verify(*given: Any) -> None:
        assert not accelerated or made.wait(60)  # it ends after a program is made, which must not wait for it
        verify(*given)
        order.append("verified")
        verified.set()

    def noted_program(self: Context, *given: Any) -> Program:
        ready = program(self, *given)
        order.append("made")
        made.set()
        return ready

    monkeypatch.setattr(loading, "_LEAST_BESIDE", 0)
    monkeypatch.setattr(loading, "_verify", slow_verify)
    monkeypatch.setattr(Context, "program", noted_program)
    load_context(files[0], ContextConfig(init_acceleration=accelerated))
    assert order[0] == ("made" if accelerated else "verified")
    assert verified.is_set()


@pytest.mark.feature("Init acceleration", guide="187-193, 412-418")
def test_accelerated_loading_verifies_parts_of_a_section_in_threads_of_their_own(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[tuple[int, int]] = set()
    whole = checksum_of_pieces

    def noted(pieces: Any, *crew: int) -> int:
        threads.add((crew[0], crew[1]))
        return whole(pieces, *crew)

    monkeypatch.setattr(loading, "_LEAST_PART", 1)
    monkeypatch.setattr(loading, "_LEAST_BESIDE", 0)
    monkeypatch.setattr(loading, "processors", lambda: 3)
    monkeypatch.setattr(loading, "checksum_of_pieces", noted)
    load_context(files[0], ContextConfig(init_acceleration=True))
    assert threads == {(3, 1)}
    for kind in ("info", "program", "weights"):
        data = files[1].read_bytes()
        damage(files[1], kind)
        with pytest.raises(FormatError, match=rf"1\.bin: section {kind}"):
            load_context(files[1], ContextConfig(init_acceleration=True))
        files[1].write_bytes(data)
