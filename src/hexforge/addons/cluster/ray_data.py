# SPDX-License-Identifier: Apache-2.0
"""Ray Data as a reader: ranges of tasks are read on the cluster, and blocks of them reach workers without the driver.

Ray Data reads no further ahead than its share of the object store has room, so memory stays the same whatever the
number of samples.
"""

from __future__ import annotations

import logging
import pickle
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, overload

from hexforge.analysis.mapped_tasks import RangedTasks
from hexforge.errors import HexforgeError

_BUNDLE, _PLACE = "bundle", "place"
"""Columns of a block: a row is a task, which is at a place of a bundle that rows side by side share."""
_BLOCK_BYTES = 4 << 20
"""Tasks of a block have about as many bytes."""
_LONG_READINGS = 8
"""Into so many parts a single reader cuts what it reads."""
_BUNDLE_BYTES, _BUNDLE_TASKS = 64 << 10, 64
"""Tasks are packed together up to as many: packed one by one, small ones cost three times as much."""


@dataclass(frozen=True, slots=True)
class TaskBlock(Sequence[Any]):
    """Some tasks that are in the cluster's object store; a part of it is one too."""

    reference: Any
    first: int
    rows: int

    def __len__(self) -> int:
        return self.rows

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> TaskBlock: ...
    def __getitem__(self, index: int | slice) -> Any:
        """Some of the tasks, still there."""
        if isinstance(index, int):
            raise TypeError("a block is cut into blocks")
        start, stop, _ = index.indices(self.rows)
        return TaskBlock(self.reference, self.first + start, max(0, stop - start))


def tasks_of(block: Any, first: int, count: int) -> list[Any]:
    """The tasks of a block that arrived at a worker; they were written by this job's own readers."""
    rows = block.slice(first, count)
    places, tasks = iter(rows.column(_PLACE).to_pylist()), list[Any]()
    for bundles in rows.column(_BUNDLE).chunks:
        known, bundle = -1, []
        for number in bundles.indices.to_pylist():
            if number != known:
                known, bundle = number, pickle.loads(bundles.dictionary[number].as_buffer())
            tasks.append(bundle[next(places)])
    return tasks


def blocks(ray: Any, tasks: RangedTasks[Any], readers: int) -> Iterator[TaskBlock]:
    """The tasks in order, block by block, as far ahead as the object store has room for."""
    import ray.data as data

    logging.getLogger("ray.data").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Ray's own settings name each other
        context = data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = True
    context.execution_options.verbose_progress = False
    context.target_max_block_size = _BLOCK_BYTES
    # One reader that waits between short readings would be ended by Ray, and start again for seconds of a processor:
    # it reads a few long ones. Several read short ones, which are needed in their order.
    most = len(tasks.ranges) if readers > 1 else min(_LONG_READINGS, len(tasks.ranges))
    read = data.read_datasource(
        _source(ray.put(list(tasks.ranges)), tasks, most),
        num_cpus=0,  # the processors are the workers': reading waits for files, and is done meanwhile
        concurrency=readers,
        override_num_blocks=most,
        resources=None if tasks.anywhere else this_machine(ray),  # files of this machine are read on it
    )
    try:
        for bundle in read.iter_internal_ref_bundles():
            for block in bundle.blocks:
                if block.metadata.num_rows:
                    yield TaskBlock(block.ref, 0, block.metadata.num_rows)
    except ray.exceptions.RayTaskError as error:
        raise _fault_of_reading(error) from None


def this_machine(ray: Any) -> dict[str, float]:
    """What a worker or reader asks for that must run on this machine."""
    return {f"node:{ray.util.get_node_ip_address()}": 0.001}


def _fault_of_reading(error: BaseException) -> BaseException:
    """What a reader met, without what Ray has put around it; the error itself where that is no user's mistake."""
    inner: BaseException | None = error
    while inner is not None and not isinstance(inner, HexforgeError):
        inner = getattr(inner, "cause", None) or inner.__cause__
    return inner or error


def _source(ranges: Any, tasks: RangedTasks[Any], readings: int) -> Any:
    """The ranges as Ray Data reads them: a task of its own for each."""
    from ray.data.block import BlockMetadata
    from ray.data.datasource import Datasource, ReadTask

    class Ranges(Datasource):  # type: ignore[misc]
        def estimate_inmemory_data_size(self) -> None:
            """Nobody knows before they are read."""

        def get_read_tasks(self, parallelism: int, per_task_row_limit: int | None = None, **_: Any) -> list[Any]:
            about = BlockMetadata(num_rows=None, size_bytes=None, exec_stats=None, task_exec_stats=None)
            ends = [len(tasks.ranges) * i // readings for i in range(readings + 1)]
            parts = [_Reading(ranges, tasks.read, slice(*ends[i : i + 2])) for i in range(readings)]
            return [ReadTask(part, about) for part in parts]

    return Ranges()


@dataclass(frozen=True, slots=True)
class _Reading:
    """Reads some ranges, in a process of Ray's."""

    ranges: Any
    read: Callable[[Any], Any]
    part: slice

    def __call__(self) -> Iterator[Any]:
        import ray

        bundles, sizes, at_once = list[bytes](), list[int](), 1
        tasks = (task for some in ray.get(self.ranges)[self.part] for task in self.read(some))
        while bundle := list(islice(tasks, at_once)):
            bundles.append(pickle.dumps(bundle, 5))
            sizes.append(len(bundle))
            at_once = max(1, min(_BUNDLE_TASKS, _BUNDLE_BYTES * len(bundle) // len(bundles[-1])))
            if sum(map(len, bundles)) >= _BLOCK_BYTES:
                yield _block(bundles, sizes)
                bundles, sizes = [], []
        if bundles:
            yield _block(bundles, sizes)


def _block(bundles: Sequence[bytes], sizes: Sequence[int]) -> Any:
    """A table with a row for each task of some bundles: it stays right where Ray cuts or joins it."""
    import numpy as np
    import pyarrow as pa

    numbers = np.repeat(np.arange(len(bundles), dtype=np.int32), sizes)
    places = np.concatenate([np.arange(size, dtype=np.int32) for size in sizes])
    shared = pa.DictionaryArray.from_arrays(numbers, pa.array(bundles, pa.large_binary()))
    return pa.table({_BUNDLE: shared, _PLACE: places})
