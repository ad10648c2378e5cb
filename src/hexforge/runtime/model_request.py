# SPDX-License-Identifier: Apache-2.0
"""ModelRequest: what may differ on the way from a model to its parts, each with the reason for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """How a model is to be read and placed. By default it is placed as the backend can, which is what is timed."""

    dims: Mapping[str, int] | None = None
    """Sizes of symbolic dimensions: a graph has static shapes, and a model's file may leave them open."""
    shapes: Mapping[str, Sequence[int]] | None = None
    """Shapes of inputs by name, for dimensions that have no name."""
    constants: Mapping[str, Any] | None = None
    """Inputs that are always given the same value, which then is folded into the graph."""
    offload_io_quantization: bool = False
    """Leave the quantization of inputs and outputs outside: the application has the integers already."""
    obey_ep: bool = False
    """Refuse also what onnxruntime's QNN EP refuses though the backend could take it: placement as on a device."""
    open_shapes: bool = False
    """Let shapes stay open: units that read or write them are refused, as by the EP."""
    no_backend: str = ""
    """Why the backend takes no unit at all, where that is so."""
    affinity: Mapping[str, str] = field(default_factory=dict)
    """Op types pinned to backends by name (op_affinity), to try what a model does without them on this one."""


DEFAULT_REQUEST = ModelRequest()
"""A model as its file has it, placed as the backend can."""
