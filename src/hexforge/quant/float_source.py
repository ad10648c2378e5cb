# SPDX-License-Identifier: Apache-2.0
"""Float source: the float model that gets encodings: the one given, or the one that a dynamic quantization is of."""

from __future__ import annotations

from hexforge.errors import CallError
from hexforge.model.reader import Model
from hexforge.model.simplifying.dynamic_quantization import DYNAMIC, is_dynamically_quantized, to_float
from hexforge.quant.compare import require_float


def as_float(model: Model) -> Model:
    """A model whose dynamic quantization became the float nodes that it came from; any other model as it is."""
    if not is_dynamically_quantized(model.ir):
        return model
    edited = model.copied()
    to_float(edited.ir)
    return edited


def float_source(model: Model) -> Model:
    """The float model to quantize; CallError where a model has encodings already, or codes that are not understood."""
    source = as_float(model)
    require_float(source.ir, source.name)
    left = [node for node in source.ir.graph if node.op_type in DYNAMIC]
    if left:
        raise CallError(
            f"{source.name}: is quantized dynamically, and {len(left)} of its nodes, as {left[0].name!r} "
            f"({left[0].op_type}), are not written as onnxruntime's quantize_dynamic writes them; give the float model"
        )
    return source
