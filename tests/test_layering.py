"""Imports point down, rooms on one floor do not know each other, and big dependencies stay in their rooms."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT

SOURCE = ROOT / "src" / "hexforge"

# Top floor first. `*` stands for every package in that folder, each a room of its own.
FLOORS = (
    ("", "cli"),  # "": the façade, hexforge/__init__.py
    ("report",),
    ("ort", "executorch", "demo"),
    ("device", "analysis", "vendor"),
    ("runtime",),
    ("frontends.*", "backends.*"),
    ("quant",),
    ("passes", "model"),
    ("formats",),
    ("ops", "backend", "timeline"),
    ("ir",),
    ("options",),
    ("errors", "_native"),
)

# Modules (by prefix) outside which a dependency is not imported.
HOMES = {
    "onnx": ("model", "frontends.onnx", "quant", "runtime.cpu_part", "ort"),
    "onnx_ir": ("model", "frontends.onnx", "quant"),
    "onnxruntime": ("model", "frontends.onnx", "quant", "runtime.cpu_part", "ort"),
    "torch": ("executorch",),
    "executorch": ("executorch",),
    "pyopencl": ("backends.gpu",),
    "onnxruntime_qnn": ("vendor",),
    "ray": ("analysis.quality.spread",),
}


def module_of(path: Path) -> str:
    """Dotted name below hexforge, "" for hexforge itself."""
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix("__init__").rstrip(".")


def room(module: str) -> str:
    """The room of a module (dotted, below hexforge)."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] in ("frontends", "backends") else parts[0]


def floor(module: str) -> int:
    """How high the module's room is; KeyError for one that no floor lists."""
    name = room(module)
    for height, rooms in enumerate(reversed(FLOORS)):
        if name in rooms or (f"{name.split('.')[0]}.*" in rooms):
            return height
    raise KeyError(f"room {name!r} of {module!r} is on no floor of FLOORS")


def allowed(importer: str, imported: str) -> bool:
    """True where a module of hexforge may import another."""
    if imported == "":  # the façade stands on the runtime: only what is above that may use it
        return floor(importer) > floor("runtime")
    return room(importer) == room(imported) or importer == "" or floor(imported) < floor(importer)


def imports(tree: ast.AST, package: str) -> Iterator[str]:
    """Full names of what a module imports, wherever in it; `package` resolves relative imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            if name == "hexforge":
                yield from (f"hexforge.{alias.name}" for alias in node.names)
            else:
                yield name


MODULES = sorted(SOURCE.rglob("*.py"))
ROOMS = {"_native", *(p.relative_to(SOURCE).with_suffix("").parts[0] for p in MODULES)} - {"__init__"}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: module_of(p) or "hexforge")
def test_imports_point_down(path: Path) -> None:
    module = module_of(path)
    package = f"hexforge.{module}".rstrip(".")
    package = package if path.name == "__init__.py" else package.rpartition(".")[0]
    floor(module)
    for name in imports(ast.parse(path.read_text()), package):
        first = name.split(".")[0]
        if first == "hexforge":
            below = name.removeprefix("hexforge").removeprefix(".")
            if below.split(".")[0] not in ROOMS:
                below = ""  # a name of the façade, not a module
            assert allowed(module, below), f"{module} may not import {name}"
        elif first in HOMES:
            homes = HOMES[first]
            assert any(module == h or module.startswith(f"{h}.") for h in homes), f"{module} may not import {name}"


def test_the_rules_bite() -> None:
    assert allowed("passes.clean", "ops.evaluate")
    assert allowed("runtime.plan", "backends.cpu.backend")
    assert not allowed("ops.evaluate", "passes.clean")
    assert not allowed("passes.clean", "model.reader")
    assert not allowed("backends.htp.pipeline", "backends.cpu.program")
    assert not allowed("ops.conv", "backend")
    assert not allowed("ir.graph", "")
    tree = ast.parse("from . import y\nfrom ..z import q\nfrom hexforge import ops\ndef f():\n    import onnx.helper")
    assert [*imports(tree, "hexforge.ir")] == ["hexforge.ir", "hexforge.z", "hexforge.ops", "onnx.helper"]
