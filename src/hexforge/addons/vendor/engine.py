# SPDX-License-Identifier: Apache-2.0
"""VendorEngine: Qualcomm's package as what runs a model, wherever hexforge's own backends can be named."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hexforge.addons.vendor.process import DEFAULT_LIMITS, ProcessLimits, VendorProcess
from hexforge.addons.vendor.session import VendorOptions, VendorSession
from hexforge.chips.soc import DEFAULT_SOC
from hexforge.ir import Array
from hexforge.model.extraction import model_bytes
from hexforge.model.load_check import NUMPY_TYPES
from hexforge.model.reader import read
from hexforge.runtime.cpu_part import CPU, QNN

if TYPE_CHECKING:
    from hexforge.cli.runnable import Runnable
    from hexforge.runtime.prepare import ModelRequest

VENDOR = "vendor"
"""The name that stands for the package where a backend can be named."""


@dataclass(frozen=True, slots=True)
class VendorEngine:
    """The package on a chip; each model that is opened has a process of its own, which goes with what runs it."""

    soc: str = DEFAULT_SOC
    provider_options: Mapping[str, str] = field(default_factory=dict)
    limits: ProcessLimits = DEFAULT_LIMITS

    def __str__(self) -> str:
        return VENDOR

    def open_session(self, model: Path | bytes, name: str = "") -> VendorSession:
        """A session of the package with a process of its own."""
        options = VendorOptions(self.soc, self.provider_options)
        return VendorSession(VendorProcess(limits=self.limits), model, options, name)

    def open_runnable(self, path: Path, request: ModelRequest) -> Runnable:
        """A model, or a context model of Qualcomm's, ready to run in its own package, for the command line."""
        from hexforge.cli.runnable import Runnable
        from hexforge.cli.screen import spinner
        from hexforge.ort.signature import NodeArg

        start = time.perf_counter()
        with spinner(f"opening {path.name} in Qualcomm's package"):
            session = self.open_session(_static_bytes(path, request), path.name)
        inputs = [NodeArg(name, kind, list(shape), NUMPY_TYPES.get(kind)) for name, kind, shape in session.inputs]
        left = f", {len(session.placement.left)} nodes on the CPU" if session.placement.left else ""
        about = f"Qualcomm's package, {self.soc}{left}"
        return Runnable(inputs, session.run, about, 1e3 * (time.perf_counter() - start))

    def print_check(self, model: Path, request: ModelRequest, as_json: bool, strict: bool) -> None:
        """Print where Qualcomm's package itself places each node, and where hexforge's rules say otherwise."""
        import typer
        from rich.text import Text

        from hexforge.addons.vendor.placing import compare_placement
        from hexforge.addons.vendor.proof import place_by_the_rules
        from hexforge.cli.screen import console, print_json, spinner

        with spinner(f"placing {model.name} in Qualcomm's package"):
            source = read(model, dims=request.dims, shapes=request.shapes, constants=request.constants)
            source.require_static()
            session = self.open_session(model_bytes(source), model.name)
            rules = place_by_the_rules(source, VendorOptions(self.soc, self.provider_options))
        compared = compare_placement(rules.parts, session.placement)
        taken, left = session.placement.taken, session.placement.left
        if as_json:
            nodes = [{"op": op, "node": name, "runs_on": QNN} for op, name in taken]
            nodes += [{"op": op, "node": name, "runs_on": CPU} for op, name in left]
            print_json({"model": model.name, "soc": self.soc, "nodes": nodes, "beside_hexforge": compared.to_json()})
        else:
            screen = console()
            verdict = f"{model.name}: Qualcomm's package takes {len(taken)} nodes and leaves {len(left)} to the CPU"
            screen.print(Text(verdict, "bold red" if left else "bold green"))
            for op, name, why in compared.left_on_cpu:
                screen.print(Text(f"CPU  {op} {name}: {why}"))
            for row in compared.differences:
                where = f"{row.vendor} by the package, {row.hexforge} by hexforge"
                screen.print(Text(f"{row.op} {row.node}: {where}: {row.reason}", "red"))
            if compared.alike:
                screen.print(f"hexforge places all {compared.compared} nodes alike")
        if strict and left:
            raise typer.Exit(1)

    def open_engine(self, model: Path | bytes, name: str) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
        """What runs a model on the package's emulator, or its NPU."""
        return self.open_session(model, name).run


def _static_bytes(path: Path, request: ModelRequest) -> Path | bytes:
    """The file itself, or the model with its inputs fixed."""
    if not (request.dims or request.shapes or request.constants):
        return path
    return model_bytes(read(path, dims=request.dims, shapes=request.shapes, constants=request.constants))
