# SPDX-License-Identifier: Apache-2.0
"""Context: what a compiled model's file says of itself. The bytes are a container's (formats/container.py).

info      ""               JSON: producer, backend, its targets and options, and the table of graphs
program   <number>         JSON: what the backend saved of a graph; graphs that are the same share one
schematic <target>/<graph> JSON: the ops as the target runs them, for profiles and reports
adapter   <name>           an updatable section: what LoRA adapters change
weights   ""               arrays, each stored once, that programs refer to by offset and size
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hexforge.backend import GraphSettings, Target
from hexforge.errors import FormatError
from hexforge.formats.container import as_text
from hexforge.ir import Role, TensorType, Value, text
from hexforge.results import Key, Result

MOST_GRAPHS = 64


@dataclass(frozen=True, slots=True)
class GraphInfo(Result):
    """One graph of a context."""

    name: str
    inputs: tuple[tuple[str, TensorType], ...]
    outputs: tuple[tuple[str, TensorType], ...]
    program: str
    """Name of the section with its program."""
    arena_bytes: int = 0
    spill_fill_bytes: int = 0
    settings: GraphSettings = field(default_factory=dict)
    """How it was prepared, by the backend's own names."""
    updatable: tuple[str, ...] = ()
    """Tensors that adapters may change."""
    updatable_bytes: int = 0
    """What these take on the chip."""

    described = (
        "name",
        Key("inputs", of=lambda graph: [[name, text.dump_type(type)] for name, type in graph.inputs]),
        Key("outputs", of=lambda graph: [[name, text.dump_type(type)] for name, type in graph.outputs]),
        "program arena_bytes spill_fill_bytes settings updatable",
        Key("updatable_bytes", of=lambda graph: graph.updatable_bytes if graph.updatable else None, omit_empty=True),
    )

    def values(self) -> tuple[list[Value], list[Value]]:
        """Inputs and outputs as values of a graph."""
        return (
            [Value(name, type, Role.APP_WRITE) for name, type in self.inputs],
            [Value(name, type, Role.APP_READ) for name, type in self.outputs],
        )


@dataclass(frozen=True, slots=True)
class Info(Result):
    """What a context file says of itself."""

    producer: str
    backend: str
    targets: tuple[Target, ...]
    options: Mapping[str, str]
    graphs: tuple[GraphInfo, ...]
    weight_sharing: bool = False
    metadata: Mapping[str, str] = field(default_factory=dict)

    described = ("producer backend targets options weight_sharing metadata graphs",)

    @classmethod
    def from_json(cls, data: Any, where: str) -> Info:
        """What `to_json` gave; FormatError where the data are something else."""
        try:
            graphs = tuple(
                GraphInfo(
                    as_text(g["name"]),
                    _tensors(g["inputs"]),
                    _tensors(g["outputs"]),
                    as_text(g["program"]),
                    arena_bytes=_size(g["arena_bytes"]),
                    spill_fill_bytes=_size(g["spill_fill_bytes"]),
                    settings=_sizes(g["settings"]),
                    updatable=tuple(as_text(name) for name in g["updatable"]),
                    updatable_bytes=_size(g.get("updatable_bytes", 0)),
                )
                for g in data["graphs"]
            )
            info = cls(
                as_text(data["producer"]),
                as_text(data["backend"]),
                tuple(_target(item) for item in data["targets"]),
                _strings(data["options"]),
                graphs,
                data["weight_sharing"] is True,
                _strings(data["metadata"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FormatError(f"{where}: the table of graphs is malformed: {error!r}") from None
        names = [g.name for g in info.graphs]
        if len(set(names)) != len(names) or not 0 < len(names) <= MOST_GRAPHS:
            raise FormatError(f"{where}: has {len(names)} graphs; 1 to {MOST_GRAPHS}, each with its own name, can be")
        return info


def _tensors(rows: Any) -> tuple[tuple[str, TensorType], ...]:
    return tuple((as_text(name), text.load_type(as_text(type))) for name, type in rows)


def _strings(values: Mapping[str, Any]) -> dict[str, str]:
    return {as_text(k): as_text(v) for k, v in values.items()}


def _sizes(values: Mapping[str, Any]) -> dict[str, int]:
    return {as_text(k): _size(v) for k, v in values.items()}


def _target(item: Mapping[str, Any]) -> Target:
    facts = {key: value for key, value in item.items() if key not in ("soc", "label")}
    return Target(as_text(item["soc"]), as_text(item["label"]), _sizes(facts))


def _size(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise ValueError(f"{value!r} is not a size")
    return value
