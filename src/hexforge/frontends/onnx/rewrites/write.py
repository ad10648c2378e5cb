# SPDX-License-Identifier: Apache-2.0
"""Write: a rewritten model as a file, with what the original says of itself."""

from __future__ import annotations

import onnx
from onnx_ir import serde

from hexforge.errors import CapacityError
from hexforge.model.extraction import extract_parts
from hexforge.model.reader import Model


def model_bytes(model: Model) -> bytes:
    """A whole model as bytes; inputs, outputs, opset and metadata are the original's, shapes are static."""
    extracted = extract_parts(
        model,
        list(model.ir.graph),
        [v.name or "" for v in model.ir.graph.inputs],
        [v.name or "" for v in model.ir.graph.outputs],
    )
    if extracted.constants:
        size = sum(array.nbytes for array in extracted.constants.values())
        raise CapacityError(f"{model.name}: {size >> 20} MB of weights do not fit into one protobuf of 2 GB")
    proto, about = extracted.proto, model.metadata
    del proto.graph.input[:]  # an extract of nodes with bodies leaves shapes out; a whole model's inputs have theirs
    proto.graph.input.extend(map(serde.serialize_value, model.ir.graph.inputs))
    proto.ir_version = max(proto.ir_version, model.ir.ir_version)
    proto.producer_name, proto.domain, proto.doc_string = about.producer_name, about.domain, about.description
    proto.model_version = about.version
    proto.graph.name, proto.graph.doc_string = about.graph_name or "graph", about.graph_description
    proto.metadata_props.extend(
        onnx.StringStringEntryProto(key=key, value=value) for key, value in about.custom_metadata_map.items()
    )
    return bytes(proto.SerializeToString())
