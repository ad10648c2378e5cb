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
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
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
    RUN_TOGETHER = "run models at the same time"
    """(estimates, priorities) -> what each of them takes on the chip that they share, and what there is to draw."""
    PLACE_CONTEXTS = "put contexts on a simulated device"
    """(files, chip, config) -> by name the graphs, as programs that take the device's time."""
    WRITE_DUMPS = "write a session's graphs"
    """(what is wanted, plan, backend, model or None, name), which writes them."""
    PROFILE_SESSION = "profile a session"
    """(prefix of onnxruntime's own trace or None, power) -> the ort.observed_runs.SessionRecord of a session."""
    SHARED_BUFFER = "share memory with the device"
    """(bytes) -> a buffer with `address`, `bytes` and `array(shape, dtype)`."""
    OPENCL_DEVICES = "list OpenCL devices"
    """() -> the devices; UnsupportedError where there is no OpenCL."""
    PROGRAM_GRAPHS = "lower a program of torch"
    """(program) -> the graphs that are timed of it; None for what is no exported program."""
    ONNX_OF_PROGRAM = "read a program of torch"
    """(program) -> the ONNX model of it; None for what is no exported program."""
    EXAMINE_FOLDER = "examine a folder that is shipped"
    """(folder) -> what would stop its sessions, as JSON."""
    MEND_REFUSALS = "write what the NPU refuses as what it takes"
    """(model, backend, refused nodes, verify=) -> the model rewritten, and which of the nodes come onto it."""
    CLUSTER_WORKERS = "share work with a cluster"
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
    is_about_chips: bool = False
    """True for a command that simulates the NPU of a chip, whatever else could run a model: it takes no --backend."""
    takes_numbers: bool = False
    """True for a command whose arguments may be negative numbers, which are no options."""
    is_program: bool = False
    """True for a command that runs a program: what stands behind the program's name is the program's own."""
    gives: str = ""
    """The result that --json prints, as "module:Class"; empty where no class describes it."""


@dataclass(frozen=True, slots=True)
class FileKind:
    """A kind of file: how it is told from others, and what can be done with it.

    A file is of this kind where all holds that is said here of name, beginning, end and members.
    """

    name: str
    """What it is, as in "is a context"."""
    advice: str
    """Commands that take it, or what makes something of it that a command takes."""
    start: bytes = b""
    """A regular expression that its first bytes match."""
    end: bytes = b""
    """A regular expression that is found in its last bytes."""
    suffixes: tuple[str, ...] = ()
    """How its name ends; one of these."""
    members: tuple[str, ...] = ()
    """Patterns of names that all are found in the archive or folder."""
    is_folder: bool = False
    recognised_by: str = ""
    """The function, as "module:name", that tells by the path what its bytes alone do not."""
    does: Mapping[str, str] = field(default_factory=dict)
    """Command, or what another asks of a file -> the function, as "module:name", that does it for files of this kind.

    The path is the first argument of each. The rest, and what comes out, is for
    check: (provider options, request, strict), where its nodes run;
    show: (what is shown), the text of each graph and how many nodes are in none of them;
    info: (chip, as JSON), which it prints;
    run: (provider options, request, graph), what is ready to run;
    estimate: (request, graph), the graphs that are timed, or a model to place;
    profile: (recording), a profile, and the model where it can be rewritten;
    advise: (what is asked), which it prints;
    compare --dump: (what is asked), the first op that a device computed otherwise, which it prints;
    diff: (deployment, request), the file as one side of a comparison;
    validate: (chip), how well it suits;
    tensors: (), name and reader of each tensor of a log.
    """
    is_compiled: bool = False
    """True where its inputs have their sizes for good."""
    as_onnx: str = ""
    """The function, as "module:name", that makes an ONNX model of one: (bytes, its name, member) -> ModelProto.

    A kind that has it is taken wherever an ONNX model is; the member is what stands behind a # in the path.
    """
    compare: str = ""
    """The function, as "module:name", that runs one and its ONNX model: (bytes, its name, member, bytes of the model,
    how far they may be apart) -> how far they are, in words."""


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
    files: tuple[FileKind, ...] = ()
    """The kinds of files that it knows."""
    does: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Kind of files of another, by its name -> what it does with them, as in FileKind.does."""
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


def has_hook(what: Hook) -> bool:
    """Whether an add-on is here that does what the core asks."""
    return any(what in addon.hooks for addon in addons())


@cache
def file_kinds() -> tuple[FileKind, ...]:
    """Every kind of file that is told from others, the surest first: the core's, the add-ons', those of others."""
    table = _module(Path(__file__).with_name("core_files.py"), "core_files")
    rows = (*table.OURS, *(kind for addon in addons() for kind in addon.files), *table.OTHERS)
    model = _with_add_ons(next(kind for kind in rows if kind.name == table.ONNX)).does
    return tuple(replace(k, does={**model, **k.does}) if k.as_onnx else _with_add_ons(k) for k in rows)


def _with_add_ons(kind: FileKind) -> FileKind:
    """A kind with what add-ons do with its files."""
    for addon in addons():
        if kind.name in addon.does:
            kind = replace(kind, does={**kind.does, **addon.does[kind.name]})
    return kind


def import_target(target: str) -> Any:
    """What "module:name" names."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def _own() -> Iterator[Addon]:
    """The declarations in hexforge's own folder, read without importing what they declare."""
    folder = Path(__file__).with_name("addons")
    for file in sorted(folder.glob("*/addon.py")):
        yield _module(file, f"hexforge.addons.{file.parent.name}.addon").ADDON


def _module(file: Path, name: str) -> Any:
    """A module of declarations, read by its file."""
    spec = spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _of_packages() -> Iterator[Addon]:
    """The declarations that installed packages name."""
    lists = (file for folder in sys.path for file in Path(folder).glob("*-info/entry_points.txt"))
    if not any(f"[{ENTRY_POINTS}]" in file.read_text("utf-8") for file in lists):
        return  # importlib.metadata takes a tenth of the time that `hexforge --help` has
    for point in importlib.import_module("importlib.metadata").entry_points(group=ENTRY_POINTS):
        addon = point.load()
        if not isinstance(addon, Addon):
            kind = type(addon).__name__
            raise CallError(f"{point.value} is no add-on: it must be a hexforge.addon.Addon, not {kind}")
        yield addon
