# SPDX-License-Identifier: Apache-2.0
"""Rewrites: ONNX models as HTP likes them, one rule an idea; each finds its places and rewrites them."""

from hexforge.addons.tuning.rewrites import (
    activation,
    arithmetic,
    branches,
    channels,
    conv,
    dynamic,
    focus,
    matmul,
    quantized,
    ranks,
    recurrent,
    written_out,
)
from hexforge.addons.tuning.rewrites import moves as movement
from hexforge.addons.tuning.rewrites.rule import Place, Rewrite, RewriteRule, apply, find
from hexforge.patterns.language import any_node

NORMALIZATIONS = conv.NORMALIZATIONS
PLACING: tuple[RewriteRule, ...] = (*written_out.RULES, *recurrent.RULES, *ranks.RULES)
"""Rules that write what the NPU refuses as what it takes."""
RULES: tuple[RewriteRule, ...] = (
    *dynamic.RULES,
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


def _any_placing(place: Place) -> Rewrite | None:
    rewrites = (rule.matched(place.editor, place.node) for rule in PLACING)
    return next((rewrite for rewrite in rewrites if rewrite is not None), None)


ONTO_THE_NPU = RewriteRule(
    "onto-the-npu", "All rewrites together of what the NPU refuses",
    "Nodes on the CPU take its time and cut the NPU's graph; one of them that stays behind still does.",
    "the rules that write what the NPU refuses as what it takes", "Apply them together.", True,
    any_node(), _any_placing,
)  # fmt: skip
"""Every rule that places, for models of which only all of them together gain."""

__all__ = ["NORMALIZATIONS", "ONTO_THE_NPU", "PLACING", "RULES", "Rewrite", "RewriteRule", "apply", "find"]
