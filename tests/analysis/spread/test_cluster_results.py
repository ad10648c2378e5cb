# SPDX-License-Identifier: Apache-2.0
"""Commands on a Ray cluster of 1, 2 and 4 nodes give what one process gives; what dies is made good, and counted."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexforge
from hexforge.analysis.optimize import OptimizeRequest, optimize
from hexforge.analysis.quality import search as searching
from hexforge.analysis.quality.search import Scoring, SearchSpace, search
from hexforge.analysis.spread.spread import spread
from hexforge.analysis.spread.workers import Workers
from hexforge.analysis.sweep.run import SweepRequest, sweep
from hexforge.errors import CallError
from tests import ROOT
from tests.analysis.spread.ray_clusters import LocalCluster, NotingEngine
from tests.analysis.sweep.test_sweep import write_model
from tests.digits import MODEL, held_out
from tests.quant.data.test_data_sets import npy, write_tar

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(1800),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="make cluster installs Ray"),
]
PICTURES, LABELS = held_out()
FEEDS = [{"image": picture} for picture in PICTURES[:24]]
REQUEST = SweepRequest(("SM8650",), ("float", "w8a8"))


@pytest.fixture(scope="module")
def clusters() -> Iterator[LocalCluster]:
    made = LocalCluster()
    yield made
    made.close()


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


def searched(workers: Workers, state: str | Path | None = None) -> dict[Any, Any]:
    """The points of a small search."""
    space, scoring = SearchSpace(groups=2, budget=3), Scoring(samples=4)
    return dict(search(MODEL, FEEDS[:8], space=space, scoring=scoring, workers=workers, state=state).mixes.points)


def results_of(workers: Workers, shards: Path, models: Path, folder: Path) -> dict[str, Any]:
    """What every command that is spread gives."""
    sqnr = hexforge.evaluate(MODEL, shards, metric=f"sqnr:{MODEL}", jobs=workers.jobs, cluster=workers.cluster)
    quantized = hexforge.quantize(MODEL, FEEDS, method="moving_average", workers=workers)
    wanted = OptimizeRequest(
        FEEDS[:8], FEEDS[8:16], LABELS[8:16].tolist(), "top1", budget=2, groups=1, samples=4, scored=8,
        jobs=workers.jobs, cluster=workers.cluster,
    )  # fmt: skip
    optimized = optimize(MODEL, folder, wanted, "SM8650")
    return {
        "eval": sqnr,
        "quantize": quantized.model,
        "search": searched(workers),
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
    clusters: LocalCluster, nodes: int, alone: dict[str, Any], shards: Path, models: Path, tmp_path: Path
) -> None:
    spread_out = results_of(Workers(cluster=clusters.of(nodes)), shards, models, tmp_path / "out")
    for command, result in alone.items():
        assert spread_out[command] == result, command


SQNR = f"sqnr:{MODEL}"


@pytest.mark.parametrize("dies", ["worker", "node"])
def test_what_dies_in_the_middle_of_a_data_set_costs_what_it_was_at(
    clusters: LocalCluster, shards: Path, tmp_path: Path, dies: str
) -> None:
    """Ray Data reads the set; whoever had results delivered them, so only what was under way is run again."""
    for name in ("alone", "spread"):
        (tmp_path / name).mkdir()
    alone, engine = (NotingEngine(str(tmp_path / name)) for name in ("alone", "spread"))
    expected = hexforge.evaluate(MODEL, shards, metric=SQNR, backend=alone)
    address, killed_at, order = clusters.of(2), 60, list(alone.runs())
    node = clusters.add_node() if dies == "node" else None
    before: Counter[str] = Counter()

    def killing(done: int, total: int) -> None:
        if done == killed_at:
            before.update(engine.runs())
            if node is not None:
                clusters.kill(node)
            else:
                os.kill(next(p for p in engine.processes() if alive(p)), signal.SIGKILL)

    assert hexforge.evaluate(MODEL, shards, metric=SQNR, backend=engine, cluster=address, progress=killing) == expected
    runs = engine.runs()
    assert set(runs) == set(order)
    assert len(order) == 239
    assert max(runs.values()) <= 2
    assert all(runs[sample] == 1 for sample in order[: killed_at - 1]), "finished work was done again"
    again = sum(runs.values()) - len(order)
    assert again <= 100, "more was run again than one worker had in its list"


def alive(process: int) -> bool:
    """Whether a process is there."""
    return Path(f"/proc/{process}").exists()


def test_a_folder_that_disappears_while_a_cluster_reads_it_says_so(clusters: LocalCluster, tmp_path: Path) -> None:
    folder, notes = tmp_path / "set", tmp_path / "notes"
    folder.mkdir()
    notes.mkdir()
    for i, picture in enumerate(PICTURES):
        np.save(folder / f"{i}.npy", picture)

    def removing(done: int, total: int) -> None:
        if done == 1:
            shutil.rmtree(folder)

    engine = NotingEngine(str(notes), seconds=0.02)
    with pytest.raises(CallError, match="the folder of samples is no longer there"):
        hexforge.evaluate(MODEL, folder, metric=SQNR, backend=engine, cluster=clusters.of(1), progress=removing)


def test_a_driver_killed_and_resumed_repeats_nothing(
    clusters: LocalCluster, alone: dict[str, Any], models: Path, tmp_path: Path
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


def test_a_search_whose_driver_was_killed_measures_nothing_twice(
    clusters: LocalCluster, alone: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    driver = subprocess.Popen(
        [sys.executable, "-c", SEARCH, str(clusters.of(2)), str(state)], cwd=ROOT, stderr=subprocess.DEVNULL
    )
    while driver.poll() is None and not (state.exists() and json.loads(state.read_text())["points"]):
        time.sleep(0.02)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    done = len(json.loads(state.read_text())["points"])
    measured: list[Any] = []

    def counted(make: Any, arguments: Any, tasks: Any, workers: Workers) -> Any:
        if make is searching.Measurer:
            measured.extend(tasks)
        return spread(make, arguments, tasks, workers)

    monkeypatch.setattr(searching, "spread", counted)
    assert searched(Workers(cluster=clusters.of(2)), state) == alone["search"]
    assert done >= 1
    assert len(measured) == len(json.loads(state.read_text())["points"]) - done


SEARCH = """
import sys
from tests.analysis.spread.test_cluster_results import Workers, searched
searched(Workers(cluster=sys.argv[1]), sys.argv[2])
"""


EVALUATE = """
import sys
from tests.analysis.spread.test_cluster_results import MODEL, SQNR, NotingEngine, hexforge
engine = NotingEngine(sys.argv[3], seconds=0.05)
hexforge.evaluate(MODEL, sys.argv[4], metric=SQNR, backend=engine, cluster=sys.argv[1], state=sys.argv[2])
"""


def test_an_evaluation_whose_driver_was_killed_runs_no_finished_sample_twice(
    clusters: LocalCluster, shards: Path, tmp_path: Path
) -> None:
    folders = {name: tmp_path / name for name in ("alone", "first", "rest")}
    for folder in folders.values():
        folder.mkdir()
    expected = hexforge.evaluate(MODEL, shards, metric=SQNR, backend=NotingEngine(str(folders["alone"]), 0))
    state, command = tmp_path / "state", [sys.executable, "-c", EVALUATE, clusters.of(2)]
    driver = subprocess.Popen(
        [*command, str(tmp_path / "state"), str(folders["first"]), str(shards)], cwd=ROOT, stderr=subprocess.DEVNULL
    )
    while driver.poll() is None and not (state.exists() and state.read_bytes().count(b"\n") >= 2):
        time.sleep(0.02)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    done, seen = json.loads(state.read_bytes().splitlines()[-1].partition(b" ")[2])[0], list[int]()
    engine = NotingEngine(str(folders["rest"]), seconds=0.05)  # its text is the same, so the job is
    found = hexforge.evaluate(
        MODEL, shards, metric=SQNR, backend=engine, cluster=clusters.of(2), state=state,
        progress=lambda done, total: seen.append(done),
    )  # fmt: skip
    assert found == expected
    assert 0 < int(done) < 240
    assert seen[0] == int(done) + 1
    assert 240 - int(done) - 1 <= sum(engine.runs().values()) <= 240 - int(done)


def takes_bytes(content: Any) -> Any:
    """A function of tasks that has something with it."""
    return lambda task: len(content)


def test_what_does_not_fit_the_machines_says_so(clusters: LocalCluster) -> None:
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
