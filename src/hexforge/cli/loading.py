# SPDX-License-Identifier: Apache-2.0
"""What commands that look at a model start with: read it, place it, without preparing what goes to the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexforge.cli.screen import waiting

if TYPE_CHECKING:
    from hexforge.model.reader import Model
    from hexforge.runtime.plan import Plan
    from hexforge.runtime.prepare import PartitionedModel


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModel:
    """A model, its parts, and the plan that runs them."""

    model: Model
    parts: PartitionedModel
    plan: Plan


def loaded(
    path: Path,
    provider_options: Mapping[str, str],
    *,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Mapping[str, Any] | None = None,
    strict: bool = False,
    prepare: bool = False,
    obey_ep: bool = False,
) -> LoadedModel:
    """The model placed and compiled, able to run where `prepare` is set.

    With `obey_ep` the limits of the QNN EP hold. With `strict` nodes are placed as in a session without CPU fallback,
    and refusals are rows of the plan all the same.
    """
    from hexforge.model.reader import read
    from hexforge.ort.options.backend import backend_of
    from hexforge.ort.options.provider_options import ProviderOptions
    from hexforge.runtime.cpu_part import CpuPart
    from hexforge.runtime.model_request import ModelRequest
    from hexforge.runtime.plan import Plan
    from hexforge.runtime.prepare import prepare_model

    options = ProviderOptions.parse(provider_options)
    backend = backend_of(options)
    with waiting(f"reading {path.name}"):
        model = read(path, dims=dims, shapes=shapes, constants=constants)
    with waiting(f"placing {model.node_count} nodes"):
        offload = options.offload_graph_io_quantization and not strict
        request = ModelRequest(offload_io_quantization=offload, obey_ep=obey_ep, affinity=options.affinity())
        parts = prepare_model(model, backend, request)
        return LoadedModel(model, parts, Plan(parts, backend, CpuPart if prepare else _unprepared))


def _unprepared(proto: Any, names: Sequence[str]) -> Any:
    """In place of an onnxruntime session for nodes on the CPU, which looking at a model does not need."""
    return None
