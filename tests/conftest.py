# SPDX-License-Identifier: Apache-2.0
"""For all tests: Hypothesis without deadlines, in CI with the same examples every time; Ctrl-C as Python has it."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

from hypothesis import settings

from tests import ROOT

settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


# A shell that starts its jobs in the background has them ignore Ctrl-C; tests that send it want Python's own answer.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """A test that imports an add-on is not collected where there are none (`tools/core_alone.py`)."""
    if (ROOT / "src" / "hexforge" / "addons").is_dir() or collection_path.suffix != ".py":
        return None
    return True if re.search(r"\b(hexforge|tests)\.addons\b", collection_path.read_text("utf-8")) else None
