# SPDX-License-Identifier: Apache-2.0
"""Run the core's tests and the README's lines in a copy of the checkout that has no add-ons.

`python -m tools.core_alone [pytest's arguments]`; where those name no tests, a choice that takes about a minute, with
`tests` all of the core's. Tests that import an add-on are left out there by tests/conftest.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from tools.checkout_copy import ROOT, copy_checkout, copy_environment, run_tests

COPY = ROOT / "build" / "core_alone" / "hexforge"
TESTS = (
    "tests/analysis/test_estimate.py",
    "tests/cli/test_cli.py",
    "tests/cli/test_examples.py",
    "tests/cli/test_startup.py",
    "tests/frontends/onnx",
    "tests/ir",
    "tests/ort/test_check.py",
    "tests/ort/test_session.py",
    "tests/passes",
    "tests/report/test_page.py",
    "tests/runtime/contexts/test_compile.py",
    "tests/test_backend.py",
    "tests/test_layering.py",
    "tests/test_options.py",
)
LINES = (["--help"], ["check", "{model}"], ["estimate", "{model}", "--precision", "w8a8"], ["addons"])
"""What a user types first."""


def main(arguments: list[str]) -> int:
    """The exit status of pytest in the copy, after its README and commands ran."""
    shutil.rmtree(COPY.parent, ignore_errors=True)
    COPY.mkdir(parents=True)
    copy_checkout(COPY)
    for gone in ("src/hexforge/addons", "tests/addons"):
        shutil.rmtree(COPY / gone)
    python = copy_environment(COPY)
    print(f"core alone: README, commands and tests in {COPY.relative_to(ROOT)}", flush=True)
    model = COPY / "src" / "hexforge" / "demo" / "night.onnx"
    subprocess.run([python, COPY / "tests" / "wheel" / "run_readme.py", COPY / "README.md"], cwd=COPY, check=True)
    for line in LINES:
        command = [str(python), "-m", "hexforge", *(word.format(model=model) for word in line)]
        subprocess.run(command, cwd=COPY.parent, check=True, stdout=subprocess.DEVNULL)
    named = any((ROOT / argument.partition("::")[0]).exists() for argument in arguments)
    os.environ["PYTEST_ADDOPTS"] = "-p no:hexforge"  # what is installed still names the plugin of an add-on
    return run_tests(COPY, python, [*arguments, *(() if named else TESTS)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
