# SPDX-License-Identifier: Apache-2.0
"""Notes: what a session was asked for that changes nothing, each kept and logged once."""

from __future__ import annotations

import logging
import re
import threading

_LOG = logging.getLogger("hexforge")
_FILE = re.compile(r"(?:_path|_dir|_filepath|_to_file|_trace|dump_\w+)\b")
"""Options that promise a file: one that is not written is worth a warning."""


class Notes:
    """Lines in the order they came; `least_severe` is the provider option log_severity_level."""

    def __init__(self, least_severe: int | None) -> None:
        self.lines: tuple[str, ...] = ()
        self._least_severe = least_severe
        self._lock = threading.Lock()

    def add(self, *notes: str) -> None:
        """Keep and log what is new."""
        with self._lock:
            new = [note for note in dict.fromkeys(notes) if note not in self.lines]
            self.lines += tuple(new)
        for note in new:
            promised = _FILE.search(note.partition(" has no effect")[0])
            self._log(logging.INFO if promised is None else logging.WARNING, note)

    def _log(self, level: int, note: str) -> None:
        """Log as `logging` is set up, or down to the severity that the provider option asks for."""
        if self._least_severe is None:
            _LOG.log(level, note)
        elif level >= 10 * (self._least_severe + 1):  # 0 is verbose, logging.DEBUG is 10
            _LOG.handle(_LOG.makeRecord(_LOG.name, level, __file__, 0, note, (), None))
