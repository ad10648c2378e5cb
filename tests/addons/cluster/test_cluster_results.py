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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexforge
from hexforge.addons.budgets.gate import gate
from hexforge.addons.cluster import ray_actors
from hexforge.addons.cluster.ray_data import blocks
from hexforge.addons.cluster.sweep_request import SweepRequest
from hexforge.addons.cluster.sweep_run import sweep
from hexforge.addons.tuning import search as searching
from hexforge.addons.tuning.optimize import optimize
from hexforge.addons.tuning.requests import OptimizeRequest, Scoring, SearchSpace
from hexforge.addons.tuning.search import search
from hexforge.analysis.mapped_tasks import map_tasks
from hexforge.analysis.quality import quantize as quantizing
from hexforge.analysis.workers import Workers
from hexforge.errors import CallError
from hexforge.quant.data import data_sets
from tests import ROOT
from tests.addons.cluster.ray_clusters import LocalCluster, NotingEngine, WorkerKilling
from tests.addons.cluster.test_sweep import write_model
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
SQNR = f"sqnr:{MODEL}"


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


@dataclass(frozen=True)
class Inputs:
    """What the commands work on."""

    shards: Path
    models: Path
    budget: Path
    quantized: Path


@pytest.fixture(scope="module")
def inputs(shards: Path, models: Path, tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    folder = tmp_path_factory.mktemp("inputs")
    for name in ("digits.onnx", "again.onnx"):
        shutil.copy(MODEL, folder / name)
    np.savez(folder / "held.npz", image=np.stack([feeds["image"] for feeds in FEEDS[:4]]))
    sqnr = {"reference": "digits.onnx", "data": "held.npz", "at_least": 10}
    limits = [{"model": "digits.onnx", "latency_ms": 10}, {"model": "again.onnx", "sqnr_db": sqnr}]
    (folder / "budget.json").write_text(json.dumps({"models": limits}))
    hexforge.quantize(MODEL, FEEDS, "w8a8", folder / "quantized.onnx")
    return Inputs(shards, models, folder / "budget.json", folder / "quantized.onnx")


def evaluated(workers: Workers, inputs: Inputs, folder: Path) -> Any:
    return hexforge.evaluate(MODEL, inputs.shards, metric=SQNR, jobs=workers.jobs, cluster=workers.cluster)


def quantized(workers: Workers, inputs: Inputs, folder: Path) -> Any:
    return hexforge.quantize(MODEL, FEEDS, method="moving_average", workers=workers).model


def compared(workers: Workers, inputs: Inputs, folder: Path) -> Any:
    spread_over: dict[str, Any] = {"jobs": workers.jobs, "cluster": workers.cluster}
    return hexforge.compare(MODEL, inputs.quantized, FEEDS[:4], sensitivity="one", **spread_over).to_json()


def optimized(workers: Workers, inputs: Inputs, folder: Path) -> Any:
    wanted = OptimizeRequest(
        FEEDS[:8], FEEDS[8:16], LABELS[8:16].tolist(), "top1", budget=2, groups=1, samples=4, scored=8,
        jobs=workers.jobs, cluster=workers.cluster,
    )  # fmt: skip
    found = optimize(MODEL, folder, wanted, "SM8650")
    return found.recommendation.point, found.score, found.folder.quantized.read_bytes()


COMMANDS: Mapping[str, Callable[[Workers, Inputs, Path], Any]] = {
    "eval": evaluated,
    "quantize": quantized,
    "compare": compared,
    "search": lambda workers, inputs, folder: searched(workers),
    "optimize": optimized,
    "gate": lambda workers, inputs, folder: gate(inputs.budget, workers=workers),
    "sweep": lambda workers, inputs, folder: sweep([inputs.models], REQUEST, workers=workers).rows,
}
"""Every command that is spread."""


@pytest.fixture(scope="module")
def alone(inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    found = {name: run(Workers(), inputs, tmp_path_factory.mktemp("alone")) for name, run in COMMANDS.items()}
    assert found["eval"].left_out == 1
    return found


def killed_in_the_middle(address: str, shards: Path, folder: Path, kill: Callable[[NotingEngine], None]) -> None:
    """Evaluate a set, kill what works on it, and hold the result and the runs against those of one process."""
    for name in ("alone", "spread"):
        (folder / name).mkdir()
    alone, engine = (NotingEngine(str(folder / name)) for name in ("alone", "spread"))
    expected = hexforge.evaluate(MODEL, shards, metric=SQNR, backend=alone)
    killed_at, order = 60, list(alone.runs())

    def killing(done: int, total: int) -> None:
        if done == killed_at:
            kill(engine)

    assert hexforge.evaluate(MODEL, shards, metric=SQNR, backend=engine, cluster=address, progress=killing) == expected
    runs = engine.runs()
    assert set(runs) == set(order)
    assert len(order) == 239
    assert max(runs.values()) <= 2
    assert all(runs[sample] == 1 for sample in order[: killed_at - 1]), "finished work was done again"
    again = sum(runs.values()) - len(order)
    assert again <= 100, "more was run again than one worker had in its list"


def kill_worker(engine: NotingEngine) -> None:
    os.kill(next(p for p in engine.processes() if alive(p)), signal.SIGKILL)


def alive(process: int) -> bool:
    """Whether a process is there."""
    return Path(f"/proc/{process}").exists()


def removed_while_read(address: str, folder: Path) -> None:
    """Evaluate a folder of files that is removed in the middle."""
    data, notes = folder / "set", folder / "notes"
    data.mkdir()
    notes.mkdir()
    for i, picture in enumerate(PICTURES):
        np.save(data / f"{i}.npy", picture)

    def removing(done: int, total: int) -> None:
        if done == 1:
            shutil.rmtree(data)

    engine = NotingEngine(str(notes), seconds=0.02)
    with pytest.raises(CallError, match="the folder of samples is no longer there"):
        hexforge.evaluate(MODEL, data, metric=SQNR, backend=engine, cluster=address, progress=removing)


@pytest.fixture
def no_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers must read themselves."""

    def refuse(*arguments: Any) -> Any:
        raise AssertionError("Ray Data reads what workers can read")

    monkeypatch.setattr(ray_actors, "blocks", refuse)


@pytest.mark.usefixtures("no_readers")
def test_on_one_machine_a_worker_that_is_killed_while_it_reads_costs_what_it_was_at(
    clusters: LocalCluster, shards: Path, tmp_path: Path
) -> None:
    killed_in_the_middle(clusters.of(1), shards, tmp_path, kill_worker)


@pytest.mark.usefixtures("no_readers")
def test_on_one_machine_a_folder_that_disappears_says_so(clusters: LocalCluster, tmp_path: Path) -> None:
    removed_while_read(clusters.of(1), tmp_path)


@pytest.mark.parametrize("most_bytes", [1, 1 << 20])
def test_on_one_machine_long_shards_are_read_by_ray_data_and_short_ones_by_workers(
    clusters: LocalCluster, alone: dict[str, Any], inputs: Inputs, monkeypatch: pytest.MonkeyPatch, most_bytes: int
) -> None:
    """Their names may be relative to the folder of this process, in which Ray's were not started."""
    monkeypatch.setattr(data_sets, "_SHORT_BYTES", most_bytes)
    read = list[Any]()
    monkeypatch.setattr(ray_actors, "blocks", lambda *arguments: read.append(arguments) or blocks(*arguments))
    address = clusters.of(1)
    monkeypatch.chdir(inputs.shards.parent)
    found = hexforge.evaluate(MODEL, inputs.shards.name, metric=SQNR, cluster=address)
    assert found == replace(alone["eval"], first_left_out=found.first_left_out)
    assert len(read) == (most_bytes == 1)


@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_every_command_gives_what_one_process_gives(
    clusters: LocalCluster, nodes: int, alone: dict[str, Any], inputs: Inputs, tmp_path: Path
) -> None:
    workers = Workers(cluster=clusters.of(nodes))
    for command, run in COMMANDS.items():
        assert run(workers, inputs, tmp_path / command) == alone[command], command


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"eval"}))
def test_a_worker_that_is_killed_changes_no_result(
    clusters: LocalCluster, alone: dict[str, Any], inputs: Inputs, tmp_path: Path, command: str
) -> None:
    address = clusters.of(2)
    with WorkerKilling() as killing:
        result = COMMANDS[command](Workers(cluster=address), inputs, tmp_path / "out")
    assert killing.killed
    assert result == alone[command]


