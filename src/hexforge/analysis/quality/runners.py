# SPDX-License-Identifier: Apache-2.0
"""Runners: a model as a function from inputs to outputs by name, on a backend or in onnxruntime itself."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from hexforge.backend import Backend, ContextBackend
from hexforge.chips.soc import DEFAULT_SOC
from hexforge.errors import CallError
from hexforge.ir import Array
from hexforge.model.reader import Model
from hexforge.model.save import to_bytes
from hexforge.options import did_you_mean
from hexforge.runtime import registry
from hexforge.runtime.cpu_part import WholeOnCpu
from hexforge.runtime.nonfinite import first_nonfinite, has_nonfinite
from hexforge.runtime.opening import open_stages
from hexforge.runtime.plan import Plan
from hexforge.runtime.prepare import PreparedParts
from hexforge.runtime.stages import Stages

ORT = "ort"
"""onnxruntime's own CPU provider."""
BACKENDS = (*registry.backends(), ORT)
Feeds = Mapping[str, Array]


@runtime_checkable
class ModelEngine(Protocol):
    """What runs whole models and is no backend of hexforge; its text is its name. It travels to other processes."""

    def open_engine(self, model: Path | bytes, name: str) -> Callable[[Feeds], dict[str, Array]]:
        """What runs a model; `name` is for messages."""


def runner(
    model: str | Path | bytes | Model,
    backend: Backend | ModelEngine | str = registry.DEFAULT,
    *,
    threads: int = 0,
    name: str = "model",
) -> Callable[[Feeds], dict[str, Array]]:
    """What runs the model; `threads` 0 is as many as there are cores, `name` is for messages about bytes."""
    if isinstance(backend, str) and backend not in BACKENDS:
        raise CallError(f"backend {backend!r}: there are {', '.join(BACKENDS)}{did_you_mean(backend, BACKENDS)}")
    if isinstance(backend, ModelEngine):
        model = to_bytes(model.ir) if isinstance(model, Model) else model
        source = model if isinstance(model, bytes) else Path(model)
        return backend.open_engine(source, source.name if isinstance(source, Path) else name)
    if backend == ORT:
        model = to_bytes(model.ir) if isinstance(model, Model) else model
        return WholeOnCpu(model, name if isinstance(model, bytes) else Path(model).name, threads).run
    chosen = registry.backend(backend, threads=threads) if isinstance(backend, str) else backend
    plan, outputs = open_stages(model, chosen)
    return _checked(plan, outputs, chosen, name)


def runner_of_parts(parts: PreparedParts, backend: Backend, name: str = "model") -> Callable[[Feeds], dict[str, Array]]:
    """What runs a model that is placed on the backend already."""
    return _checked(Plan(parts, backend), parts.placed.outputs, backend, name)


def _checked(plan: Stages, outputs: Sequence[str], chosen: Backend, name: str) -> Callable[[Feeds], dict[str, Array]]:
    """The function that runs it, and warns once where a number is not finite or too large for a half."""
    warned = False

    def run(feeds: Feeds) -> dict[str, Array]:
        nonlocal warned
        results = plan.run(feeds, outputs)
        if not warned and (plan.overflowed or has_nonfinite(results.values())):
            warned = True
            first = first_nonfinite(plan, chosen, feeds)
            what = "an output is not finite" if has_nonfinite(results.values()) else "numbers are past 65504"
            warnings.warn(f"{name}: {what}; first {first or 'where is not known'}", stacklevel=2)
        return results

    return run


def backend_for(name: str | ModelEngine, soc: str = "", threads: int = 0) -> Backend | ModelEngine | str:
    """A backend by name, on a chip: the default one unless named; onnxruntime's provider by its name, engines as is."""
    if not isinstance(name, str):
        return name
    if name == ORT or name not in registry.backends():
        return name
    if not soc and isinstance(registry.backend(name), ContextBackend):
        soc = DEFAULT_SOC
    return registry.backend(name, {"soc_model": soc} if soc else {}, threads)
