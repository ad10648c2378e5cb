# SPDX-License-Identifier: Apache-2.0
"""Calibrate: a float model run on samples, with statistics of its tensors. Interrupted, it goes on where it was."""

from __future__ import annotations

import hashlib
import os
import signal
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnx_ir
from onnx_ir import serde

from hexforge.errors import CallError
from hexforge.ir import Array
from hexforge.model.save import save
from hexforge.quant.data.calibration_parts import PART_BYTES, CalibrationPart, split
from hexforge.quant.data.feeds import Feeds, Samples, TaskMap
from hexforge.quant.data.observe import Statistics, TensorStatistics

SAVE_SECONDS = 5.0
"""Between two writes of the state."""

_FLOATS = (onnx_ir.DataType.FLOAT, onnx_ir.DataType.FLOAT16, onnx_ir.DataType.DOUBLE)
_MOVES = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
_TOGETHER = 4
"""Samples that another process sees before it tells of them: a histogram of every tensor travels each time."""
Sighting = tuple[int, bytes, Callable[[], None]]
"""How many samples there are up to here, the hash of them, and what takes in those that are new."""
_SHARED_BYTES = 1 << 20  # from here on a part's tensors are worth several threads


def calibrate(
    model: onnx_ir.Model,
    samples: Samples,
    *,
    tensors: Collection[str] | None = None,
    histogram: bool = True,
    channel_axis: int | None = None,
    state: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
    part_bytes: int = PART_BYTES,
    task_map: TaskMap | None = None,
) -> Statistics:
    """Statistics of the float tensors of a model (inputs and what nodes give), or of some, over all samples.

    `channel_axis` also keeps the extremes of each slice along it. `state` is a file that holds what was seen so far:
    an interrupted run goes on from it and ends with the same statistics, bit by bit; a finished one is not run again.
    With `task_map` others work on the samples, a few at a time; the statistics are the same, bit by bit.
    """
    sources = tensors_to_observe(model, tensors, moves=channel_axis is None)
    total = len(samples)
    if not total:
        raise CallError("calibration needs at least one sample, and there is none")
    resumed = _load_state(state, model, sources, histogram, channel_axis)
    statistics = resumed or _new_statistics(model, sources, histogram, channel_axis)
    observed = {source: statistics[name] for name, source in sources.items()}
    seen, saved = statistics.samples, time.monotonic()
    sightings: Iterator[Sighting]
    if task_map is None or seen >= total:
        sightings = _seen_here(samples, observed, split(model, set(observed), part_bytes))
    else:
        sightings = _seen_by_others(samples, observed, model, histogram, channel_axis, part_bytes, task_map, seen)
    if progress is not None and seen:
        progress(seen, total)
    whole = True  # false while a sample is only partly taken in: such a state must not be kept
    count = 0
    try:
        for count, digest, take in sightings:
            if count <= seen:
                if count == seen and digest.hex() != statistics.data_sha256:
                    raise CallError(f"{state}: made with other data; delete it, or name another state file")
                continue
            with _delay_interrupt() if state is not None else nullcontext():
                whole = False
                take()
                statistics.samples, statistics.data_sha256 = count, digest.hex()
                whole = True
            if state is not None and time.monotonic() - saved > SAVE_SECONDS:
                statistics.save(state)
                saved = time.monotonic()
            if progress is not None:
                progress(count, total)
    except BaseException:
        if state is not None and whole and statistics.samples > seen:
            statistics.save(state)
        raise
    finally:
        sightings.close()  # type: ignore[attr-defined]
    if count < seen:
        raise CallError(f"{state}: made with {seen} samples, and now there are {count}; delete it, or give all of them")
    if state is not None and statistics.samples > seen:
        statistics.save(state)
    return statistics


