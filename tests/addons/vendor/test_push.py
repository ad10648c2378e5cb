# SPDX-License-Identifier: Apache-2.0
"""A deployed folder on a phone: virtual, behind another adb, several, none, unplugged in the middle, full."""

from __future__ import annotations

import json
import shlex
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hexforge.addons.phone.adb_device import WORKSPACE, DeviceFullError, DeviceGoneError, find_device
from hexforge.addons.phone.phones import VARIABLE, Phone, add_phone, plug, unplug
from hexforge.addons.phone.script_folders import adb_folder, write_marked
from hexforge.addons.vendor import deploy as deploying
from hexforge.addons.vendor.commands.pushed_deployment import PERF_TEST, RUNNER, PushRequest, push_deployment
from hexforge.addons.vendor.deploy import DeployRequest, deploy
from hexforge.cli import main
from hexforge.errors import CallError, FormatError
from tests.addons.vendor.models import sample, saved, small_chain


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No package, no adb of this computer, a cache of its own."""
    monkeypatch.setattr(deploying, "find_package", lambda: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    deploy(saved(small_chain(), tmp_path), tmp_path / "shipped", DeployRequest(["SM8650"], [sample(), sample(1)]))
    return tmp_path / "shipped"


def hexforge(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return int(ended.value.code or 0)


def real_adb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str = "", after: str = "") -> None:
    """An adb on PATH that is none of ours: it knows a phone R5CX, and may do something before and after."""
    other = tmp_path / "elsewhere"
    with monkeypatch.context() as inner:
        inner.setenv(VARIABLE, str(other))
        add_phone("R5CX", "SM8650")
    program = tmp_path / "bin" / "adb"
    ours = shlex.quote(str(adb_folder() / "adb"))
    program.write_text(
        f'#!/bin/sh\nexport {VARIABLE}={shlex.quote(str(other))}\n{before}\n{ours} "$@"\ncode=$?\n{after}\nexit $code\n'
    )
    program.chmod(0o755)


def programs(tmp_path: Path, *names: str) -> Path:
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in names:
        (folder / name).write_bytes(write_marked(name).read_bytes())
    return folder


def test_a_model_is_deployed_and_run_on_the_only_phone(
    phone: Phone, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, table = saved(small_chain(), tmp_path), tmp_path / "measured.csv"
    assert hexforge("deploy", model, "-o", tmp_path / "out", "--push", "--times", 3, "--json") == 0
    facts = json.loads(capsys.readouterr().out)["pushed"]
    assert (facts["phone"], facts["virtual"], facts["soc"], facts["ran"]) == ("one", True, "SM8650", "model.onnx")
    assert facts["measured_ms"] == pytest.approx(facts["estimate_ms"], rel=0.05)
    assert facts["outputs"]["pool1_r"]["largest_steps"] == 0
    assert hexforge("deploy", tmp_path / "out", "--push", "--add-to", table) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "ms on one (a virtual phone" in said
    assert "pool1_r agrees 100.00 %" in said
    assert table.read_text().splitlines()[1].startswith(f"{tmp_path / 'out' / 'model.onnx'},SM8650,as-is,onnx,")


def test_a_real_phone_runs_and_its_outputs_are_judged(
    phones: Path, shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The real one is taken before a virtual one; numbers that are other than ours are an exit code of 1."""
    add_phone("virtual", "SM8650")
    real_adb(tmp_path, monkeypatch)
    assert hexforge("deploy", shipped, "--push") == 2
    assert "--programs is missing" in capsys.readouterr().err
    given = ("deploy", shipped, "--push", "--programs", programs(tmp_path, RUNNER), "--json")
    assert hexforge(*given) == 0
    facts = json.loads(capsys.readouterr().out)["pushed"]
    assert (facts["phone"], facts["virtual"], facts["samples"], facts["agrees"]) == ("R5CX", False, 2, True)
    wrong = shlex.quote(str(tmp_path / "wrong.raw"))
    Path(tmp_path / "wrong.raw").write_bytes(np.full(1 << 10, 7, np.float32).tobytes())
    # what was pulled becomes other numbers
    change = (
        f'case "$3" in pull) cut=$(stat -c %s "$5/outputs/1/0.raw"); head -c $cut {wrong} > "$5/outputs/1/0.raw";; esac'
    )
    real_adb_again = (tmp_path / "bin" / "adb").read_text().replace("code=$?\n", f"code=$?\n{change}\n")
    (tmp_path / "bin" / "adb").write_text(real_adb_again)
    assert hexforge(*given) == 1
    assert json.loads(capsys.readouterr().out)["pushed"]["agrees"] is False


