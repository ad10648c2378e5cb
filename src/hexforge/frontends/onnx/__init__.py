"""The ONNX frontend: read a model, cut it into units, place them, build graphs, and extract what is left."""

# Not lazy: `extract`, `place` and `build` are also names of modules, and an import of those would hide the functions.
from hexforge.frontends.onnx.declared import Declared, fix_shapes
from hexforge.frontends.onnx.extract import Extract, extract, extract_parts
from hexforge.frontends.onnx.node_units import units
from hexforge.frontends.onnx.place import Placement, build, place
from hexforge.frontends.onnx.reader import FoldedNode, Metadata, Model, read
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
