# SPDX-License-Identifier: Apache-2.0
"""The SDK's folder, models timed on a phone, and costs calibrated by such times."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from hexforge.addons.latency.calibration import fit_factors
from hexforge.addons.latency.cost_file import FACTORS, calibrated_costs
from hexforge.addons.phone.adb_device import DeviceRunError, find_device
from hexforge.addons.phone.phones import Phone, unplug
from hexforge.addons.phone.script_folders import sdk_root
from hexforge.chips.soc import require_chip
from hexforge.cli import main
from hexforge.errors import CallError
from tests.addons.phone.conftest import Adb
from tests.digits import MODEL


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def hexforge(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return int(ended.value.code or 0)


def test_what_scripts_touch_in_an_sdk(phone: Phone, adb: Adb) -> None:
    """Paths of ExecuTorch's SimpleADB and QnnTool; a tool of this computer runs, one for phones runs on a phone."""
    root = sdk_root()
    for name in (
        "lib/aarch64-android/libQnnHtp.so", "lib/aarch64-android/libQnnHtpV75Stub.so",
        "lib/aarch64-android/libQnnHtpPrepare.so", "lib/aarch64-android/libQnnSystem.so",
        "lib/hexagon-v75/unsigned/libQnnHtpV75Skel.so", "lib/aarch64-android/libQnnHtpNetRunExtensions.so",
        "lib/x86_64-linux-clang/libQnnHtp.so", "lib/x86_64-linux-clang/libQnnModelDlc.so", "bin/envsetup.sh",
        "include/QNN/QnnInterface.h", "bin/aarch64-android/qnn-net-run", "sdk.yaml",
        "executorch/build-android/examples/qualcomm/executor_runner/qnn_executor_runner",
        "executorch/build-android/backends/qualcomm/libqnn_executorch_backend.so",
    ):  # fmt: skip
        assert (root / name).is_file(), name
    tool = root / "bin/x86_64-linux-clang/qnn-net-run"
    said = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout
    assert said.startswith("qnn-net-run of hexforge")
    real = subprocess.run(["sh", root / "bin/aarch64-android/qnn-net-run"], capture_output=True, text=True, check=False)
    assert (real.returncode, real.stderr) == (126, "qnn-net-run: is hexforge's, and runs on its virtual phones alone\n")
    adb("push", str(root / "bin/aarch64-android/qnn-net-run"), "/data/local/tmp")
    assert "qnn-net-run of hexforge" in adb("shell", "/data/local/tmp/qnn-net-run --version").out
    before = {p: p.stat().st_mtime_ns for p in root.rglob("*.so")}
    assert sdk_root() == root
    assert {p: p.stat().st_mtime_ns for p in root.rglob("*.so")} == before, "what is there is left alone"


def test_the_environment_for_a_shell(phone: Phone, capsys: pytest.CaptureFixture[str]) -> None:
    assert hexforge("phone", "env") == 0
    script = capsys.readouterr().out + 'adb devices; echo "$QNN_SDK_ROOT"'
    environment = {k: v for k, v in os.environ.items() if k != "QNN_SDK_ROOT"}
    said = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True, env=environment).stdout
    assert said == f"List of devices attached\none\tdevice\n\n{sdk_root()}\n"


def test_a_model_measured_and_the_costs_calibrated(
    phone: Phone, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, costs = tmp_path / "measured.csv", tmp_path / "costs.json"
    words = ("phone", "measure", str(MODEL), "--phone", "one", "--times", "3", "--add-to", str(table), "--json")
    assert hexforge(*words) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["virtual"] is True
    assert facts["measured_ms"] == pytest.approx(facts["estimate_ms"], rel=0.05)
    slower = 2 * facts["measured_ms"]
    table.write_text(f"model,soc,precision,runtime,measured_ms\n{MODEL},SM8650,as-is,onnx,{slower}\n")
    assert hexforge("calibrate", str(table), "--soc", "SM8650", "-o", str(costs)) == 0
    capsys.readouterr()
    assert (
        hexforge("estimate", str(MODEL), "--soc", "SM8650", "--runtime", "onnx", "--costs", str(costs), "--json") == 0
    )
    assert json.loads(capsys.readouterr().out)["latency_ms"] == pytest.approx(slower, rel=0.05)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model,soc,measured_ms\nm.onnx,SM8650,quick\n", "line 2: measured_ms is 'quick'"),
        ("model,soc\nm.onnx,SM8650\n", "line 2: a row has model, soc and measured_ms"),
        ("model,soc,measured_ms\nm.onnx,SM8750,1\n", "has no rows of SM8650"),
    ],
)
def test_what_is_no_table_of_times(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    assert hexforge("calibrate", str(tmp_path / "t.csv"), "--soc", "SM8650", "-o", str(tmp_path / "c.json")) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "c.json").exists()


