# SPDX-License-Identifier: Apache-2.0
"""Imports point down, rooms on one floor do not know each other, and big dependencies stay in their rooms.

The core imports no add-on; an add-on imports the core, and the add-ons that its declaration says it needs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hexforge.addon import ENTRY_POINTS, addons
from tests import ROOT

SOURCE = ROOT / "src" / "hexforge"

# Top floor first. `*` stands for every package in that folder, each a room of its own.
FLOORS = (
    ("addons.*",),
    ("__main__", "core_files"),
    ("", "cli"),  # "": the façade, hexforge/__init__.py
    ("report",),
    ("ort", "demo"),
    ("analysis",),
    ("runtime",),
    ("frontends.*", "backends.*"),
    ("quant",),
    ("passes", "model"),
    ("formats", "patterns"),
    ("backend",),
    ("ops", "timeline", "chips", "rules"),
    ("ir", "chrome_trace"),
    ("options", "request_fields", "results"),
    ("qnn_api",),
    ("addon",),
    ("errors", "_native"),
    ("terminal_text", "amounts"),
)

# Inner floors of big rooms, top floor first. A name stands for a module or for all modules of a folder.
# Modules of one inner floor do not know each other unless they share a folder.
INNER = {
    "frontends.onnx": (
        ("separate_units",),
        ("placing", "written_ops"),
        ("fusions", "ep_limits"),
        ("context_writer", "context_wrapper"),
        ("context_model", "context_constants", "translate"),
        ("context_node", "node_units"),
        ("unit_scales", "zero_scales"),
        ("unit_encodings",),
        ("unit",),
    ),
    "backends.htp": (
        ("backend",),
        ("timing", "preparation", "pipeline", "support", "block_weights", "numeric_switches"),
        ("time", "numbers"),
        ("activations", "masked_softmax", "symmetric_weights", "tiled_caches"),
    ),
    "quant": (
        ("improve", "as_if_quantized"),
        ("write", "input_ranges"),
        ("sensitivity", "float_source"),
        ("compare",),
        ("decide",),
        ("fold", "masks"),
        ("constants", "widen", "data", "steps"),
    ),
    "patterns": (
        ("activations", "normalizations", "dynamic_products", "affine", "layers", "pieces"),
        ("written_out", "input_numbers"),
        ("nodes", "qnn_nodes", "permutation"),
        ("language",),
    ),
    "runtime": (
        ("opening", "nonfinite"),
        ("contexts",),
        ("plan", "nonfinite", "shared_placing"),
        ("prepare",),
        ("stages", "cpu_timing"),
        ("cpu_part", "partition", "registry", "refusals", "tool_config", "model_request"),
        ("conversions", "collecting"),
    ),
    "runtime.contexts": (
        ("manage", "describe", "wrap", "load_contexts"),
        ("context_plan", "context_model"),
        ("adapter_config",),
        ("compile",),
        ("share", "request", "compatibility"),
        ("context",),
        ("context_builder", "adapted_program", "native_kv"),
    ),
    "addons.device": (
        ("addon",),
        ("sessions", "placed_contexts"),
        ("shared",),
        ("scenario",),
        ("api", "extensions"),
        ("simulated_device",),
        ("contexts",),
        ("chip",),
        ("cores", "signal"),
        ("memory", "votes"),
        ("graph_time", "log"),
        ("scheduling",),
        ("power",),
        ("codes",),
    ),
    "analysis": (
        ("quality",),
        ("estimate",),
        ("cpu_estimate", "estimate_views", "idle_options"),
        ("requests",),
        ("timed_graphs", "random_inputs", "in_turn", "mapped_tasks"),
        ("worker_pool", "worker_processes"),
        ("workers", "ranged_tasks", "finished_work", "figure_store"),
    ),
    "addons.latency": (
        ("addon",),
        ("__main__", "calibrate_command"),
        ("held_out", "error_figures"),
        ("known_work", "calibration"),
        ("cost_file",),
        ("fitting",),
        ("choosing",),
        ("fixed_paths",),
        ("critical_path", "least_squares"),
        ("tiled_graphs", "terms"),
        ("measurements",),
    ),
    "addons.llm.time": (("__main__",), ("fitting", "estimate"), ("costs", "measurements"), ("terms",)),
    "addons.qnn_graphs": (
        ("addon", "compiling"),
        ("graph",),
        ("tensor_types", "operations", "grouped", "library_limits", "rotary", "table_forms"),
        ("declarations",),
    ),
    "ort": (
        ("__main__",),
        ("model_compiler", "stand_in"),
        ("session",),
        ("on_chip",),
        ("qnn_session",),
        ("session_plan", "binding", "check"),
        ("signature", "observed_runs", "provider_listing"),
        ("options",),
        ("values", "errors"),
    ),
}

# Modules (by prefix) outside which a dependency is not imported.
HOMES = {
    "onnx": (
        "model",
        "frontends.onnx",
        "quant",
        "runtime.cpu_part",
        "runtime.cpu_timing",
        "ort",
        "addons.llm",
        "addons.tflite",
        "addons.pytorch",
        "addons.doctor.models",
    ),
    "onnx_ir": ("model", "frontends.onnx", "patterns", "quant", "addons.llm", "addons.tuning.rewrites"),
    "onnxruntime": (
        "model",
        "frontends.onnx",
        "quant",
        "runtime.cpu_part",
        "runtime.cpu_timing",
        "ort",
        "addons.vendor.worker",
        "addons.tflite.compare",
        "addons.pytorch.export",
    ),
    "torch": ("addons.executorch", "addons.pytorch"),
    "onnxscript": ("addons.pytorch",),
    "executorch": ("addons.executorch",),
    "pyopencl": ("addons.gpu",),
    "onnxruntime_qnn": ("addons.vendor",),
    "ai_edge_litert": ("addons.tflite.compare",),
    "ray": ("addons.cluster",),
    "ortools": ("addons.device.scenario.proposals",),
    "scipy": ("addons.latency",),
    **dict.fromkeys(("tokenizers", "safetensors", "gguf", "jinja2", "starlette"), ("addons.llm",)),
    "uvicorn": ("addons.llm", "addons.mcp"),
    **dict.fromkeys(("mcp", "mcp_types"), ("addons.mcp",)),
    "pytest": ("addons.budgets.pytest_plugin",),
    **dict.fromkeys(("pydantic", "pydantic_core"), ("formats.validated", "formats.config_sections")),
}


NEEDS = {addon.name: addon.needs for addon in addons()}
"""Each add-on, and those that it stands on."""


def module_of(path: Path) -> str:
    """Dotted name below hexforge, "" for hexforge itself."""
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix("__init__").rstrip(".")


def room(module: str) -> str:
    """The room of a module (dotted, below hexforge)."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] in ("frontends", "backends", "addons") else parts[0]


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
    if room(imported).startswith("addons.") and room(importer) != room(imported):
        return room(imported).removeprefix("addons.") in NEEDS.get(room(importer).removeprefix("addons."), ())
    return room(importer) == room(imported) or importer == "" or floor(imported) < floor(importer)


