# SPDX-License-Identifier: Apache-2.0
"""The log file of a profile, `qnn-profiling-data_0.log`: read back exactly, and untrusted when it is read.

    header   16 bytes: magic HXFPROF\\n, version, 4 zero bytes
    frames   each 16 bytes (kind, bytes stored, bytes of JSON, CRC-32C of what is stored), then JSON, zlib-compressed

The first frame is the profile's (PROF), then one for each graph (GRPH) and each run (RUN_, with its graph's place), so
that a run is added with one write at the end. AGN_ is a run as one before was. A schematic is a log without
runs. Lists of many things are columns.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import struct
import typing
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from hexforge.addons.profiler.record import (
    LEVELS,
    MEASURED,
    SIMULATED,
    UNITS,
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
from hexforge.errors import CallError, FormatError
from hexforge.formats.container import checksum, json_bytes
from hexforge.formats.files import write_atomically

MAGIC = b"HXFPROF\n"
VERSION = 2
_HEADER = struct.Struct("<8sII")
_FRAME = struct.Struct("<4sIII")
MOST_JSON_BYTES = 256 << 20
"""The most bytes of JSON in one frame: about a million activities."""
MOST_ENTRIES = 5_000_000
T = TypeVar("T")


def to_bytes(profile: Profile) -> bytes:
    """The whole log."""
    return b"".join(_frames(profile))


def write(path: Path, profile: Profile) -> None:
    """Write the log, whole or not at all."""
    write_atomically(path, to_bytes(profile))


def without_runs(graph: GraphProfile) -> GraphProfile:
    """A graph as a schematic has it."""
    return dataclasses.replace(graph, runs=())


def run_frame(graph: int, run: ProfiledRun) -> bytes:
    """What is added to a log for one more run of its graph with that number."""
    return _frame(b"RUN_", {"graph": graph, **_plain(run)})


def repeated_run_frame(graph: int, run: int, timestamp_us: int) -> bytes:
    """What is added for a run that is as another of its graph was, at another time: simulated ones are."""
    return _frame(b"AGN_", {"graph": graph, "run": run, "timestamp_us": timestamp_us})


def append(path: Path, frames: bytes) -> None:
    """Add frames to a log by a single write, so that it ends with a whole frame."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | getattr(os, "O_BINARY", 0))
    try:
        if os.write(handle, frames) != len(frames):
            raise OSError(28, "the log could not be extended", os.fspath(path))
    finally:
        os.close(handle)


def read(path: Path) -> Profile:
    """The profile of a log; FormatError where the file is none, or damaged."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise CallError(f"{path}: no such file; check the path") from None
    return from_bytes(data, os.fspath(path))


def from_bytes(data: bytes, where: str = "log") -> Profile:
    """The profile of a log's bytes."""
    if data[: len(MAGIC)] != MAGIC:
        hint = "; a log of Qualcomm's tools is read by Qualcomm's viewer" if data else "; it is empty"
        raise FormatError(f"{where}: is not a profiling log of hexforge{hint}", 0)
    if len(data) < _HEADER.size:
        raise FormatError(f"{where}: ends within the header", len(data))
    _, version, zero = _HEADER.unpack_from(data)
    if version != VERSION or zero:
        raise FormatError(f"{where}: is of log version {version}, this hexforge reads {VERSION}; profile again", 8)
    profile: Profile | None = None
    graphs: list[GraphProfile] = []
    runs: list[list[ProfiledRun]] = []
    for kind, content, at in _parsed(data, where):
        try:
            if kind == b"PROF" and profile is None:
                profile = _record(Profile, {**content, "graphs": []})
            elif kind == b"GRPH" and profile is not None:
                graphs.append(_record(GraphProfile, {**content, "runs": []}))
                runs.append([])
            elif kind == b"RUN_" and graphs:
                place = content.pop("graph", None)
                if type(place) is not int or not 0 <= place < len(graphs):
                    raise ValueError(f"there is no graph {place!r}")
                runs[place].append(_record(ProfiledRun, content))
            elif kind == b"AGN_" and graphs:
                if content.keys() != {"graph", "run", "timestamp_us"}:
                    raise ValueError("it has other fields")
                place, number, stamp = (_whole(content[key]) for key in ("graph", "run", "timestamp_us"))
                if not 0 <= place < len(graphs) or not 0 <= number < len(runs[place]):
                    raise ValueError(f"there is no run {number} of a graph {place}")
                runs[place].append(dataclasses.replace(runs[place][number], timestamp_us=stamp))
            else:
                raise ValueError(f"a frame {kind!r} cannot be here")
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            raise FormatError(f"{where}: a frame is malformed: {error}", at) from None
    if profile is None:
        raise FormatError(f"{where}: has no profile in it", len(data))
    whole = dataclasses.replace(
        profile, graphs=tuple(dataclasses.replace(g, runs=tuple(r)) for g, r in zip(graphs, runs, strict=True))
    )
    _check(whole, where)
    return whole


