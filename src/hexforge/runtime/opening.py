# SPDX-License-Identifier: Apache-2.0
"""Opening: a model, or a context model, as parts that run on a backend, without a session around them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hexforge.backend import Backend
from hexforge.frontends.onnx.context_model import read_context_model
from hexforge.runtime.contexts.context_plan import PrecompiledPlan
from hexforge.runtime.stages import Stages

if TYPE_CHECKING:
    from hexforge.model.reader import Model


def open_stages(source: str | os.PathLike[str] | bytes | Model, backend: Backend) -> tuple[Stages, Sequence[str]]:
    """What runs a model, and the names of its outputs; nodes that the backend refuses run on the CPU."""
    if isinstance(source, (str, os.PathLike, bytes)):
        compiled = read_context_model(source if isinstance(source, bytes) else Path(source))
        if compiled is not None:
            return PrecompiledPlan(compiled, backend), [item.name for item in compiled.outputs]
    from hexforge.runtime.plan import Plan
    from hexforge.runtime.prepare import prepare_model

    parts = prepare_model(source, backend)
    return Plan(parts, backend), parts.placed.outputs