def test_factors_that_made_the_times_are_found() -> None:
    """Six models, each mostly of one kind of work: the factors that were hidden come back."""
    work = {name: [5.0 if i == j else 0.2 for j in range(len(FACTORS))] for i, name in enumerate(FACTORS)}
    hidden = dict.fromkeys(FACTORS, 1.5) | {"dram": 2.0}

    def predict(multiplied: object) -> list[float]:
        assert isinstance(multiplied, dict)
        return [sum(work[name][j] * multiplied[name] for name in FACTORS) for j in range(len(FACTORS))]

    found = fit_factors(predict(hidden), predict)
    assert found["hvx"] == pytest.approx(1.5, rel=0.08)
    assert found["dram"] == pytest.approx(2.0, rel=0.08)
    chip = require_chip("SM8650")
    assert calibrated_costs(chip, {"dram": 2.0}, "x")["chips"]["SM8650"]["dram"] == pytest.approx(2.0)
    with pytest.raises(CallError, match="more than 0"):
        fit_factors([], predict)


def test_a_folder_on_a_real_adb(phones: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any adb on PATH serves; here one that writes down what it was asked."""
    asked = tmp_path / "asked.txt"
    program = tmp_path / "bin" / "adb"
    program.parent.mkdir()
    program.write_text(
        f"#!/bin/sh\n[ $1 = devices ] && printf 'List of devices attached\\nR5CX\\tdevice\\n' && exit 0\n"
        f'echo "$*" >> {shlex.quote(str(asked))}\nexit 0\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "model.onnx").touch()
    device = find_device("R5CX")
    assert not device.is_virtual
    device.run_folder([tmp_path / "model.onnx"], "./run", ["out"], tmp_path / "back")
    lines = asked.read_text().splitlines()
    assert [line.split()[2] for line in lines] == ["shell", "push", "shell", "pull"]
    assert all(line.startswith("-s R5CX ") for line in lines)


def test_a_folder_on_a_phone_that_goes_away(phone: Phone, tmp_path: Path) -> None:
    device = find_device("one")
    (tmp_path / "f").write_text("x")
    said = device.run_folder([tmp_path / "f"], "cat f; echo made > out", ["out"], tmp_path / "back")
    assert said == "x"
    assert (tmp_path / "back/out").read_text() == "made\n"
    with pytest.raises(DeviceRunError, match="ended with 3"):
        device.run_folder([], "exit 3")
    unplug(phone)
    with pytest.raises(DeviceRunError, match="device 'one' not found"):
        device.run_folder([], "true")


@pytest.mark.usefixtures("sandbox")
def test_onnxruntime_perf_test_by_name(phone: Phone, adb: Adb) -> None:
    adb("push", str(MODEL), "/data/local/tmp/m.onnx")
    answer = adb("shell", "cd /data/local/tmp; onnxruntime_perf_test -e qnn -I -m times -r 4 -s "
                 "-i 'backend_path|libQnnHtp.so' m.onnx times.csv; wc -l times.csv")  # fmt: skip
    assert "Total inference requests: 4\n" in answer.out, answer
    assert answer.out.endswith("4 times.csv\n")
    assert adb("shell", "cd /data/local/tmp; onnxruntime_perf_test -e cpu m.onnx").code == 2
