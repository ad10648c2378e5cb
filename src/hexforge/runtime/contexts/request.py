# SPDX-License-Identifier: Apache-2.0
"""Request: what a compilation is to make, checked before anything is compiled."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hexforge.backend import Backend, ContextBackend, GraphSettings
from hexforge.chips.power import Power
from hexforge.errors import CallError
from hexforge.formats.context import MOST_GRAPHS
from hexforge.formats.file_kinds import kind_of


@dataclass(frozen=True, slots=True)
class ContextRequest:
    """What a context is to hold, and how."""

    weight_sharing: bool = False
    """Store weights that several models have in common once; every chip must be able to share them, and every graph
    have as much VTCM."""
    quantized_io: bool = False
    """Inputs and outputs of the graphs are integers, as the model's Q and DQ nodes say."""
    allow_partial: bool = False
    """Leave nodes that the backend refuses to the CPU."""
    updatable: tuple[str, ...] = ()
    """Patterns of the names of constants that adapters may change."""
    exposed: Sequence[str] | Mapping[str, Sequence[str]] = ()
    """Patterns of the names of tensors inside that become outputs, too; of all models, or by the graph's name."""
    graph_names: tuple[str, ...] | None = None
    """What the graphs are called, one for each model; after the files where it is None."""
    native: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Key and value caches, by the graph's name, that lie as HTP's matrix unit reads them (HMX_WEIGHT_LAYOUT)."""
    power: Power | None = None
    """How the chips are driven in what the context says of times; None: as the deployment has it, or burst."""
    settings: Mapping[str, int] | Sequence[Mapping[str, int]] = field(default_factory=dict)
    """Settings of every graph, or of those of each model, by the names that the backend has for them; of VTCM 0 is
    all there is."""

    def exposed_of(self, graph: str) -> Sequence[str]:
        """The patterns of one model's graph."""
        return self.exposed.get(graph, ()) if isinstance(self.exposed, Mapping) else self.exposed

    def names(self, sources: Sequence[Any]) -> list[str]:
        """What the graph of each model is called."""
        return names_of(sources, self.graph_names)


def check_sources(sources: Sequence[Any], output: str | os.PathLike[str] | None) -> None:
    """CallError for what cannot be compiled, or written."""
    if not sources:
        raise CallError("give a model to compile")
    if output is not None and not Path(output).absolute().parent.is_dir():
        raise CallError(f"{output}: cannot be written: there is no folder {Path(output).absolute().parent}")
    for source in sources:
        if isinstance(source, str | os.PathLike) and (kind := kind_of(source)).is_compiled:
            raise CallError(f"{source}: is {kind.name}, compiled already; `hexforge info` says for what")


def check_sharing(requested: bool, settings: Sequence[GraphSettings], backend: Backend) -> None:
    """CallError for more models than a context holds, or graphs that are to share weights and cannot."""
    models = len(settings)
    limit = backend.most_graphs if isinstance(backend, ContextBackend) else MOST_GRAPHS
    if models > limit:
        raise CallError(
            f"{models} models: a context holds {limit} graphs"
            f"{' with DLBC' if limit < MOST_GRAPHS else ''}; make several contexts"
        )
    obstacle = backend.no_weight_sharing(settings) if isinstance(backend, ContextBackend) else None
    if requested and obstacle is not None:
        raise CallError(f"weight_sharing: {obstacle}; leave it out")


def names_of(sources: Sequence[Any], graph_names: Sequence[str] | None) -> list[str]:
    """What the graph of each model is called."""
    if graph_names is not None:
        if len(graph_names) != len(sources):
            raise CallError(f"{len(graph_names)} graph names for {len(sources)} models; give one for each")
        names = list(graph_names)
    else:
        stems = [Path(s).stem if isinstance(s, (str, os.PathLike)) else f"model_{i}" for i, s in enumerate(sources)]
        names = [re.sub(r"[^\w.-]", "_", stem) for stem in stems]
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise CallError(f"two models have the graph name {', '.join(twice)}; give graph names, one for each model")
    if any(not n for n in names):
        raise CallError("a graph name is empty")
    return names


def item_of(items: Any, index: int, of: int, option: str) -> Any:
    """What one model gets of an option that is given once for all models or as a list with an item for each."""
    if items is None or isinstance(items, Mapping):
        return items
    if len(items) != of:
        raise CallError(f"{option} has {len(items)} items for {of} models; give one for each, or one for all")
    return items[index]
