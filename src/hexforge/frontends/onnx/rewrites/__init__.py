# SPDX-License-Identifier: Apache-2.0
"""Rewrites: ONNX models as HTP likes them, one rule an idea; each finds its places and rewrites them."""

from hexforge.frontends.onnx.rewrites import (
    activation,
    arithmetic,
    branches,
    channels,
    conv,
    focus,
    matmul,
    quantized,
    ranks,
    recurrent,
    reductions,
)
from hexforge.frontends.onnx.rewrites import moves as movement
from hexforge.frontends.onnx.rewrites.rule import Rewrite, RewriteRule, apply, find

NORMALIZATIONS = conv.NORMALIZATIONS
PLACING: tuple[RewriteRule, ...] = (*reductions.RULES, *recurrent.RULES, *ranks.RULES)
"""Rules that write what the NPU refuses as what it takes."""
RULES: tuple[RewriteRule, ...] = (
    *PLACING,
    *arithmetic.RULES,
    *conv.RULES,
    *focus.RULES,
    *branches.RULES,
    *activation.RULES,
    *matmul.RULES,
    *movement.RULES,
    *channels.RULES,
    *quantized.RULES,
)
"""Every rule; where two gain the same, the earlier is named first."""

__all__ = ["NORMALIZATIONS", "PLACING", "RULES", "Rewrite", "RewriteRule", "apply", "find"]
