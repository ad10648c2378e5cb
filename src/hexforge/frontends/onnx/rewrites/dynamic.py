# SPDX-License-Identifier: Apache-2.0
"""Dynamic quantization: products of codes that are made at run time become the float products they came from."""

from __future__ import annotations

from onnx_ir import Node

from hexforge.frontends.onnx.rewrites.rule import Rewrite, RewriteRule, rewrite_of
from hexforge.model.dynamic_quantization import float_form, is_dynamically_quantized
from hexforge.model.edit import Editor
from hexforge.patterns.nodes import dequantizes

ROUNDING = 0.1
"""The part of an output's range that results may differ by: 8 bits in every layer, which are left out."""


def _to_float(editor: Editor, node: Node) -> Rewrite | None:
    form = float_form(editor, node)
    if form is None or (dequantizes(node) and not is_dynamically_quantized(editor.model)):
        return None
    return rewrite_of(form.what, list(form.nodes), form.make)


RULES = (
    RewriteRule(
        "dynamic-quantization", "Products quantized at run time become float products",
        "The HTP has no encoding that is known only at run time: it computes such products in float16. The float model "
        "that they came from can be quantized with encodings that are known, which is several times faster.",
        "onnxruntime's QNN execution provider, which computes a DynamicQuantizeLinear and its product as a float one",
        "Export the float model, or take the rewritten one, and quantize it (hexforge quantize).", True, _to_float,
        accuracy=True, quantized=True, tolerance=ROUNDING,
    ),
)  # fmt: skip
