# SPDX-License-Identifier: Apache-2.0
"""Everything that users have of hexforge, as one JSON file, and what parts two such files.

    python -m tools.surface after.json
    python -m tools.surface --compare before.json after.json

Listed are the public names with their signatures, fields and methods; the commands and tools with their options; the
options of sessions; the backends; the environment variables; the JSON keys that commands print; what `python -m` runs;
and the console scripts. The script imports nothing else of the checkout: run as `.venv/bin/python FILE after.json` in
the root of another checkout, it lists that one.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import enum
import importlib
import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import typer

PACKAGE = "hexforge"
MODULES = ("device", "executorch", "llm", "ort", "pytorch")
"""Modules of the package that are public as a whole."""
ADDRESS = re.compile(r" at 0x[0-9a-f]+")
OWN_VARIABLE = re.compile(r"(HEXFORGE|ANDROID)_[A-Z0-9_]+")
SECONDS = 180
"""At most for one command."""
MODELS = ("tests/digits/digits.onnx", "src/hexforge/demo/night.onnx")
MAKE = (
    "import numpy as np, json, pathlib\n"
    "rng = np.random.default_rng(0)\n"
    "for i in range(2):\n"
    "    pathlib.Path('samples').mkdir(exist_ok=True)\n"
    "    np.save(f'samples/{i}.npy', rng.standard_normal((1, 1, 8, 8)).astype(np.float32))\n"
    "pathlib.Path('labels.csv').write_text('0,1\\n1,2\\n')\n"
    "pathlib.Path('held_out.txt').write_text('Once upon a time there was a small dog. ' * 8)\n"
    "pathlib.Path('device.log').write_text('graph failed with error 5005\\n')\n"
    "pathlib.Path('budget.yaml').write_text(json.dumps({'models': [{'model': 'digits.onnx', 'latency_ms': 100.0}]}))\n"
    "pathlib.Path('config.json').write_text(json.dumps({'devices': [{'soc_model': 57}]}))\n"
    "work = {'models': {'digits': {'rate_hz': 10, 'context': 'digits.bin'}}}\n"
    "pathlib.Path('work.yaml').write_text(json.dumps(work))\n"
    "pathlib.Path('scenario.json').write_text(json.dumps({'soc': 'SM8650',\n"
    "    'binaries': {'m': {'graphs': [{'name': 'g', 'weights_mb': 10, 'us': 500}]}},\n"
    "    'processes': [{'threads': [[{'do': 'create', 'context': 'c', 'binary': 'm'},\n"
    "                                {'do': 'execute', 'graph': 'c/g'}, {'do': 'free', 'context': 'c'}]]}]}))\n"
)
"""Writes what the commands below read, in their folder."""
JSON_LINES = (
    "check digits.onnx --json",
    "check night.onnx --refused --json",
    "estimate digits.onnx --json",
    "estimate night.onnx --precision w8a8 --json",
    "estimate digits.onnx --soc all --json",
    "estimate digits.onnx --co-running night.onnx:high --interval-ms 33 --json",
    "advise night.onnx --json",
    "quantize digits.onnx --data samples -o digits.qdq.onnx --json",
    "compare digits.onnx digits.qdq.onnx --data samples --json",
    "whatif digits.onnx --switch float_order --tries 2 --json",
    "search digits.onnx --data samples --soc SM8650 --jobs 1 -o best.qdq.onnx --json",
    "optimize digits.onnx --data samples --soc SM8650 -o fast --jobs 1 --json",
    "compile digits.qdq.onnx -o digits.bin --soc SM8650 --json",
    "compile digits.onnx -o updatable.bin --soc SM8650 --updatable * --json",
    "estimate digits.bin --json",
    "info digits.bin --json",
    "run digits.bin --json",
    "run digits.onnx --json",
    "bench digits.onnx --iterations 2 --json",
    "bench digits.bin --iterations 2 --json",
    "diff digits.onnx digits.qdq.onnx --json",
    "diff digits.bin updatable.bin --json",
    "gate budget.yaml --json",
    "eval digits.onnx --data samples --labels labels.csv --metric top1 --json",
    "config check config.json --json",
    "config schema",
    "explain device.log --json",
    "explain 5005 --json",
    "ops --json",
    "ops Conv --json",
    "options --json",
    "socs --json",
    "socs SM8650 --json",
    "devices --json",
    "device status --json",
    "device play scenario.json --json",
    "sweep digits.onnx --soc SM8650 --json",
    "plan --workload work.yaml --frames 3 --json",
    "lora make updatable.bin -o restore.adapter --json",
    "lora info restore.adapter --json",
    "phone list --json",
    "llm models --json",
    "llm estimate llama_v3_2_1b_instruct --json",
    "llm export small -o bundle --context 64 --ar 8,1 --json",
    "llm run bundle -p dog --tokens 2 --json",
    "llm eval bundle --checkpoint small --text held_out.txt --rows 1 --json",
    "replay saver_output --json",
)
"""Commands whose JSON is listed, in this order in one folder."""


def surface(root: Path, json_lines: Sequence[str] = JSON_LINES) -> dict[str, Any]:
    """Everything that users have of the checkout `root`, whose package this interpreter imports."""
    return {
        "names": public_names(root),
        "commands": dict(_walk(_commands(), "")),
        "options": _options(),
        "backends": _backends(),
        "environment": sorted(environment_variables(root)),
        "json": json_keys(root, json_lines),
        "python -m": sorted(_runnable_modules(root / "src")),
        "scripts": _scripts(root),
    }


def public_names(root: Path) -> dict[str, Any]:
    """Public name -> what it is, with its fields and methods by dotted names."""
    package = importlib.import_module(PACKAGE)
    listed: dict[str, Any] = {}
    for name in package.__all__:
        _describe(name, getattr(package, name), listed)
    documented = re.findall(r"^#+ (\w+)\.(\w+)$", (root / "docs" / "api.md").read_text("utf-8"), re.M)
    for module_name in MODULES:
        module = importlib.import_module(f"{PACKAGE}.{module_name}")
        names = {*getattr(module, "__all__", ()), *(name for of, name in documented if of == module_name)}
        for name in sorted(names):
            _describe(f"{module_name}.{name}", getattr(module, name), listed)
    old = re.findall(r" as (\w+)  # noqa: F401", (root / "src" / PACKAGE / "__init__.pyi").read_text("utf-8"))
    listed |= dict.fromkeys(old, "an old name")
    return dict(sorted(listed.items()))


def _describe(name: str, what: Any, listed: dict[str, Any]) -> None:
    if inspect.isclass(what):
        listed[name] = f"class{_signature(what)}"
        for member, value in _members(what):
            listed[f"{name}.{member}"] = value
    elif callable(what):
        listed[name] = f"function{_signature(what)}"
    elif inspect.ismodule(what):
        listed[name] = "module"
    else:
        listed[name] = type(what).__name__


def _members(of: type) -> Iterator[tuple[str, str]]:
    """Fields, methods, properties and members of an enum that a class has of this package."""
    if dataclasses.is_dataclass(of):
        for field in dataclasses.fields(of):
            if not field.name.startswith("_"):
                yield field.name, f"field: {field.type}{_default(field)}"
    if issubclass(of, enum.Enum):
        yield from ((member.name, f"member: {member.value!r}") for member in of)
    seen: set[str] = set()
    for owner in of.__mro__:
        if not owner.__module__.startswith(PACKAGE):
            continue
        for name, value in vars(owner).items():
            if name.startswith("_") or name in seen:
                continue
            seen.add(name)
            if isinstance(value, (classmethod, staticmethod)):
                yield name, f"{type(value).__name__}{_signature(value.__func__)}"
            elif inspect.isfunction(value):
                yield name, f"method{_signature(value)}"
            elif isinstance(value, property) or type(value).__name__ == "cached_property":
                yield name, "property"


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return f" = {ADDRESS.sub('', repr(field.default))}"
    return "" if field.default_factory is dataclasses.MISSING else " = made"


def _signature(of: Any) -> str:
    try:
        return ADDRESS.sub("", str(inspect.signature(of)))
    except (TypeError, ValueError):
        return "(...)"


def _commands() -> Any:
    return typer.main.get_command(importlib.import_module(f"{PACKAGE}.cli").app)


def _walk(command: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Path of a command -> its help and parameters: spellings, type, default, help."""
    context = typer.Context(command)
    parameters = {
        "/".join((*parameter.opts, *parameter.secondary_opts)): {
            "type": _kind(parameter),
            "default": repr(getattr(parameter.default, "value", parameter.default)),
            "required": parameter.required,
            "many": bool(getattr(parameter, "multiple", False) or parameter.nargs != 1),
            "help": getattr(parameter, "help", None) or "",
        }
        for parameter in command.params
        if "--help" not in parameter.opts
    }
    yield path or PACKAGE, {"help": inspect.cleandoc(command.help or ""), "parameters": parameters}
    if hasattr(command, "list_commands"):
        for name in command.list_commands(context):
            yield from _walk(command.get_command(context, name), f"{path} {name}".strip())


