# SPDX-License-Identifier: Apache-2.0
"""The compiler process: it checks ops, prepares graphs, and runs those of backends that need Python."""

from __future__ import annotations

import functools
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hexforge.addons.capi.handed_over import HandedOver
from hexforge.addons.capi.messages import Stream, read_message, write_message
from hexforge.addons.qnn_graphs.compiling import compile_graph, context_builder, context_bytes, refusal
from hexforge.addons.saver.recorder import SavedProgram, SaverBackend, recorded_backend
from hexforge.backend import Backend, Program
from hexforge.errors import CallError, CapacityError, FormatError, HexforgeError
from hexforge.ir import Array, Value
from hexforge.ops import BUILT_IN
from hexforge.ops.packages import register_whole_package
from hexforge.runtime import registry
from hexforge.runtime.contexts.context import Context
from hexforge.runtime.contexts.context_builder import PreparedGraph
from hexforge.runtime.contexts.request import check_sharing

RECORD = "HEXFORGE_QNN_RECORD"
"""The variable that names a folder for a recording of what a library is asked for."""
Answer = Sequence[bytes]
Request = Mapping[str, Any]


class QnnCompiler:
    """What one process keeps: graphs that were prepared, by their context and name."""

    def __init__(self) -> None:
        self._graphs: dict[tuple[int, str], PreparedGraph] = {}
        self._programs: dict[tuple[int, str], Program] = {}

    def answer(self, parts: Sequence[bytes]) -> list[bytes]:
        """The answer to a message: a status (code, message, warnings), then what was asked for."""
        warnings = _Warnings()
        logging.getLogger("hexforge").addHandler(warnings)
        code, message = 0, ""
        results: Answer = ()
        try:
            request = json.loads(parts[0])
            call = _CALLS[request["call"]]
            results = call(self, request, parts[1:])
        except HexforgeError as error:
            code, message = error.code or _code(error), str(error)
        except MemoryError as error:
            code, message = 1002, f"memory cannot be had: {error}"
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            code, message = 1100, f"the request cannot be read: {type(error).__name__}: {error}"
        finally:
            logging.getLogger("hexforge").removeHandler(warnings)
        return [f"{code}\n{message}".encode(), "\n".join(warnings.texts).encode(), *results]

    def hello(self, request: Request, arrays: Sequence[bytes]) -> Answer:
        """Nothing: the process is there."""
        return ()

    def operations(self, request: Request, arrays: Sequence[bytes]) -> Answer:
        """The ops that graphs may have, a name a line."""
        return ("\n".join(sorted(op.name for op in BUILT_IN)).encode(),)

    def package(self, request: Request, arrays: Sequence[bytes]) -> Answer:
        """Register an op package."""
        register_whole_package(str(request["package"]))
        return ()

    def validate(self, request: Request, arrays: Sequence[bytes]) -> Answer:
        """Why the backend refuses the ops; nothing where it takes them."""
        reason = refusal(HandedOver(request, arrays).ops, _backend(request))
        return () if reason is None else (reason.encode(),)

    def finalize(self, request: Request, arrays: Sequence[bytes]) -> Answer:
        """A context with the graph alone, as the library opens it."""
        backend, name = _backend(request), str(request["graph"])
        graph = compile_graph(name, HandedOver(request, arrays).ops, backend, timed=True)
        key = (int(request["context"]), name)
        beside = [own.settings for (context, _), own in self._graphs.items() if context == key[0]]
        if request.get("weight_sharing"):
            check_sharing(True, [*beside, graph.settings], backend)
        self._graphs[key] = graph
        self._programs[key] = graph.program
        if request["backend"] == "saver":
            return (b"",)
        return (context_bytes(context_builder(backend), [graph]),)

    def binary(self, request: Request, arrays: Sequence[bytes]) -> Answer:
        """A context with several graphs that were prepared."""
        context = int(request["context"])
        graphs = [self._graphs[context, str(name)] for name in request["graphs"]]
        return (context_bytes(context_builder(_backend(request), bool(request["weight_sharing"])), graphs),)

    def load(self, request: Request, arrays: Sequence[bytes]) -> Answer:
        """Open a context whose graphs run here."""
        context = Context(bytes(arrays[0]), "the context binary")
        backend = _backend(request)
        for graph in context.graphs:
            program = context.program(graph.name)
            recorded = backend.opened(program) if isinstance(backend, SaverBackend) else program
            self._programs[int(request["context"]), graph.name] = recorded
        return ()

    def execute(self, request: Request, arrays: Sequence[bytes]) -> Answer:
        """The outputs of a graph for its inputs, in their order."""
        program = self._programs.get((int(request["context"]), str(request["graph"])))
        if program is None:
            raise CallError(f"graph {request['graph']!r} was not prepared by this process", 6023)
        given = dict(zip((str(name) for name in request["inputs"]), arrays, strict=True))
        feeds = {value.name: _array(value, given[value.name]) for value in program.graph.inputs}
        outputs = program.run(feeds)
        by_name = {value.name: value for value in program.graph.outputs}
        return [_bytes(by_name[str(name)], outputs[str(name)]) for name in request["outputs"]]

    def executed(self, request: Request, arrays: Sequence[bytes]) -> Answer:
        """Record an execution that the library did itself."""
        program = self._programs.get((int(request["context"]), str(request["graph"])))
        if isinstance(program, SavedProgram):
            given = dict(zip((str(name) for name in [*request["inputs"], *request["outputs"]]), arrays, strict=True))
            sides = program.graph.inputs, program.graph.outputs
            program.record(*({value.name: _array(value, given[value.name]) for value in side} for side in sides))
        return ()

    def describe(self, request: Request, arrays: Sequence[bytes]) -> Answer:
        """What the simulated device must know of a context."""
        from hexforge.addons.capi.device_contexts import described

        return (described(bytes(arrays[0]), str(request["soc"])),)

    def check_config(self, request: Request, arrays: Sequence[bytes]) -> Answer:
        """Refuse what a context cannot be created with, where there is no device that would."""
        from hexforge.addons.capi.device_contexts import check_config

        check_config(dict(request["config"]), _options(request))
        return ()

    def suits(self, request: Request, arrays: Sequence[bytes]) -> Answer:
        """Refuse a context that does not suit the chip, or not well where that is asked for."""
        from hexforge.addons.capi.device_contexts import require_suits

        require_suits(bytes(arrays[0]), _options(request), bool(request["strict"]))
        return ()

    def free(self, request: Request, arrays: Sequence[bytes]) -> Answer:
        """Forget the graphs of a context."""
        context = int(request["context"])
        self._graphs = {key: graph for key, graph in self._graphs.items() if key[0] != context}
        self._programs = {key: program for key, program in self._programs.items() if key[0] != context}
        return ()


