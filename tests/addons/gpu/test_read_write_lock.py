# SPDX-License-Identifier: Apache-2.0
"""The lock of a device: many together, or one alone, and nobody waits for ever."""

from __future__ import annotations

import random
import threading
import time

import pytest

from hexforge.addons.gpu.resident.read_write_lock import NotAloneError, ReadWriteLock

pytestmark = pytest.mark.gpu


def test_who_is_alone_is_alone() -> None:
    guard, inside, alone, wrong, met = ReadWriteLock(), [0], [0], list[str](), [0, 0]

    def work(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(150):
            by_oneself = chance.random() < 0.2
            with guard.alone(60) if by_oneself else guard.shared():
                counter = alone if by_oneself else inside
                with lock:
                    counter[0] += 1
                    met[by_oneself] += 1
                if chance.random() < 0.1:
                    time.sleep(0.0005)
                if by_oneself and (inside[0] or alone[0] > 1):
                    wrong.append("not alone")
                if not by_oneself and alone[0]:
                    wrong.append("somebody is alone")
                with lock:
                    counter[0] -= 1

    lock = threading.Lock()
    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in workers:
        thread.start()
    for thread in workers:
        thread.join(60)
    assert not wrong
    assert sum(met) == 600


def test_who_waits_too_long_gives_up_and_blocks_nobody() -> None:
    guard = ReadWriteLock()
    with guard.shared():
        with pytest.raises(NotAloneError), guard.alone(0.05):
            pass
        with guard.shared():  # the one that gave up no longer goes first
            pass
    with guard.alone(0.05):
        pass
