# SPDX-License-Identifier: Apache-2.0
"""hexforge: the Snapdragon NPU stack on any computer."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any


def _homes() -> dict[str, str]:
    """Name -> module, as __init__.pyi lists them."""
    found = {}
    for line in Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8").splitlines():
        if line.startswith("from "):
            module, _, names = line.removeprefix("from ").partition(" import ")
            found.update({item.partition(" as ")[0]: module for item in names.split(", ")})
    return found


_HOMES = _homes()
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Import on use: `import hexforge` alone loads nothing."""
    if name == "__version__":
        value: Any = importlib.import_module("importlib.metadata").version("hexforge")
    elif name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'hexforge' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
