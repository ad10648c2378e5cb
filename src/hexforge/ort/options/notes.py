# SPDX-License-Identifier: Apache-2.0
"""Notes: what a session was asked for that changes nothing, where nodes run, what runs showed, each logged once."""

from __future__ import annotations

import logging
import re
import sys
import threading
from collections.abc import Sequence

import onnxruntime

from hexforge.runtime.stages import PlacedNode
from hexforge.terminal_text import visible

_LOG = logging.getLogger("hexforge")
_FILE = re.compile(r"(?:_path|_dir|_filepath|_to_file|_trace|dump_\w+)\b")
"""Options that promise a file: one that is not written is worth a warning."""


OVERFLOWED = (
    "numbers of a run are past 65504, where the chip rounds coarsely and convolutions end: `hexforge run` names the "
    "first tensor; quantize its node to 16 bits, or scale it down"
)


_default_severity: list[int] = []
"""What set_default_logger_severity asked for last, if it was called."""


def set_default_logger_severity(severity: int) -> None:
    """Log from this severity on where no session says otherwise: 0 is verbose, 4 is fatal."""
    onnxruntime.set_default_logger_severity(severity)
    _default_severity[:] = [severity]


class Notes:
    """Lines in the order they came; `least_severe` is what the session or its provider asks to be logged from."""

    def __init__(self, least_severe: int | None) -> None:
        self.lines: tuple[str, ...] = ()
        default = _default_severity[0] if _default_severity else None
        self._least_severe = default if least_severe is None else least_severe
        self._lock = threading.Lock()

    def add(self, *notes: str) -> None:
        """Keep and log what is new."""
        with self._lock:
            new = [note for note in dict.fromkeys(map(visible, notes)) if note not in self.lines]
            self.lines += tuple(new)
        for note in new:
            promised = _FILE.search(note.partition(" has no effect")[0])
            self._log(logging.INFO if promised is None else logging.WARNING, note)

    def warn(self, *lines: str) -> None:
        """Keep what was tolerated, and log it as warnings."""
        with self._lock:
            self.lines += lines
        for line in lines:
            self._log(logging.WARNING, line)

    def tell_placements(self, rows: Sequence[PlacedNode], backend: str) -> None:
        """Log every node by the provider that has it, with what it became or why it is refused; all are verbose."""
        if self._least_severe != 0:
            return
        self._log(logging.DEBUG, "Node placements")
        for provider in dict.fromkeys(row.where for row in rows):
            placed = [row for row in rows if row.where == provider]
            self._log(logging.DEBUG, f" Node(s) placed on [{provider}]. Number of nodes: {len(placed)}")
            for row in placed:
                ops = " ".join(row.qnn_ops)
                why = f": {row.reason}" if row.reason else f": {backend} runs {ops}" if ops else ""
                self._log(logging.DEBUG, f"  {row.op_type} ({row.node}){why}")

    def _log(self, level: int, note: str) -> None:
        """Log as `logging` is set up, or down to the severity that the session or its provider asks for.

        What is asked for is seen also where nobody set logging up: on standard error, as onnxruntime's own lines are.
        """
        note = visible(note)
        if self._least_severe is None:
            _LOG.log(level, note)
        elif level >= 10 * (self._least_severe + 1):  # 0 is verbose, logging.DEBUG is 10
            if _LOG.hasHandlers():
                _LOG.handle(_LOG.makeRecord(_LOG.name, level, __file__, 0, note, (), None))
            else:
                letter = "V" if level <= logging.DEBUG else logging.getLevelName(level)[0]
                print(f"[{letter}:hexforge:] {note}", file=sys.stderr)
