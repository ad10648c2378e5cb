"""What commands that look at a model start with: read it, place it, without preparing what goes to the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexforge.cli.screen import waiting
from hexforge.errors import UnsupportedError

if TYPE_CHECKING:
    from hexforge.model.reader import Model
    from hexforge.runtime.plan import Plan


def loaded(
    path: Path,
    provider_options: Mapping[str, str],
    *,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    strict: bool = False,
    prepare: bool = False,
    obey_ep: bool = False,
) -> tuple[Model, Plan]:
    """The model and its plan, able to run where `prepare` is set.

    With `obey_ep` the limits of the QNN EP hold. With `strict` nodes are placed as in a session without CPU fallback,
    and refusals are rows of the plan all the same.
    """
    from hexforge.options import ProviderOptions
    from hexforge.runtime.cpu_part import CpuPart
    from hexforge.runtime.plan import Plan
    from hexforge.runtime.registry import backend

    options = ProviderOptions.parse(provider_options)
    chosen = backend(options)
    cpu_part = CpuPart if prepare else _unprepared
    offload = options.offload_graph_io_quantization and not strict
    with waiting(f"reading {path.name}"):
        model = _read(path, dims, shapes)
    with waiting(f"placing {model.node_count} nodes"):
        if strict:
            try:
                return model, Plan(model, chosen, strict=True, obey_ep=obey_ep, make_cpu_part=cpu_part)
            except UnsupportedError:
                model = _read(path, dims, shapes)  # placing edits a model
        return model, Plan(model, chosen, offload_io=offload, obey_ep=obey_ep, make_cpu_part=cpu_part)


def _read(path: Path, dims: Mapping[str, int] | None, shapes: Mapping[str, Sequence[int]] | None) -> Model:
    from hexforge.model.reader import read

    model = read(path, dims=dims, shapes=shapes)
    model.require_static()
    return model


def _unprepared(proto: Any, names: Sequence[str]) -> Any:
    """In place of an onnxruntime session for nodes on the CPU, which looking at a model does not need."""
    return None
