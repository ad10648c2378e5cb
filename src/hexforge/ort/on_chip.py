# SPDX-License-Identifier: Apache-2.0
"""Sessions on a chip that their scripts do not name: `python -m hexforge.ort --soc SM8650 SCRIPT`.

A package's own code asks for CPUExecutionProvider and leaves dimensions open. Its sessions stay onnxruntime's, and each
run goes to a session of QNNExecutionProvider that is made for the shapes of its inputs when they are first seen.
"""

from __future__ import annotations

import os
import sys
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from hexforge.chips.soc import find_chip
from hexforge.errors import CallError, UnsupportedError
from hexforge.ir import Array
from hexforge.ort.options.session_options import SessionOptions
from hexforge.ort.qnn_session import QnnSession
from hexforge.ort.values import to_array, to_ortvalue
from hexforge.runtime.cpu_part import CPU, QNN

MOST_SHAPES = 8
"""Sessions that are kept of one model; the one that was not used for longest goes."""
Shapes = tuple[tuple[str, tuple[int, ...]], ...]
_chip: list[str] = []
"""The chip that --soc names, if one does."""
_at_work: ContextVar[bool] = ContextVar("at_work", default=False)
"""Whether a session of the chip is made, which has sessions of onnxruntime for what the NPU does not take."""


def put_sessions_on(soc: str) -> None:
    """Run sessions that name no chip on this one from now on; CallError for a chip that nobody knows."""
    if find_chip(soc) is None:
        raise CallError("names no chip; give one, such as SM8650 (`hexforge socs` lists them)")
    _chip[:] = [soc]


def chip_of_sessions() -> str:
    """The chip that such sessions run on, or nothing."""
    return _chip[0] if _chip and not _at_work.get() else ""


class OnChipSession(onnxruntime.InferenceSession):  # type: ignore[misc]
    """onnxruntime's session of a model, whose runs compute what the chip would."""

    def begin(self, source: str | bytes | os.PathLike[str], threads: int) -> None:
        """Take the model that the session was made of."""
        self._source, self._threads = source, threads
        self._sessions: OrderedDict[Shapes, QnnSession] = OrderedDict()

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None) -> Any:
        """As onnxruntime's, on the chip."""
        return self._session_of(input_feed).run(output_names, input_feed, run_options)

    def run_with_ort_values(
        self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, Any], run_options: Any = None
    ) -> Any:
        """As onnxruntime's, on the chip."""
        feeds = {name: to_array(value) for name, value in input_dict_ort_values.items()}
        return [to_ortvalue(value) for value in self.run(output_names, feeds, run_options)]

    def io_binding(self) -> Any:
        """Refused: bound memory would be of one shape, and the session has many."""
        raise UnsupportedError(
            f"--soc {chip_of_sessions()}: io_binding is not there; call run, or give the script {QNN}"
        )

    def _session_of(self, feeds: Mapping[str, Any]) -> QnnSession:
        arrays = {name: np.asarray(value) for name, value in feeds.items()}
        shapes: Shapes = tuple(sorted((name, array.shape) for name, array in arrays.items()))
        if shapes not in self._sessions:
            self._sessions[shapes] = self._made(arrays)
            while len(self._sessions) > MOST_SHAPES:
                self._sessions.popitem(last=False)
        self._sessions.move_to_end(shapes)
        return self._sessions[shapes]

    def _made(self, arrays: Mapping[str, Array]) -> QnnSession:
        """A session for these shapes, which says where the nodes are."""
        options = SessionOptions()
        options.intra_op_num_threads = self._threads
        soc, shapes = _chip[0], {name: array.shape for name, array in arrays.items()}
        token = _at_work.set(True)
        try:
            made = QnnSession.__new__(QnnSession)
            made.load(self._source, options, {QNN: {"soc_model": soc}, CPU: {}}, shapes)
        finally:
            _at_work.reset(token)
        taken = sum(row.where == QNN for row in made.placements)
        model = "a model" if isinstance(self._source, bytes) else Path(self._source).name
        sizes = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
        print(f"hexforge: {model} ({sizes}): {taken} of {len(made.placements)} nodes on {soc}", file=sys.stderr)
        return made
