"""The ONNX frontend: read a model, cut it into units, place them, build graphs, and extract what is left."""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hexforge.frontends.onnx.cut import Extract
    from hexforge.frontends.onnx.declared import Declared, Metadata, fix_shapes
    from hexforge.frontends.onnx.extract import extract, extract_parts
    from hexforge.frontends.onnx.node_units import units
    from hexforge.frontends.onnx.place import Placement, build, place
    from hexforge.frontends.onnx.reader import FoldedNode, Model, read
    from hexforge.frontends.onnx.unit import Operand, Unit

__all__ = [
    "Declared",
    "Extract",
    "FoldedNode",
    "Metadata",
    "Model",
    "Operand",
    "Placement",
    "Unit",
    "build",
    "extract",
    "extract_parts",
    "fix_shapes",
    "place",
    "read",
    "units",
]

_HOMES = {
    "declared": ("Declared", "Metadata", "fix_shapes"),
    "cut": ("Extract",),
    "extract": ("extract", "extract_parts"),
    "node_units": ("units",),
    "place": ("Placement", "build", "place"),
    "reader": ("FoldedNode", "Model", "read"),
    "unit": ("Operand", "Unit"),
}


class _Facade(types.ModuleType):
    """Imports on use: a context model is opened without any of this, which is most of the memory that imports take."""

    def __setattr__(self, name: str, value: Any) -> None:
        # `extract`, `place` and `build` are modules too, which the import system would put in the functions' place
        if not (name in __all__ and isinstance(value, types.ModuleType)):
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        for home, names in _HOMES.items():
            if name in names:
                value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
                setattr(self, name, value)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


sys.modules[__name__].__class__ = _Facade
