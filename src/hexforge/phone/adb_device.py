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

from hexforge.errors import CallError, HexforgeError
from hexforge.phone.adb_folder import adb_folder
from hexforge.phone.phones import list_phones

WORKSPACE = "/data/local/tmp/hexforge"
"""The folder on the phone that is used, and emptied before."""


class DeviceRunError(HexforgeError):
    """adb, or what ran on the phone, ended with an error: its words."""


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
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL,
                                  timeout=timeout_s, check=False)  # fmt: skip
        except OSError as error:
            raise CallError(f"{self.program}: cannot be run: {error.strerror}") from None
        except subprocess.TimeoutExpired:
            raise DeviceRunError(f"{shlex.join(command)}: took longer than {timeout_s:.0f} s") from None
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip())[-2000:]
            raise DeviceRunError(f"{shlex.join(command)}: ended with {done.returncode}: {said}")
        return done.stdout

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


def find_device(serial: str = "") -> AdbDevice:
    """A phone by serial number, a virtual one or one of PATH's adb; the only virtual one where none is named."""
    virtual = [phone.serial for phone in list_phones() if phone.is_plugged]
    if not serial and len(virtual) == 1:
        serial = virtual[0]
    if not serial:
        raise CallError(f"name a phone: {', '.join(virtual) or '`hexforge phone add`, or a serial of `adb devices`'}")
    if serial in virtual:
        return AdbDevice(serial, adb_folder() / ("adb.bat" if os.name == "nt" else "adb"), True)
    found = shutil.which("adb")
    if found is None:
        raise CallError(f"{serial}: is no virtual phone, and there is no adb on PATH to reach a real one")
    return AdbDevice(serial, Path(found), False)
