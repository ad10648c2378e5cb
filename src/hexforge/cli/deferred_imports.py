# SPDX-License-Identifier: Apache-2.0
"""Modules that a dependency imports and a command hardly ever uses are loaded on their first use.

onnx_ir imports sympy for arithmetic on symbolic dimensions, which is a quarter of a second for every command that reads
a model; the models that hexforge takes have static shapes. `importlib.util.LazyLoader` puts the loading off to the
first attribute that is read: it is the same module, later. Only the command line does so, since the process is its own;
`import hexforge` changes nothing in the program that imports it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType

DEFERRED = frozenset({"sympy", "onnx_ir._symbolic_shapes"})
"""sympy, and the one module of onnx_ir that reads attributes of it while it is imported; unknown names do nothing."""


class _Finder:
    """Finds the modules of DEFERRED as any import would, with a loader that waits."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in DEFERRED else None
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = LazyLoader(spec.loader)
        return spec


@contextmanager
def defer_imports() -> Iterator[None]:
    """While this is open, the modules of DEFERRED are loaded on their first use."""
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
