# SPDX-License-Identifier: Apache-2.0
"""EPContext nodes: nodes of an ONNX model that stand for compiled graphs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import onnx

from hexforge.errors import FormatError, ModelError, UnsupportedError
from hexforge.model.source import label

OP_TYPE = "EPContext"
DOMAIN = "com.microsoft"
SOURCE = "QNNExecutionProvider"
COMPATIBILITY = f"ep_compatibility_info.{SOURCE}"
"""The model's metadata entry that says what its context was made for."""

_ATTRIBUTES = onnx.AttributeProto
_KINDS = {
    "main_context": _ATTRIBUTES.INT,
    "embed_mode": _ATTRIBUTES.INT,
    "ep_cache_context": _ATTRIBUTES.STRING,
    "ep_sdk_version": _ATTRIBUTES.STRING,
    "partition_name": _ATTRIBUTES.STRING,
    "source": _ATTRIBUTES.STRING,
    "max_size": _ATTRIBUTES.INT,
    "is_multi_soc_ep_context": _ATTRIBUTES.INT,
    "io_name_overrides": _ATTRIBUTES.STRING,
    "notes": _ATTRIBUTES.STRING,
    "ep_context_type": _ATTRIBUTES.STRING,
}


@dataclass(frozen=True, slots=True)
class EpContext:
    """One EPContext node: a compiled graph, and where the context that has it is."""

    name: str
    """The node's."""
    graph: str
    """The graph's in the context (partition_name)."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    main: bool = True
    """False where another node of the model has the context."""
    embedded: memoryview | None = None
    file: str = ""
    """The context's file, beside the model; "" where it is embedded."""
    sdk_version: str = ""
    max_size: int = 0
    """Bytes of the spill-fill buffer that contexts may share."""
    multi_soc: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    """The graph's names of tensors that the model calls otherwise (io_name_overrides, the other way round)."""
    notes: str = ""

    def to_node(self) -> onnx.NodeProto:
        """The node as a model has it."""
        node = onnx.helper.make_node(OP_TYPE, self.inputs, self.outputs, name=self.name, domain=DOMAIN)
        cache = {"ep_cache_context": bytes(self.embedded) if self.embedded is not None else self.file.encode()}
        overrides = ";".join(f"{inner}={outer}" for outer, inner in self.names.items())
        attributes: dict[str, Any] = {
            "main_context": int(self.main),
            "embed_mode": int(self.embedded is not None if self.main else not self.file),
            **(cache if self.main else {}),
            "ep_sdk_version": self.sdk_version,
            "partition_name": self.graph,
            "source": SOURCE,
            **({"max_size": self.max_size} if self.max_size else {}),
            "is_multi_soc_ep_context": int(self.multi_soc),
            **({"io_name_overrides": overrides} if overrides else {}),
            **({"notes": self.notes} if self.notes else {}),
        }
        node.attribute.extend(onnx.helper.make_attribute(name, value) for name, value in attributes.items())
        return node


def is_ep_context(node: onnx.NodeProto) -> bool:
    """True for a node that stands for a compiled graph."""
    return bool(node.op_type == OP_TYPE)


def read_node(node: onnx.NodeProto, embedded: memoryview | None, where: str) -> EpContext:
    """A node of a model; `embedded` is its context where that was taken out of the model."""
    subject = f"{where}: node {label(node)}"
    values: dict[str, Any] = {}
    for attribute in node.attribute:
        if attribute.name in values:
            raise ModelError(f"{subject} has its attribute {attribute.name!r} twice")
        kind = _KINDS.get(attribute.name)
        if kind is not None and attribute.type != kind:
            expected = "an integer" if kind == _ATTRIBUTES.INT else "a text"
            raise ModelError(f"{subject}: attribute {attribute.name!r} is not {expected}")
        values[attribute.name] = attribute.i if kind == _ATTRIBUTES.INT else attribute.s

    def text(name: str) -> str:
        try:
            return str(values.get(name, b"").decode())
        except UnicodeDecodeError:
            raise FormatError(f"{subject}: attribute {name!r} is not valid UTF-8; the file is damaged") from None

    source = text("source")
    if source.lower() not in ("qnn", SOURCE.lower()):
        raise UnsupportedError(
            f"{subject} was compiled for {source or 'an unnamed provider'}; {SOURCE} runs its own only"
        )
    if text("ep_context_type").lower() == "dlc":
        raise UnsupportedError(f"{subject} is a Genie model (DLC), which runs only on Windows on Snapdragon")
    main, embed = values.get("main_context", 1) != 0, values.get("embed_mode", 1) != 0
    if main and "ep_cache_context" not in values:
        raise ModelError(
            f"{subject} is the main context and has no attribute 'ep_cache_context'; compile the model again"
        )
    cache = None
    if main and embed:
        cache = embedded if embedded is not None else memoryview(values["ep_cache_context"])
    elif main and embedded is not None:
        raise ModelError(f"{subject}: embed_mode is 0, and ep_cache_context is no file name; compile the model again")
    return EpContext(
        name=node.name,
        graph=text("partition_name") or node.name,
        inputs=tuple(node.input),
        outputs=tuple(node.output),
        main=main,
        embedded=cache,
        file=text("ep_cache_context") if main and not embed else "",
        sdk_version=text("ep_sdk_version"),
        max_size=int(values.get("max_size", 0)),
        multi_soc=values.get("is_multi_soc_ep_context", 0) != 0,
        names=_overrides(text("io_name_overrides"), subject),
        notes=text("notes"),
    )


def _overrides(pairs: str, subject: str) -> dict[str, str]:
    names = {}
    for pair in filter(None, pairs.split(";")):
        inner, equals, outer = pair.partition("=")
        if not (inner and equals and outer) or outer in names:
            raise ModelError(f"{subject}: io_name_overrides has {pair!r}; it is a list of internal=external;… names")
        names[outer] = inner
    return names
