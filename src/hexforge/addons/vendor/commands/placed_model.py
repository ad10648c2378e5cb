# SPDX-License-Identifier: Apache-2.0
"""A model in Qualcomm's package, for the commands that take `--backend vendor`: run, bench and check."""

from __future__ import annotations

import time
from pathlib import Path

import typer
from rich.text import Text

from hexforge.addons.vendor.engine import VendorEngine
from hexforge.addons.vendor.placing import compare_placement
from hexforge.addons.vendor.proof import place_by_the_rules
from hexforge.addons.vendor.session import VendorOptions, numpy_type
from hexforge.cli.runnable import Runnable
from hexforge.cli.screen import console, print_json, spinner
from hexforge.frontends.onnx.rewrites.write import model_bytes
from hexforge.model.reader import read
from hexforge.ort.signature import NodeArg
from hexforge.runtime.cpu_part import CPU, QNN
from hexforge.runtime.model_request import ModelRequest


def open_runnable(path: Path, engine: VendorEngine, request: ModelRequest) -> Runnable:
    """A model, or a context model of Qualcomm's, ready to run in its own package."""
    start = time.perf_counter()
    with spinner(f"opening {path.name} in Qualcomm's package"):
        session = engine.open_session(_static_bytes(path, request), path.name)
    inputs = [NodeArg(name, kind, list(shape), numpy_type(kind)) for name, kind, shape in session.inputs]
    left = f", {len(session.placement.left)} nodes on the CPU" if session.placement.left else ""
    about = f"Qualcomm's package, {engine.soc}{left}"
    return Runnable(inputs, session.run, about, 1e3 * (time.perf_counter() - start))


def print_check(model: Path, engine: VendorEngine, request: ModelRequest, as_json: bool, strict: bool) -> None:
    """Where Qualcomm's package itself places each node, and where hexforge's rules say otherwise."""
    with spinner(f"placing {model.name} in Qualcomm's package"):
        source = read(model, dims=request.dims, shapes=request.shapes, constants=request.constants)
        source.require_static()
        session = engine.open_session(model_bytes(source), model.name)
        rules = place_by_the_rules(source, VendorOptions(engine.soc, engine.provider_options))
    compared = compare_placement(rules.parts, session.placement)
    taken, left = session.placement.taken, session.placement.left
    if as_json:
        nodes = [{"op": op, "node": name, "runs_on": QNN} for op, name in taken]
        nodes += [{"op": op, "node": name, "runs_on": CPU} for op, name in left]
        print_json({"model": model.name, "soc": engine.soc, "nodes": nodes, "beside_hexforge": compared.to_json()})
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


def _static_bytes(path: Path, request: ModelRequest) -> Path | bytes:
    """The file itself, or the model with its inputs fixed."""
    if not (request.dims or request.shapes or request.constants):
        return path
    return model_bytes(read(path, dims=request.dims, shapes=request.shapes, constants=request.constants))
