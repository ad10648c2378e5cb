# SPDX-License-Identifier: Apache-2.0
"""Loading: contexts opened several at once, with notifications, cancelled, with a client's buffers or little memory."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hexforge.backend import Backend, Program, processors
from hexforge.errors import CallError, FormatError, HexforgeError
from hexforge.formats.container import Buffer, Container, ContainerSection, checksum_of_pieces
from hexforge.runtime.contexts.context import Context

_CHUNK = 8 << 20
"""Bytes between two looks at the signal."""
_CHUNK_BESIDE = 64 << 20
"""The same in a thread of its own, which waits for the interpreter's lock at each."""
_LEAST_PART = 4 << 20
"""Bytes of a section for which a thread more is worth its start."""
_LEAST_BESIDE = 1 << 16
"""Bytes of a file below which a thread of its own would begin when all is verified."""
_ALIGN = 16
ABORTED, TIMED_OUT = 5012, 5013
"""QNN_CONTEXT_ERROR_ABORTED and QNN_CONTEXT_ERROR_TIMED_OUT."""
Weights = Callable[[str, int, int], Any]
"""Provides the bytes of a section: of which file, where in it, how many."""
Release = Callable[[str, Any], None]
"""Told when a buffer that was provided is no longer used."""


class CancelledError(HexforgeError):
    """Loading was ended by its signal; `code` is QNN's for an abort or a timeout."""


class _StoppedError(HexforgeError):
    """Another file of the list has failed, so loading stops."""


class Signal:
    """Ends a loading before it is done: by `abort` from another thread, or by itself after `timeout_s` of loading."""

    def __init__(self, timeout_s: float | None = None) -> None:
        if timeout_s is not None and not timeout_s > 0:
            raise CallError(f"timeout_s {timeout_s}: must be more than 0; leave it out to wait as long as it takes")
        self.timeout_s = timeout_s
        self._aborted = threading.Event()

    def abort(self) -> None:
        """End what is loading under this signal, and whatever is to load under it."""
        self._aborted.set()

    def watch(self) -> Callable[[], None]:
        """Begin to count; what it returns raises CancelledError once the signal is given."""
        end = None if self.timeout_s is None else time.monotonic() + self.timeout_s

        def check() -> None:
            if self._aborted.is_set():
                raise CancelledError("loading was aborted by its signal", ABORTED)
            if end is not None and time.monotonic() >= end:
                raise CancelledError(f"loading was not done after {self.timeout_s} s, the signal's timeout", TIMED_OUT)

        return check


@dataclass(frozen=True, slots=True)
class Notice:
    """A graph, or (graph "") a whole context, that is loaded or could not be."""

    file: str
    graph: str
    program: Program | None = None
    context: Context | None = None
    error: HexforgeError | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """A context with its programs, ready to run."""

    context: Context
    programs: Mapping[str, Program]


@dataclass(frozen=True, slots=True)
class Batch:
    """The outcome of loading several files, by their names."""

    loaded: Mapping[str, Loaded]
    errors: Mapping[str, HexforgeError]


OnGraph = Callable[[Notice], None]


@dataclass(frozen=True, slots=True)
class ContextConfig:
    """How contexts are loaded; the names are QNN's context config options."""

    graphs: Collection[str] | None = None
    """Only these of the graphs (enable_graphs)."""
    backend: Backend | None = None
    weights: Weights | None = None
    """Provides the arrays' section instead of the file: from shared memory, decrypted, read directly."""
    release: Release | None = None
    file_read_memory_budget_mb: int = 0
    """Read and verify the file in pieces of at most so many MB; the arrays come in when they are first used. 0: off."""
    init_acceleration: bool = False
    """Verify the arrays in as many threads as there are processors, while programs are made over them."""
    skip_validation_on_binary_section: bool = False
    """Do not compare the checksum of the arrays of adapters that are applied."""

    def __post_init__(self) -> None:
        budget = self.file_read_memory_budget_mb
        if type(budget) is not int or budget < 0:
            raise CallError(f"file_read_memory_budget_mb {budget!r}: must be a number of MB, or 0 to turn it off")
        if self.release is not None and self.weights is None:
            raise CallError("release is told of buffers that `weights` provides; give that, too")