@contextmanager
def _delay_interrupt() -> Iterator[None]:
    """Ctrl-C waits until the end: what is done in here is done whole. Where signals are not ours, it does not."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is None:
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        signal.raise_signal(signal.SIGINT)


def tensors_to_observe(
    model: onnx_ir.Model, tensors: Collection[str] | None = None, moves: bool = True
) -> dict[str, str]:
    """The float tensors to observe, each with the one whose values it holds: another where they were only moved."""
    sources: dict[str, str] = {str(v.name): str(v.name) for v in model.graph.inputs if _is_float(v)}
    for node in model.graph:
        for value in node.outputs:
            if not value.name or not _is_float(value) or node.op_type == "Constant":
                continue
            source = node.inputs[0] if moves and node.op_type in _MOVES and node.domain == "" else None
            sources[value.name] = value.name if source is None else sources.get(str(source.name), value.name)
    if tensors is None:
        return sources
    unknown = sorted(set(tensors) - set(sources))
    if unknown:
        raise CallError(
            f"the model computes no float tensor {unknown[0]!r}; it does {', '.join(list(sources)[:5])} ..."
        )
    return {name: sources[name] for name in sources if name in set(tensors)}


def _is_float(value: onnx_ir.Value) -> bool:
    return isinstance(value.type, onnx_ir.TensorType) and value.dtype in _FLOATS


def _seen_here(
    samples: Samples, observed: Mapping[str, TensorStatistics], parts: Sequence[CalibrationPart]
) -> Iterator[Sighting]:
    """One sample after another, run in this process."""
    run, digest = SampleRun(observed, parts), b""
    try:
        for count, feeds in enumerate(samples, 1):
            digest = fingerprint(feeds, digest)
            yield count, digest, partial(run.take, feeds)
    finally:
        run.close()


def _seen_by_others(
    samples: Samples,
    observed: Mapping[str, TensorStatistics],
    model: onnx_ir.Model,
    histogram: bool,
    channel_axis: int | None,
    part_bytes: int,
    task_map: TaskMap,
    seen: int,
) -> Iterator[Sighting]:
    """A few samples after the others, run by others; what was seen already is only read."""
    handed: deque[tuple[int, bytes]] = deque()

    def tasks() -> Iterator[list[Feeds]]:
        digest, some, count = b"", list[Feeds](), 0
        for count, feeds in enumerate(samples, 1):
            digest = fingerprint(feeds, digest)
            if count == seen:
                handed.append((count, digest))
                yield []
            elif count > seen:
                some.append(feeds)
            if len(some) == _TOGETHER:
                handed.append((count, digest))
                yield some
                some = []
        if some or count < seen:
            handed.append((count, digest))
            yield some

    with tempfile.TemporaryDirectory(prefix="hexforge-calibration-") as folder:
        path = save(model, Path(folder) / "model.onnx")[0]
        arguments = (path, tuple(observed), histogram, channel_axis, part_bytes)
        results = task_map(ObservedSamples, arguments, tasks())
        try:
            for result in results:
                count, digest = handed.popleft()
                yield count, digest, partial(result.add_to, observed)
        finally:
            results.close()  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class SeenSamples:
    """What some samples, one after another, showed of each tensor."""

    tensors: Mapping[str, TensorStatistics]
    """Without the sums of the samples' own extremes, which depend on the order in which they are added."""
    extremes: Mapping[str, Sequence[tuple[float, float]]]

    def add_to(self, observed: Mapping[str, TensorStatistics]) -> None:
        """Take it in, as if these samples had been seen here one by one."""
        for name, tensor in self.tensors.items():
            observed[name].merge(tensor)
            for low, high in self.extremes[name]:
                observed[name].minimum_sum += low
                observed[name].maximum_sum += high


class ObservedSamples:
    """Runs samples in a process of its own, with one thread, and tells what they showed."""

    def __init__(
        self, model: Path, names: tuple[str, ...], histogram: bool, channel_axis: int | None, part_bytes: int
    ) -> None:
        self.names, self.kind = names, (histogram, channel_axis)
        self.parts = split(onnx_ir.load(model), set(names), part_bytes)
        for part in self.parts:
            part.threads = 1

    def __call__(self, samples: Sequence[Feeds]) -> SeenSamples:
        tensors = {name: TensorStatistics(*self.kind) for name in self.names}
        extremes: dict[str, list[tuple[float, float]]] = {name: [] for name in self.names}
        run = SampleRun(tensors, self.parts, threads=1)
        try:
            for feeds in samples:
                before = {name: tensor.samples for name, tensor in tensors.items()}
                run.take(feeds)
                for name, tensor in tensors.items():
                    if tensor.samples > before[name]:
                        extremes[name].append((tensor.minimum_sum, tensor.maximum_sum))
                        tensor.minimum_sum = tensor.maximum_sum = 0.0
        finally:
            run.close()
        return SeenSamples(tensors, extremes)


