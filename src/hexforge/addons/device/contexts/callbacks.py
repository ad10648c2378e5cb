# SPDX-License-Identifier: Apache-2.0
"""Callbacks: weights in a client's DMA buffers (QnnContext_createFromBinaryWithCallback), without a copy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from hexforge.addons.device.codes import Code, DeviceError
from hexforge.addons.device.contexts.binary import Binary
from hexforge.addons.device.contexts.configs import CreationConfig
from hexforge.addons.device.memory import PAGE
from hexforge.formats.container import Container, ContainerSection, checksum_of_pieces
from hexforge.runtime.contexts.context import Context

DMA_BUFFER, RAW_BUFFER = "QNN_CONTEXT_CALLBACK_DMA_BUFFER", "QNN_CONTEXT_CALLBACK_RAW_BUFFER"


@dataclass(frozen=True, slots=True)
class DataRequest:
    """Qnn_ContextBinaryDataRequest_t: which bytes of the file are wanted."""

    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class DmaDataResponse:
    """Qnn_ContextBinaryDmaDataResponse_t: dmaBuffer.data and fd, dataStartOffset and alignedSize."""

    data: Any
    """A buffer whose first byte is at a multiple of 4 KB."""
    fd: int
    data_start_offset: int
    aligned_size: int


@dataclass(frozen=True, slots=True)
class DmaBufferCallback:
    """Qnn_ContextBinaryCallback_t: what provides buffers, and is told when they are no longer used."""

    provide: Callable[[DataRequest], DmaDataResponse]
    release: Callable[[DmaDataResponse], None]
    type: str = DMA_BUFFER


def check_callback(callback: DmaBufferCallback, binary: Binary, config: CreationConfig, platform: str) -> None:
    """Raise a DeviceError for settings that cannot be combined with a callback."""
    refused = (
        (callback.type == RAW_BUFFER, "the raw buffer callback is reserved; use the DMA buffer's"),
        (platform != "android", f"callbacks are on Android, this is {platform}"),
        (config.switching, "callbacks do not go with graph switching"),
        (binary.udma64, "callbacks do not go with udma64; turn it off when the graph is prepared"),
        (config.defer_graph_init, "callbacks do not go with QNN_CONTEXT_CONFIG_OPTION_DEFER_GRAPH_INIT"),
        (binary.secure, "callbacks do not go with a model that the secure process domain protects"),
    )
    for applies, message in refused:
        if applies:
            raise DeviceError(Code.QNN_CONTEXT_ERROR_UNSUPPORTED_FEATURE, f"{binary.name}: {message}")


@dataclass(slots=True)
class ProvidedBuffers:
    """Buffers that a client gave, and the context over them."""

    context: Context | None
    responses: list[DmaDataResponse]
    _release: Callable[[DmaDataResponse], None]

    def release(self) -> None:
        """Give the buffers back, each once."""
        responses, self.responses = self.responses, []
        self.context = None
        for response in responses:
            self._release(response)


def request_buffers(binary: Binary, callback: DmaBufferCallback) -> ProvidedBuffers:
    """Request buffers for shared and other weights, check them, and open the context over them."""
    held = ProvidedBuffers(None, [], callback.release)
    try:
        _provide(binary, callback, held)
    except BaseException:
        held.release()
        raise
    return held


def _provide(binary: Binary, callback: DmaBufferCallback, held: ProvidedBuffers) -> None:
    if binary.source is None:
        total, first = binary.weights_bytes, 0
    else:
        container = Container(binary.source, binary.name)
        section = next(s for s in container.sections if (s.kind, s.name) == ("weights", ""))
        total, first = section.bytes, section.offset
    cut = min(total, -(-binary.shared_end // PAGE) * PAGE) if binary.shared_end else 0
    spans = [(0, cut), (binary.shared_end // PAGE * PAGE, total)] if 0 < cut < total else [(0, total)]
    pieces: list[tuple[int, int, memoryview]] = []
    for begin, end in spans:
        response = callback.provide(DataRequest(first + begin, end - begin))
        held.responses.append(response)
        pieces.append((begin, end, _checked_view(binary, response, end - begin)))
    fds = [response.fd for response in held.responses]
    if len(set(fds)) != len(fds) or min(fds) < 0:
        raise DeviceError(
            Code.QNN_CONTEXT_ERROR_INVALID_ARGUMENT, f"{binary.name}: each buffer needs a file descriptor of its own"
        )
    if binary.source is not None:
        weights = _Pieces(total, pieces)

        def source(section: ContainerSection) -> list[memoryview]:
            if section.kind == "weights":
                return weights.in_order()
            return [container.view[section.offset : section.offset + section.bytes]]

        container.verify(lambda section: checksum_of_pieces(source(section)))
        held.context = Context(container, verify=False, weights=cast(memoryview, weights))


def _checked_view(binary: Binary, response: DmaDataResponse, size: int) -> memoryview:
    try:
        view = memoryview(response.data).cast("B")
    except (TypeError, ValueError, BufferError):
        raise DeviceError(Code.QNN_CONTEXT_ERROR_MEM_ALLOC, f"{binary.name}: the callback gave no buffer") from None
    address = int(np.frombuffer(view, np.uint8).ctypes.data) if len(view) else 1
    wrong = (
        (address % PAGE, f"its address is not a multiple of {PAGE}"),
        (response.data_start_offset, f"dataStartOffset is {response.data_start_offset}, only 0 can be mapped"),
        (
            response.aligned_size % PAGE or response.aligned_size < size,
            f"alignedSize {response.aligned_size} is not a multiple of {PAGE} of at least {size}",
        ),
        (len(view) < response.aligned_size, f"it has {len(view)} bytes, less than alignedSize"),
    )
    for applies, message in wrong:
        if applies:
            raise DeviceError(Code.QNN_CONTEXT_ERROR_INVALID_ARGUMENT, f"{binary.name}: a callback's buffer: {message}")
    return view


class _Pieces:
    """The section of weights in several buffers: every array lies in one of them as a whole."""

    def __init__(self, total: int, pieces: list[tuple[int, int, memoryview]]) -> None:
        self._total, self._spans = total, pieces

    def __len__(self) -> int:
        return self._total

    def __getitem__(self, key: slice) -> memoryview:
        start, stop = key.start or 0, self._total if key.stop is None else key.stop
        for begin, end, view in self._spans:
            if begin <= start and stop <= end:
                return view[start - begin : stop - begin]
        raise DeviceError(Code.QNN_CONTEXT_ERROR_CREATE_FROM_BINARY, "an array lies across two buffers")

    def in_order(self) -> list[memoryview]:
        views, at = [], 0
        for begin, end, view in self._spans:
            views.append(view[at - begin : end - begin])
            at = end
        return views
