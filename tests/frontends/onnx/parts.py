# SPDX-License-Identifier: Apache-2.0
"""The steps of the pipeline one by one: a model's units, and units as one graph."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir

from hexforge.frontends.onnx.fusions.table import fuse_units
from hexforge.frontends.onnx.node_units import node_units
from hexforge.frontends.onnx.placing import join_graphs, place
from hexforge.frontends.onnx.unit import Refusal, Unit
from hexforge.ir import Graph


def units(
    model: onnx_ir.Model | onnx_ir.Graph, *, fuse: bool = True, offload_io_quantization: bool = False
) -> list[Unit]:
    """The units of a graph, fused unless told otherwise."""
    graph = model.graph if isinstance(model, onnx_ir.Model) else model
    found = node_units(graph, offload_io_quantization=offload_io_quantization)
    return fuse_units(found) if fuse else found


def build(chosen: Iterable[Unit], name: str, outputs: Iterable[str]) -> Graph:
    """Units as one graph, on a backend that takes everything; Refusal where one has no QNN ops."""
    placements = place(list(chosen), lambda node: None)
    for placement in placements:
        if placement.reason is not None:
            raise Refusal(placement.reason)
    return join_graphs(name, [p.graph for p in placements if p.graph is not None], outputs)