def _frames(profile: Profile) -> Iterator[bytes]:
    yield _HEADER.pack(MAGIC, VERSION, 0)
    yield _frame(b"PROF", {k: v for k, v in _plain(profile).items() if k != "graphs"})
    for graph in profile.graphs:
        yield _frame(b"GRPH", {k: v for k, v in _plain(dataclasses.replace(graph, runs=())).items() if k != "runs"})
    for place, graph in enumerate(profile.graphs):
        for run in graph.runs:
            yield run_frame(place, run)


def _frame(kind: bytes, content: dict[str, Any]) -> bytes:
    raw = json_bytes(content)
    if len(raw) > MOST_JSON_BYTES:
        raise CallError(f"a profile of {len(raw):,} bytes is more than a log holds ({MOST_JSON_BYTES:,}); zoom first")
    stored = zlib.compress(raw, 1)
    return _FRAME.pack(kind, len(stored), len(raw), checksum(stored)) + stored


def _parsed(data: bytes, where: str) -> Iterator[tuple[bytes, dict[str, Any], int]]:
    at = _HEADER.size
    while at < len(data):
        if len(data) - at < _FRAME.size:
            raise FormatError(f"{where}: ends within a frame", at)
        kind, stored, size, crc = _FRAME.unpack_from(data, at)
        body = data[at + _FRAME.size : at + _FRAME.size + stored]
        if len(body) != stored:
            raise FormatError(f"{where}: ends within a frame", at)
        if checksum(body) != crc:
            raise FormatError(f"{where}: a frame is damaged: its checksum is wrong", at)
        if size > MOST_JSON_BYTES:
            raise FormatError(f"{where}: a frame says it has {size:,} bytes; the most is {MOST_JSON_BYTES:,}", at)
        try:
            unpacker = zlib.decompressobj()
            raw = unpacker.decompress(body, size + 1)
            if len(raw) != size or not unpacker.eof or unpacker.unused_data:
                raise ValueError("it has not the size it says")
            content = json.loads(raw, parse_constant=_no_constant)
        except (ValueError, RecursionError, zlib.error) as error:
            raise FormatError(f"{where}: a frame is malformed: {error}", at) from None
        if not isinstance(content, dict):
            raise FormatError(f"{where}: a frame is malformed: it is no object", at)
        yield kind, content, at
        at += _FRAME.size + stored


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no figure of a profile")


# -- dataclasses as plain data: lists of many things are columns by field --------------------------------------------

_COLUMNS = (Activity, OpCost, ProfiledOp, HostEvent, RunSpan, CounterTrack)


def _plain(value: Any) -> dict[str, Any]:
    return {field.name: _plain_field(getattr(value, field.name)) for field in dataclasses.fields(value)}


def _plain_field(value: Any) -> Any:
    if isinstance(value, tuple) and value and isinstance(value[0], _COLUMNS):
        return {f.name: [getattr(v, f.name) for v in value] for f in dataclasses.fields(value[0])}
    return value