def _kind(parameter: Any) -> str:
    """The type that a parameter declares, with its bounds."""
    declared = getattr(parameter.type_descriptor.annotation, "__name__", str(parameter.type_descriptor.annotation))
    bounds = [f"{name}={value}" for name in ("min", "max") if (value := getattr(parameter, name, None)) is not None]
    return " ".join((declared, *bounds))


def _options() -> dict[str, Any]:
    """Table and key -> what the option expects and does, as `hexforge options --json` has them."""
    rows = json.loads(_run("options --json", Path.cwd()))
    return {f"{row.pop('table')}: {row.pop('key')}": row for row in rows}


def _backends() -> list[str]:
    registry = importlib.import_module(f"{PACKAGE}.runtime.registry")
    return sorted({*registry.QNN_BACKENDS, *getattr(registry, "BUILT", ())})


def environment_variables(root: Path) -> set[str]:
    """Our own variables wherever they stand in quotes, and others' where the environment is read."""
    found = set()
    for file in sorted((root / "src" / PACKAGE).rglob("*.py")):
        tree = ast.parse(file.read_text("utf-8"))
        texts = {
            target.id: node.value.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and OWN_VARIABLE.fullmatch(node.value):
                found.add(node.value)
            read = None
            if isinstance(node, ast.Subscript):
                read = (node.value, node.slice)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                read = (node.func.value, node.args[0])
            if read and ast.unparse(read[0]).endswith("environ"):
                name = read[1].value if isinstance(read[1], ast.Constant) else texts.get(ast.unparse(read[1]))
                found |= {name} if isinstance(name, str) else set()
    for file in sorted((root / "native").rglob("*.[ch]*")):
        quoted = re.findall(r'"([A-Z][A-Z0-9_]+)"', file.read_text("utf-8", "replace"))
        found |= {name for name in quoted if OWN_VARIABLE.fullmatch(name)}
    return found


def json_keys(root: Path, lines: Sequence[str]) -> dict[str, list[str]]:
    """Command -> the paths of keys in what it prints; of a command that fails, its error."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for model in MODELS:
            shutil.copy(root / model, folder)
        small = next((path.parent for path in sorted((root / "tests").rglob("llm/small/config.json"))), None)
        if small:
            shutil.copytree(small, folder / "small")
        subprocess.run([sys.executable, "-c", MAKE], cwd=folder, check=True)
        subprocess.run([sys.executable, "-c", _RECORD], cwd=folder, check=True, capture_output=True)
        with _served_device(folder) if "device status --json" in lines else nullcontext():
            return {line: _keys_of(line, folder) for line in lines}


def _keys_of(line: str, folder: Path) -> list[str]:
    try:
        return sorted(set(_key_paths(json.loads(_run(line, folder)))))
    except (ValueError, subprocess.TimeoutExpired) as error:
        return [f"fails: {str(error).replace(str(folder), '').splitlines()[0]}"]


@contextmanager
def _served_device(folder: Path) -> Iterator[None]:
    """A shared device for `device status` to show."""
    command = [sys.executable, "-m", PACKAGE, "device", "serve", "--soc", "SM8650"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=folder, env=_environment(folder), **quiet) as service:
        try:
            for _ in range(60):
                if "fails" not in _keys_of("device status --json", folder)[0]:
                    break
                time.sleep(0.5)
            yield
        finally:
            service.terminate()


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "HEXFORGE_PHONES": str(folder / "phones"), "XDG_RUNTIME_DIR": str(folder), "COLUMNS": "200"}


_RECORD = (
    "import hexforge, numpy as np\n"
    "provider = {'backend_type': 'saver', 'qnn_saver_path': 'libQnnSaver.so'}\n"
    "session = hexforge.InferenceSession('digits.onnx', providers=[('QNNExecutionProvider', provider)])\n"
    "session.run(None, {session.get_inputs()[0].name: np.zeros((1, 1, 8, 8), np.float32)})\n"
)


_PROGRAM = (
    "from hexforge import _native\n"
    "_native.set_level(_native.levels()[0])\n"  # what is listed is the same on every processor
    "from hexforge.cli import main\n"
    "main()\n"
)


def _run(line: str, folder: Path) -> str:
    """What a command prints; ValueError with its last line where it prints nothing."""
    command = [sys.executable, "-c", _PROGRAM, *shlex.split(line)]
    done = subprocess.run(
        command, cwd=folder, env=_environment(folder), capture_output=True, text=True, timeout=SECONDS
    )
    if not done.stdout.strip():
        raise ValueError((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    return done.stdout


def _key_paths(data: Any, path: str = "") -> Iterator[str]:
    """Every key as a path: `graphs[].name`; the ends with the type of what stands there."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from _key_paths(value, f"{path}.{key}".lstrip("."))
    elif isinstance(data, list):
        if not data:
            yield f"{path}[]"
        for value in data:
            yield from _key_paths(value, f"{path}[]")
    else:
        yield f"{path}: {'number' if type(data) in (int, float) else type(data).__name__}"


def _runnable_modules(source: Path) -> Iterator[str]:
    """Modules that `python -m` runs, by the names that users have; an add-on has a short one."""
    for file in source.rglob("*.py"):
        module = ".".join(file.relative_to(source).with_suffix("").parts).replace(f"{PACKAGE}.addons.", f"{PACKAGE}.")
        if file.name == "__main__.py":
            yield module.removesuffix(".__main__")
        elif re.search(r"^if __name__ == ", file.read_text("utf-8"), re.M):
            yield module


def _scripts(root: Path) -> list[str]:
    """Console scripts, and whether what each names is there."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    for target in project["scripts"].values():
        module, _, attribute = target.partition(":")
        getattr(importlib.import_module(module), attribute)
    return sorted(project["scripts"])


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What went, came and changed from one surface to another, a line each."""
    was, now = dict(_leaves(before)), dict(_leaves(after))
    lines = [f"went:    {path}  (was {was[path]})" for path in was if path not in now]
    lines += [f"came:    {path}  ({now[path]})" for path in now if path not in was]
    lines += [
        f"changed: {path}\n    was {was[path]}\n    is  {now[path]}"
        for path in was
        if was[path] != now.get(path, was[path])
    ]
    return lines


def _leaves(data: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Path -> text of every end; an entry of a list is a path of its own."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from _leaves(value, f"{path} > {key}" if path else key)
        if not data:
            yield path, "nothing"
    elif isinstance(data, list):
        yield from ((f"{path} > {entry}", "there") for entry in data)
    else:
        yield path, str(data)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a surface, or compare two; exit code 1 where something went or changed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("output", nargs="?", type=Path, help="the JSON file to write")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("BEFORE", "AFTER"))
    given = parser.parse_args(arguments)
    if given.compare:
        before, after = (json.loads(path.read_text("utf-8")) for path in given.compare)
        lines = differences(before, after)
        print("\n".join(lines) or "nothing parts them")
        return int(any(not line.startswith("came") for line in lines))
    if given.output is None:
        parser.error("name the file to write, or two to --compare")
    given.output.write_text(json.dumps(surface(Path.cwd()), indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
