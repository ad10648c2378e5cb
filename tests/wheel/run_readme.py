# SPDX-License-Identifier: Apache-2.0
"""Run the first Python block of a README as a user would: `python tests/wheel/run_readme.py README.md`.

The block runs in an empty folder where `model.onnx` is the demo model, whose input is called `x` here; `x` is a night
shot for it and `np` is numpy. Nothing of the checkout is imported, so this also tests a wheel in an environment of its
own (`make wheel-test`).
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx

import hexforge
from hexforge import demo

BLOCK = re.compile(r"^ {0,3}```(?:python|py)\b[^\n]*\n(.*?)^ {0,3}```", re.DOTALL | re.MULTILINE)


def first_block(text: str) -> str:
    """The first block of Python in a Markdown text."""
    found = BLOCK.search(text)
    if found is None:
        raise SystemExit("the README has no block of Python")
    return found.group(1)


def _demo_model() -> onnx.ModelProto:
    model = onnx.load(demo.MODEL)
    (given,) = model.graph.input
    for node in model.graph.node:
        node.input[:] = ["x" if name == given.name else name for name in node.input]
    given.name = "x"
    return model


def run(readme: Path) -> None:
    """Run the block; what it prints is printed, an error is an error."""
    code = compile(first_block(readme.read_text(encoding="utf-8")), str(readme), "exec")
    shots, _ = demo.held_out()
    names = {"__name__": "__main__", "np": np, "x": shots[0]}
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        onnx.save(_demo_model(), Path(folder) / "model.onnx")
        os.chdir(folder)
        try:
            exec(code, names)
        finally:
            os.chdir(before)


if __name__ == "__main__":
    run(Path(sys.argv[1] if len(sys.argv) > 1 else "README.md"))
    print(f"README: its first block ran with hexforge {hexforge.__version__} in {Path(hexforge.__file__).parent}")