def test_a_program_that_only_times(
    phones: Path, shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real_adb(tmp_path, monkeypatch)
    assert hexforge("deploy", shipped, "--push", "--programs", programs(tmp_path, PERF_TEST)) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "ms on R5CX (measured)" in said
    assert "outputs are not compared: onnxruntime_perf_test writes no outputs" in said
    (tmp_path / "programs" / PERF_TEST).unlink()
    with pytest.raises(CallError, match="has neither run_model nor"):
        push_deployment(shipped, find_device(), PushRequest(programs=tmp_path / "programs"))


def test_which_phone(phones: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CallError, match="there is no phone: there is no adb on PATH"):
        find_device()
    with pytest.raises(CallError, match="R5CX: is no virtual phone, and there is no adb"):
        find_device("R5CX")
    add_phone("one", "SM8650")
    assert find_device().is_virtual
    two = add_phone("two", "SM8750")
    with pytest.raises(CallError, match="several phones, name one with -s: one, two"):
        find_device()
    monkeypatch.setenv("ANDROID_SERIAL", "two")
    assert find_device().serial == "two"
    monkeypatch.delenv("ANDROID_SERIAL")
    unplug(two)
    real_adb(tmp_path, monkeypatch)
    assert (find_device().serial, find_device("one").is_virtual) == ("R5CX", True)
    with pytest.raises(CallError, match="two: adb does not see such a phone; it sees R5CX, one"):
        find_device("two")
    listing = "List of devices attached\\nR5CX\\tunauthorized\\nR6\\tdevice\\n\\n"
    (tmp_path / "bin" / "adb").write_text(f"#!/bin/sh\nprintf '{listing}'\n")
    with pytest.raises(CallError, match="several phones, name one with -s: R5CX, R6, one"):
        find_device()
    with pytest.raises(CallError, match="R5CX: is unauthorized, says adb; allow debugging"):
        find_device("R5CX")


def test_a_phone_is_looked_for_before_minutes_are_spent(
    phones: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = saved(small_chain(), tmp_path)
    assert hexforge("deploy", model, "--soc", "SM8650", "-o", tmp_path / "out", "--push") == 2
    assert "there is no phone" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    for words, said in (
        ((model, "-o", tmp_path / "out"), "--soc is missing"),
        ((model, "--soc", "SM8650"), "--output is missing"),
        ((model, "-o", tmp_path / "out", "--soc", "SM8650", "-s", "one"), "-s: is about a phone; give --push"),
        ((tmp_path,), "is a folder; a deployed one is run on a phone with --push"),
    ):
        assert hexforge("deploy", *words) == 2
        assert said in " ".join(capsys.readouterr().err.split())


def test_what_is_not_pushed(shipped: Path, tmp_path: Path, phones: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add_phone("other", "SM8750")
    with pytest.raises(CallError, match="was deployed for SM8650; other has SM8750: deploy with --soc SM8750"):
        push_deployment(shipped, find_device(), PushRequest())
    with (shipped / "model.onnx").open("ab") as file:
        file.write(b"\0")
    with pytest.raises(FormatError, match=r"is not pushed, it is not what was deployed: model\.onnx"):
        push_deployment(shipped, find_device(), PushRequest())
    assert hexforge("deploy", shipped, "--push", "--soc", "SM8650") == 2
    assert "is pushed as it was deployed" in capsys.readouterr().err


def test_a_phone_that_is_unplugged_while_the_model_runs(
    phone: Phone, shipped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = phone.storage.host(f"{WORKSPACE}/outputs")

    def pull_the_cable() -> None:
        while not outputs.is_dir():
            time.sleep(0.01)
        unplug(phone)

    thread = threading.Thread(target=pull_the_cable)
    thread.start()
    with pytest.raises(DeviceGoneError, match="one: the phone is no longer there; plug it in again"):
        push_deployment(shipped, find_device(), PushRequest())
    thread.join()
    plug(phone)
    assert hexforge("deploy", shipped, "--push", "--json") == 0
    assert json.loads(capsys.readouterr().out)["pushed"]["agrees"] is True


def test_a_phone_that_is_full(
    phones: Path, shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    full = (
        "case \"$3\" in push) echo \"adb: error: failed to copy '$4' to '$5': remote write failed: "
        'No space left on device" >&2; exit 1;; esac'
    )
    real_adb(tmp_path, monkeypatch, before=full)
    folder = programs(tmp_path, RUNNER)
    with pytest.raises(DeviceFullError, match="R5CX: its storage is full"):
        push_deployment(shipped, find_device(), PushRequest(programs=folder))
    before = sorted(tmp_path.iterdir())
    assert hexforge("deploy", shipped, "--push", "--programs", folder) != 0
    said = " ".join(capsys.readouterr().err.split())
    assert f"try again: hexforge deploy {shipped} --push -s R5CX" in said
    assert sorted(tmp_path.iterdir()) == before


def test_an_interrupt_keeps_the_folder(
    phone: Phone, shipped: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from hexforge.addons.phone.adb_device import AdbDevice

    def stop(*given: Any, **named: Any) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(AdbDevice, "run_folder", stop)
    assert hexforge("deploy", shipped, "--push") == 130
    assert "stands; try again: hexforge deploy" in " ".join(capsys.readouterr().err.split())
    assert (shipped / "manifest.json").is_file()