class SampleRun:
    """Runs samples part by part and updates the statistics of what each part gives."""

    def __init__(
        self, tensors: Mapping[str, TensorStatistics], parts: Sequence[CalibrationPart], threads: int = 0
    ) -> None:
        self.tensors, self.parts = tensors, parts
        self.threads = threads or min(os.cpu_count() or 1, 4)
        self.pool = ThreadPoolExecutor(self.threads)

    def take(self, feeds: Feeds) -> None:
        """Take in one sample."""
        values: dict[str, Array] = dict(feeds)
        self._observe(values)
        for part in self.parts:
            written = dict(zip(part.names, part.run(values), strict=True))
            self._observe(written)
            values |= written
            del written  # what no later part reads is to go now
            for name in part.last_read:
                values.pop(name, None)

    def _observe(self, arrays: Mapping[str, Array]) -> None:
        work = [(tensor, array) for name, array in arrays.items() if (tensor := self.tensors.get(name)) is not None]
        if sum(array.nbytes for _, array in work) < _SHARED_BYTES:
            _update(work)
            return
        work.sort(key=lambda item: -item[1].nbytes)
        list(self.pool.map(_update, (work[i :: self.threads] for i in range(self.threads))))

    def close(self) -> None:
        """Let the threads go."""
        self.pool.shutdown()


def _update(work: Sequence[tuple[TensorStatistics, Array]]) -> None:
    for tensor, array in work:
        tensor.update(array)


def _new_statistics(model: onnx_ir.Model, sources: dict[str, str], histogram: bool, axis: int | None) -> Statistics:
    statistics = {name: TensorStatistics(histogram, axis) for name in set(sources.values())}
    return Statistics({name: statistics[source] for name, source in sources.items()}, model_sha256(model))


def _load_state(
    state: Path | None, model: onnx_ir.Model, sources: dict[str, str], histogram: bool, axis: int | None
) -> Statistics | None:
    """The statistics of a state file, None where it does not exist; CallError where it is for another model or data."""
    if state is None or not state.exists():
        return None
    saved = Statistics.load(state)
    if saved.model_sha256 != model_sha256(model):
        raise CallError(f"{state}: made with another model; delete it, or name another state file")
    same_kind = all((t.counts is not None, t.channel_axis) == (histogram, axis) for t in saved.values())
    if set(saved) != set(sources) or not same_kind:
        raise CallError(f"{state}: made for other tensors or statistics; delete it, or name another state file")
    shared = {source: saved[name] for name, source in sources.items()}
    tensors = {name: shared[source] for name, source in sources.items()}
    return Statistics(tensors, saved.model_sha256, saved.data_sha256, saved.samples)


def model_sha256(model: onnx_ir.Model) -> str:
    """The SHA-256 of what a model computes: its inputs, nodes and constants."""
    sha = hashlib.sha256()
    for value in model.graph.inputs:
        sha.update(serde.serialize_value(value).SerializeToString(deterministic=True))
    for node in model.graph:
        sha.update(serde.serialize_node(node).SerializeToString(deterministic=True))
    for name, value in sorted(model.graph.initializers.items()):
        if value.const_value is not None:
            _hash_array(sha, name, value.const_value.numpy())
    return sha.hexdigest()


def fingerprint(feeds: Feeds, before: bytes = b"") -> bytes:
    """A hash of a sample and, through `before`, of all samples before it."""
    sha = hashlib.sha256(before)
    for name, array in sorted(feeds.items()):
        _hash_array(sha, name, array)
    return sha.digest()


def _hash_array(sha: hashlib._Hash, name: str, array: Array) -> None:
    sha.update(f"{name}\0{array.dtype.str}{array.shape}\0".encode())
    sha.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