def load_context(
    file: str | os.PathLike[str] | Buffer,
    how: ContextConfig | None = None,
    *,
    signal: Signal | None = None,
    on_graph: OnGraph | None = None,
) -> Loaded:
    """Open a context and make its programs; `on_graph` is told of each graph, then of the context.

    After an error, or after the signal was given, nothing stays open.
    """
    check = (signal or Signal()).watch()
    where = os.fspath(file) if isinstance(file, (str, os.PathLike)) else "context"
    try:
        return _load(file, where, how or ContextConfig(), check, on_graph or _ignore)
    except HexforgeError as error:
        failed = _without_traceback(error)
    gc.collect()  # graphs refer to their nodes, and these to them
    raise failed


def load_contexts(
    files: Sequence[str | os.PathLike[str]],
    how: ContextConfig | None = None,
    *,
    signal: Signal | None = None,
    on_graph: OnGraph | None = None,
    all_or_nothing: bool = False,
    threads: int = 0,
) -> Batch:
    """Load several contexts at the same time, as QnnContext_createFromBinaryListAsync does.

    `on_graph` is told of every graph and every context as it is ready, in any order, from other threads, one at a time.
    One file's fault does not keep the others from loading, unless `all_or_nothing`: then all faults are one error. A
    signal ends them all.
    """
    names = [os.fspath(f) for f in files]
    if len(set(names)) != len(names) or not names:
        raise CallError("give the files to load, each once")
    chosen = how or ContextConfig()
    if chosen.weights is not None:
        raise CallError("weights: QNN provides buffers to one context at a time; use load for each")
    outer, stop = (signal or Signal()).watch(), threading.Event()
    lock = threading.Lock()

    def check() -> None:
        outer()
        if stop.is_set():
            raise _StoppedError("another file of the list could not be loaded")

    def tell(notice: Notice) -> None:
        with lock:
            (on_graph or _ignore)(notice)

    def one(name: str) -> Loaded | HexforgeError:
        try:
            return _load(name, name, chosen, check, tell)
        except HexforgeError as error:
            if all_or_nothing:
                stop.set()
            return _without_traceback(error)

    with ThreadPoolExecutor(threads or min(len(names), os.cpu_count() or 1), "hexforge-load") as pool:
        outcomes = dict(zip(names, pool.map(one, names), strict=True))
    errors = {name: f for name, f in outcomes.items() if isinstance(f, HexforgeError)}
    cancelled = next((e for e in errors.values() if isinstance(e, CancelledError)), None)
    if cancelled is None and not (errors and all_or_nothing):
        return Batch({name: f for name, f in outcomes.items() if isinstance(f, Loaded)}, errors)
    del outcomes
    gc.collect()
    if cancelled is not None:
        raise cancelled
    own = {name: e for name, e in errors.items() if not isinstance(e, _StoppedError)}
    kinds = {type(e): e.code for e in own.values()}
    kind, code = next(iter(kinds.items())) if len(kinds) == 1 else (HexforgeError, None)
    lines = "\n".join(f"  {e}" if name in str(e) else f"  {name}: {e}" for name, e in own.items())
    raise kind(f"{len(own)} of {len(names)} contexts cannot be loaded, so none is:\n{lines}", code=code)


def _without_traceback(error: HexforgeError) -> HexforgeError:
    """The error without its traceback, whose frames refer to unfinished objects."""
    error.__context__ = error.__cause__ = None
    return error.with_traceback(None)


def _ignore(notice: Notice) -> None:
    """Do nothing, where the caller gave no function."""


