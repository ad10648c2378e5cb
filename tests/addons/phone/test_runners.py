# SPDX-License-Identifier: Apache-2.0
"""Runners by name on a phone: what scripts push, run and pull, on the simulated device of the phone's chip."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from hexforge.addons.phone.phones import Phone, add_phone, unplug
from hexforge.addons.phone.programs import Translated
from hexforge.addons.phone.script_folders import HOST, adb_folder, sdk_root
from tests.addons.executorch.pte_files import delegated, pte
from tests.addons.phone.conftest import Adb
from tests.digits import MODEL

HERE = "/data/local/tmp/work"
X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def pushed(phone: Phone, adb: Adb, tmp_path: Path) -> Path:
    """What SimpleADB pushes: a model, the SDK's runner and libraries (files of their names), inputs and their list."""
    (tmp_path / "model.pte").write_bytes(pte(delegated()))
    for name in ("qnn_executor_runner", "libQnnHtp.so", "libQnnHtpV75Skel.so"):
        (tmp_path / name).write_bytes(b"\x7fELF\0 the vendor's, for another processor")
    X.tofile(tmp_path / "input_0_0.raw")
    (tmp_path / "input_list.txt").write_text(f"{HERE}/input_0_0.raw\ninput_0_0.raw\n")
    adb("shell", f"rm -rf {HERE}")
    adb("shell", f"mkdir -p {HERE}")
    for path in sorted(tmp_path.iterdir()):
        if path.is_file():
            assert adb("push", str(path), HERE).code == 0
    return tmp_path


RUN = (
    f"cd {HERE} && chmod +x qnn_executor_runner && export LD_LIBRARY_PATH=. && export ADSP_LIBRARY_PATH=. && "
    "echo 0x0C > qnn_executor_runner.farf && ./qnn_executor_runner --model_path model.pte "
    f"--output_folder_path {HERE}/outputs --input_list_path input_list.txt --etdump_path {HERE}/etdump.etdp"
)


PLANTED = "open({!r}, 'w').write('was run')\n"