def serve(stream: Stream) -> None:
    """Answer messages until the other side is gone."""
    process = QnnCompiler()
    while (parts := read_message(stream)) is not None:
        write_message(stream, process.answer(parts))


class _Warnings(logging.Handler):
    """What hexforge warns of while it works on a message."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(" ".join(record.getMessage().split()))


@functools.lru_cache(64)
def _made(name: str, settings: tuple[tuple[str, str], ...]) -> Backend:
    backend = registry.backend(name, dict(settings))
    folder = os.environ.get(RECORD)
    return recorded_backend(backend, Path(folder)) if folder and not isinstance(backend, SaverBackend) else backend


def _backend(request: Request) -> Backend:
    """The backend of a request; equal options share one."""
    return _made(str(request["backend"]), tuple(sorted(_options(request).items())))


def _options(request: Request) -> dict[str, str]:
    return {str(key): str(value) for key, value in request.get("options", {}).items()}


def _code(error: HexforgeError) -> int:
    """QNN's code for an error that has none of its own."""
    if isinstance(error, CapacityError):
        return 1002
    if isinstance(error, FormatError):
        return 5005
    return 6022


def _array(value: Value, data: bytes) -> Array:
    """A tensor's elements; a batch of several runs has so many times the first dimension."""
    array = np.frombuffer(data, value.dtype.numpy)
    return array.reshape((-1, *value.shape[1:]) if value.shape and array.size != value.type.size else value.shape)


def _bytes(value: Value, array: Array) -> bytes:
    return np.ascontiguousarray(array).astype(value.dtype.numpy, copy=False).tobytes()


_CALLS: dict[str, Callable[[QnnCompiler, Request, Sequence[bytes]], Answer]] = {
    call.__name__: call
    for call in (
        QnnCompiler.hello, QnnCompiler.operations, QnnCompiler.package, QnnCompiler.validate, QnnCompiler.finalize,
        QnnCompiler.binary, QnnCompiler.load, QnnCompiler.execute, QnnCompiler.executed, QnnCompiler.free,
        QnnCompiler.describe, QnnCompiler.check_config, QnnCompiler.suits,
    )
}  # fmt: skip
