# SPDX-License-Identifier: Apache-2.0
"""Profiling logs read back exactly; no byte of them is believed."""

from __future__ import annotations

import json
import random
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from hexforge.addons.profiler import log
from hexforge.addons.profiler.record import (
    Activity,
    CounterTrack,
    GraphProfile,
    HostEvent,
    OpCost,
    Profile,
    ProfiledOp,
    ProfiledRun,
    RunSpan,
)
from hexforge.errors import CallError, FormatError, HexforgeError
from hexforge.formats.container import checksum
from hexforge.formats.file_kinds import kind_of


def made(runs: int = 2) -> Profile:
    """A profile with something of everything in it."""
    ops = (
        ProfiledOp(2, "Input", "Input"),
        ProfiledOp(0, "", "Start"),
        ProfiledOp(4, "conv/ü\n", "Conv2d", ("conv", "relu"), (0,), "uint8", (1, 8, 8, 32), 2048, 10**9, 123),
        ProfiledOp(3, "Output", "Output", reads=(2,)),
    )
    costs = (OpCost(0), OpCost(3), OpCost(100, 20, 50, 10, (2, 3), (3,), ("HVX", "DMA")), OpCost(7, resources=("HVX",)))
    each = [
        ProfiledRun(
            1_700_000_000_000_000 + k, 100.1 + 1 / 3, 90.2, 80.0, 130, 1, 0.5, 1e-9, 4, costs,
            (Activity("DMA", "DramToTcm", 2, 0.1, 0.30000000000000004, 77), Activity("HMX", "Conv2d", 2, 0.3, 5.0)),
            (CounterTrack("DRAM read", "GB/s", (0.0, 1.5), (2.25, 0.0)),),
            (RunSpan("Runtraces", "g", "execute", -1.0, 80.0),),
        )
        for k in range(runs)
    ]  # fmt: skip
    graph = GraphProfile("g", "htp", "SM8650", 1497.6, 8 << 20, ops, tuple(each))
    events = (HostEvent("FINALIZE", "time", 5), HostEvent("INIT", "bytes", 9, "BYTES", True, 3))
    return Profile("m", "optrace", "simulated", (graph, GraphProfile("other", "htp", "SM8650", 1.0)), events)


def test_reads_back_exactly(tmp_path: Path) -> None:
    path = tmp_path / "qnn-profiling-data_0.log"
    log.write(path, made())
    assert log.read(path) == made()
    assert kind_of(path).name == "a profiling log"


def test_a_run_is_added_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    log.write(path, made(0))
    for run in made(3).graphs[0].runs:
        log.append(path, log.run_frame(0, run))
    assert log.read(path) == made(3)


def test_every_cut_and_every_flipped_byte_is_refused() -> None:
    data = log.to_bytes(made())
    for size in range(len(data)):
        if size in _ends(data):
            continue  # whole frames: fewer runs, nothing is wrong
        with pytest.raises(FormatError):
            log.from_bytes(data[:size])
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x40
        with pytest.raises(FormatError):
            log.from_bytes(bytes(damaged))


def _ends(data: bytes) -> set[int]:
    at, found = 16, []
    while at < len(data):
        found.append(at)
        at += 16 + struct.unpack_from("<I", data, at + 4)[0]
    return set(found[1:])


def framed(kind: bytes, content: Any, size: int | None = None) -> bytes:
    """A frame whose checksum is right, whatever it holds."""
    raw = json.dumps(content).encode()
    stored = zlib.compress(raw)
    return struct.pack("<4sIII", kind, len(stored), len(raw) if size is None else size, checksum(stored)) + stored


def test_contents_are_checked_too() -> None:
    data = log.to_bytes(made())
    starts = sorted({16, *_ends(data)})
    frames = [data[a:b] for a, b in zip(starts, [*starts[1:], len(data)], strict=True)]
    contents = [json.loads(zlib.decompress(frame[16:])) for frame in frames]
    rng = random.Random(5)
    refused = 0
    for _ in range(3000):
        at = rng.randrange(len(frames))
        content = json.loads(json.dumps(contents[at]))
        _spoil(content, rng)
        changed = [*frames[:at], framed(frames[at][:4], content), *frames[at + 1 :]]
        try:
            log.from_bytes(data[:16] + b"".join(changed))
        except HexforgeError:
            refused += 1
    assert refused > 1500


def _spoil(content: Any, rng: random.Random) -> None:
    """Put something strange anywhere into JSON."""
    while True:
        keys = list(content) if isinstance(content, dict) else list(range(len(content)))
        if not keys:
            return
        key = rng.choice(keys)
        inner = content[key]
        if isinstance(inner, dict | list) and inner and rng.random() < 0.8:
            content = inner
            continue
        content[key] = rng.choice([None, -1, 2**70, "x", [], {}, 1e308, [[1]], True, -5, 10**6])
        return


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "empty"),
        (b"QNN something", "Qualcomm"),
        (log.MAGIC, "header"),
        (log.MAGIC + struct.pack("<II", 9, 0), "version 9"),
        (log.MAGIC + struct.pack("<II", 1, 0), "version 1"),
        (log.MAGIC + struct.pack("<II", log.VERSION, 0), "no profile"),
    ],
)
def test_what_is_no_log(data: bytes, says: str) -> None:
    with pytest.raises(FormatError, match=says):
        log.from_bytes(data)


def test_a_frame_that_unpacks_to_more_than_it_says_is_refused() -> None:
    bomb = zlib.compress(b" " * 10_000_000)
    frame = struct.pack("<4sIII", b"PROF", len(bomb), 100, checksum(bomb)) + bomb
    with pytest.raises(FormatError, match="size"):
        log.from_bytes(log.to_bytes(made())[:16] + frame)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(CallError, match="no such file"):
        log.read(tmp_path / "none.log")