def _load(file: Any, where: str, how: ContextConfig, check: Callable[[], None], tell: OnGraph) -> Loaded:
    at, programs = "", {}
    try:
        check()
        container = Container(file, where)
        weights = None if how.weights is None else _client_weights(container, how.weights, how.release)
        check()
        with ThreadPoolExecutor(1, "hexforge-verify") as pool:
            beside = how.init_acceleration and len(container) >= _LEAST_BESIDE
            verified = pool.submit(_verify, container, file, weights, how, check) if beside else None
            if verified is None:
                _verify(container, file, weights, how, check)
            else:
                time.sleep(0)  # lets the thread begin: it gives the interpreter's lock back while it computes
            context = Context(container, verify=False, enable_graphs=how.graphs, weights=weights)
            context.skip_validation_on_binary_section = how.skip_validation_on_binary_section
            for row in context.graphs:
                check()
                at = row.name
                programs[at] = context.program(at, how.backend, check)
                if verified is None:
                    tell(Notice(where, at, programs[at], context))
            at = ""
            if verified is not None:
                verified.result()
                for name, program in programs.items():  # not before the arrays are known to be right
                    tell(Notice(where, name, program, context))
        check()
    except HexforgeError as error:
        if at:
            tell(Notice(where, at, error=error))
        tell(Notice(where, "", error=error))
        raise
    tell(Notice(where, "", context=context))
    return Loaded(context, programs)


# -- bytes ------------------------------------------------------------------------------------------------------------


def _verify(
    container: Container, file: Any, weights: memoryview | None, how: ContextConfig, check: Callable[[], None]
) -> None:
    """Compare every checksum, in pieces."""
    budget = how.file_read_memory_budget_mb << 20
    if not budget:
        chunk, threads = (_CHUNK_BESIDE, processors()) if how.init_acceleration else (_CHUNK, 1)
        container.verify(
            lambda s: checksum_of_pieces(_pieces(_source(container, s, weights), check, chunk), threads, _LEAST_PART)
        )
        return
    if not isinstance(file, (str, os.PathLike)):
        raise CallError("file_read_memory_budget_mb is for files; this context is in memory as a whole already")
    with Path(file).open("rb", buffering=0) as opened:
        room = memoryview(bytearray(min(budget, len(container))))
        container.verify(
            lambda s: checksum_of_pieces(
                _pieces(weights, check, _CHUNK)
                if weights is not None and s.kind == "weights"
                else _read(opened, s, room, check)
            )
        )


def _source(container: Container, section: ContainerSection, weights: memoryview | None) -> memoryview:
    if weights is not None and section.kind == "weights":
        return weights
    return container.view[section.offset : section.offset + section.bytes]


def _pieces(data: memoryview, check: Callable[[], None], chunk: int) -> Iterator[memoryview]:
    for first in range(0, len(data), chunk):
        check()
        yield data[first : first + chunk]


def _read(file: Any, section: ContainerSection, room: memoryview, check: Callable[[], None]) -> Iterator[memoryview]:
    """A section piece by piece, each in the same memory."""
    left = section.bytes
    file.seek(section.offset)
    while left:
        check()
        count = file.readinto(room[: min(left, len(room))])
        if not count:
            raise FormatError("the file became shorter while it was read", section.offset + section.bytes - left)
        left -= count
        yield room[:count]


def _client_weights(container: Container, weights: Weights, release: Release | None) -> memoryview:
    """The client's buffer with the arrays, given back to it when the last program over it is gone."""
    section = next((s for s in container.sections if (s.kind, s.name) == ("weights", "")), None)
    if section is None:
        raise FormatError(f"{container.where}: has no section weights ''")
    buffer = weights(container.where, section.offset, section.bytes)
    try:
        view = memoryview(buffer).cast("B")
    except (TypeError, ValueError, BufferError) as error:
        raise CallError(f"weights gave {type(buffer).__name__}, not a buffer of bytes: {error}") from None
    address = np.frombuffer(view, np.uint8).ctypes.data if len(view) else 0
    if len(view) < section.bytes or address % _ALIGN:
        raise CallError(
            f"weights gave {len(view)} bytes at an address that is a multiple of {address & -address}; it "
            f"must be {section.bytes} or more, and the address a multiple of {_ALIGN}"
        )
    holder = _ClientMemory(address, section.bytes)
    ended = weakref.finalize(holder, _release_buffer, view, buffer, container.where, release)
    ended.atexit = False
    return np.asarray(holder).data


class _ClientMemory:
    """Memory of a client's: lives as long as an array that was made of it."""

    def __init__(self, address: int, size: int) -> None:
        self.__array_interface__ = {"data": (address, True), "shape": (size,), "typestr": "|u1", "version": 3}


def _release_buffer(view: memoryview, buffer: Any, where: str, release: Release | None) -> None:
    view.release()
    if release is not None:
        release(where, buffer)
