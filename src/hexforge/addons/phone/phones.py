# SPDX-License-Identifier: Apache-2.0
"""Phones: the virtual phones of this user, each a folder with its chip, its storage, and whether it is plugged in."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hexforge.addons.phone.storage import PhoneStorage
from hexforge.chips.soc import DEFAULT_SOC, Soc, require_chip
from hexforge.errors import CallError, FormatError
from hexforge.formats.files import write_atomically

VARIABLE = "HEXFORGE_PHONES"
"""The environment variable with the folder of the phones; else the user's state folder has them."""
_SERIAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
UNPLUGGED, FACTS, _ROOT, _FILES = "unplugged", "phone.json", "root", "files"


class UnpluggedError(Exception):
    """The phone was unplugged while something was done with it."""


class NoPhoneError(Exception):
    """No phone is there, or not the one that is meant, or more than one: adb's words."""


@dataclass(frozen=True, slots=True)
class Phone:
    """A virtual phone: its serial number, its chip, and the folder that has both and its storage."""

    serial: str
    soc: Soc
    folder: Path

    @property
    def storage(self) -> PhoneStorage:
        """The phone's file system."""
        return PhoneStorage(self.folder / _FILES)

    @property
    def is_plugged(self) -> bool:
        """Whether adb sees it."""
        return not (self.folder / UNPLUGGED).exists() and (self.folder / FACTS).exists()

    @property
    def is_root(self) -> bool:
        """Whether its shell is root's, after `adb root`."""
        return (self.folder / _ROOT).exists()

    def set_root(self, is_root: bool) -> None:
        """Let the next shells be root's, or no longer."""
        if is_root:
            (self.folder / _ROOT).touch()
        else:
            (self.folder / _ROOT).unlink(missing_ok=True)

    def require_plugged(self) -> None:
        """UnpluggedError where it is no longer there."""
        if not self.is_plugged:
            raise UnpluggedError(self.serial)

    @property
    def model(self) -> str:
        """What it calls itself."""
        return f"hexforge virtual phone {self.soc.name}"

    @property
    def properties(self) -> Mapping[str, str]:
        """What `getprop` says."""
        return {
            "ro.board.platform": self.soc.name.lower(),
            "ro.build.version.release": "14",
            "ro.build.version.sdk": "34",
            "ro.hardware": "qcom",
            "ro.product.brand": "hexforge",
            "ro.product.cpu.abi": "arm64-v8a",
            "ro.product.cpu.abilist": "arm64-v8a",
            "ro.product.device": self.soc.name.lower(),
            "ro.product.manufacturer": "hexforge",
            "ro.product.model": self.model,
            "ro.serialno": self.serial,
            "ro.soc.manufacturer": "QTI",
            "ro.soc.model": self.soc.name,
            "sys.boot_completed": "1",
        }


def phones_folder() -> Path:
    """The folder of this user's phones."""
    given = os.environ.get(VARIABLE, "")
    if given:
        return Path(given).absolute()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", "") or str(Path.home() / "AppData" / "Local")
    else:
        base = os.environ.get("XDG_STATE_HOME", "") or str(Path.home() / ".local" / "state")
    return Path(base) / "hexforge" / "phones"


def add_phone(serial: str, soc: str = DEFAULT_SOC) -> Phone:
    """Create a phone, plugged in; CallError where its serial number is taken or is none."""
    if not _SERIAL.fullmatch(serial):
        raise CallError(f"serial number {serial!r}: letters, digits, and . _ : - after the first; at most 64 of them")
    chip = require_chip(soc)
    phone = Phone(serial, chip, phones_folder() / serial)
    if (phone.folder / FACTS).exists():
        raise CallError(f"there is a phone {serial} already; `hexforge phone remove {serial}`, or give another serial")
    phone.folder.mkdir(parents=True, exist_ok=True)
    phone.storage.create()
    write_atomically(phone.folder / FACTS, json.dumps({"serial": serial, "soc": chip.name}).encode())
    (phone.folder / UNPLUGGED).unlink(missing_ok=True)
    return phone


def list_phones() -> list[Phone]:
    """All phones of this user, by serial number, plugged in or not."""
    folder = phones_folder()
    if not folder.is_dir():
        return []
    return [_read(path.parent) for path in sorted(folder.glob(f"*/{FACTS}"))]


def find_phone(serial: str) -> Phone:
    """A phone by its serial number; CallError where there is none."""
    folder = phones_folder() / serial
    if not _SERIAL.fullmatch(serial) or not (folder / FACTS).exists():
        known = ", ".join(p.serial for p in list_phones())
        raise CallError(f"there is no phone {serial!r}; {f'there is {known}' if known else '`hexforge phone add`'}")
    return _read(folder)


def choose_phone(serial: str = "") -> Phone:
    """The plugged phone of a serial number, or the only one; NoPhoneError where there is none."""
    plugged = [phone for phone in list_phones() if phone.is_plugged and serial in ("", phone.serial)]
    if len(plugged) == 1:
        return plugged[0]
    if serial:
        raise NoPhoneError(f"device '{serial}' not found")
    raise NoPhoneError("more than one device/emulator" if plugged else "no devices/emulators found")


def transport_id(phone: Phone) -> int:
    """The number that adb gives a phone."""
    return 1 + [known.serial for known in list_phones()].index(phone.serial)


def attached_lines(is_long: bool) -> str:
    """What `adb devices` lists: the phones that are plugged in."""
    lines = ""
    for number, phone in enumerate(list_phones(), 1):
        if not phone.is_plugged:
            continue
        chip, model = phone.soc.name.lower(), phone.model.replace(" ", "_")
        facts = f"device product:{chip} model:{model} device:{chip} transport_id:{number}"
        lines += f"{phone.serial:<22} {facts}\n" if is_long else f"{phone.serial}\tdevice\n"
    return lines


def remove_phone(serial: str) -> None:
    """Remove a phone and everything on it; what runs there sees it unplugged."""
    phone = find_phone(serial)
    unplug(phone)
    shutil.rmtree(phone.folder)


def unplug(phone: Phone) -> None:
    """Pull the cable: adb no longer sees the phone, and what runs there ends."""
    (phone.folder / UNPLUGGED).touch()


def plug(phone: Phone) -> None:
    """Plug the phone in again; its files are as they were."""
    (phone.folder / UNPLUGGED).unlink(missing_ok=True)


def _read(folder: Path) -> Phone:
    path = folder / FACTS
    try:
        facts = json.loads(path.read_text("utf-8"))
        return Phone(folder.name, require_chip(str(facts["soc"])), folder)
    except (OSError, ValueError, KeyError, TypeError, CallError) as error:
        raise FormatError(f"{path}: describes no phone: {error}; remove the folder {folder}") from None