@cache
def _fields(kind: Any) -> dict[str, Callable[[Any], Any]]:
    hints = typing.get_type_hints(kind)
    return {field.name: _reader(hints[field.name]) for field in dataclasses.fields(kind)}


def _record(kind: Callable[..., T], content: dict[str, Any]) -> T:
    readers = _fields(kind)
    if content.keys() != readers.keys():
        strange = sorted(content.keys() ^ readers.keys())
        raise ValueError(f"{_name(kind)} has other fields: {', '.join(map(repr, strange[:3]))}")
    return kind(**{name: readers[name](value) for name, value in content.items()})


def _reader(hint: Any) -> Callable[[Any], Any]:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        item = inner[0]
        if item in _COLUMNS:
            return lambda value: _columns(item, value)
        if dataclasses.is_dataclass(item):  # graphs and runs have frames of their own
            return lambda value: ()
        read_item = _reader(item)
        return lambda value: tuple(read_item(v) for v in _sequence(value))
    readers: dict[Any, Callable[[Any], Any]] = {str: _text, int: _whole, float: _real, bool: _truth}
    return readers[hint]


def _columns(kind: Callable[..., T], value: Any) -> tuple[T, ...]:
    if value == []:
        return ()
    readers = _fields(kind)
    if not isinstance(value, dict) or value.keys() != readers.keys():
        raise ValueError(f"the columns of {_name(kind)} are {', '.join(readers)}")
    columns = [list(map(readers[name], _sequence(value[name]))) for name in readers]
    if len({len(column) for column in columns}) > 1:
        raise ValueError(f"the columns of {_name(kind)} have not one length")
    return tuple(kind(*row) for row in zip(*columns, strict=True))


def _name(kind: Any) -> str:
    return str(kind.__name__)


def _sequence(value: Any) -> Sequence[Any]:
    if not isinstance(value, list) or len(value) > MOST_ENTRIES:
        raise ValueError("a list is expected, of a size that profiles have")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a text")
    return value


def _whole(value: Any) -> int:
    if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{value!r} is not a whole number that can be here")
    return value


def _real(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value) or abs(value) > 1e15:
        raise ValueError(f"{value!r} is not a figure that can be here")
    return float(value)


def _truth(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError(f"{value!r} is neither true nor false")
    return value


def _check(profile: Profile, where: str) -> None:
    """FormatError where parts of a profile do not fit each other: views rely on it."""
    if profile.level not in LEVELS or profile.source not in (SIMULATED, MEASURED):
        raise FormatError(f"{where}: a profile is at one of the levels {', '.join(LEVELS)}, simulated or measured")
    for graph in profile.graphs:
        count = len(graph.ops)
        if graph.clock_mhz < 0 or any(not 0 <= r < count for op in graph.ops for r in op.reads):
            raise FormatError(f"{where}: graph {graph.name!r}: an op reads one that is not there")
        if len({op.id for op in graph.ops}) != count:
            raise FormatError(f"{where}: graph {graph.name!r}: two ops have one id")
        for run in graph.runs:
            if run.costs and len(run.costs) != count:
                raise FormatError(f"{where}: graph {graph.name!r}: a run has the cycles of other ops")
            for cost in run.costs:
                beside = (*cost.beside, *cost.beside_wait)
                least = min(cost.cycles, cost.wait, cost.overlap, cost.overlap_wait)
                if least < 0 or any(not 0 <= b < count for b in beside):
                    raise FormatError(f"{where}: graph {graph.name!r}: the cycles of an op are malformed")
            for a in run.activities:
                if a.unit not in UNITS or not -1 <= a.op < count or not 0 <= a.start_us <= a.end_us or a.core < 0:
                    raise FormatError(f"{where}: graph {graph.name!r}: an activity is malformed")
            for track in run.counters:
                if len(track.at_us) != len(track.values):
                    raise FormatError(f"{where}: graph {graph.name!r}: counter {track.name!r} is malformed")
            if any(not s.start_us <= s.end_us for s in run.spans):
                raise FormatError(f"{where}: graph {graph.name!r}: a span ends before it starts")
