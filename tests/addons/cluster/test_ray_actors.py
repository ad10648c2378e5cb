# SPDX-License-Identifier: Apache-2.0
"""Work on a Ray cluster of several nodes: the same results, files sent along, and nothing lost where one dies."""

from __future__ import annotations

import importlib.util
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hexforge.addons.cluster.sweep_request import SweepRequest
from hexforge.addons.cluster.sweep_run import sweep
from hexforge.analysis.mapped_tasks import map_tasks, try_tasks
from hexforge.analysis.workers import SetAside, Workers
from hexforge.errors import CallError, HexforgeError
from tests.addons.cluster.ray_clusters import LocalCluster

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(900),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="make cluster installs Ray"),
]


class ReadsFiles:
    """Adds a number to what is written in a file; one number kills its worker once, one always."""

    def __init__(self, base: Path, begun: str) -> None:
        self.base, self.begun = base, begun

    def __call__(self, task: tuple[int, Path]) -> tuple[int, bool]:
        number, file = task
        mark = Path(self.begun) / str(number)
        seen = mark.exists()
        mark.touch()
        if number == 13 or (number == 7 and not seen):
            os.kill(os.getpid(), signal.SIGKILL)
        local = Path(self.begun) not in (self.base.parent, file.parent)
        return number + int(self.base.read_text()) + int(file.read_text()), local


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    made = LocalCluster()
    yield made
    made.close()


@pytest.fixture
def tasks(tmp_path: Path) -> tuple[Path, list[tuple[int, Path]]]:
    """A file that every worker needs, and tasks with a file each."""
    base = tmp_path / "base"
    base.write_text("100")
    files = [tmp_path / f"{i}.txt" for i in range(20)]
    for i, file in enumerate(files):
        file.write_text(str(1000 * i))
    return base, list(enumerate(files))


def test_files_travel_and_dead_workers_lose_nothing(cluster: LocalCluster, tasks: Any, tmp_path: Path) -> None:
    base, numbered = tasks
    results = list(try_tasks(ReadsFiles, (base, str(tmp_path)), numbered, Workers(cluster=cluster.of(3))))
    assert isinstance(results[13], SetAside)
    assert all(r == (1001 * i + 100, True) for i, r in enumerate(results) if i != 13)


def test_a_node_that_dies_in_the_middle_loses_nothing(cluster: LocalCluster, tasks: Any, tmp_path: Path) -> None:
    base, numbered = tasks
    kept = [task for task in numbered if task[0] not in (7, 13)]
    node = cluster.add_node()
    results = []
    for result in map_tasks(ReadsFiles, (base, str(tmp_path)), kept, Workers(cluster=cluster.of(3))):
        results.append(result)
        if len(results) == 4:
            cluster.kill(node)
    assert [r[0] for r in results] == [1001 * i + 100 for i, _ in kept]


def test_a_sweep_is_the_same_on_a_cluster(cluster: LocalCluster, tmp_path: Path) -> None:
    from tests.addons.cluster.test_sweep import write_model

    for width in (8, 16, 1024):
        write_model(tmp_path / f"m{width}.onnx", width)
    request = SweepRequest(("SM8650",), ("float", "w8a8"))
    here = sweep([tmp_path], request)
    assert sweep([tmp_path], request, workers=Workers(cluster=cluster.of(3))).rows == here.rows


def test_a_worker_of_another_version_refuses(
    cluster: LocalCluster, tasks: Any, monkeypatch: Any, tmp_path: Path
) -> None:
    import hexforge

    monkeypatch.setattr(hexforge, "__version__", "0.0.1", raising=False)
    with pytest.raises(HexforgeError, match=r"has hexforge .*, and this one 0\.0\.1"):
        list(map_tasks(ReadsFiles, (tasks[0], str(tmp_path)), tasks[1][:2], Workers(cluster=cluster.of(3))))


def test_no_cluster_at_an_address_says_so() -> None:
    import ray

    ray.shutdown()
    with pytest.raises(CallError, match=r"no Ray cluster at '127\.0\.0\.1:1'"):
        list(map_tasks(ReadsFiles, (), [(1, Path())], Workers(cluster="127.0.0.1:1")))
