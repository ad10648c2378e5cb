# SPDX-License-Identifier: Apache-2.0
"""`--backend vendor`: the package runs models where a backend is named."""

from __future__ import annotations

import json
import pickle
import threading
from pathlib import Path

import numpy as np
import pytest

from hexforge.addons.vendor import engine as engine_module
from hexforge.addons.vendor import process as process_module
from hexforge.addons.vendor.engine import VendorEngine
from hexforge.addons.vendor.process import ProcessLimits, VendorProcess
from hexforge.analysis.quality.runners import ModelEngine, runner
from hexforge.model.load_check import NUMPY_TYPES
from tests.addons.vendor import HERE, needs_package, write_worker
from tests.addons.vendor.models import sample, saved, small_chain
from tests.cli.test_cli import run

DOUBLES = """
def answer(job):
    given = job['with']
    if job['do'] == 'open':
        nodes = {'QNNExecutionProvider': [['Conv', 'conv1'], ['Conv', 'conv2']], 'CPUExecutionProvider': []}
        value = [['x', 'tensor(float)', [1, 8, 10, 10]]]
        return {'nodes': nodes, 'seconds': 0, 'inputs': value, 'outputs': value}
    import numpy as np
    np.savez(given['outputs'], a0=2 * np.load(given['feeds'])['a0'])
    return {'seconds': 0, 'names': ['y']}
"""


@pytest.fixture
def doubling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that doubles every input."""
    monkeypatch.setattr(process_module, "WORKER", write_worker(tmp_path, DOUBLES))
    monkeypatch.setattr(engine_module, "VendorProcess", lambda limits: VendorProcess(HERE, limits))


def test_an_engine_travels_and_has_a_name() -> None:
    engine = VendorEngine("SM8550", {"vtcm_mb": "4"}, ProcessLimits(5))
    assert pickle.loads(pickle.dumps(engine)) == engine
    assert str(engine) == "vendor"
    assert isinstance(engine, ModelEngine)


@pytest.mark.parametrize(
    ("kind", "dtype"), [("tensor(float)", "float32"), ("tensor(uint16)", "uint16"), ("tensor(bool)", "bool")]
)
def test_types_of_onnxruntime(kind: str, dtype: str) -> None:
    assert NUMPY_TYPES[kind] == np.dtype(dtype)
    assert "tensor(string2)" not in NUMPY_TYPES


def test_a_runner_runs_in_the_package(doubling: None) -> None:
    run_model = runner(small_chain().SerializeToString(), VendorEngine())
    assert np.array_equal(run_model(sample())["y"], 2 * sample()["x"])


def test_threads_ask_one_after_the_other(doubling: None) -> None:
    run_model = runner(small_chain().SerializeToString(), VendorEngine())
    right: list[bool] = []

    def ask(seed: int) -> None:
        right.extend(np.array_equal(run_model(sample(seed))["y"], 2 * sample(seed)["x"]) for _ in range(5))

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 20


def test_run_and_bench_by_the_package(doubling: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = saved(small_chain(), tmp_path)
    assert run("run", str(model), "--backend", "vendor", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["where"].startswith("Qualcomm's package, SM8650")
    assert run("bench", str(model), "--backend", "vendor", "-n", "2", "--json") == 0
    assert json.loads(capsys.readouterr().out)["iterations"] == 2
    assert run("run", str(model), "--backend", "vendor", "--option", "vtcm=1") != 0
    assert "vtcm_mb" in capsys.readouterr().err


def test_check_names_what_the_package_places_otherwise(
    doubling: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = saved(small_chain(), tmp_path)
    assert run("check", str(model), "--backend", "vendor") == 0
    assert "Qualcomm's package takes 2 nodes and leaves 0 to the CPU" in capsys.readouterr().out
    assert run("check", str(model), "--backend", "vendor", "--json") == 0
    assert json.loads(capsys.readouterr().out)["beside_hexforge"]["nodes_compared"] == 2


class TestInstalled:
    pytestmark = needs_package

    def test_eval_and_compare(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        model = saved(small_chain(), tmp_path)
        given = ("--data", "random:2", "--backend", "vendor", "--json")
        assert run("eval", str(model), "--metric", f"sqnr:{model}", *given) == 0
        said = json.loads(capsys.readouterr().out)
        assert said["backend"] == "vendor"
        assert said["score"] > 25
        assert run("check", str(model), "--backend", "vendor", "--json") == 0
        assert json.loads(capsys.readouterr().out)["beside_hexforge"]["alike"]
