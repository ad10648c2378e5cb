# SPDX-License-Identifier: Apache-2.0
"""hexforge: the Snapdragon NPU stack on any computer."""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent
_ADDONS = f"{__name__}.addons"


def _homes(text: str) -> dict[str, str]:
    """Public name -> module, as __init__.pyi has them: `from module import name as name`; of add-ons that are here."""
    homes = {}
    for line in text.splitlines():
        if line.startswith("from "):
            module, _, names = line.removeprefix("from ").partition(" import ")
            if not module.startswith(_ADDONS) or (_FOLDER / "addons").is_dir():
                homes[names.partition(" as ")[0]] = module
    return homes


_HOMES = _homes((_FOLDER / "__init__.pyi").read_text(encoding="utf-8"))
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Import on use: `import hexforge` alone loads nothing."""
    if name == "__version__":
        value: Any = importlib.import_module("importlib.metadata").version("hexforge")
    elif name in _HOMES:
        home = _HOMES[name]
        if home in (__name__, _ADDONS):  # a module, as a whole
            return importlib.import_module(f"{home}.{name}")
        value = getattr(importlib.import_module(home), name)
    else:
        raise AttributeError(f"module 'hexforge' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names only; what else the module holds is for itself."""
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__, "__version__"})


class _AddonFinder:
    """Finds modules of add-ons by their short names: `import hexforge.llm` gives the module hexforge.addons.llm."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The spec of a module of an add-on; None for any other."""
        package, _, rest = name.partition(".")
        if package != __name__ or not (_FOLDER / "addons" / rest.partition(".")[0] / "addon.py").is_file():
            return None
        real = importlib.import_module("importlib.util").find_spec(f"{_ADDONS}.{rest}")
        return (
            None
            if real is None
            else ModuleSpec(name, _AddonLoader(real), is_package=bool(real.submodule_search_locations))
        )


class _AddonLoader:
    """Gives the module of an add-on itself, so that it is loaded once under both of its names."""

    def __init__(self, real: ModuleSpec) -> None:
        self._real: Any = real

    def create_module(self, spec: ModuleSpec) -> Any:
        """The module as its own name imports it."""
        return importlib.import_module(self._real.name)

    def exec_module(self, module: Any) -> None:
        """The module has run; it keeps the spec of its own name."""
        module.__spec__ = self._real

    def get_code(self, name: str) -> Any:
        """The code that `python -m` runs."""
        return self._real.loader.get_code(self._real.name)


sys.meta_path.append(_AddonFinder())  # type: ignore[arg-type]
