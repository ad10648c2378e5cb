# SPDX-License-Identifier: Apache-2.0
"""The gate of a device: many together, or one alone, and nobody waits for ever."""

from __future__ import annotations

import random
import threading
import time

import pytest

from hexforge.backends.gpu.resident.gate import Gate, NotAloneError

pytestmark = pytest.mark.gpu


def test_who_is_alone_is_alone() -> None:
    gate, inside, alone, wrong, met = Gate(), [0], [0], list[str](), [0, 0]

    def work(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(150):
            by_oneself = chance.random() < 0.2
            with gate.alone(60) if by_oneself else gate.shared():
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
    gate = Gate()
    with gate.shared():
        with pytest.raises(NotAloneError), gate.alone(0.05):
            pass
        with gate.shared():  # the one that gave up no longer goes first
            pass
    with gate.alone(0.05):
        pass
