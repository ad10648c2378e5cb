# SPDX-License-Identifier: Apache-2.0
"""QnnManager: what ExecuTorch's partitioner and preprocessing talk to, in the stock class's own words."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from hexforge.addons.executorch import blob
from hexforge.addons.executorch.compilation import compile_graphs
from hexforge.addons.executorch.compile_spec import CompileRequest
from hexforge.addons.executorch.qnn_types import (
    Error,
    Qnn_DataType_t,
    Qnn_QuantizationEncoding_t,
    Qnn_TensorType_t,
    QnnNumber,
)
from hexforge.addons.executorch.stock_modules import restore_builtins
from hexforge.addons.executorch.wrappers import PyQnnOpWrapper, PyQnnTensorWrapper, TensorWrapper
from hexforge.addons.qnn_graphs.compiling import record_graphs, refusal
from hexforge.errors import HexforgeError
from hexforge.formats.files import file_stem
from hexforge.ir import AxisScaleOffset, ScaleOffset, TensorType
from hexforge.runtime.contexts.context import Context

logger = logging.getLogger("hexforge.addons.executorch")

OPTRACE = 3
"""The profile level under which the SDK leaves schematics for its viewer."""


class QnnManager:
    """A backend of hexforge behind the methods of the stock class."""

    def __init__(self, options: bytes, context_binary: bytes = b"") -> None:
        self._options, self._binary = bytes(options), bytes(context_binary)
        self._request: CompileRequest | None = None
        self._context: Context | None = None
        self._graph_names: list[str] = []
        self._refused: dict[str, str] = {}

    # -- life -------------------------------------------------------------------------------------------------------

    def InitBackend(self) -> Error:  # noqa: N802 - the stock name
        """Make the backend that the compile spec names."""
        restore_builtins()
        try:
            self._request = CompileRequest.read(self._options)
        except HexforgeError as error:
            logger.error("%s", error)
            return Error.NotSupported
        return Error.Ok

    def InitContext(self, graph_names: Sequence[str] | None = None) -> Error:  # noqa: N802 - the stock name
        """Say what the graphs are called; with a context binary, open it."""
        self._graph_names = list(graph_names or [])
        return self.InitContextCache() if self._binary else Error.Ok

    def InitContextCache(self) -> Error:  # noqa: N802 - the stock name
        """Open the context binary."""
        try:
            self._context = blob.open_blob(self._binary, "the context binary")
        except HexforgeError as error:
            logger.error("%s", error)
            return Error.InvalidProgram
        self._graph_names = [g.name for g in self._context.graphs]
        return Error.Ok

    def Init(self) -> Error:  # noqa: N802 - the stock name
        """Make the backend, and open the context binary where there is one."""
        made = self.InitBackend()
        return made if made is not Error.Ok else self.InitContext(self._graph_names)

    def DestroyContext(self) -> None:  # noqa: N802 - the stock name
        """Forget the graphs."""
        self._context, self._graph_names = None, []

    def Destroy(self) -> None:  # noqa: N802 - the stock name
        """Forget everything but the options."""
        self.DestroyContext()
        self._request = None

    def IsAvailable(self) -> bool:  # noqa: N802 - the stock name
        """True: the backend is part of hexforge."""
        return True

    # -- graphs -----------------------------------------------------------------------------------------------------

    def IsNodeSupportedByBackend(self, ops: Sequence[PyQnnOpWrapper]) -> bool:  # noqa: N802 - the stock name
        """Whether the backend takes the ops of a node; why not is logged."""
        reason = refusal([op.declaration for op in ops], self.request.backend)
        if reason is not None:
            logger.warning("[hexforge] %s", reason)
            self._refused[ops[0].declaration.name] = " ".join(reason.split())
        return reason is None

    def Compile(self, graph_names: Sequence[str], ops: Sequence[Sequence[PyQnnOpWrapper]]) -> bytes:  # noqa: N802
        """The blob of one or several graphs."""
        request = self.request
        graphs = {n: [op.declaration for op in own] for n, own in zip(graph_names, ops, strict=True)}
        if request.saver_folder:
            record_graphs(graphs, request.backend, Path(request.saver_folder))
            return b""
        context = compile_graphs(graphs, request.backend, request.weight_sharing, self._refused, request.tensor_dump)
        if request.profile_level >= OPTRACE:
            self._write_schematics(context)
        if request.online_prepare:
            logger.warning("[hexforge] online_prepare: the graph is compiled now, and runs as it is")
            return context  # without a header, as a graph that is yet to be prepared
        return blob.wrap_context(context)

    def _write_schematics(self, data: bytes) -> None:
        """Write <graph>_schematic.bin where the process is, as the SDK does under optrace profiling."""
        from hexforge.addons.profiler.recording.schematic import write_schematic

        context, backend = Context(data, "the context binary"), self.request.backend
        for row in context.graphs:
            path = write_schematic(context.program(row.name, backend), backend, file_stem(row.name), Path.cwd())
            logger.info("[hexforge] optrace: %s", path)

    @property
    def request(self) -> CompileRequest:
        """What the compile spec asks for."""
        if self._request is None:
            self._request = CompileRequest.read(self._options)
        return self._request

    def IsTensorDump(self) -> bool:  # noqa: N802 - the stock name
        """Whether every tensor of a graph is an output."""
        return self.request.tensor_dump

    # -- what a context says of itself --------------------------------------------------------------------------------

    def GetGraphNames(self) -> list[str]:  # noqa: N802 - the stock name
        """The graphs of the context."""
        return list(self._graph_names)

    def AllocateTensor(self, graph_name: str) -> Error:  # noqa: N802 - the stock name
        """The tensors of a graph need no memory here; only that it exists is looked at."""
        try:
            self._opened().graph(graph_name)
        except HexforgeError as error:
            logger.error("%s", error)
            return Error.InvalidArgument
        return Error.Ok

    def GetGraphInputs(self, graph_name: str) -> list[PyQnnTensorWrapper]:  # noqa: N802 - the stock name
        """The inputs of a graph."""
        kind = Qnn_TensorType_t.QNN_TENSOR_TYPE_APP_WRITE
        return [_tensor(name, type, kind) for name, type in self._opened().graph(graph_name).inputs]

    def GetGraphOutputs(self, graph_name: str) -> list[PyQnnTensorWrapper]:  # noqa: N802 - the stock name
        """The outputs of a graph."""
        kind = Qnn_TensorType_t.QNN_TENSOR_TYPE_APP_READ
        return [_tensor(name, type, kind) for name, type in self._opened().graph(graph_name).outputs]

    def GetSpillFillBufferSize(self) -> int:  # noqa: N802 - the stock name
        """The largest buffer in DRAM that a graph of the context needs for what VTCM has no room for."""
        return max((g.spill_fill_bytes for g in self._opened().graphs), default=0)

    def MakeBinaryInfo(self, context_binary: bytes) -> bytes:  # noqa: N802 - the stock name
        """A context file as a blob."""
        return blob.wrap_context(bytes(context_binary))

    def StripProtocol(self, data: bytes) -> bytes:  # noqa: N802 - the stock name
        """The context file of a blob; nothing where it has no header."""
        return strip_protocol(data)

    def _opened(self) -> Context:
        if self._context is None:
            self._context = blob.open_blob(self._binary, "the context binary")
        return self._context


def _tensor(name: str, type: TensorType, kind: QnnNumber) -> PyQnnTensorWrapper:
    encodings, info = Qnn_QuantizationEncoding_t, {}
    encoding = encodings.QNN_QUANTIZATION_ENCODING_UNDEFINED
    if isinstance(type.encoding, ScaleOffset):
        encoding = encodings[type.encoding.qnn_name]
        info = {"scale": type.encoding.scale, "offset": type.encoding.offset, "bitwidth": type.encoding.bitwidth}
    elif isinstance(type.encoding, AxisScaleOffset):
        raise NotImplementedError(f"tensor {name!r}: inputs and outputs of a context have one scale")
    data_type, rank = Qnn_DataType_t[type.qnn_dtype], len(type.shape)
    return PyQnnTensorWrapper(
        TensorWrapper(name, kind, data_type, encoding, info, rank, type.shape, [], [], copy_data=False)
    )


def strip_protocol(data: bytes) -> bytes:
    """The context file of a blob; nothing where it has no header."""
    return bytes(blob.unwrap_context(data)) if blob.has_header(data) else b""
