# SPDX-License-Identifier: Apache-2.0
"""ReadWriteLock: many runs use a device at the same time; one that must be alone waits for them, and they for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class NotAloneError(Exception):
    """Somebody stayed inside for too long."""


class ReadWriteLock:
    """Lets either any number of runs through, or one that is alone; who waits to be alone goes first."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._inside = 0
        self._waiting = 0
        self._alone = False

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Inside together with others."""
        with self._changed:
            while self._alone or self._waiting:
                self._changed.wait()
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                if not self._inside and self._waiting:
                    self._changed.notify_all()

    @contextmanager
    def alone(self, patience_s: float) -> Iterator[None]:
        """Inside with nobody else; NotAloneError where others do not leave for so long."""
        with self._changed:
            self._waiting += 1
            try:
                if not self._changed.wait_for(lambda: not (self._alone or self._inside), patience_s):
                    raise NotAloneError
                self._alone = True
            finally:
                self._waiting -= 1
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._alone = False
                self._changed.notify_all()
