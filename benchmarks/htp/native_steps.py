# SPDX-License-Identifier: Apache-2.0
"""Where the time of a compiled model goes, by native step: `python -m benchmarks.htp.native_steps FILE [N]`.

Each step is timed alone, with one thread and its tensors in the cache, so the sum is a little below a whole run.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import hexforge
from benchmarks.peers.engines import hexforge_session, programs
from hexforge import _native
from hexforge.backends.htp.numbers.program import HtpProgram
from hexforge.backends.htp.numbers.segment import NativeCall, Segment, padded

_REPEATS = 5
_SHOWN = "in out kernel stride channels out_channels groups dims count".split()


@dataclass(frozen=True, slots=True)
class Timed:
    """A step and its time."""

    step: NativeCall
    ms: float
    macs: int

    @property
    def rate(self) -> float:
        """GMAC/s."""
        return self.macs / self.ms / 1e6


def timed(program: HtpProgram) -> list[Timed]:
    """Every native step of a program."""
    return [_timed(s, call) for s in program._stages if isinstance(s, Segment) for call in s.calls]


def _timed(segment: Segment, step: NativeCall) -> Timed:
    used = dict.fromkeys((*step.ins, *step.outs))
    written = {i: segment.tensors[i][2] for i in step.outs}
    sizes = {i: -(-size // 64) * 64 + 64 for i, size in written.items()}
    native = _native.Program(sum(sizes.values()))
    ids, offset, given = {}, 0, []
    for i in used:
        tensor = segment.tensors[i]
        if isinstance(tensor, np.ndarray):
            ids[i] = native.constant_tensor(tensor)
        elif i in written:
            ids[i] = native.arena_tensor(offset, written[i])
            offset += sizes[i]
        else:
            room = _native.step_rooms()[step.kind]
            ids[i] = native.input_tensor(tensor[2], room)
            given.append(_plausible(step.kind, tensor[2] + room))
    native.step(step.kind, [ids[i] for i in step.ins], [ids[i] for i in step.outs], dict(step.attributes))
    native.run(given, [], 1)
    best = float("inf")
    for _ in range(_REPEATS):
        start = time.process_time()  # other load on the machine may interrupt a long step every time
        native.run(given, [], 1)
        best = min(best, time.process_time() - start)
    return Timed(step, best * 1e3, _macs(step.kind, step.attributes))


def _plausible(kind: str, size: int) -> np.ndarray[Any, Any]:
    """Numbers that a step may meet; of floats no tiny ones, which take far longer."""
    rng = np.random.default_rng(size)
    if kind.endswith("_f32"):
        data = rng.standard_normal(size // 4, np.float32).astype(np.float16).astype(np.float32)
    else:
        data = rng.integers(0, 256, size, np.uint8)
    return padded(data.shape, data.dtype, data)


def _macs(kind: str, of: Mapping[str, Any]) -> int:
    """Multiply-accumulates of a convolution, which matrix products are too."""
    if "out_channels" not in of or "kernel" not in of:
        return 0
    ends = (of["out_channels"],) if kind.startswith("depthwise") else (of["channels"], of["out_channels"])
    sizes = (of["batch"], *of["out"], *of["kernel"], *ends, of.get("groups", 1))
    return int(np.prod(np.array(sizes, np.int64)))


def table(session: hexforge.InferenceSession, title: str, most: int) -> Table:
    """Time per kind of step, then the slowest steps."""
    made = Table("ms", "share", "GMAC/s", "step", "sizes", title=title)
    steps = [one for program in programs(session) for one in timed(program)]
    total = sum(one.ms for one in steps) or 1.0
    kinds: Counter[str] = Counter()
    for one in steps:
        kinds[one.step.kind] += one.ms  # type: ignore[assignment]
    for kind, ms in kinds.most_common(most):
        count = sum(one.step.kind == kind for one in steps)
        work = sum(one.macs for one in steps if one.step.kind == kind)
        made.add_row(f"{ms:.2f}", f"{ms / total:.0%}", f"{work / ms / 1e6:.0f}", f"all {count} {kind}")
    made.add_section()
    for one in sorted(steps, key=lambda t: -t.ms)[:most]:
        sizes = " ".join(f"{k}={_short(one.step.attributes[k])}" for k in _SHOWN if k in one.step.attributes)
        made.add_row(f"{one.ms:.3f}", f"{one.ms / total:.1%}", f"{one.rate:.0f}", one.step.kind, sizes)
    refs = Counter(node.op.name for program in programs(session) for node in program.facts.references)
    made.caption = f"sum {total:.2f} ms" + (f"; without a native kernel: {dict(refs)}" if refs else "")
    return made


def _short(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)


def main(arguments: list[str]) -> int:
    """Print the table of one model file."""
    if not 1 <= len(arguments) <= 2:
        print("usage: python -m benchmarks.htp.native_steps FILE [N]", file=sys.stderr)
        return 2
    path = Path(arguments[0])
    most = int(arguments[1]) if len(arguments) == 2 else 12
    Console(width=None if sys.stdout.isatty() else 150).print(table(hexforge_session(path, 1), path.name, most))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
