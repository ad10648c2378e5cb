"""Chips: several chips as one backend, which takes what all of them take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hexforge.backend import Backend, Get, Loads, Program, Read
from hexforge.errors import UnsupportedError
from hexforge.ir import Graph, Node, Value
from hexforge.options import ProviderOptions
from hexforge.runtime import registry


class Chips:
    """A backend for each chip that the options list. Programs are the same on all: a chip decides what it takes and
    how long that takes there, and no number."""

    def __init__(self, options: ProviderOptions, threads: int = 0) -> None:
        self.name = options.backend
        chips = [options]
        if self.name == "htp":
            count = len(options.soc_model)
            archs = options.htp_arch if len(options.htp_arch) == count else options.htp_arch[:1] * count
            pairs = zip(options.soc_model, archs, strict=True)
            chips = [replace(options, soc_model=(soc,), htp_arch=(arch,)) for soc, arch in pairs]
        self._names = [chip.soc_model[0] for chip in chips]
        self._backends: list[Backend] = [registry.backend(chip, threads) for chip in chips]
        self.graph_config = getattr(self._backends[0], "graph_config", None)

    def unsupported(self, node: Node) -> str | None:
        """Why one of the chips refuses the node, or None."""
        for backend, chip in zip(self._backends, self._names, strict=True):
            if (reason := backend.unsupported(node)) is not None:
                return reason if len(self._names) == 1 else f"on {chip}: {reason}"
        return None

    def compile(self, graph: Graph) -> Program:
        """A program that computes the graph, on any of them."""
        return self._backends[0].compile(graph)

    def load(self, name: str, inputs: Sequence[Value], outputs: Sequence[Value], read: Read, get: Get) -> Program:
        """A program from a context file."""
        first = self._backends[0]
        if not isinstance(first, Loads):
            raise UnsupportedError(f"the {self.name} backend loads no contexts")
        return first.load(name, inputs, outputs, read, get)
