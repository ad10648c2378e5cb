# SPDX-License-Identifier: Apache-2.0
"""Random sequences of calls: a code or a result, never a crash; `python -m fuzz api_sequences` runs more of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fuzz.api_sequences import api_sequences

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no cc")


@pytest.mark.parametrize(("checked", "python"), [(False, True), (True, False)])
def test_no_sequence_ends_the_process(libraries: Path, checked: bool, python: bool) -> None:
    assert not api_sequences(0, checked, python)
