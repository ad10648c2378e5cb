# SPDX-License-Identifier: Apache-2.0
"""Explain: what a code or a log of QNN means, why it came, what would work, and what the model or context shows."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from hexforge.addons.diagnosis.reading import ExplainedLine, Explanation, explain_text
from hexforge.chips.soc import DEFAULT_SOC

__all__ = ["ExplainedLine", "Explanation", "explain"]


def explain(
    text: str,
    *,
    model: str | os.PathLike[str] | None = None,
    context: str | os.PathLike[str] | None = None,
    soc: str = DEFAULT_SOC,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> Explanation:
    """What a code (decimal, hexadecimal, negative, or a name such as QNN_CONTEXT_ERROR_MEM_ALLOC) or the lines of a
    log mean: what happened, why, and what would work.

    With the model, or the context, it shows the proof where there is one: which buffer, how large, which split fits,
    which node is refused and why, or how the context suits the chip `soc`. `dims` and `shapes` fix what the model
    leaves open.
    """
    explanation = explain_text(text)
    if model is None and context is None:
        return explanation
    from hexforge.addons.diagnosis.proof import with_proofs
    from hexforge.runtime.prepare import ModelRequest

    return with_proofs(explanation, model, context, soc, ModelRequest(dims, shapes))
