# SPDX-License-Identifier: Apache-2.0
"""`hexforge op-package`: ops of the user's own, compiled and looked at."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from hexforge.cli.arguments import Json
from hexforge.cli.request_options import CommandGroup
from hexforge.cli.say import say
from hexforge.cli.screen import console, print_json, table
from hexforge.errors import CallError
from hexforge.ops.packages import HEADERS
from hexforge.request_fields import argument, required

op_package = CommandGroup(no_args_is_help=True, add_completion=False, help="Op packages: compile one, look at one.")


@op_package.command("build")
def build(
    source: Path = argument("A C or C++ file.", exists=True, dir_okay=False, show_default=False),
    output: Path = required("The shared library to write.", "--output", "-o", dir_okay=False),
) -> None:
    """Compile an op package against hexforge_op_package.h."""
    from hexforge.formats.files import require_writable

    require_writable(output)
    build_library(source, output)
    say(f"{output}: register it with --op-package <OpType>:{output}:<function>")


@op_package.command("show")
def show(
    package: str = argument("<OpType>:<path>:<interface>[:<target>], as in op_packages.", show_default=False),
    as_json: Json = False,
) -> None:
    """Load an op of a package and say what it is."""
    import hexforge.ops  # noqa: F401 - QNN's own ops, whose names are taken
    from hexforge.ops.packages import register_op_package

    custom = register_op_package(package)
    facts = {
        "op": custom.op.name,
        "package": custom.package,
        "domain": custom.domain,
        "targets": ", ".join(custom.targets),
        "inputs": " ".join(custom.op.inputs),
        "outputs": " ".join(custom.op.outputs),
        "params": ", ".join(p.name if p.required else f"{p.name}={p.default}" for p in custom.op.params) or "none",
        "work": custom.op.kind.value,
        "sha256": custom.digest,
        "doc": custom.op.doc,
    }
    if as_json:
        print_json(facts)
    else:
        console().print(table("", ("", ""), list(facts.items())))


def build_library(source: Path, output: Path) -> None:
    """Compile a C or C++ source against the header into a shared library, whole or not at all."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if not compiler:
        raise CallError("there is no C++ compiler; install g++, or name one in CXX")
    with tempfile.TemporaryDirectory(dir=output.parent) as folder:
        made = Path(folder) / output.name
        command = [compiler, "-O2", "-std=c++17", "-shared", "-fPIC", f"-I{HEADERS}", str(source), "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CallError(f"{source}: the compiler says:\n{done.stderr.strip()}")
        made.replace(output)
