# SPDX-License-Identifier: Apache-2.0
"""Blob: what a QnnBackend delegate of a .pte file carries: a header of 256 bytes, then a context file.

The header is that of ExecuTorch's Qualcomm backend: magic 0x5678ABCD (u32), a signature of the content (u64), the bytes
of the file (u64), little-endian, zeros up to 256.
"""

from __future__ import annotations

import struct

import numpy as np

from hexforge.errors import FormatError
from hexforge.formats.container import MAGIC as CONTEXT_MAGIC
from hexforge.formats.container import checksum
from hexforge.runtime.contexts.context import Context

MAGIC = 0x5678ABCD
ALIGNMENT = 256
"""What the header is padded to, and where ExecuTorch's segments begin."""
ARRAY_ALIGNMENT = 16
"""What kernels ask of the arrays of a context; a mapped file has it, and is not copied then."""
_HEADER = struct.Struct("<IQQ")


REFUSED = "refused"
"""Key of a context's metadata: nodes that the backend refused while the model was partitioned, a tab, and why."""


def ops_key(graph: str) -> str:
    """Where a context's metadata names the ops of a graph as they were handed over, one a line; profiles list them."""
    return f"ops of {graph}"


def source_key(graph: str) -> str:
    """Where a context's metadata has a graph as it was handed over, as text, where every tensor was asked for."""
    return f"source of {graph}"


def wrap_context(context: bytes) -> bytes:
    """A context file behind its header; its signature is its checksum and size: equal contexts are equal blobs."""
    signature = checksum(context) << 32 | len(context) & 0xFFFFFFFF
    return _HEADER.pack(MAGIC, signature, len(context)).ljust(ALIGNMENT, b"\0") + context


def has_header(blob: bytes | memoryview) -> bool:
    """True where a blob begins with the header's magic."""
    return len(blob) >= ALIGNMENT and struct.unpack_from("<I", blob)[0] == MAGIC


def unwrap_context(blob: bytes | memoryview) -> memoryview:
    """The file behind the header; FormatError where there is no header, or less than it says."""
    if not has_header(blob):
        raise FormatError("the blob does not begin with the header of a QNN context (0x5678ABCD)")
    _, _, size = _HEADER.unpack_from(blob)
    if size > len(blob) - ALIGNMENT:
        raise FormatError(f"the header says {size} bytes of context, the blob has {len(blob) - ALIGNMENT}")
    return memoryview(blob)[ALIGNMENT : ALIGNMENT + size]


def open_blob(blob: bytes | memoryview, where: str = "the blob") -> Context:
    """The context of a blob, with its header or without; FormatError for one that hexforge did not make."""
    inside = unwrap_context(blob) if has_header(blob) else memoryview(blob)
    if bytes(inside[: len(CONTEXT_MAGIC)]) != CONTEXT_MAGIC:
        raise FormatError(
            f"{where}: holds a context that hexforge did not make (one of Qualcomm's SDK?); lower the model again with "
            "hexforge.addons.executorch"
        )
    address = np.frombuffer(inside, np.uint8).ctypes.data
    return Context(inside if address % ARRAY_ALIGNMENT == 0 else bytes(inside), where)
