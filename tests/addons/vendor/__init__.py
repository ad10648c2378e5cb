# SPDX-License-Identifier: Apache-2.0
"""The bridge to Qualcomm's package: workers that misbehave on purpose, and the package itself where it is installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hexforge.addons.vendor.package import InstalledPackage, find_package
from hexforge.errors import PackageError

HERE = InstalledPackage(Path(sys.executable), "2.7.0", "1.31.1")
"""This Python, as if it had the package: for workers that tests write."""


def installed() -> bool:
    """True where the package is there."""
    try:
        package = find_package()
    except PackageError:
        return False
    return package is not None and package.usable


needs_package = [
    pytest.mark.vendor,
    pytest.mark.skipif(not installed(), reason="onnxruntime-qnn is not installed (make vendor)"),
]


def write_worker(folder: Path, body: str) -> Path:
    """A worker whose answers are what `answer(job)` returns, which `body` defines."""
    path = folder / "worker.py"
    path.write_text(
        "import json, os, signal, sys, time\n"
        + body
        + "\nfor line in sys.stdin:\n    print(json.dumps(answer(json.loads(line))), flush=True)\n"
    )
    return path