@pytest.mark.parametrize("dies", ["worker", "node"])
def test_what_dies_in_the_middle_of_a_data_set_costs_what_it_was_at(
    clusters: LocalCluster, shards: Path, tmp_path: Path, dies: str
) -> None:
    """Ray Data reads the set; whoever had results delivered them, so only what was under way is run again."""
    address = clusters.of(2)
    node = clusters.add_node() if dies == "node" else None
    killed_in_the_middle(address, shards, tmp_path, kill_worker if node is None else lambda _: clusters.kill(node))


def test_a_folder_that_disappears_while_a_cluster_reads_it_says_so(clusters: LocalCluster, tmp_path: Path) -> None:
    removed_while_read(clusters.of(2), tmp_path)


QUANTIZE = """
import os, signal, sys
from hexforge.quant.data import calibrate
from tests.addons.cluster.test_cluster_results import FEEDS, MODEL, Workers, hexforge
calibrate.SAVE_SECONDS = 0
def dying(stage, done, whole):
    if done == 12:
        os.kill(os.getpid(), signal.SIGKILL)
hexforge.quantize(
    MODEL, FEEDS, method="moving_average", workers=Workers(cluster=sys.argv[1]), state=sys.argv[2], progress=dying
)
"""


def test_a_quantization_whose_driver_was_killed_runs_no_finished_sample_twice(
    clusters: LocalCluster, alone: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, workers = tmp_path / "state", Workers(cluster=clusters.of(2))
    killed = subprocess.run([sys.executable, "-c", QUANTIZE, clusters.of(2), str(state)], cwd=ROOT, check=False)
    assert killed.returncode == -signal.SIGKILL
    handed_out = list[Any]()

    def counted(make: Any, arguments: Any, tasks: Any, workers: Workers) -> Any:
        def noted() -> Iterator[Any]:
            for task in tasks:
                handed_out.append(task)
                yield task

        return map_tasks(make, arguments, noted(), workers)

    monkeypatch.setattr(quantizing, "spread", counted)
    resumed = hexforge.quantize(MODEL, FEEDS, method="moving_average", workers=workers, state=state)
    assert resumed.model == alone["quantize"]
    assert sum(map(len, handed_out)) == len(FEEDS) - 12


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
        return map_tasks(make, arguments, tasks, workers)

    monkeypatch.setattr(searching, "spread", counted)
    assert searched(Workers(cluster=clusters.of(2)), state) == alone["search"]
    assert done >= 1
    assert len(measured) == len(json.loads(state.read_text())["points"]) - done


SEARCH = """
import sys
from tests.addons.cluster.test_cluster_results import Workers, searched
searched(Workers(cluster=sys.argv[1]), sys.argv[2])
"""


EVALUATE = """
import sys
from tests.addons.cluster.test_cluster_results import MODEL, SQNR, NotingEngine, hexforge
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
        list(map_tasks(takes_bytes, (b"",), [1], Workers(cluster=clusters.of(1), memory_bytes=10**15)))
    with pytest.raises(CallError, match="and a worker takes 1000"):
        list(map_tasks(takes_bytes, (b"",), [1], Workers(cluster=clusters.of(1), threads=1000)))


FULL = """
import numpy, ray
from hexforge.analysis.mapped_tasks import map_tasks
from hexforge.analysis.workers import Workers
from hexforge.errors import HexforgeError
from tests.addons.cluster.test_cluster_results import takes_bytes
ray.init(address="local", num_cpus=1, object_store_memory=80 << 20, include_dashboard=False, log_to_driver=False,
         _system_config={"local_fs_capacity_threshold": 0.0001})
try:
    print(list(map_tasks(takes_bytes, (numpy.ones(200 << 20, numpy.uint8),), [1], Workers(cluster=True))))
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
