# SPDX-License-Identifier: Apache-2.0
"""Check what changed, in under a minute: `python -m tools.quick` (make quick).

Changed is what differs from where the branch left main, committed or not. Those files are linted, types are checked
with the cache of the last run, and the tests of the same rooms run: first those of the same name, then the rest of the
room, until a minute is over. `make test` runs everything.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LIMIT_S = 50
"""From the start to the last test that is begun."""
_END = "HEXFORGE_QUICK_END"
_NO_TESTS = 5
"""How pytest ends where no test was chosen."""
ALWAYS = ("tests/test_layering.py", "tests/docs/test_api.py")
"""Quick, and any change of a module can break them."""
OUTSIDE = {
    "docs": "tests/docs",
    "examples": "tests/cli/test_examples.py",
    "native": "tests/native",
    "README.md": "tests/wheel",
}
"""What is not in src, and where its tests are."""


def changed_files() -> list[str]:
    """What differs from where this branch left main, uncommitted and new files too; deleted files are left out."""
    base = next((b for ref in ("origin/main", "main") if (b := _git("merge-base", "HEAD", ref))), ["HEAD"])[0]
    names = {*_git("diff", "--name-only", base), *_git("ls-files", "--others", "--exclude-standard")}
    return sorted(name for name in names if (ROOT / name).is_file())


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", "-c", "core.quotePath=false", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.splitlines() if done.returncode == 0 else []


def mirrored_tests(changed: Iterable[str], root: Path = ROOT) -> list[str]:
    """The tests of changed files: changed tests and tests of the same name first, the rest of their rooms last."""
    names = list(changed)
    first = [name for name in names if name.startswith("tests/") and Path(name).name.startswith("test_")]
    modules = [Path(name).relative_to("src/hexforge") for name in names if _is_module(name)]
    for module in modules:
        first += [str(p.relative_to(root)) for p in sorted((root / "tests").rglob(f"test_{module.stem}.py"))
                  if _shares_a_room(p.relative_to(root / "tests"), module)]  # fmt: skip
    rooms = [_room(root, Path("tests") / module.parent) for module in modules]
    rooms += [_room(root, Path(name).parent) for name in names if name.startswith("tests/") and name not in first]
    rooms += [tests for name in names for start, tests in OUTSIDE.items() if name.split("/")[0] == start]
    # A room that is all of tests/ has no mirror of its own: the tests of the same name are its tests.
    return list(dict.fromkeys([*first, *(ALWAYS if modules else ()), *(room for room in rooms if room != "tests")]))


def _is_module(name: str) -> bool:
    return name.startswith("src/hexforge/") and name.endswith((".py", ".pyi"))


def _shares_a_room(test: Path, module: Path) -> bool:
    return len(module.parts) == 1 or test.parts[0] == module.parts[0]


def _room(root: Path, folder: Path) -> str:
    """The folder itself, or the nearest one above it that exists."""
    while not (root / folder).is_dir():
        folder = folder.parent
    return str(folder)


def main() -> int:
    """0 where lint, types and tests of what changed pass."""
    started = time.time()
    changed = changed_files()
    tests = mirrored_tests(changed)
    python = [name for name in changed if name.endswith((".py", ".pyi"))]
    print(f"quick: {len(changed)} files differ from main", *changed[:8], "…" if changed[8:] else "")
    failed = []
    if python:
        failed += [_run("ruff", "check", *python), _run("ruff", "format", "--check", *python), _run("mypy")]
    if tests:
        os.environ[_END] = str(time.time() + max(5.0, LIMIT_S - (time.time() - started)))
        jobs = os.environ.get("JOBS", "2")
        failed.append(
            _run("pytest", "-p", "tools.quick", "-n", jobs, "-rs", "-m", "not models and not executorch", *tests)
        )
    faults = ", ".join(filter(None, failed))
    verdict = f"failed: {faults}" if faults else "passed"
    print(f"quick: {verdict}; {time.time() - started:.0f} s; make test runs everything")
    return int(bool(faults))


def _run(tool: str, *arguments: str) -> str:
    """Run a tool; its name and its first word where it fails."""
    print(f"quick: {tool} {' '.join(arguments)}", flush=True)
    code = subprocess.run([sys.executable, "-m", tool, *arguments], cwd=ROOT, check=False).returncode
    return "" if code in (0, _NO_TESTS) else " ".join((tool, *arguments[:1])) if tool == "ruff" else tool


def pytest_runtest_setup() -> None:
    """As a plugin of pytest: leave out what would begin after the end."""
    if time.time() > float(os.environ.get(_END, "inf")):
        pytest.skip("the minute of make quick is over")


if __name__ == "__main__":
    sys.exit(main())
