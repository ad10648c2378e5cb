# SPDX-License-Identifier: Apache-2.0
"""hexforge: the Snapdragon NPU stack on any computer."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any


def _table(text: str) -> tuple[dict[str, str], dict[str, str]]:
    """Public name -> module, and old name -> public name, as __init__.pyi has them: `from module import new as old`."""
    homes, renamed = {}, {}
    for line in text.splitlines():
        if line.startswith("from "):
            module, _, names = line.removeprefix("from ").partition(" import ")
            for item in names.partition("  #")[0].split(", "):
                name, _, alias = item.partition(" as ")
                homes[name] = module
                if alias != name:
                    renamed[alias] = name
    return homes, renamed


_HOMES, _RENAMED = _table(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Import on use: `import hexforge` alone loads nothing."""
    if name == "__version__":
        value: Any = importlib.import_module("importlib.metadata").version("hexforge")
    elif name in _HOMES:
        home = _HOMES[name]
        if home == __name__:  # a module of the package, as a whole
            return importlib.import_module(f"{home}.{name}")
        value = getattr(importlib.import_module(home), name)
    elif name in _RENAMED:
        importlib.import_module("hexforge.deprecated").warn_renamed(f"hexforge.{name}", f"hexforge.{_RENAMED[name]}")
        return __getattr__(_RENAMED[name])
    else:
        raise AttributeError(f"module 'hexforge' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names only; what else the module holds is for itself."""
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__, "__version__"})
