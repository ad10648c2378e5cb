# SPDX-License-Identifier: Apache-2.0
"""Dynamic quantization: products of codes that are made at run time become the float products they came from."""

from __future__ import annotations

from hexforge.addons.tuning.rewrites.rule import Place, Rewrite, RewriteRule
from hexforge.model.simplifying.dynamic_quantization import float_form, is_dynamically_quantized
from hexforge.patterns.language import any_node
from hexforge.patterns.nodes import dequantizes

ROUNDING = 0.1
"""The part of an output's range that results may differ by: 8 bits in every layer, which are left out."""


def _to_float(place: Place) -> Rewrite | None:
    form = float_form(place.editor, place.node)
    if form is None or (dequantizes(place.node) and not is_dynamically_quantized(place.editor.model)):
        return None
    return place.change(form.what, form.make, nodes=form.nodes)


RULES = (
    RewriteRule(
        "dynamic-quantization", "Products quantized at run time become float products",
        "The HTP has no encoding that is known only at run time: it computes such products in float16. The float model "
        "that they came from can be quantized with encodings that are known, which is several times faster.",
        "onnxruntime's QNN execution provider, which computes a DynamicQuantizeLinear and its product as a float one",
        "Export the float model, or take the rewritten one, and quantize it (hexforge quantize).", True, any_node(),
        _to_float, accuracy=True, quantized=True, tolerance=ROUNDING,
    ),
)  # fmt: skip
