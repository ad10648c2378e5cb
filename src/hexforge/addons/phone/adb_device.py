# SPDX-License-Identifier: Apache-2.0
"""AdbDevice: a phone behind an adb, virtual or real; a folder is pushed, a command run there, and results pulled."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hexforge.addons.phone.phones import list_phones
from hexforge.addons.phone.script_folders import adb_folder
from hexforge.errors import CallError, HexforgeError

WORKSPACE = "/data/local/tmp/hexforge"
"""The folder on the phone that is used, and emptied before."""
READY = "device"
"""What `adb devices` says of a phone that can be used."""
ADVICE = {
    "unauthorized": "allow debugging on the phone's screen",
    "offline": "plug it out and in again, or `adb reconnect`",
    "recovery": "start Android on it",
    "bootloader": "start Android on it",
}
"""What to do with a phone in another state."""
_FULL = "no space left on device"


class DeviceRunError(HexforgeError):
    """adb, or what ran on the phone, ended with an error: its words."""


class DeviceGoneError(DeviceRunError):
    """The phone was unplugged while something was done there."""


class DeviceFullError(DeviceRunError):
    """The phone's storage does not hold what is pushed or written."""


@dataclass(frozen=True, slots=True)
class AdbDevice:
    """A phone by its serial number, and the adb that knows it."""

    serial: str
    program: Path
    is_virtual: bool

    def adb(self, *words: str, timeout_s: float = 600.0) -> str:
        """What adb prints for some words; DeviceRunError where it ends with an error."""
        command = [str(self.program), "-s", self.serial, *words]
        try:
            done = _ask(command, timeout_s)
        except subprocess.TimeoutExpired:
            raise DeviceRunError(f"{shlex.join(command)}: took longer than {timeout_s:.0f} s") from None
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip())[-2000:]
            message = f"{shlex.join(command)}: ended with {done.returncode}: {said}"
            if _FULL in (done.stderr + done.stdout).lower():
                raise DeviceFullError(f"{self.serial}: its storage is full; make room in {WORKSPACE}'s disk. {message}")
            if not self._is_there():
                raise DeviceGoneError(f"{self.serial}: the phone is no longer there; plug it in again. {message}")
            raise DeviceRunError(message)
        return done.stdout

    def _is_there(self) -> bool:
        try:
            done = _ask([str(self.program), "-s", self.serial, "get-state"], 30.0)
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0

    def run_folder(
        self, files: Sequence[Path], command: str, results: Sequence[str] = (), into: Path | None = None
    ) -> str:
        """Push files and folders, run a command where they are, pull results; what the command printed."""
        for path in files:
            if not path.exists():
                raise CallError(f"{path}: there is no such file")
        self.adb("shell", f"rm -rf {WORKSPACE} && mkdir -p {WORKSPACE}")
        for path in files:
            self.adb("push", str(path), WORKSPACE + "/")
        said = self.adb("shell", f"cd {WORKSPACE} && export LD_LIBRARY_PATH=. ADSP_LIBRARY_PATH=. && {command}")
        if into is not None:
            into.mkdir(parents=True, exist_ok=True)
            for name in results:
                self.adb("pull", f"{WORKSPACE}/{name}", str(into))
        return said


def _ask(command: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL,
                              timeout=timeout_s, check=False)  # fmt: skip
    except OSError as error:
        raise CallError(f"{command[0]}: cannot be run: {error.strerror}") from None


def find_device(serial: str = "") -> AdbDevice:
    """A phone by serial number, a virtual one or one of PATH's adb.

    Where none is named: the only real one, else the only virtual one. CallError where there is none, or more than one.
    """
    virtual = [phone.serial for phone in list_phones() if phone.is_plugged]
    serial = serial or os.environ.get("ANDROID_SERIAL", "")
    if serial in virtual:
        return _virtual(serial)
    program = shutil.which("adb")
    real = {} if program is None else {s: state for s, state in _attached(program).items() if s not in virtual}
    if not serial:
        if not real and len(virtual) == 1:
            return _virtual(virtual[0])
        if len(real) != 1:
            raise CallError(_choice([*real, *virtual], program is not None))
        (serial,) = real
    if program is None:
        raise CallError(f"{serial}: is no virtual phone, and there is no adb on PATH to reach a real one")
    if serial not in real:
        seen = ", ".join([*real, *virtual]) or "no phone"
        raise CallError(f"{serial}: adb does not see such a phone; it sees {seen}. Is it plugged in?")
    if real[serial] != READY:
        advice = ADVICE.get(real[serial], "`adb devices` has to say `device`")
        raise CallError(f"{serial}: is {real[serial]}, says adb; {advice}")
    return AdbDevice(serial, Path(program), False)


def _virtual(serial: str) -> AdbDevice:
    return AdbDevice(serial, adb_folder() / ("adb.bat" if os.name == "nt" else "adb"), True)


def _attached(program: str) -> dict[str, str]:
    """The phones that an adb sees, with their states."""
    try:
        done = _ask([program, "devices"], 60.0)
    except subprocess.TimeoutExpired:
        raise DeviceRunError(f"{program} devices: gave no answer within 60 s; try `adb kill-server`") from None
    if done.returncode:
        raise DeviceRunError(f"{program} devices: ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    rows = (line.split("\t") for line in done.stdout.splitlines() if "\t" in line)
    return {row[0].strip(): row[1].strip() for row in rows}


def _choice(phones: Sequence[str], has_adb: bool) -> str:
    if phones:
        return f"there are several phones, name one with -s: {', '.join(phones)}"
    why = "adb sees none" if has_adb else "there is no adb on PATH for a real one"
    return f"there is no phone: {why}; plug one in, or make a virtual one: `hexforge phone add NAME --soc SM8650`"