@pytest.mark.parametrize("paths", ["", ":", "."])
def test_a_file_on_the_phone_is_no_code_of_this_computer(
    phone: Phone, adb: Adb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paths: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", paths)
    sign = tmp_path / "sign"
    for name in ("typing.py", "json.py", "hexforge.py"):
        (tmp_path / name).write_text(PLANTED.format(str(sign)))
        assert adb("push", str(tmp_path / name), HERE + "/").code == 0
    assert "Usage" in adb("shell", f"cd {HERE} && qnn-net-run --help").out
    assert not sign.exists()


@pytest.mark.parametrize("program", ["adb", "tool"])
def test_a_file_where_adb_and_the_tools_are_called_is_not_run(phones: Path, tmp_path: Path, program: str) -> None:
    sign, folder = tmp_path / "sign", tmp_path / "there"
    folder.mkdir()
    for name in ("typing.py", "json.py", "hexforge.py"):
        (folder / name).write_text(PLANTED.format(str(sign)))
    path = adb_folder() / "adb" if program == "adb" else sdk_root() / "bin" / HOST / "qnn-net-run"
    done = subprocess.run([path, "--help"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not sign.exists()


def test_a_pte_as_simple_adb_runs_it(pushed: Path, adb: Adb) -> None:
    answer = adb("shell", RUN + " --iteration 2 --performance_output_path ms.txt")
    assert answer.code == 0, answer
    assert "executorch:qnn_executor_runner.cpp:0] Method loaded.\n" in answer.out
    assert "] Model executed successfully.\n" in answer.out
    assert str(pushed) not in answer.out, "paths are the phone's"
    assert adb("pull", "-a", f"{HERE}/outputs", str(pushed)).code == 0
    for number in (0, 1):
        assert np.fromfile(pushed / f"outputs/output_{number}_0.raw", np.float32).tolist() == (2 * X).ravel().tolist()
    adb("pull", f"{HERE}/etdump.etdp", str(pushed))
    assert (pushed / "etdump.etdp").read_bytes()[8:12] == b"ED00"
    again = adb("shell", RUN + " --iteration 2 --performance_output_path again.txt")
    took = [re.findall(r"took ([\d.]+) ms", one.out) for one in (answer, again)]
    assert took[0], answer.out
    assert took[0] == took[1], "the chip's time is the same every time"
    assert adb("shell", f"cd {HERE}; cat ms.txt").out == adb("shell", f"cd {HERE}; cat again.txt").out


def test_a_chip_that_cannot_run_the_context_says_so(pushed: Path, adb: Adb) -> None:
    add_phone("old", "SM8350")
    for name in ("model.pte", "qnn_executor_runner"):
        adb("-s", "old", "push", str(pushed / name), "/data/local/tmp/")
    answer = adb("-s", "old", "shell", "cd /data/local/tmp; chmod +x qnn_executor_runner; ./qnn_executor_runner")
    assert answer.code != 0
    assert "<E> " in answer.out
    assert "Model executed" not in answer.out
    assert adb("-s", "old", "shell", "ls /data/local/tmp/outputs").out == ""


def test_unplugged_while_a_runner_runs(phone: Phone, pushed: Path, adb: Adb) -> None:
    """The runner is ended; what it had written is whole, and nothing of the rest is there."""

    (phone.storage.folder / HERE[1:] / "input_list.txt").write_text("input_0_0.raw\n" * 100_000)

    def pull_the_cable() -> None:
        end = time.monotonic() + 60
        while not list(phone.storage.folder.glob(f"{HERE[1:]}/outputs/*_0.raw")) and time.monotonic() < end:
            time.sleep(0.02)
        unplug(phone)

    thread = threading.Thread(target=pull_the_cable)
    thread.start()
    answer = adb("shell", RUN + "; echo after > after.txt")
    thread.join()
    assert answer.code == 255
    folder = phone.storage.folder / HERE[1:]
    assert not (folder / "after.txt").exists()
    assert {p.stat().st_size for p in (folder / "outputs").glob("*.raw")} == {X.nbytes}
    assert not (folder / "etdump.etdp").exists()


def test_qnn_net_run_as_qnn_tool_runs_it(phone: Phone, adb: Adb, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "model.onnx").write_bytes(MODEL.read_bytes())
    (work / "qnn-net-run").write_text("#!/system/bin/sh\n")
    (work / "qnn-net-run").chmod(0o755)
    np.random.default_rng(0).random(64, np.float32).tofile(work / "x.raw")
    (work / "input_list.txt").write_text(f"{HERE}/x.raw\n")
    (work / "backend_extension_config.json").write_text(
        json.dumps({"backend_extensions": {"config_file_path": "config.json", "shared_library_path": f"{HERE}/l.so"}})
    )
    (work / "config.json").write_text(json.dumps({"devices": [{"cores": [{"perf_profile": "burst"}], "soc_id": 69}]}))
    adb("push", f"{work}/.", HERE)
    answer = adb(
        "shell",
        f"export LD_LIBRARY_PATH={HERE} && cd {HERE} && ./qnn-net-run --backend libQnnHtp.so "
        "--model model.onnx --input_list input_list.txt --config_file backend_extension_config.json "
        "--profiling_level basic --log_level info",
    )
    assert answer.code == 0, answer
    assert "ms each on the simulated device" in answer.out
    adb("pull", "-a", f"{HERE}/output/qnn-profiling-data_0.log", str(tmp_path))
    assert (tmp_path / "qnn-profiling-data_0.log").stat().st_size > 0
    assert adb("shell", f"ls {HERE}/output/Result_0").out.endswith(".raw\n")


def test_paths_of_a_runner_stay_on_the_phone(phone: Phone, tmp_path: Path) -> None:
    storage = phone.storage
    (storage.folder / "data/local/tmp/list.txt").write_text("x:=/sdcard/a.raw ../../../../../etc/b.raw c.raw\n")
    translated = Translated(storage, "/data/local/tmp", tmp_path)
    given = translated.arguments(
        [
            "--input_list",
            "list.txt",
            "--output_dir=/sdcard/out",
            "--model",
            "../../../../../../etc/passwd",
            "--n",
            "1,2",
        ]
    )
    assert given[2:] == ["--output_dir=../../../sdcard/out", "--model", "../../../etc/passwd", "--n", "1,2"]
    assert Path(given[1]).read_text() == "x:=../../../sdcard/a.raw ../../../etc/b.raw c.raw\n"
    assert translated.shown(f"{storage.folder}/sdcard/x and ../../../sdcard/y\n".encode()) == (
        b"/sdcard/x and /sdcard/y\n"
    )
    (storage.folder / "out").symlink_to(tmp_path)
    inside = f"../../..{tmp_path}/model.onnx"
    assert translated.arguments(["--model", "/out/model.onnx"]) == ["--model", inside], "links are the phone's, too"
