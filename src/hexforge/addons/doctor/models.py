# SPDX-License-Identifier: Apache-2.0
"""Models: what an ONNX file of a place says of itself: a context or a graph, the QAIRT that made it, its types."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from hexforge.addons.doctor.place import MOST_READ, Entry, ExaminedPlace
from hexforge.chips.soc import Soc, known_chip
from hexforge.errors import FormatError
from hexforge.terminal_text import visible


@dataclass(frozen=True, slots=True)
class ShippedModel:
    """A model of a place."""

    path: str
    is_context: bool
    """Whether it has a node of EPContext, which holds or names a compiled binary."""
    qairt: str = ""
    """The QAIRT that made the binary, as the node's ep_sdk_version says it."""
    binaries: tuple[str, ...] = ()
    """Files that it names, relative to its folder."""
    missing: tuple[str, ...] = ()
    """Those that are not there."""
    largest_bytes: int = 0
    """Of the binaries that are there."""
    floats: str = ""
    """float32, float16 or bfloat16 where a graph computes in it; empty for a graph in integers."""
    chip: Soc | None = None
    """The chip that it was made for."""


def read_model(entry: Entry, place: ExaminedPlace, chip: Soc | None) -> ShippedModel:
    """What a model says; FormatError where it is none."""
    try:
        model = onnx.ModelProto.FromString(entry.read(MOST_READ))
    except DecodeError:
        if entry.size > MOST_READ:  # its weights are in it: what it computes in is not looked at
            return ShippedModel(entry.path, False, chip=chip)
        raise FormatError(f"{entry.path} is no ONNX model, or a damaged one") from None
    contexts = [node for node in model.graph.node if node.op_type == "EPContext"]
    if not contexts:
        return ShippedModel(entry.path, False, floats=_floats(model.graph), chip=chip)
    attributes = [{a.name: a for a in node.attribute} for node in contexts]
    versions = (
        given["ep_sdk_version"].s.decode("utf-8", "replace") for given in attributes if "ep_sdk_version" in given
    )
    outside = [given for given in attributes if "embed_mode" in given and given["embed_mode"].i == 0]
    names = tuple(
        dict.fromkeys(
            visible(given["ep_cache_context"].s.decode("utf-8", "replace"))
            for given in outside
            if "ep_cache_context" in given
        )
    )
    sizes = {file.path: file.size for file in place.entries}
    folder = PurePosixPath(entry.path).parent
    there = {name: sizes.get((folder / name).as_posix()) for name in names}
    missing = tuple(name for name, size in there.items() if size is None)
    largest = max((size for size in there.values() if size is not None), default=0)
    by_provider, made_for = _compatibility(model)
    version = next((text for text in versions if text), by_provider)
    return ShippedModel(entry.path, True, version, names, missing, largest, chip=made_for or chip)


def _compatibility(model: onnx.ModelProto) -> tuple[str, Soc | None]:
    """The QAIRT and the chip of a context by the entry that the provider leaves with it; empty where there is none.

    It is "v2:backend:QAIRT:HTP API:…:soc_model:…"; the form before has no soc_model (the provider's sources, and what
    its 2.7.0 writes).
    """
    for entry in model.metadata_props:
        parts = entry.value.split(":")
        if entry.key.startswith("ep_compatibility_info.") and parts[0] == "v2" and len(parts) >= 6:
            return parts[2], known_chip(parts[5])
        if entry.key.startswith("ep_compatibility_info.") and len(parts) == 6:
            return parts[1], None
    return "", None


def _floats(graph: onnx.GraphProto) -> str:
    """The float type a graph computes in; empty where it has quantization around its nodes."""
    if any(node.op_type in ("DequantizeLinear", "QLinearConv", "QLinearMatMul") for node in graph.node):
        return ""
    kinds = {tensor.data_type for tensor in graph.initializer} | {v.type.tensor_type.elem_type for v in graph.input}
    names = {
        onnx.TensorProto.BFLOAT16: "bfloat16",
        onnx.TensorProto.FLOAT16: "float16",
        onnx.TensorProto.FLOAT: "float32",
    }
    return next((name for kind, name in names.items() if kind in kinds), "")
