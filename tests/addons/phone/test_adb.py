# SPDX-License-Identifier: Apache-2.0
"""adb's commands, messages and exit codes; two phones; a phone that is unplugged while something is done."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hexforge.addons.phone import phones as phones_module
from hexforge.addons.phone import transfer
from hexforge.addons.phone.phones import Phone, add_phone, find_phone, list_phones, plug, remove_phone, unplug
from hexforge.addons.phone.script_folders import adb_folder
from hexforge.errors import CallError
from tests.addons.phone.conftest import Adb


def test_devices_and_which_one_is_meant(phones: Path, adb: Adb, monkeypatch: pytest.MonkeyPatch) -> None:
    assert adb("devices").out == "List of devices attached\n\n"
    assert adb("shell", "ls")[::2] == (1, "adb: no devices/emulators found\n")
    assert adb("push", "a", "b").err == "adb: error: failed to get feature set: no devices/emulators found\n"
    add_phone("one", "SM8650")
    assert adb("get-state").out == "device\n"
    add_phone("two", "SM8750")
    assert adb("devices").out == "List of devices attached\none\tdevice\ntwo\tdevice\n\n"
    assert "model:hexforge_virtual_phone_SM8750 device:sm8750 transport_id:2" in adb("devices", "-l").out
    assert adb("shell", "ls")[::2] == (1, "adb: more than one device/emulator\n")
    assert adb("-s", "three", "get-state")[::2] == (1, "error: device 'three' not found\n")
    for words in (["-s", "two"], ["-H", "localhost", "-P", "5037", "-s", "two"], ["-stwo"]):
        assert adb(*words, "shell", "getprop ro.soc.model").out == "SM8750\n"
    monkeypatch.setenv("ANDROID_SERIAL", "one")
    assert adb("get-serialno").out == "one\n"


def test_each_phone_has_files_of_its_own(phones: Path, adb: Adb) -> None:
    add_phone("one", "SM8650")
    add_phone("two", "SM8750")
    adb("-s", "one", "shell", "echo 1 > /sdcard/x")
    assert adb("-s", "two", "shell", "cat /sdcard/x").code == 1
    assert adb("-s", "one", "shell", "cat /sdcard/x").out == "1\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("nothing",), 1, "adb: unknown command nothing\n"),
        (("--nothing",), 1, "adb: unknown option --nothing\n"),
        (("-s",), 1, "adb: -s requires an argument\n"),
        (("push", "x"), 1, "adb: push requires <source> and <destination> arguments\n"),
        (("push", "/no/such", "/sdcard"), 1, "adb: error: cannot stat '/no/such': No such file or directory\n"),
        (("pull", "/x", "."), 1, "adb: error: failed to stat remote object '/x': No such file or directory\n"),
        (("uninstall", "x"), 1, "adb: failed to uninstall: a virtual phone has no apps\n"),
        (("root",), 0, ""),
        (("remount",), 0, ""),
        (("start-server",), 0, ""),
        (("wait-for-device",), 0, ""),
        (("version",), 0, ""),
    ],
)
def test_messages_and_exit_codes(phone: Phone, adb: Adb, words: tuple[str, ...], code: int, said: str) -> None:
    answer = adb(*words)
    assert (answer.code, answer.err) == (code, said)


@pytest.mark.usefixtures("sandbox")
def test_push_and_pull_as_adb_does(phone: Phone, adb: Adb, tmp_path: Path) -> None:
    here = tmp_path / "here"
    (here / "deep").mkdir(parents=True)
    (here / "a.txt").write_text("a")
    (here / "deep" / "b.txt").write_text("b")
    (here / "a.txt").chmod(0o755)
    said = adb("push", str(here / "a.txt"), "/data/local/tmp").out
    assert said.startswith(f"{here}/a.txt: 1 file pushed, 0 skipped. ")
    assert "(1 bytes in " in said
    assert adb("shell", "test -x /data/local/tmp/a.txt").code == 0
    adb("push", str(here / "a.txt"), "/data/local/tmp/new/folder/c.txt")  # adb makes the folders
    adb("push", str(here), "/data/local/tmp")  # a folder that is there: below it
    adb("push", str(here), "/data/local/tmp/fresh")  # one that is not: under this name
    adb("push", f"{here}/.", "/data/local/tmp/new")  # what is in it
    listed = adb("shell", "cd /data/local/tmp; find . -type f").out.split()
    names = ["a.txt", "fresh/a.txt", "fresh/deep/b.txt", "here/a.txt", "here/deep/b.txt", "new/a.txt",
             "new/deep/b.txt", "new/folder/c.txt"]  # fmt: skip
    assert sorted(listed) == [f"./{name}" for name in names]
    several = adb("push", str(here / "a.txt"), str(here / "deep"), "/sdcard").out.splitlines()
    assert several[-1].startswith("2 files pushed, 0 skipped.")
    back = tmp_path / "back"
    back.mkdir()
    assert adb("pull", "-a", "/data/local/tmp/here", str(back)).out.startswith("/data/local/tmp/here: 2 files pulled")
    adb("pull", "/data/local/tmp/a.txt", str(back / "z.txt"))
    adb("pull", "/data/local/tmp/here/.", str(back))
    assert sorted(str(p.relative_to(back)) for p in back.rglob("*") if p.is_file()) == [
        "a.txt", "deep/b.txt", "here/a.txt", "here/deep/b.txt", "z.txt",
    ]  # fmt: skip
    assert stat.S_IMODE((back / "z.txt").stat().st_mode) & 0o111
    assert adb("pull", "/sdcard", str(tmp_path / "no" / "x")).code == 1


def test_what_comes_in_is_a_script(phone: Phone, adb: Adb) -> None:
    assert adb("shell", stdin=b"cd /data\npwd\n").out == "/data\n"
    assert adb("shell", "cat", stdin=b"piped").out == "piped"
    assert adb("exec-out", "echo", "a  b").out == "a b\n"


def test_a_phone_by_its_commands(phones: Path) -> None:
    with pytest.raises(CallError, match="letters, digits"):
        add_phone("../up")
    add_phone("one")
    with pytest.raises(CallError, match="already"):
        add_phone("one")
    with pytest.raises(CallError, match="there is one"):
        find_phone("two")
    remove_phone("one")
    assert list_phones() == []
    assert [p.name for p in phones.iterdir()] == []


def test_unplugged_and_plugged_in_again(phone: Phone, adb: Adb) -> None:
    adb("shell", "echo kept > /sdcard/x")
    unplug(phone)
    assert adb("devices").out == "List of devices attached\n\n"
    assert adb("-s", "one", "shell", "ls")[::2] == (1, "adb: device 'one' not found\n")
    threading.Timer(0.2, plug, [phone]).start()
    assert adb("wait-for-device", "shell", "cat /sdcard/x").out == "kept\n"


def test_unplugged_while_a_command_runs(phone: Phone, adb: Adb) -> None:
    threading.Timer(0.2, unplug, [phone]).start()
    answer = adb("shell", "echo begun > /sdcard/x; sleep 60; echo ended > /sdcard/x")
    assert answer.code == 255
    assert (phone.storage.folder / "sdcard/x").read_text() == "begun\n"


@pytest.mark.parametrize("direction", ["push", "pull"])
def test_unplugged_while_files_are_copied(
    phone: Phone, adb: Adb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direction: str
) -> None:
    """The file that was there stays as it was, and no part of the new one is left."""
    monkeypatch.setattr(transfer, "_CHUNK", 10)
    source, target = tmp_path / "big", phone.storage.folder / "sdcard" / "big"
    if direction == "pull":
        source, target = target, source
    source.write_bytes(b"new" * 100)
    target.write_bytes(b"old")
    count = iter(range(100))
    real = phones_module.Phone.require_plugged

    def unplugs(self: Phone) -> None:
        if next(count) == 5:
            unplug(self)
        real(self)

    monkeypatch.setattr(phones_module.Phone, "require_plugged", unplugs)
    words = (str(tmp_path / "big"), "/sdcard/big")
    answer = adb(direction, *(words if direction == "push" else words[::-1]))
    assert answer.code == 1
    assert answer.err.startswith("adb: error: failed to copy ")
    assert answer.err.endswith("couldn't read from device\n")
    assert target.read_bytes() == b"old"
    assert sorted(p.name for p in target.parent.iterdir() if "big" in p.name) == ["big"]


def test_adb_by_name_on_the_path(phone: Phone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    environment = {**os.environ, "PATH": f"{adb_folder()}{os.pathsep}{os.environ['PATH']}"}
    run = subprocess.run(["adb", "-s", "one", "shell", "echo out; echo err >&2; exit 3"], env=environment,
                         capture_output=True, text=True, check=False)  # fmt: skip
    assert (run.returncode, run.stdout, run.stderr) == (3, "out\n", "err\n")
    gone = subprocess.run(
        ["adb", "-s", "two", "get-state"], env=environment, capture_output=True, text=True, check=False
    )
    assert (gone.returncode, gone.stderr) == (1, "error: device 'two' not found\n")
    waiting = subprocess.Popen(["adb", "shell", "touch /sdcard/begun; sleep 60"], env=environment)
    while not (phone.storage.folder / "sdcard/begun").exists():
        time.sleep(0.02)
    unplug(phone)
    assert waiting.wait(20) == 255
    assert sys.executable in (adb_folder() / "adb").read_text()
