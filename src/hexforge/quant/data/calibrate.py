# SPDX-License-Identifier: Apache-2.0
"""Calibrate: a float model run on samples, with statistics of its tensors. Interrupted, it goes on where it was."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
import onnx_ir
from onnx_ir import serde

from hexforge.errors import CallError
from hexforge.ir import Array
from hexforge.quant.data.calibration_parts import PART_BYTES, CalibrationPart, split
from hexforge.quant.data.feeds import Feeds, Samples
from hexforge.quant.data.observe import Statistics, TensorStatistics

SAVE_SECONDS = 5.0
"""Between two writes of the state."""

_FLOATS = (onnx_ir.DataType.FLOAT, onnx_ir.DataType.FLOAT16, onnx_ir.DataType.DOUBLE)
_MOVES = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
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
) -> Statistics:
    """Statistics of the float tensors of a model (inputs and what nodes give), or of some, over all samples.

    `channel_axis` also keeps the extremes of each slice along it. `state` is a file that holds what was seen so far:
    an interrupted run goes on from it and ends with the same statistics, bit by bit; a finished one is not run again.
    """
    sources = tensors_to_observe(model, tensors, moves=channel_axis is None)
    total = len(samples)
    if not total:
        raise CallError("calibration needs at least one sample, and there is none")
    resumed = _load_state(state, model, sources, histogram, channel_axis)
    statistics = resumed or _new_statistics(model, sources, histogram, channel_axis)
    observed = {source: statistics[name] for name, source in sources.items()}
    run = _Run(observed, split(model, set(observed), part_bytes))
    seen, digest, saved = statistics.samples, b"", time.monotonic()
    if progress is not None and seen:
        progress(seen, total)
    whole = True  # false while a sample is only partly taken in: such a state must not be kept
    count = 0
    try:
        for count, feeds in enumerate(samples, 1):
            digest = fingerprint(feeds, digest)
            if count <= seen:
                if count == seen and digest.hex() != statistics.data_sha256:
                    raise CallError(f"{state}: made with other data; delete it, or name another state file")
                continue
            with _delay_interrupt() if state is not None else nullcontext():
                whole = False
                run.take(feeds)
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
        run.close()
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


class _Run:
    """Runs samples part by part and updates the statistics of what each part gives."""

    def __init__(self, tensors: Mapping[str, TensorStatistics], parts: Sequence[CalibrationPart]) -> None:
        self.tensors, self.parts = tensors, parts
        self.threads = min(os.cpu_count() or 1, 4)
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
