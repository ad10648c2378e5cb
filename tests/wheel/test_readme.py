# SPDX-License-Identifier: Apache-2.0
"""The README's lines run."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests import ROOT
from tests.wheel.run_readme import first_block


def test_the_first_block_of_the_readme_runs() -> None:
    command = [sys.executable, str(ROOT / "tests" / "wheel" / "run_readme.py"), str(ROOT / "README.md")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    assert "its first block ran" in done.stdout.splitlines()[-1]


def test_the_first_block_is_found() -> None:
    assert first_block("a\n```sh\nls\n```\n\n```python\nx = 1\n\ny = 2\n```\n```python\nz\n```\n") == "x = 1\n\ny = 2\n"
    with pytest.raises(SystemExit, match="no block"):
        first_block("nothing")
