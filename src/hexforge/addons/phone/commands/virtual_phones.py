# SPDX-License-Identifier: Apache-2.0
"""`hexforge phone add`, `list`, `remove`, `plug`, `unplug`, `path` and `env`."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from hexforge.chips.soc import DEFAULT_SOC
from hexforge.cli.arguments import Json
from hexforge.cli.say import say
from hexforge.request_fields import option

Serial = Annotated[str, typer.Argument(help="The phone's serial number, as `adb devices` lists it.")]


def add(serial: Serial, soc: str = option(DEFAULT_SOC, f"Chip by name, number or device ({DEFAULT_SOC}).")) -> None:
    """Create a virtual phone, plugged in: a folder as its storage, a simulated device of the chip."""
    from hexforge.addons.phone.phones import add_phone

    made = add_phone(serial, soc)
    say(f"{made.serial}: {made.soc.name}, its files are in {made.storage.folder}")


def list_all(as_json: Json = False) -> None:
    """List the virtual phones of this user: chips, whether they are plugged in, where their files are."""
    from hexforge.addons.phone.phones import list_phones
    from hexforge.cli.screen import console, print_json, table

    phones = list_phones()
    if as_json:
        print_json(
            [
                {"serial": p.serial, "soc": p.soc.name, "plugged": p.is_plugged, "files": str(p.storage.folder)}
                for p in phones
            ]
        )
        return
    rows = [(p.serial, p.soc.name, "yes" if p.is_plugged else "no", str(p.storage.folder)) for p in phones]
    console().print(table("virtual phones", ("serial", "chip", "plugged in", "files"), rows))


def remove(serial: Serial) -> None:
    """Remove a phone and everything on it."""
    from hexforge.addons.phone.phones import remove_phone

    remove_phone(serial)
    say(f"{serial}: removed")


def plug(serial: Serial) -> None:
    """Plug a phone in again; its files are as they were."""
    from hexforge.addons.phone import phones

    phones.plug(phones.find_phone(serial))
    say(f"{serial}: plugged in")


def unplug(serial: Serial) -> None:
    """Pull the cable of a phone: adb no longer sees it, and what runs there ends."""
    from hexforge.addons.phone import phones

    phones.unplug(phones.find_phone(serial))
    say(f"{serial}: unplugged")


def path() -> None:
    """Print the folder with the phones' adb, to be put on PATH before any other."""
    from hexforge.addons.phone.adb_folder import adb_folder

    say(adb_folder())


def env() -> None:
    """Print what a shell evaluates so that scripts find the phones' adb and an SDK: eval "$(hexforge phone env)"."""
    from hexforge.addons.phone.adb_folder import adb_folder
    from hexforge.addons.phone.sdk_root import sdk_root

    root = shlex.quote(str(sdk_root()))
    say(f'export PATH={shlex.quote(str(adb_folder()))}:"$PATH"')
    say(f'export QNN_SDK_ROOT="${{QNN_SDK_ROOT:-{root}}}"')
    say(f'export ANDROID_NDK_ROOT="${{ANDROID_NDK_ROOT:-{root}}}"')
