# SPDX-License-Identifier: Apache-2.0
"""What an add-on is: one declaration of everything that it adds to hexforge, and the list of those that are here.

An add-on of hexforge is a folder of `hexforge/addons` with an `addon.py` that holds `ADDON`; an installed package has
an entry point of the group `hexforge.addons` that names its own. A declaration holds names of modules, not modules:
what an add-on brings is imported when it is used.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from glob import escape, glob
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from hexforge.errors import CallError, UnsupportedError

ENTRY_POINTS = "hexforge.addons"
DEVICE_VARIABLE = "HEXFORGE_DEVICE"
"""The environment variable with the address of the simulated device that programs share."""


class Hook(StrEnum):
    """What the core asks of the add-on that can do it, and how the function is called."""

    RECORD_CALLS = "record the calls of a backend"
    """(backend, folder or None) -> the backend, which writes down what it is asked."""
    RUN_ON_DEVICE = "run sessions on a simulated device"
    """(stages, backend, options, embedded) -> runs that take the device's time."""
    ATTACH_TO_DEVICE = "run sessions on the device that programs share"
    """The same for the device of DEVICE_VARIABLE; None where the session runs on no chip."""
    PLACE_CONTEXTS = "put contexts on a simulated device"
    """(files, chip, config) -> by name the graphs, as programs that take the device's time."""
    SHARED_BUFFER = "share memory with the device"
    """(bytes) -> a buffer with `address`, `bytes` and `array(shape, dtype)`."""
    SCENARIO_FIGURES = "play a scenario"
    """(file) -> what its models cost together."""
    OPENCL_DEVICES = "list OpenCL devices"
    """() -> the devices; UnsupportedError where there is no OpenCL."""
    CLUSTER_WORKERS = "spread work over a cluster"
    """(code, workers, tasks) -> what starts a worker, how many there is room for, and tasks that nobody has read."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the command line; `help` is the first paragraph of its docstring."""

    name: str
    target: str
    """The function or the app, as "module:name"."""
    help: str
    examples: tuple[str, ...] = ()
    """Commands as people type them; a test parses each."""
    is_program: bool = False
    """True for a command that runs a program: what stands behind the program's name is the program's own."""


@dataclass(frozen=True, slots=True)
class Addon:
    """What an add-on adds; every "module:name" is imported when it is used."""

    name: str
    summary: str
    commands: tuple[Command, ...] = ()
    backends: Mapping[str, str] = field(default_factory=dict)
    """Name -> the class of a backend."""
    backend_options: Mapping[str, str] = field(default_factory=dict)
    """Name of a backend -> the table of its options, which is read without the backend."""
    engines: Mapping[str, str] = field(default_factory=dict)
    """Name for --backend -> the class of what runs models itself and is no backend of graphs."""
    rules: Mapping[str, str] = field(default_factory=dict)
    """Who refuses ops -> the rules, which `hexforge ops` lists."""
    sections: tuple[str, ...] = ()
    """Functions from an estimate to a section of its page, or to None where they have nothing to say."""
    hooks: Mapping[Hook, str] = field(default_factory=dict)
    """What the core asks of whoever can do it -> the function that does it."""
    needs: tuple[str, ...] = ()
    """The add-ons that this one stands on."""
    packages: tuple[str, ...] = ()
    """Modules of other packages that it imports when it is used."""
    extra: str = ""
    """The extra of hexforge's that installs them."""

    def missing(self) -> tuple[str, ...]:
        """The packages that it imports and that are not installed."""
        return tuple(package for package in self.packages if find_spec(package) is None)


@cache
def addons() -> tuple[Addon, ...]:
    """The add-ons that are here: hexforge's own in the order of their names, then those of installed packages."""
    return (*_own(), *_of_packages())


def engines() -> dict[str, str]:
    """Name -> "module:Class" of what runs models itself, by the names that --backend takes."""
    return {name: target for addon in addons() for name, target in addon.engines.items()}


def hook(what: Hook) -> Any:
    """The function of the add-on that does what the core asks; UnsupportedError where there is none."""
    for addon in addons():
        if what in addon.hooks:
            return import_target(addon.hooks[what])
    raise UnsupportedError(f"to {what} takes an add-on that is not installed; `hexforge addons` lists those that are")


def import_target(target: str) -> Any:
    """What "module:name" names."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def _own() -> Iterator[Addon]:
    """The declarations in hexforge's own folder, read without importing what they declare."""
    folder = Path(__file__).with_name("addons")
    for file in sorted(folder.glob("*/addon.py")):
        spec = spec_from_file_location(f"hexforge.addons.{file.parent.name}.addon", file)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module.ADDON


def _of_packages() -> Iterator[Addon]:
    """The declarations that installed packages name."""
    lists = (Path(file) for folder in sys.path for file in glob(f"{escape(folder)}/*-info/entry_points.txt"))
    if not any(f"[{ENTRY_POINTS}]" in file.read_text("utf-8") for file in lists):
        return  # importlib.metadata takes a tenth of the time that `hexforge --help` has
    for point in importlib.import_module("importlib.metadata").entry_points(group=ENTRY_POINTS):
        addon = point.load()
        if not isinstance(addon, Addon):
            raise CallError(f"{point.value} is no add-on: it must be a hexforge.addon.Addon, not {type(addon).__name__}")
        yield addon
