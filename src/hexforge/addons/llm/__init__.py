# SPDX-License-Identifier: Apache-2.0
"""Language models: shapes, bundles made of checkpoints, answers from bundles, and how fast they come on a chip."""

from __future__ import annotations

from hexforge.addons.llm.bundle import Bundle, read_bundle
from hexforge.addons.llm.exporting.bundle_writer import ExportRequest, export
from hexforge.addons.llm.generate import AnswerPiece, LanguageModel, LlmSession, Sampling, load
from hexforge.addons.llm.shape import LlmShape, named_shapes, read_shape
from hexforge.addons.llm.time.estimate import LlmEstimate, LlmSwitches, estimate_llm

__all__ = [
    "AnswerPiece",
    "Bundle",
    "ExportRequest",
    "LanguageModel",
    "LlmEstimate",
    "LlmSession",
    "LlmShape",
    "LlmSwitches",
    "Sampling",
    "estimate_llm",
    "export",
    "load",
    "named_shapes",
    "read_bundle",
    "read_shape",
]
