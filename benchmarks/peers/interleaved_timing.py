# SPDX-License-Identifier: Apache-2.0
"""Wall times of engines that each have a process of their own and take turns.

    python -m benchmarks.peers.interleaved_timing FILE MODEL

Threads of one engine never run while another is measured: an engine's process waits for a line on its standard input,
runs for a block, says how long one inference took, and waits again. The best block is the one that other load on the
machine disturbed least.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks import ROOT
from benchmarks.models.quantized import MODELS
from benchmarks.peers.engines import ENGINES, Times

_BLOCK_S = 0.12
"""An engine runs for about this long before the next one has its turn."""
_WARM_S = 0.02
"""Of which this much is not counted: caches and sleeping threads."""
_SEED = 7


@dataclass(slots=True)
class Engine:
    """An engine in a process of its own, with one model loaded for a number of threads."""

    name: str
    path: Path
    model: str
    threads: int
    level: str = ""
    """The instruction set hexforge is held to."""
    times: Times = field(default_factory=Times)
    error: str = ""
    _child: subprocess.Popen[str] | None = None

    def __enter__(self) -> Engine:
        arguments = [self.name, str(self.path), self.model, str(self.threads), self.level]
        command = [sys.executable, "-m", "benchmarks.peers.interleaved_timing", *arguments]
        self._child = subprocess.Popen(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._answer()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._child is not None
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._child.wait()

    def turn(self) -> None:
        """Run for a block."""
        if self.error:
            return
        assert self._child is not None
        assert self._child.stdin is not None
        self._child.stdin.write("go\n")
        self._child.stdin.flush()
        said = self._answer()
        if said is not None:
            self.times.ms.append(float(said["ms"]))

    def _answer(self) -> dict[str, Any] | None:
        assert self._child is not None
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        said = json.loads(line) if line else {"error": f"its process ended with {self._child.wait()}"}
        if "error" in said:
            self.error = said["error"]
            return None
        return said


def alternate(engines: list[Engine], rounds: int) -> None:
    """Give every engine a block in turn, round by round; each engine keeps its times."""
    opened: list[Engine] = []
    try:
        for engine in engines:
            opened.append(engine.__enter__())
        for _ in range(rounds):
            for engine in engines:
                engine.turn()
    finally:
        for engine in opened:
            engine.__exit__(None, None, None)


def counts(cores: int) -> list[int]:
    """The numbers of threads of a scaling curve: 1, 2, 4, 8, 16 as far as there are cores."""
    return [n for n in (1, 2, 4, 8, 16) if n <= cores]


def _child(name: str, path: str, model: str, threads: str, level: str) -> int:
    """What runs in an engine's process."""
    if level:
        from hexforge import _native

        _native.set_level(level)
    feeds = MODELS[model].feeds(_SEED)
    try:
        run = ENGINES[name](Path(path), int(threads))
        run(feeds)
    except Exception as error:  # each engine has errors of its own
        print(json.dumps({"error": (str(error).strip().splitlines() or [repr(error)])[0]}), flush=True)
        return 1
    print(json.dumps({"ready": True}), flush=True)
    for _ in sys.stdin:
        until = time.perf_counter() + _WARM_S
        while time.perf_counter() < until:
            run(feeds)
        best, start = float("inf"), time.perf_counter()
        while (now := time.perf_counter()) - start < _BLOCK_S:
            run(feeds)
            best = min(best, time.perf_counter() - now)
        print(json.dumps({"ms": best * 1e3}), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(_child(*sys.argv[1:]))
