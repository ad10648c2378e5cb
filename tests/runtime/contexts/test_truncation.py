# SPDX-License-Identifier: Apache-2.0
"""A context file that is truncated while it is open is an error of the run, and never the end of the process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from hexforge.errors import FormatError
from hexforge.formats.container import HEADER
from hexforge.runtime import registry
from hexforge.runtime.contexts.compile import compile
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


@pytest.mark.parametrize("backend", ["cpu", "htp"])
@pytest.mark.parametrize("where", ["start", "within the last constants", "the table"])
def test_no_backend_computes_with_zeros(tmp_path: Path, backend: str, where: str) -> None:
    path = tmp_path / "c.bin"
    model = tmp_path / "m.onnx"
    rng = np.random.default_rng(0)
    weight = numpy_helper.from_array(rng.standard_normal((700, 9)).astype(np.float32), "w")
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", (1, 700)), ("y", (1, 9)))]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", values[:1], values[1:], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model)
    compile(model, path, registry.backend(backend))
    context = Context(path, verify=False)
    program = context.program(context.graphs[0].name)
    feeds = {"x": np.ones((1, 700), np.float32)}
    program.run(feeds)
    table = HEADER.unpack(path.read_bytes()[: HEADER.size])[4]
    os.truncate(path, {"start": 4096, "within the last constants": table - 4000, "the table": table + 1}[where])
    with pytest.raises(FormatError, match="truncated while it was open"):
        program.run(feeds)


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


def test_a_handler_that_was_set_between_two_mappings_does_not_hide_the_second(tmp_path: Path) -> None:
    """Python's faulthandler is one, switched on by pytest for each test's worker."""
    script = """
        import faulthandler, mmap, os, sys
        from tests.runtime.contexts.test_context import feeds, net, saved
        from hexforge.errors import FormatError
        from hexforge.runtime.contexts.context import Context
        from pathlib import Path
        first, second = Path(sys.argv[1]), Path(sys.argv[2])
        saved(first, net())
        kept = Context(first).program("net")
        faulthandler.enable(open(os.devnull, "w"))
        saved(second, net())
        program = Context(second, verify=False).program("net")
        os.truncate(second, 4096)
        try: program.run(feeds(net()))
        except FormatError as error: print(error)
        if sys.argv[3] == "other":
            Path(sys.argv[1] + "x").write_bytes(bytes(8192))
            other = mmap.mmap(os.open(sys.argv[1] + "x", os.O_RDONLY), 0, access=mmap.ACCESS_READ)
            os.truncate(sys.argv[1] + "x", 0)
            other[4096]
    """
    for last, code in (("", 0), ("other", -7)):
        paths = [str(tmp_path / "a.bin"), str(tmp_path / "b.bin"), last]
        command = [sys.executable, "-c", textwrap.dedent(script), *paths]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
        assert "truncated while it was open" in done.stdout, done.stderr
        assert done.returncode == code


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
