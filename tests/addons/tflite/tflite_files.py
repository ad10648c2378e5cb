# SPDX-License-Identifier: Apache-2.0
"""A writer of .tflite files by the published schema, small enough to read: what a test says is what the file has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import ml_dtypes
import numpy as np

from hexforge.addons.tflite.model_file import CUSTOM, OPERATORS, TYPES

_CODES = {np.dtype(dtype).name: code for code, dtype in TYPES.items()}


@dataclass
class Made:
    """A tensor: `data` makes it a constant, `scale` and `zero` quantize it (lists: along `axis`)."""

    shape: Sequence[int]
    dtype: Any = np.float32
    data: Any = None
    scale: Any = None
    zero: Any = 0
    axis: int = 0
    name: str = ""
    signature: Sequence[int] = ()
    sparsity: Any = None
    is_variable: bool = False


@dataclass
class MadeOperator:
    """An operator: its tensors by number, and its options as (struct's letter, value) or None, by field."""

    name: str
    inputs: Sequence[int]
    outputs: Sequence[int]
    options: Sequence[tuple[str, Any] | None] = ()
    custom: bytes = b""
    intermediates: Sequence[int] = ()


@dataclass
class MadeSubgraph:
    """A subgraph."""

    tensors: Sequence[Made]
    operators: Sequence[MadeOperator]
    inputs: Sequence[int]
    outputs: Sequence[int]
    name: str = "main"


@dataclass
class MadeModel:
    """A file."""

    subgraphs: Sequence[MadeSubgraph]
    metadata: Mapping[str, bytes] = field(default_factory=dict)
    signatures: Sequence[tuple[str, int, Mapping[str, int], Mapping[str, int]]] = ()
    version: int = 3

    def content(self) -> bytes:
        """The file's bytes."""
        return _Writer().model(self)


class _Writer:
    def __init__(self) -> None:
        self.made = flatbuffers.Builder(4096)
        self.buffers: list[bytes] = [b""]
        self.codes: list[str] = []

    def table(self, *fields: tuple[int, str, Any] | None) -> int:
        """A table: (number, letter or "offset", value) of each field."""
        count = max((f[0] for f in fields if f), default=-1) + 1
        self.made.StartObject(count)
        for entry in fields:
            if entry is None:
                continue
            number, letter, value = entry
            if letter == "offset":
                self.made.PrependUOffsetTRelativeSlot(number, value, 0)
            else:
                slot = {
                    "b": "Int8",
                    "B": "Uint8",
                    "?": "Bool",
                    "i": "Int32",
                    "I": "Uint32",
                    "f": "Float32",
                    "q": "Int64",
                }
                getattr(self.made, f"Prepend{slot[letter]}Slot")(number, value, None)
        return int(self.made.EndObject())

    def numbers(self, values: Any, letter: str) -> int:
        """A vector of numbers."""
        width = np.dtype(letter).itemsize
        self.made.StartVector(width, len(values), max(width, 4))
        data = np.asarray(values, np.dtype(letter).newbyteorder("<")).tobytes()
        for byte in reversed(data):
            self.made.PrependByte(byte)
        return int(self.made.EndVector())

    def offsets(self, values: Sequence[int]) -> int:
        """A vector of tables."""
        self.made.StartVector(4, len(values), 4)
        for value in reversed(values):
            self.made.PrependUOffsetTRelative(value)
        return int(self.made.EndVector())

    def model(self, model: MadeModel) -> bytes:
        subgraphs = self.offsets([self.subgraph(s) for s in model.subgraphs])
        metadata = self.offsets(
            [
                self.table((0, "offset", self.made.CreateString(name)), (1, "I", self.buffer(data)))
                for name, data in model.metadata.items()
            ]
        )
        signatures = self.offsets([self.signature(*each) for each in model.signatures])
        codes = self.offsets([self.code(name) for name in self.codes])
        buffers = self.offsets(
            [self.table((0, "offset", self.made.CreateByteVector(data)) if data else None) for data in self.buffers]
        )
        described = self.made.CreateString("made by a test")
        root = self.table(
            (0, "I", model.version),
            (1, "offset", codes),
            (2, "offset", subgraphs),
            (3, "offset", described),
            (4, "offset", buffers),
            (6, "offset", metadata),
            (7, "offset", signatures),
        )
        self.made.Finish(root, b"TFL3")
        return bytes(self.made.Output())

    def buffer(self, data: bytes) -> int:
        self.buffers.append(data)
        return len(self.buffers) - 1

    def code(self, name: str) -> int:
        number = OPERATORS.index(name) if name in OPERATORS else OPERATORS.index(CUSTOM)
        own = None if name in OPERATORS else (1, "offset", self.made.CreateString(name))
        return self.table((0, "b", min(number, 127)), own, (2, "i", VERSIONS.get(name, 1)), (3, "i", number))

    def signature(self, key: str, subgraph: int, inputs: Mapping[str, int], outputs: Mapping[str, int]) -> int:
        sides = [
            self.offsets(
                [
                    self.table((0, "offset", self.made.CreateString(name)), (1, "I", index))
                    for name, index in side.items()
                ]
            )
            for side in (inputs, outputs)
        ]
        named = self.made.CreateString(key)
        return self.table((0, "offset", sides[0]), (1, "offset", sides[1]), (2, "offset", named), (4, "I", subgraph))

    def subgraph(self, graph: MadeSubgraph) -> int:
        tensors = self.offsets([self.tensor(t, i) for i, t in enumerate(graph.tensors)])
        operators = self.offsets([self.operator(o) for o in graph.operators])
        inputs, outputs = self.numbers(graph.inputs, "i"), self.numbers(graph.outputs, "i")
        name = self.made.CreateString(graph.name)
        return self.table(
            (0, "offset", tensors),
            (1, "offset", inputs),
            (2, "offset", outputs),
            (3, "offset", operators),
            (4, "offset", name),
        )

    def tensor(self, tensor: Made, number: int) -> int:
        is_handle = tensor.dtype == "resource"
        dtype = np.dtype(np.int32 if is_handle else tensor.dtype)
        buffer = 0 if tensor.data is None else self.buffer(_packed(tensor.data, dtype))
        quantization = None
        if tensor.scale is not None:
            scales = self.numbers(np.atleast_1d(tensor.scale), "f")
            zeros = self.numbers(np.broadcast_to(tensor.zero, np.shape(np.atleast_1d(tensor.scale))), "q")
            quantization = self.table((2, "offset", scales), (3, "offset", zeros), (6, "i", tensor.axis))
        name = self.made.CreateString(tensor.name or f"t{number}")
        shape = self.numbers(tensor.shape, "i")
        signature = self.numbers(tensor.signature, "i") if len(tensor.signature) else None
        sparsity = tensor.sparsity(self) if tensor.sparsity else None
        return self.table(
            (0, "offset", shape),
            (1, "b", 13 if is_handle else _CODES[dtype.name]),
            (2, "I", buffer),
            (3, "offset", name),
            None if quantization is None else (4, "offset", quantization),
            (5, "?", True) if tensor.is_variable else None,
            None if sparsity is None else (6, "offset", sparsity),
            None if signature is None else (7, "offset", signature),
        )

    def field(self, letter: str, value: Any) -> tuple[str, Any]:
        """A field of options, whose vector or text is made first."""
        if letter == "text":
            return "offset", self.made.CreateString(value)
        return ("offset", self.numbers(value, letter[0])) if letter.endswith("[]") else (letter, value)

    def operator(self, operator: MadeOperator) -> int:
        if operator.name not in self.codes:
            self.codes.append(operator.name)
        inputs, outputs = self.numbers(operator.inputs, "i"), self.numbers(operator.outputs, "i")
        between = self.numbers(operator.intermediates, "i") if operator.intermediates else None
        options: int | None = None
        if operator.options:
            fields = [None if f is None else (i, *self.field(*f)) for i, f in enumerate(operator.options)]
            options = self.table(*fields)
        custom = self.made.CreateByteVector(operator.custom) if operator.custom else None
        kind = UNION.get(operator.name, 0)
        return self.table(
            (0, "I", self.codes.index(operator.name)),
            (1, "offset", inputs),
            (2, "offset", outputs),
            None if options is None else (3, "B", kind),
            None if options is None else (4, "offset", options),
            None if custom is None else (5, "offset", custom),
            None if between is None else (8, "offset", between),
        )


def litertlm(models: Mapping[str, bytes]) -> bytes:
    """A .litertlm with these models, each in a section that says what it is."""
    place, writer, sections = 1024, _Writer(), []
    for name, data in models.items():
        text = writer.table((0, "offset", writer.made.CreateString(f"tf_lite_{name}")))
        key = writer.made.CreateString("model_type")
        item = writer.offsets([writer.table((0, "offset", key), (1, "B", 9), (2, "offset", text))])
        sections.append(writer.table((0, "offset", item), (1, "q", place), (2, "q", place + len(data)), (3, "B", 3)))
        place += len(data)
    listed = writer.table((0, "offset", writer.offsets(sections)))
    writer.made.Finish(writer.table((1, "offset", listed)))
    header = bytes(writer.made.Output())
    begin = b"LITERTLM" + bytes(16) + (32 + len(header)).to_bytes(8, "little") + header
    return begin.ljust(1024, b"\0") + b"".join(models.values())


def _packed(data: Any, dtype: np.dtype) -> bytes:
    values = np.asarray(data).astype(dtype)
    if dtype in (np.dtype(ml_dtypes.int4), np.dtype(ml_dtypes.uint4)):
        flat = values.reshape(-1).astype(np.int8).view(np.uint8) & 15
        flat = np.append(flat, np.zeros(flat.size % 2, np.uint8))
        return bytes((flat[0::2] | flat[1::2] << 4).tobytes())
    return bytes(values.tobytes())


VERSIONS = {"BROADCAST_TO": 2}
"""Of operators of which LiteRT has no first version."""
UNION = {
    "ADD": 11,
    "ARG_MAX": 40,
    "ARG_MIN": 57,
    "AVERAGE_POOL_2D": 5,
    "BATCH_MATMUL": 101,
    "BIDIRECTIONAL_SEQUENCE_LSTM": 69,
    "BIDIRECTIONAL_SEQUENCE_RNN": 70,
    "BUCKETIZE": 115,
    "CALL_ONCE": 103,
    "CAST": 37,
    "CONCATENATION": 10,
    "CONV_2D": 1,
    "CONV_3D": 106,
    "CONV_3D_TRANSPOSE": 106,
    "CUMSUM": 102,
    "DEPTHWISE_CONV_2D": 2,
    "DEPTH_TO_SPACE": 94,
    "DIV": 29,
    "FAKE_QUANT": 58,
    "FULLY_CONNECTED": 8,
    "GATHER": 23,
    "GELU": 116,
    "IF": 92,
    "L2_NORMALIZATION": 12,
    "L2_POOL_2D": 5,
    "LEAKY_RELU": 75,
    "LOCAL_RESPONSE_NORMALIZATION": 13,
    "LSTM": 14,
    "MAX_POOL_2D": 5,
    "MEAN": 27,
    "MIRROR_PAD": 77,
    "MUL": 21,
    "ONE_HOT": 61,
    "PACK": 59,
    "REDUCE_ALL": 27,
    "REDUCE_ANY": 27,
    "REDUCE_MAX": 27,
    "REDUCE_MIN": 27,
    "REDUCE_PROD": 27,
    "RESHAPE": 17,
    "RESIZE_BILINEAR": 15,
    "RESIZE_NEAREST_NEIGHBOR": 74,
    "REVERSE_SEQUENCE": 87,
    "RNN": 7,
    "SHAPE": 55,
    "SOFTMAX": 9,
    "SPACE_TO_DEPTH": 19,
    "SPLIT": 35,
    "SPLIT_V": 79,
    "SQUEEZE": 30,
    "STRIDED_SLICE": 32,
    "SUB": 28,
    "SUM": 27,
    "SVDF": 6,
    "TRANSPOSE_CONV": 49,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": 71,
    "UNIDIRECTIONAL_SEQUENCE_RNN": 31,
    "UNIQUE": 80,
    "UNPACK": 64,
    "VAR_HANDLE": 111,
    "WHILE": 93,
}
"""Number of the options' table in the schema's union, by operator; those left out have no options that count."""
