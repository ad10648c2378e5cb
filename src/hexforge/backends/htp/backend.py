"""The htp backend: what the NPU computes, by native kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hexforge import _native
from hexforge.backend import Get, Read, processors
from hexforge.backends.htp.chip.soc import target
from hexforge.backends.htp.config import GraphConfig
from hexforge.backends.htp.numbers.bfloat16 import BFloat16Program, to_bfloat16
from hexforge.backends.htp.numbers.program import HtpProgram
from hexforge.backends.htp.pipeline import compile_graph
from hexforge.backends.htp.support import require_fit, unsupported
from hexforge.errors import CallError
from hexforge.ir import Graph, Node, Value
from hexforge.ir.verify import verify
from hexforge.options import ProviderOptions


class HtpBackend:
    """Places, compiles and runs graphs as the Hexagon Tensor Processor does."""

    name = "htp"
    ep_limited = True

    def __init__(
        self, options: ProviderOptions | None = None, threads: int = 0, graph: GraphConfig | None = None
    ) -> None:
        self.options = options if options is not None else ProviderOptions()
        mode = self.options.htp_graph_finalization_optimization_mode
        self.graph_config = graph if graph is not None else GraphConfig(optimization=mode)
        self.threads = self.graph_config.num_hvx_threads or max(threads, 0) or processors()
        # of several SoCs (a context for each of them) the first is the one that runs
        found = target(self.options.soc_model[0], self.options.htp_arch[0])
        self.target = replace(found, bfloat16_math=self.options.htp_bf16_enable)
        if self.options.htp_bf16_enable and not self.target.bfloat16:
            raise CallError(f"htp_bf16_enable=1 needs soc_model 88 or newer, this is {self.target.name}")

    def unsupported(self, node: Node) -> str | None:
        """Why HTP refuses the node on this chip, or None."""
        return unsupported(node, self.target)

    def compile(self, graph: Graph) -> HtpProgram | BFloat16Program:
        """Lower the graph to native steps; htp_graph_finalization_optimization_mode chooses how far to fuse."""
        graph.sort()
        cast = to_bfloat16(graph) if self.options.htp_bf16_enable else frozenset()
        verify(graph)
        require_fit(graph)
        program = HtpProgram.of(graph, compile_graph(graph, self.graph_config), self.threads)
        _native.release_free_memory()  # packing weights takes several times their size for a moment
        return BFloat16Program(program, cast) if self.options.htp_bf16_enable else program

    def load(
        self, name: str, inputs: Sequence[Value], outputs: Sequence[Value], read: Read, get: Get
    ) -> HtpProgram | BFloat16Program:
        """A program from a context file, over the file's own bytes."""
        data = read()
        kind = BFloat16Program if isinstance(data, dict) and "bfloat16" in data else HtpProgram
        found = kind.load(name, inputs, outputs, data, read, get, self.threads)
        del data  # its memory goes back to the system, too
        _native.release_free_memory()
        return found
