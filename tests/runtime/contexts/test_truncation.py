# SPDX-License-Identifier: Apache-2.0
"""A context file that is truncated while it is open is an error of the run, and never the end of the process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from hexforge.errors import FormatError
from hexforge.runtime.contexts.context import Context
from tests.runtime.contexts.test_context import feeds, net, saved


def test_a_run_over_a_truncated_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "c.bin"
    saved(path, net())
    program = Context(path, verify=False).program("net")
    os.truncate(path, 4096)
    for _ in range(2):  # pages that were lost once stay lost
        with pytest.raises(FormatError, match="truncated while it was open"):
            program.run(feeds(net()))
    saved(tmp_path / "d.bin", net())
    want = Context(tmp_path / "d.bin").program("net").run(feeds(net()))  # others run on
    again = Context(tmp_path / "d.bin").program("net").run(feeds(net()))
    np.testing.assert_array_equal(again["y"], want["y"])


def test_a_file_that_is_replaced_stays_open_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "c.bin"
    saved(path, net())
    program = Context(path).program("net")
    want = program.run(feeds(net()))["y"]
    saved(path, net(seed=1))
    np.testing.assert_array_equal(program.run(feeds(net()))["y"], want)


def test_sections_that_are_gone_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "c.bin"
    saved(path, net())
    context = Context(path, verify=False)
    os.truncate(path, 4096)
    with pytest.raises(FormatError):
        context.program("net")


def test_other_mappings_end_the_process_as_before(tmp_path: Path) -> None:
    """The signal of a mapping that is not ours goes to who would have had it."""
    script = """
        import mmap, os, sys
        import hexforge._native
        from hexforge.formats.container import Container
        from hexforge.errors import HexforgeError
        path = sys.argv[1]
        open(path, "wb").write(bytes(8192))
        try: Container(path)
        except HexforgeError: pass
        other = mmap.mmap(os.open(path, os.O_RDONLY), 0, access=mmap.ACCESS_READ)
        os.truncate(path, 0)
        other[4096]
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "f")], check=False)
    assert done.returncode == -7
