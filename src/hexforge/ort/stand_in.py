# SPDX-License-Identifier: Apache-2.0
"""Submodules of the stand-in are the real ones, and the stand-in can take the real one's name."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Sequence
from pathlib import Path

_OWN = Path(__file__).parent


class _Aliases(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `stand_in.x.y` as the module `real.x.y` itself, not as a second copy of it."""

    def __init__(self, stand_in: str, real: str) -> None:
        self._prefix = f"{stand_in}."
        self._real = f"{real}."
        self._specs: dict[str, importlib.machinery.ModuleSpec | None] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A spec for names under the stand-in that the real package has."""
        if not fullname.startswith(self._prefix) or (_OWN / f"{fullname.removeprefix(self._prefix)}.py").exists():
            return None
        name = self._real + fullname.removeprefix(self._prefix)
        try:
            exists = name in sys.modules or importlib.util.find_spec(name) is not None
        except (ImportError, ValueError):
            exists = False
        return importlib.machinery.ModuleSpec(fullname, self) if exists else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """The real module."""
        module = importlib.import_module(self._real + spec.name.removeprefix(self._prefix))
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run; the import system has put the alias's spec on the module, so give it its own back."""
        spec = module.__spec__
        if spec is not None and spec.name in self._specs:
            module.__spec__ = self._specs.pop(spec.name)


def alias_submodules(stand_in: str, real: str) -> None:
    """Make `import stand_in.x` give the real package's `x` wherever the stand-in has no such module itself."""
    sys.meta_path.insert(0, _Aliases(stand_in, real))  # first, as real packages have paths that others would search


def install() -> types.ModuleType:
    """Make `import onnxruntime` give the stand-in, in this process from now on.

    The module has the real one's name, path and contents, so its submodules load as ever; those that import
    onnxruntime themselves get the stand-in too, whose session without QNNExecutionProvider is onnxruntime's.
    """
    import onnxruntime

    import hexforge.ort

    present = sys.modules["onnxruntime"]
    if present.__dict__.get("__hexforge__"):
        return present
    module = types.ModuleType("onnxruntime", onnxruntime.__doc__)
    module.__dict__.update(onnxruntime.__dict__)
    module.__dict__.update({name: getattr(hexforge.ort, name) for name in hexforge.ort.__all__})
    module.__dict__["__hexforge__"] = True
    sys.modules["onnxruntime"] = module
    return module
