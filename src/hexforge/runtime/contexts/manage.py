# SPDX-License-Identifier: Apache-2.0
"""ManagedSession: starts with a context that runs, prepares a better one in a thread, and switches to it.

The pattern of QNN's "Context Binary Management": a saved context is checked against the chip; where it is sub-optimal
it is used all the same, where it cannot be used the model is prepared fast (level 1) and not saved; a thread then
prepares it anew at the highest level, saves it and hands it over. Every level gives the same bits.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from hexforge.backend import Backend, ContextBackend, Program, Verdict
from hexforge.chips.deployment import Deployment
from hexforge.errors import CallError, FormatError, HexforgeError, UnsupportedError
from hexforge.formats.context import GraphInfo
from hexforge.ir import Array
from hexforge.runtime.contexts.compatibility import require_compatible
from hexforge.runtime.contexts.compile import Compiled, compile
from hexforge.runtime.contexts.context import Context
from hexforge.runtime.contexts.context_builder import is_made_from
from hexforge.runtime.contexts.request import ContextRequest
from hexforge.runtime.registry import backend_for

if TYPE_CHECKING:
    from hexforge.model.source import ModelSource

_LOG = logging.getLogger("hexforge")
FAST, BEST = 1, 3
"""Levels of the first prepare and of that in the background."""


@dataclass(frozen=True, slots=True)
class _Running:
    """What inferences run on; replaced as a whole."""

    row: GraphInfo
    program: Program
    verdict: Verdict
    why: str


class _StoppedError(Exception):
    """The session was closed while its context was being prepared."""


class ManagedSession:
    """A model that runs at once, and faster once its best context is prepared; any number of threads may run it.

    `path` is the context that is used, and replaced once a better one is made. `on_change` is called from the thread
    that made it, with this session; `error` is what went wrong in it, which ends nothing: inferences go on.
    """

    def __init__(
        self,
        model: ModelSource,
        path: str | os.PathLike[str],
        deployment: Deployment | Backend | str | None = None,
        *,
        optimization: int = BEST,
        first_optimization: int = FAST,
        on_change: Callable[[ManagedSession], None] | None = None,
        dims: Mapping[str, int] | None = None,
        shapes: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        self._model, self._backend = model, backend_for(deployment)
        self.path = Path(path)
        self._how: dict[str, Any] = {"dims": dims, "shapes": shapes}
        self._optimization = optimization
        self._on_change = on_change
        self._name = ContextRequest().names([model])[0]
        self._stop, self._done = threading.Event(), threading.Event()
        self.error: HexforgeError | OSError | MemoryError | None = None
        """Why there is no better context, where making it failed."""
        self.reasons: tuple[str, ...] = ()
        """Why the saved context was not good enough, or not used at all."""
        self._thread: threading.Thread | None = None
        saved = self._saved()
        self._running = saved if saved is not None else self._prepared(first_optimization)
        if self.verdict is Verdict.OPTIMAL:
            self._done.set()
        else:
            self._thread = threading.Thread(target=self._improve, name=f"prepare {self._name}", daemon=True)
            self._thread.start()

    # -- running ------------------------------------------------------------------------------------------------------

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Array]) -> list[Array]:
        """Outputs for inputs, in the order of `output_names` (all where it is None), by the context of this moment."""
        running = self._running  # one read: a switch meanwhile concerns the next run
        outputs = running.program.run(feeds)
        names = list(outputs) if output_names is None else list(output_names)
        if missing := [n for n in names if n not in outputs]:
            raise CallError(f"the model has no output {missing[0]!r}; it has {', '.join(outputs)}")
        return [outputs[name] for name in names]

    @property
    def graph(self) -> GraphInfo:
        """The row of the graph that runs: its inputs, outputs and settings."""
        return self._running.row

    @property
    def verdict(self) -> Verdict:
        """Optimal once the context is the best there can be; sub-optimal before."""
        return self._running.verdict

    @property
    def context_source(self) -> str:
        """Where the context that runs comes from."""
        return self._running.why

    # -- the better context -------------------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the preparation has ended; True where the context that runs is optimal."""
        self._done.wait(timeout)
        return self.verdict is Verdict.OPTIMAL

    def close(self) -> None:
        """End the preparation at its next step; the saved context stays as it is, or is whole."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _saved(self) -> _Running | None:
        """The saved context, where it can run."""
        if not self.path.exists():
            self.reasons = (f"{self.path}: there is no context yet",)
            return None
        try:
            context = Context(self.path)
            judged = require_compatible(context.info, self._backend, where=context.where)
            if not is_made_from(context.info, self._name, self._model, self._how):
                raise FormatError(f"{self.path}: was made of another model, or of other sizes of this one")
            row = context.graph(self._name)
            program = context.program(self._name)
        except (FormatError, UnsupportedError, CallError) as error:
            self.reasons = (str(error),)
            return None
        reasons = list(judged.reasons)
        level = row.settings.get("optimization") or BEST
        if level < self._optimization:
            reasons.append(f"it was prepared at level {level}, not {self._optimization}")
        self.reasons = tuple(reasons)
        verdict = Verdict.SUBOPTIMAL if reasons else Verdict.OPTIMAL
        return _Running(row, program, verdict, f"{self.path} (saved)")

    def _compiled(self, optimization: int, progress: Callable[[int, int], None] | None = None) -> Compiled:
        backend = self._backend.at_level(optimization) if isinstance(self._backend, ContextBackend) else self._backend
        request = ContextRequest(graph_names=(self._name,))
        return compile(self._model, None, backend, request, progress=progress, **self._how)

    def _prepared(self, optimization: int) -> _Running:
        """A fast prepare, not saved. What fails here leaves nothing to run, and is raised."""
        compiled = self._compiled(optimization)
        program = compiled.program(self._name)
        verdict = Verdict.OPTIMAL if optimization >= self._optimization else Verdict.SUBOPTIMAL
        if verdict is Verdict.OPTIMAL:
            compiled.save(self.path)
        return _Running(compiled.info.graphs[0], program, verdict, f"prepared at level {optimization}")

    def _improve(self) -> None:
        """Prepare at the highest level, save and switch; this runs in the thread."""
        try:
            compiled = self._compiled(self._optimization, self._continue)
            self._continue()
            compiled.save(self.path)
            context = Context(self.path)
            judged = require_compatible(context.info, self._backend, where=context.where)
            program = context.program(self._name)
            self._continue()
            why = f"{self.path} (prepared at level {self._optimization})"
            self._running = _Running(context.graph(self._name), program, judged.verdict, why)
        except _StoppedError:
            pass
        except (HexforgeError, OSError, MemoryError) as error:
            self.error = error
            _LOG.warning("%r: no better context could be made, the one that runs stays: %s", self._name, error)
        finally:
            self._done.set()
        if self._on_change is not None and not self._stop.is_set():
            self._on_change(self)

    def _continue(self, *_: int) -> None:
        if self._stop.is_set():
            raise _StoppedError
