# SPDX-License-Identifier: Apache-2.0
"""Workers: what does the work, and what a worker must be able to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from hexforge.errors import CallError, HexforgeError

_WORKER_BYTES, _MODEL_COPIES = 256 << 20, 4
"""What a process takes without a model, and how often a model is in memory while it is prepared."""
ON_GPU = ("gpu",)
"""Backends whose workers a cluster gives a GPU."""
THIS_MACHINE = "local"
"""The address of a cluster that Ray starts on this machine for as long as it is needed."""


@dataclass(frozen=True, slots=True)
class Workers:
    """What works at the same time: processes of this machine, or those of a Ray cluster."""

    jobs: int = 1
    """Processes on this machine; on a cluster the most that are asked for, where it is above 1."""
    cluster: bool | str = False
    """True for the cluster that RAY_ADDRESS names, or else for Ray on this machine; or the address of one."""
    memory_bytes: int = 0
    """What a worker needs of a machine's memory, for a cluster to place it by; 0 where that is not known."""
    threads: float = 1.0
    """Threads that a worker computes with: a cluster gives it as many processors, or a part of one."""
    gpu: bool = False
    """Whether a worker computes on a GPU: a cluster that has some gives it one."""

    def for_model(self, *models: Path | bytes | None, gpu: bool = False) -> Workers:
        """The same for work on models: a worker needs several times a model's bytes."""
        from hexforge.model.tensors import external_files  # requests hold workers, and are read without models

        sizes = [
            len(model) if isinstance(model, bytes) else sum(p.stat().st_size for p in (model, *external_files(model)))
            for model in models
            if isinstance(model, bytes) or (model is not None and model.is_file())
        ]
        return replace(self, memory_bytes=_WORKER_BYTES + _MODEL_COPIES * max(sizes, default=0), gpu=gpu)

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise CallError(f"jobs {self.jobs}: work is done by at least one process")

    @property
    def several(self) -> bool:
        """Whether more than one may work at the same time."""
        return bool(self.cluster) or self.jobs > 1


@dataclass(frozen=True, slots=True)
class WorkerCode:
    """What a worker makes of tasks: `make(*arguments)` is called once in each, and gives the function of a task."""

    make: Callable[..., Callable[[Any], Any]]
    arguments: tuple[Any, ...]


class WorkerDiedError(Exception):
    """A worker ended in the middle of its work; the text says how."""


class Worker(Protocol):
    """A process somewhere that works on lists of tasks, one list at a time."""

    def wait(self) -> None:
        """Wait until it has its place and can take tasks; WorkerDiedError where it never will."""

    def run(self, tasks: Sequence[Any]) -> list[Any]:
        """What the function gives for each task: a HexforgeError stands for a task that a user must mend.

        WorkerDiedError where the process is no more; another exception where it cannot work at all.
        """

    def close(self) -> None:
        """End the process, at work or not."""


def results_of(function: Callable[[Any], Any], tasks: Iterable[Any]) -> list[Any]:
    """What the function gives for each task; a user's mistake is a result, so that the others' are not lost."""
    results: list[Any] = []
    for task in tasks:
        try:
            results.append(function(task))
        except HexforgeError as error:
            results.append(error)
    return results
