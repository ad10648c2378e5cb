# SPDX-License-Identifier: Apache-2.0
"""Commands on a Ray cluster of 1, 2 and 4 nodes give what one process gives; what dies is made good, and counted."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hexforge
from hexforge.analysis.optimize import OptimizeRequest, optimize
from hexforge.analysis.quality.search import Scoring, SearchSpace, search
from hexforge.analysis.spread.spread import spread
from hexforge.analysis.spread.workers import Workers
from hexforge.analysis.sweep.run import SweepRequest, sweep
from hexforge.errors import CallError
from tests import ROOT
from tests.analysis.sweep.test_sweep import write_model
from tests.digits import MODEL, held_out
from tests.quant.data.test_data_sets import npy, write_tar

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="make cluster installs Ray"),
]
PICTURES, LABELS = held_out()
FEEDS = [{"image": picture} for picture in PICTURES[:24]]
REQUEST = SweepRequest(("SM8650",), ("float", "w8a8"))


class Clusters:
    """A cluster on this machine that grows."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        node = {"num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False}
        self.made = Cluster(initialize_head=True, head_node_args=node)
        self.nodes = 1

    def of(self, nodes: int) -> str:
        """The address of the cluster when it has so many nodes."""
        while self.nodes < nodes:
            self.made.add_node(num_cpus=1, object_store_memory=100 << 20)
            self.nodes += 1
        self.made.wait_for_nodes()
        return str(self.made.address)


@pytest.fixture(scope="module")
def clusters() -> Iterator[Clusters]:
    import ray

    made = Clusters()
    yield made
    ray.shutdown()
    made.made.shutdown()


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six shards of forty samples, one of which cannot be read."""
    folder = tmp_path_factory.mktemp("shards")
    for shard in range(6):
        files: dict[str, bytes] = {}
        for i in range(40):
            number = (40 * shard + i) % len(PICTURES)
            files |= {f"{i:03}.npy": npy(PICTURES[number]), f"{i:03}.cls": str(LABELS[number]).encode()}
        files["017.npy"] = files["017.npy"][: 60 if shard == 3 else None]
        write_tar(folder / f"{shard}.tar", files)
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for width in (8, 16, 64, 256):
        write_model(folder / f"m{width}.onnx", width)
    return folder


def results_of(workers: Workers, shards: Path, models: Path, folder: Path) -> dict[str, Any]:
    """What every command that is spread gives."""
    sqnr = hexforge.evaluate(MODEL, shards, metric=f"sqnr:{MODEL}", jobs=workers.jobs, cluster=workers.cluster)
    quantized = hexforge.quantize(MODEL, FEEDS, method="moving_average", workers=workers)
    space, scoring = SearchSpace(groups=2, budget=3), Scoring(samples=4)
    searched = search(MODEL, FEEDS[:8], space=space, scoring=scoring, workers=workers)
    wanted = OptimizeRequest(
        FEEDS[:8], FEEDS[8:16], LABELS[8:16].tolist(), "top1", budget=2, groups=1, samples=4, scored=8,
        jobs=workers.jobs, cluster=workers.cluster,
    )  # fmt: skip
    optimized = optimize(MODEL, folder, wanted, "SM8650")
    return {
        "eval": sqnr,
        "quantize": quantized.model,
        "search": dict(searched.mixes.points),
        "optimize": (optimized.recommendation.point, optimized.score, optimized.folder.quantized.read_bytes()),
        "sweep": sweep([models], REQUEST, workers=workers).rows,
    }


@pytest.fixture(scope="module")
def alone(shards: Path, models: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    found = results_of(Workers(), shards, models, tmp_path_factory.mktemp("alone"))
    assert found["eval"].left_out == 1
    return found


@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_every_command_gives_what_one_process_gives(
    clusters: Clusters, nodes: int, alone: dict[str, Any], shards: Path, models: Path, tmp_path: Path
) -> None:
    spread_out = results_of(Workers(cluster=clusters.of(nodes)), shards, models, tmp_path / "out")
    for command, result in alone.items():
        assert spread_out[command] == result, command


def test_a_node_killed_in_the_middle_of_a_data_set(clusters: Clusters, alone: dict[str, Any], shards: Path) -> None:
    address = clusters.of(2)
    node = clusters.made.add_node(num_cpus=1, object_store_memory=100 << 20)
    clusters.made.wait_for_nodes()

    def killing(done: int, total: int) -> None:
        if done == 30:
            clusters.made.remove_node(node, allow_graceful=False)

    found = hexforge.evaluate(MODEL, shards, metric=f"sqnr:{MODEL}", cluster=address, progress=killing)
    assert found == alone["eval"]


def test_a_driver_killed_and_resumed_repeats_nothing(
    clusters: Clusters, alone: dict[str, Any], models: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    command = [sys.executable, "-m", "hexforge", "sweep", str(models), "--soc", "SM8650", "--precision", "float,w8a8"]
    command += ["--cluster-address", clusters.of(1), "--state", str(state)]
    driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while driver.poll() is None and not (state.exists() and state.read_bytes().count(b"\n") >= 2):
        time.sleep(0.02)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    done = state.read_bytes().count(b"\n") - 1
    resumed = sweep([models], REQUEST, finished=state, workers=Workers(cluster=clusters.of(1)))
    assert resumed.rows == alone["sweep"]
    assert resumed.reused == done >= 1
    assert state.read_bytes().count(b"\n") == 5, "a model was timed twice"


def takes_bytes(content: Any) -> Any:
    """A function of tasks that has something with it."""
    return lambda task: len(content)


def test_what_does_not_fit_the_machines_says_so(clusters: Clusters) -> None:
    with pytest.raises(CallError, match="a worker needs 1,000,000,000,000,000 bytes of memory"):
        list(spread(takes_bytes, (b"",), [1], Workers(cluster=clusters.of(1), memory_bytes=10**15)))
    with pytest.raises(CallError, match="and a worker takes 1000"):
        list(spread(takes_bytes, (b"",), [1], Workers(cluster=clusters.of(1), threads=1000)))


FULL = """
import numpy, ray
from hexforge.analysis.spread.spread import spread
from hexforge.analysis.spread.workers import Workers
from hexforge.errors import HexforgeError
from tests.analysis.spread.test_cluster_results import takes_bytes
ray.init(address="local", num_cpus=1, object_store_memory=80 << 20, include_dashboard=False, log_to_driver=False,
         _system_config={"local_fs_capacity_threshold": 0.0001})
try:
    print(list(spread(takes_bytes, (numpy.ones(200 << 20, numpy.uint8),), [1], Workers(cluster=True))))
except HexforgeError as error:
    print("said:", error)
"""


def test_a_full_object_store_says_so() -> None:
    found = subprocess.run([sys.executable, "-c", FULL], capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert "said: the cluster's object store is full" in found.stdout, found.stdout + found.stderr


def test_without_ray_the_extra_is_named() -> None:
    script = (
        "import sys; sys.modules['ray'] = None; import hexforge; "
        "hexforge.evaluate(sys.argv[1], 'random:2', metric='sqnr:' + sys.argv[1], cluster=True)"
    )
    found = subprocess.run([sys.executable, "-c", script, str(MODEL)], capture_output=True, text=True, timeout=60)
    assert "a cluster needs Ray: pip install 'hexforge[cluster]'" in found.stderr
