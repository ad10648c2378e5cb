# SPDX-License-Identifier: Apache-2.0
"""The gpu backend: float graphs by OpenCL kernels, on a GPU or on whatever else has OpenCL."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar

from hexforge.addons.gpu.config import GpuConfig
from hexforge.addons.gpu.device import ClDevice, choose
from hexforge.addons.gpu.program import GpuProgram
from hexforge.addons.gpu.support import unsupported
from hexforge.backend import Backend, Get, Read, saved_graph
from hexforge.errors import FormatError
from hexforge.ir import Graph, Node, Value
from hexforge.ir.verify import verify
from hexforge.options import OptionTable


class GpuBackend(Backend):
    """Places, compiles and runs graphs on an OpenCL device."""

    name = "gpu"
    Config: ClassVar[type[OptionTable]] = GpuConfig
    config: GpuConfig

    @cached_property
    def device(self) -> ClDevice:
        """The device that programs run on."""
        return choose(self.config.gpu_device)

    def unsupported(self, node: Node) -> str | None:
        """Why the gpu backend refuses the node, or None; asking needs no device."""
        return unsupported(node, self.config.gpu_ops == "any")

    def compile(self, graph: Graph) -> GpuProgram:
        """A program of the graph's kernels."""
        graph.sort()
        verify(graph)
        return GpuProgram(graph, self.device, self.config)

    def load(self, name: str, inputs: Sequence[Value], outputs: Sequence[Value], read: Read, get: Get) -> GpuProgram:
        """A program from a context file; its kernels are compiled again where they were made for another device."""
        data = read()
        graph = saved_graph(name, inputs, outputs, data, get)
        graph.sort()
        verify(graph)
        if refused := next((r for n in graph.nodes if (r := unsupported(n, beyond_qnn=True))), None):
            raise FormatError(f"program {name!r}: {refused}")
        return GpuProgram(graph, self.device, self.config, self._kernels(name, data))

    def _kernels(self, name: str, data: dict[str, object]) -> dict[str, bytes]:
        """The compiled kernels of a file that was made on this device with this driver."""
        stored = data.get("kernels")
        if (data.get("device"), data.get("driver")) != (self.device.name, self.device.driver):
            return {}
        if not isinstance(stored, dict):
            raise FormatError(f"program {name!r}: its kernels are malformed")
        try:
            return {str(k): base64.b64decode(str(v), validate=True) for k, v in stored.items()}
        except (binascii.Error, ValueError):
            raise FormatError(f"program {name!r}: its kernels are malformed") from None
