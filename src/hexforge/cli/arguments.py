# SPDX-License-Identifier: Apache-2.0
"""Arguments several commands share, and how key=value texts are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hexforge.analysis.requests import JOBS, MODEL, SOC
from hexforge.chips.deployment import Deployment
from hexforge.chips.soc import DEFAULT_SOC, find_chip
from hexforge.cli.request_options import typed
from hexforge.cli.say import say
from hexforge.errors import CallError
from hexforge.formats.backend_extensions import Config, load
from hexforge.request_fields import option, spelled
from hexforge.runtime.tool_config import unmatched_graphs

if TYPE_CHECKING:
    from hexforge.model.reader import Model as ReadModel
    from hexforge.runtime.prepare import ModelRequest


def read_config(path: Path | None, tool: str) -> Config:
    """The config file of a tool; what it does not read there, and what will do nothing, is logged."""
    if path is None:
        return Config()
    config = load(path)
    for warning in config.warnings:
        print_notice(tool, f"{config.where}: {warning}")
    for key, _, readers in config.set_keys():
        if tool not in readers:
            print_notice(tool, f"{config.where}: {key} is not read by {tool}, but by {' and '.join(readers)}")
    return config


def print_unmatched_graphs(config: Config, tool: str, graphs: Sequence[str]) -> None:
    """Say which sections of a config file are for no graph that the tool has."""
    for note in unmatched_graphs(config, graphs):
        print_notice(tool, f"{config.where}: {note}")


def print_notice(tool: str, message: str) -> None:
    """A line on standard error that the user should see."""
    say(f"{tool}: {message}", colour="yellow", err=True)


DEFAULT_BACKEND = "htp"

_BACKEND = spelled(
    "QNN backend: htp (the default), cpu, gpu (OpenCL), saver (records htp's calls) or vendor.", "--backend"
)
_OPTIONS = spelled("A provider option (see `hexforge options`).", "--option", metavar="KEY=VALUE")
_DIMS = spelled("Size of a named dynamic dimension.", "--dim", metavar="NAME=SIZE")
_SHAPES = spelled("Shape of an input, e.g. x=1,3,224,224.", "--shape", metavar="INPUT=N,N,…")
_PINS = spelled("Make an input a constant: a number, N,N,… or a .npy file.", "--pin", metavar="INPUT=VALUE")
Model = Annotated[Path, typed(MODEL)]
BackendName = Annotated[str, typed(_BACKEND)]
Soc = Annotated[str, typed(SOC)]
Jobs = Annotated[int, typed(JOBS)]
_PRECISION = spelled(
    "float, w8a8, w8a16, w4a16, w16a16, a recipe such as w8a8_channel, or as-is: the model's own types.",
    "--precision", "--recipe",
)  # fmt: skip
_RUNTIME = spelled("qnn_dlc, onnx or tflite: the path to the device.", "--runtime")
Precision = Annotated[str, typed(_PRECISION)]
DeviceRuntime = Annotated[str, typed(_RUNTIME)]
Runtime = Annotated[str, typer.Option("--runtime", help="qnn_dlc, onnx or tflite.")]
Options = Annotated[list[str] | None, typed(_OPTIONS)]
Dims = Annotated[list[str] | None, typed(_DIMS)]
Shapes = Annotated[list[str] | None, typed(_SHAPES)]
Pins = Annotated[list[str] | None, typed(_PINS)]
Out = Annotated[
    Path | None, typer.Argument(help="The file to write; or give it with -o.", dir_okay=False, show_default=False)
]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="The file to write.", dir_okay=False)]


def file_to_write(out: Path | None, output: Path | None) -> Path:
    """The one file that is named, as an argument or with -o."""
    if out is not None and output is not None:
        raise CallError(f"two files to write are given, {out} and -o {output}; give one")
    if (given := out or output) is None:
        raise CallError("the file to write is missing: give it after the model, or with -o")
    return given


def _read_by_program(as_json: bool) -> bool:
    from hexforge.cli.screen import read_by_program

    read_by_program.set(as_json)
    return as_json


Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.", callback=_read_by_program)]


def _register(specs: list[str] | None) -> list[str] | None:
    """Load the packages that the command line names, before the model is read."""
    if specs:
        import hexforge.ops  # noqa: F401 - QNN's own ops, whose names are taken
        from hexforge.ops.packages import register_op_package

        for spec in specs:
            register_op_package(spec)
    return specs


_OP_PACKAGES = spelled(
    "An op of your own (see `hexforge op-package`).",
    "--op-package",
    metavar="OP:PATH:INTERFACE[:TARGET]",
    callback=_register,
)
OpPackages = Annotated[list[str] | None, typed(_OP_PACKAGES)]
ALL_ROWS = spelled("Every row, not only the first ten.", "--all")
All = Annotated[bool, typed(ALL_ROWS)]


@dataclass(frozen=True, slots=True)
class BackendArguments:
    """Options that say which backend a model is for."""

    backend: str = field(default="", metadata=_BACKEND)
    soc: str = field(default="", metadata=SOC)
    option: list[str] | None = field(default=None, metadata=_OPTIONS)

    def provider_options(self) -> dict[str, str]:
        """The provider options that they stand for."""
        return provider_options(self.backend, self.soc, self.option)


@dataclass(frozen=True, slots=True)
class InputArguments:
    """Options that fix the inputs of a model, and name the packages that its ops come from."""

    dim: list[str] | None = field(default=None, metadata=_DIMS)
    shape: list[str] | None = field(default=None, metadata=_SHAPES)
    op_package: list[str] | None = field(default=None, metadata=_OP_PACKAGES)
    pin: list[str] | None = field(default=None, metadata=_PINS)

    @property
    def fix_inputs(self) -> bool:
        """Whether one of --dim, --shape and --pin is given."""
        return bool(self.dim or self.shape or self.pin)

    def typed(self) -> list[str]:
        """--dim, --shape and --pin as they are typed again for another command."""
        given = (("--dim", self.dim), ("--shape", self.shape), ("--pin", self.pin))
        return [f"{flag} {quote(text)}" for flag, texts in given for text in texts or ()]

    def request(self, model: Path, *, obey_ep: bool = False) -> ModelRequest:
        """How a model is to be read; a batch that is left open becomes one, which is printed.

        What is compiled already has its sizes; CallError where others are given.
        """
        from hexforge.formats.file_kinds import kind_of
        from hexforge.runtime.prepare import ModelRequest

        if kind_of(model).is_compiled:
            if self.fix_inputs:
                raise CallError(f"{model}: is compiled already, for its own sizes; leave --dim, --shape and --pin out")
            return ModelRequest(obey_ep=obey_ep)
        return ModelRequest(*sizes(model, self.dim, self.shape), constants_of(self.pin), obey_ep=obey_ep)

    def fixed(self, model: Path) -> dict[str, Any]:
        """The fields of a request that fix the inputs of a model."""
        request = self.request(model)
        return {"dims": request.dims, "shapes": request.shapes, "constants": request.constants}

    def read(self, model: Path) -> ReadModel:
        """The model with its inputs fixed."""
        from hexforge.model.reader import read

        return read(model, **self.fixed(model))


@dataclass(frozen=True, slots=True)
class ClusterArguments:
    """Options that let the machines of a Ray cluster work."""

    cluster: bool = option(False, "Work on the Ray cluster of RAY_ADDRESS, or Ray here (extra `cluster`).")
    cluster_address: str = option("", "Work on the Ray cluster at this address.", show_default=False)

    @property
    def address(self) -> bool | str:
        """The address of the cluster, True for the one of RAY_ADDRESS, False for none."""
        return self.cluster_address or self.cluster


@dataclass(frozen=True, slots=True)
class DeploymentArguments:
    """Options that say how a model runs on a chip."""

    precision: str = field(default="as-is", metadata=_PRECISION)
    runtime: str = field(default="qnn_dlc", metadata=_RUNTIME)
    performance_mode: str = option("burst", "burst … extreme_power_saver (htp_performance_mode).")

    def deployment(self, soc: str) -> Deployment:
        """The deployment on a chip."""
        from hexforge.chips.power import Power

        return Deployment(soc, self.precision, self.runtime, power=Power(self.performance_mode))


@dataclass(frozen=True, slots=True)
class CoRunningArguments:
    """Options that name other models on the chip."""

    priority: str = option("normal", "low … critical_plus (qnn_context_priority), with --co-running.")
    co_running: list[str] | None = option(
        None, "Another model that runs on the chip meanwhile.", "--co-running", metavar="MODEL[:PRIORITY]"
    )

    def check(self) -> None:
        """CallError where there is a priority, and no other model that it is against."""
        if self.priority != "normal" and not self.co_running:
            raise CallError("--priority is against other models on the chip; name them with --co-running")


def model_and_priority(text: str) -> tuple[str, str]:
    """The file and the priority of `MODEL` or `MODEL:PRIORITY`; without one it is normal."""
    path, colon, priority = (text, "", "") if Path(text).exists() else text.rpartition(":")
    return path or text, priority if path and colon else "normal"


def pairs(texts: Iterable[str] | None, flag: str) -> dict[str, str]:
    """KEY=VALUE texts as a dictionary."""
    by_key: dict[str, str] = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise CallError(f"{flag} {text!r}: expected KEY=VALUE")
        if key in by_key:
            raise CallError(f"{flag} {key} is given twice, as {by_key[key]!r} and as {value!r}")
        by_key[key] = value
    return by_key


def dims(texts: Iterable[str] | None) -> dict[str, int]:
    """--dim texts as sizes."""
    return {key: _size(value, f"--dim {key}={value}") for key, value in pairs(texts, "--dim").items()}


def shapes(texts: Iterable[str] | None) -> dict[str, tuple[int, ...]]:
    """--shape texts as shapes; `x=` is a scalar."""
    return {
        key: tuple(_size(size, f"--shape {key}={value}") for size in value.split(",") if value)
        for key, value in pairs(texts, "--shape").items()
    }


def sizes(
    model: Path, dim: Iterable[str] | None, shape: Iterable[str] | None
) -> tuple[Mapping[str, int], Mapping[str, tuple[int, ...]]]:
    """Sizes of --dim and --shape for a model.

    A batch that is left open becomes one, and a size that the model fixes may be given another; both are printed.
    """
    from hexforge.model.declarations import with_batch_of_one

    named, whole = dims(dim), shapes(shape)
    fixed = with_batch_of_one(model, named, whole)
    if fixed.note:
        say(f"{model.name}: {fixed.note}; --dim or --shape say otherwise", colour="yellow", err=True)
    if fixed.overridden:
        say(f"{model.name}: {fixed.overridden}, by --shape", colour="yellow", err=True)
    return fixed.dims, fixed.shapes


def constants_of(texts: Iterable[str] | None) -> dict[str, Any]:
    """--pin texts as values."""
    return {key: _value(text, f"--pin {key}={text}") for key, text in pairs(texts, "--pin").items()}


def _value(text: str, where: str) -> Any:
    if text.endswith(".npy"):
        from hexforge.formats.npy_files import read_npy

        return read_npy(Path(text), where)
    words = {"true": True, "false": False}
    try:
        numbers = [words[t] if (t := one.strip().lower()) in words else _number(t) for one in text.split(",")]
    except ValueError:
        raise CallError(f"{where}: {text!r} is no number; give one, several as N,N,… or a .npy file") from None
    return numbers if len(numbers) > 1 else numbers[0]


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def provider_options(backend: str, soc: str, texts: Iterable[str] | None) -> dict[str, str]:
    """Provider options of --backend, --soc and --option together; the NPU's chip is the default one unless named."""
    given = pairs(texts, "--option")
    if "htp_arch" not in given:
        soc = ",".join(chip.name if (chip := find_chip(one)) else one for one in soc.split(","))
    for flag, key, value in (("--backend", "backend_type", backend), ("--soc", "soc_model", soc)):
        if value and given.setdefault(key, value) != value:
            raise CallError(f"{flag} {value} and --option {key}={given[key]} contradict each other; leave one out")
    if "backend_type" not in given and "backend_path" not in given:
        given["backend_type"] = DEFAULT_BACKEND
    if given.get("backend_type") == DEFAULT_BACKEND and "htp_arch" not in given and not _names_chip(given):
        given.setdefault("soc_model", DEFAULT_SOC)
    return given


def _names_chip(options: Mapping[str, str]) -> bool:
    """Whether the config file among the options names a chip or an architecture."""
    if not (file := options.get("backend_extensions")):
        return False
    from hexforge.formats.backend_extensions import load

    return load(Path(file)).names_chip


def _size(text: str, where: str) -> int:
    if not text.strip().isdecimal():
        raise CallError(f"{where}: {text!r} is not a size; sizes are whole numbers")
    return int(text)
