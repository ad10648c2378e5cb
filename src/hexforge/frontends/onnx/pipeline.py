"""Place: try every unit on a backend, and build the graphs of those it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import onnx_ir

from hexforge.errors import HexforgeError
from hexforge.frontends.onnx.fusions.table import FUSED, fused, unfused
from hexforge.frontends.onnx.translate import ops as _ops  # noqa: F401 - fills the registry
from hexforge.frontends.onnx.translate.builder import TRANSLATORS, Builder, Translator
from hexforge.frontends.onnx.units.node_units import node_units
from hexforge.frontends.onnx.units.unit import Refusal, Unit
from hexforge.ir import Encoding, Graph, Node
from hexforge.ir.verify import verify


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Where a unit goes: on the backend, or not, with the reason."""

    unit: Unit
    reason: str | None
    ops: tuple[str, ...]
    """QNN op names the unit becomes, empty where it was refused before any was written."""
    ep_refuses: str = ""
    """Why the QNN EP does not take the unit though the backend could, or nothing."""

    @property
    def taken(self) -> bool:
        """True where the backend takes the unit."""
        return self.reason is None


def translator(unit: Unit) -> Translator:
    """The function that writes a unit; Refusal if there is none, or the unit says it stays with the CPU."""
    if "refuse" in unit.extra:
        raise Refusal(str(unit.extra["refuse"]))
    found = FUSED.get(unit.kind) if unit.kind not in ("node", "qdq") else TRANSLATORS.get(unit.op)
    if found is None:
        raise Refusal(f"QNN EP has no op builder for {unit.op}; rewrite it with ops that have one (hexforge ops)")
    return found


def units(
    model: onnx_ir.Model | onnx_ir.Graph, *, fuse: bool = True, offload_io_quantization: bool = False
) -> list[Unit]:
    """The units of a graph in topological order; the graph is edited where units need it (`node_units`)."""
    graph = model.graph if isinstance(model, onnx_ir.Model) else model
    found = node_units(graph, offload_io_quantization=offload_io_quantization)
    return fused(found) if fuse else found


@dataclass(frozen=True, slots=True)
class EpLimits:
    """How placing heeds the limits of the QNN EP."""

    refuses: Callable[[Unit], str | None]
    obeyed: bool = False
    """True where a unit that the EP refuses is not taken."""


def place(
    units: Sequence[Unit], unsupported: Callable[[Node], str | None], limits: EpLimits | None = None
) -> list[Placement]:
    """Try each unit by itself, a fusion that is refused as the units it was made of.

    A unit that uses a tensor with another encoding than the taken units before it is refused. Without `limits`
    nothing is said of the EP.
    """
    encodings: dict[str, Encoding | None] = {}
    placements: list[Placement] = []
    for unit in units:
        whole = _place(unit, unsupported, encodings, limits)
        parts = unfused(unit)
        if whole.taken or parts == [unit]:
            placements.append(whole)
        else:
            placements += [_place(part, unsupported, encodings, limits) for part in parts]
    return placements


def _place(
    unit: Unit,
    unsupported: Callable[[Node], str | None],
    encodings: dict[str, Encoding | None],
    limits: EpLimits | None,
) -> Placement:
    graph = Graph(unit.target.name or "unit")
    builder = Builder(graph)
    border = {
        o.value.name or "": o.encoding
        for o in (*unit.inputs, *unit.outputs)
        if o is not None and o.value.const_value is None
    }
    try:
        written = translator(unit)
        for name, encoding in border.items():
            if encodings.get(name, encoding) != encoding:
                raise Refusal(f"tensor {name!r} is used with two different encodings; quantize it once")
        builder.translate(unit, written)
        builder.close(o.value.name or "" for o in unit.outputs if o is not None)
        verify(graph)
    except (Refusal, HexforgeError) as error:
        return Placement(unit, str(error), ())
    names = tuple(node.op.name for node in graph)
    reasons = [f"{node.op.name}: {reason}" for node in graph if (reason := unsupported(node)) is not None]
    said = (limits.refuses(unit) if limits is not None and not reasons else None) or ""
    if said and limits is not None and limits.obeyed:
        reasons.append(said)
    if not reasons:
        encodings.update(border)
    return Placement(unit, "; ".join(dict.fromkeys(reasons)) or None, names, said)


def build(units: Iterable[Unit], name: str, outputs: Iterable[str]) -> Graph:
    """One graph of units that were placed together; `outputs` name the tensors read from outside."""
    builder = Builder(Graph(name))
    for unit in units:
        builder.translate(unit, translator(unit))
    return builder.close(outputs)
