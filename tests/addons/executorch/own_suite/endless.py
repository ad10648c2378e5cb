# SPDX-License-Identifier: Apache-2.0
"""Tests for the harness of ExecuTorch's tests: fine ones, one without end, one that dies and one that exits."""

from __future__ import annotations

import builtins
import contextlib
import os
import subprocess
import sys
import unittest


class TestEndless(unittest.TestCase):
    """What a worker must survive."""

    def test_a_fine(self) -> None:
        """Passes."""

    def test_b_endless(self) -> None:
        """Goes on for ever, with a process of its own."""
        subprocess.run([sys.executable, "-c", "import time; time.sleep(3600)", os.environ["ENDLESS_MARK"]], check=False)

    def test_c_dies(self) -> None:
        """Takes its process with it."""
        os._exit(3)

    def test_d_exits(self) -> None:
        """As ExecuTorch's Saver does: Python's own `exit` closes the standard input."""
        with contextlib.suppress(SystemExit):
            builtins.exit(1)

    def test_e_fine(self) -> None:
        """Passes again."""
