# SPDX-License-Identifier: Apache-2.0
"""What the command line does not import: a process of its own each, since imports stay."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest
import typer

from hexforge.addon import Command, import_target
from hexforge.cli.command_table import commands
from tests.digits import MODEL

HEAVY = ("numpy", "onnx", "onnx_ir", "onnxruntime", "sympy", "hexforge.ir", "hexforge.cli.screen")


def imported(*arguments: str) -> set[str]:
    """Modules that a command leaves imported; a deferred module that was not needed does not count."""
    code = (
        "import sys\n"
        "from hexforge.cli import main\n"
        "try:\n"
        f"    main({list(arguments)!r})\n"
        "except SystemExit as exit:\n"
        "    assert not exit.code\n"
        "print('imported', *(n for n, m in sys.modules.items() if type(m).__name__ != '_LazyModule'))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(found.stdout.splitlines()[-1].split()[1:])


def test_the_help_imports_no_command() -> None:
    modules = imported("--help")
    assert not [name for name in HEAVY if name in modules]
    assert not [name for name in modules if name in {row.target.partition(":")[0] for row in commands().values()}]


def test_a_model_is_checked_without_sympy_and_onnxscript() -> None:
    modules = imported("check", str(MODEL))
    assert "onnx_ir" in modules
    assert not [name for name in modules if name.split(".")[0] in ("sympy", "onnxscript", "ray", "torch")]
    assert "onnx.reference" not in modules, "nothing of this model is folded"


def test_deferred_modules_are_the_true_ones() -> None:
    code = (
        "from hexforge.cli.deferred_imports import defer_imports\n"
        "import sys\n"
        "with defer_imports():\n"
        "    import onnx_ir\n"
        "assert 'sympy.core' not in sys.modules\n"
        "assert not [f for f in sys.meta_path if type(f).__module__.startswith('hexforge.')]\n"
        "print(onnx_ir.SymbolicDim('n') * 2 + 1, onnx_ir.SymbolicDim('max(n, 3)').evaluate({'n': 2}))\n"
        "import sympy\n"
        "print(sympy.Symbol('x') + 1, sympy.core.__name__)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines() == ["2*n + 1 3", "x + 1 sympy.core"]


@pytest.mark.parametrize("row", commands().values(), ids=lambda row: row.name)
def test_the_line_in_the_help_is_the_docstring(row: Command) -> None:
    target = import_target(row.target)
    said = target.info.help if isinstance(target, typer.Typer) else inspect.getdoc(target)
    assert row.help == " ".join(said.split("\n\n")[0].split())


def test_the_package_runs_as_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "hexforge", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("hexforge ")
