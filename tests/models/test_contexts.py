# SPDX-License-Identifier: Apache-2.0
"""Real models through a context: the same bits as compiled just now, embedded and external, after moving the folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexforge
from hexforge.runtime.contexts.context import Context
from tests.models.fetch import FOLDER
from tests.models.test_models import MODELS, fixed, sample  # noqa: F401 - a fixture
from tests.native.test_compiled_context import compare
from tests.ort.context_models import feeds, session

pytestmark = pytest.mark.models

QUANTIZED = sorted((FOLDER / "qdq").glob("*.onnx"))


def round_trip(source: Path, folder: Path, backend: str, embed: bool, given: Any = None) -> None:
    """Compile to files, move them, open them, and compare with a fresh session."""
    options = hexforge.SessionOptions()
    options.add_provider("QNNExecutionProvider", {"backend_type": backend})
    made = folder / "made"
    made.mkdir()
    hexforge.ModelCompiler(options, source, embed_compiled_data_into_model=embed).compile_to_file(made / "m_ctx.onnx")
    moved = folder / "moved"
    shutil.move(made, moved)
    fresh = session(source, {"backend_type": backend})
    opened = session(moved / "m_ctx.onnx", {"backend_type": backend})
    assert opened.get_inputs() == fresh.get_inputs()
    assert opened.get_outputs() == fresh.get_outputs()
    given = feeds(fresh) if given is None else given
    for ours, theirs in zip(opened.run(None, given), fresh.run(None, given), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    if backend == "htp" and not embed:
        for file in moved.glob("*.bin"):
            assert compare(file.read_bytes()) == len(Context(file).graphs), "all of it runs without Python"


@pytest.mark.parametrize("embed", [False, True], ids=["external", "embedded"])
@pytest.mark.parametrize("backend", ["cpu", "htp"])
@pytest.mark.parametrize("name", MODELS)
def test_float(name: str, backend: str, embed: bool, fixed: Any, tmp_path: Path) -> None:  # noqa: F811
    path = fixed(name)
    round_trip(path, tmp_path, backend, embed, sample(name, path, 0))


@pytest.mark.parametrize("embed", [False, True], ids=["external", "embedded"])
@pytest.mark.parametrize("path", QUANTIZED, ids=lambda p: p.stem)
def test_quantized(path: Path, embed: bool, tmp_path: Path) -> None:
    round_trip(path, tmp_path, "htp", embed)