def inner_floor(room_name: str, module: str) -> int | None:
    """How high a module of a big room is inside it; None where no inner floor lists it."""
    below = module.removeprefix(f"{room_name}.").split(".")[0]
    for height, names in enumerate(reversed(INNER[room_name])):
        if below in names:
            return height
    return None


def allowed_inside(importer: str, imported: str) -> bool:
    """True where the inner floors of every room that both modules are in allow the import."""
    for big in INNER:
        if not all(m == big or m.startswith(f"{big}.") for m in (importer, imported)):
            continue
        here, there = inner_floor(big, importer), inner_floor(big, imported)
        same_folder = importer.removeprefix(f"{big}.").split(".")[0] == imported.removeprefix(f"{big}.").split(".")[0]
        if here is not None and there is not None and not same_folder and there >= here:
            return False
    return True


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


def named_modules(tree: ast.AST) -> Iterator[str]:
    """Modules of hexforge that strings name, alone or as "module:name": importing them later is importing them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value.partition(":")[0]
            below = SOURCE / name.removeprefix("hexforge.").replace(".", "/")
            if (
                name != ENTRY_POINTS
                and re.fullmatch(r"hexforge(\.\w+)+", name)
                and (below.is_dir() or below.with_suffix(".py").is_file())
            ):
                yield name


def test_add_ons_stand_on_each_other_in_one_direction() -> None:
    reached = {name: set(needs) for name, needs in NEEDS.items()}
    for _ in reached:
        reached = {name: needs.union(*(reached[need] for need in needs)) for name, needs in reached.items()}
    assert not [name for name, needs in reached.items() if name in needs]


MODULES = sorted(SOURCE.rglob("*.py"))
ROOMS = {"_native", *(p.relative_to(SOURCE).with_suffix("").parts[0] for p in MODULES)} - {"__init__"}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: module_of(p) or "hexforge")
def test_imports_point_down(path: Path) -> None:
    module = module_of(path)
    package = f"hexforge.{module}".rstrip(".")
    package = package if path.name == "__init__.py" else package.rpartition(".")[0]
    floor(module)
    tree = ast.parse(path.read_text())
    for name in (*imports(tree, package), *named_modules(tree)):
        first = name.split(".")[0]
        if first == "hexforge":
            below = name.removeprefix("hexforge").removeprefix(".")
            if below.split(".")[0] not in ROOMS:
                below = ""  # a name of the façade, not a module
            assert allowed(module, below), f"{module} may not import {name}"
            if not _only_for_types(path, name):
                assert allowed_inside(module, below), f"{module} may not import {name}: it is on a higher inner floor"
        elif first in HOMES:
            homes = HOMES[first]
            assert any(module == h or module.startswith(f"{h}.") for h in homes), f"{module} may not import {name}"


def _only_for_types(path: Path, name: str) -> bool:
    """True where a module imports another only under TYPE_CHECKING, which is no import when it runs."""
    tree = ast.parse(path.read_text())
    guarded = [n for n in ast.walk(tree) if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    inside = {found for n in guarded for statement in n.body for found in imports(statement, "")}
    bare = ast.Module([n for n in tree.body if n not in guarded], [])
    return name in inside and name not in set(imports(bare, ""))


def test_every_module_of_a_big_room_is_on_an_inner_floor() -> None:
    for path in MODULES:
        module = module_of(path)
        for big in INNER:
            if module.startswith(f"{big}."):
                assert inner_floor(big, module) is not None, f"{module} is on no inner floor of {big}"


def test_rooms_are_small_enough_to_see() -> None:
    """A folder holds at most sixteen files; its __init__ is not counted."""
    for folder in {p.parent for p in (*MODULES, *(ROOT / "benchmarks").rglob("*.py"))}:
        name = folder.relative_to(ROOT)
        count = len([p for p in folder.glob("*.py") if p.name != "__init__.py"])
        assert count <= 16, f"{name} has {count} files; give it rooms of its own"


def test_no_class_has_another_classs_name() -> None:
    homes: dict[str, list[str]] = {}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(module_of(path))
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}


def test_backends_are_told_apart_by_what_they_can_do() -> None:
    """No comparison with a backend's name outside the registry and the backends themselves."""
    names = {"htp", "cpu", "gpu"}
    for path in MODULES:
        module = module_of(path)
        if module.startswith("backends.") or module in ("runtime.registry", "ort.binding"):
            continue  # a device of onnxruntime's IOBinding is called cpu, too
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare):
                compared = {c.value for c in ast.walk(node) if isinstance(c, ast.Constant) and isinstance(c.value, str)}
                assert not compared & names, f"{module}:{node.lineno} compares with {compared & names}"


