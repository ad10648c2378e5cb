# SPDX-License-Identifier: Apache-2.0
"""Run tests in a copy of the checkout whose path has a space, a letter outside ASCII, and a folder called hexforge.

`python -m tools.odd_path [pytest's arguments]`; where those name no tests, the tests that meet a path: processes,
compilers, files that native code opens. Temporary files of the tests lie below such a path too.
"""

from __future__ import annotations

import shutil
import sys

from tools.checkout_copy import ROOT, copy_checkout, copy_environment, run_tests

ABOVE = ROOT / "build" / "a cloné"
TESTS = (
    "tests/addons/gpu/test_loss.py",
    "tests/backends/ir",
    "tests/addons/adapters/test_command.py",
    "tests/addons/tools/test_full_disk_and_ctrl_c.py",
    "tests/addons/tools/test_tools.py",
    "tests/cli/commands/test_quantize.py",
    "tests/cli/test_startup.py",
    "tests/docs",
    "tests/addons/executorch/test_executor_runner.py",
    "tests/model/test_reader_errors.py",
    "tests/ops/test_packages.py",
    "tests/ort/test_context_models.py",
    "tests/addons/profiler/test_sessions.py",
    "tests/ort/test_scripts.py",
    "tests/ort/test_stand_in.py",
    "tests/quant/data/test_samples.py",
    "tests/runtime/contexts/test_compile.py",
    "tests/runtime/contexts/test_load_contexts.py",
    "tests/runtime/contexts/test_truncation.py",
    "tests/test_headers.py",
    "tests/wheel",
)


def main(arguments: list[str]) -> int:
    """The exit status of pytest in the copy."""
    shutil.rmtree(ABOVE, ignore_errors=True)
    copy = ABOVE / "hexforge"
    copy.mkdir(parents=True)
    copy_checkout(copy)
    python = copy_environment(copy)
    print(f"odd path: pytest in {copy.relative_to(ROOT)}", flush=True)
    named = any((ROOT / argument.partition("::")[0]).exists() for argument in arguments)
    tests = () if named else TESTS
    return run_tests(copy, python, [f"--basetemp={ABOVE / 'tempörary files'}", *arguments, *tests])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