# Those who must know the HTP itself: the registry names it, `latency` fits its time model, and `hexforge ops` lists
# what it refuses. Everybody else asks the contract.
KNOW_THE_HTP = ("runtime.registry", "addons.latency", "cli.commands.listings")


def test_the_htp_is_known_to_few() -> None:
    outside = set()
    for path in MODULES:
        module = module_of(path)
        names = imports(ast.parse(path.read_text()), f"hexforge.{module}".rpartition(".")[0])
        if not module.startswith("backends.htp") and any(name.startswith("hexforge.backends.htp") for name in names):
            outside.add(module)
    assert [m for m in outside if not any(m == k or m.startswith(f"{k}.") for k in KNOW_THE_HTP)] == []
    assert len(outside) <= 12


def test_the_rules_apply() -> None:
    assert allowed("passes.clean", "ops.evaluate")
    assert allowed("runtime.plan", "backends.cpu")
    assert not allowed("ops.evaluate", "passes.clean")
    assert not allowed("passes.clean", "model.reader")
    assert not allowed("backends.htp.pipeline", "backends.cpu")
    assert not allowed("ops.products.conv", "backend")
    assert not allowed("ir.graph", "")
    assert allowed_inside("frontends.onnx.placing", "frontends.onnx.unit")
    assert not allowed_inside("frontends.onnx.unit", "frontends.onnx.translate.builder")
    assert not allowed_inside("backends.htp.time.cost", "backends.htp.numbers.program")
    assert allowed_inside("backends.htp.time.cost", "backends.htp.time.tile")
    if NEEDS:
        assert allowed("addons.tools.net_run", "addons.device.api")
    assert not allowed("addons.device.api", "addons.tools.net_run")
    assert not allowed("cli.runnable", "addons.device.api")
    tree = ast.parse("from . import y\nfrom ..z import q\nfrom hexforge import ops\ndef f():\n    import onnx.helper")
    assert [*imports(tree, "hexforge.ir")] == ["hexforge.ir", "hexforge.z", "hexforge.ops", "onnx.helper"]
    strings = ast.parse(
        'a = "hexforge.ir.graph:Graph", "hexforge.no_such_module", "see hexforge.ir.graph", "hexforge.ort"'
    )
    assert [*named_modules(strings)] == ["hexforge.ir.graph", "hexforge.ort"]
