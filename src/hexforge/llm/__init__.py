# SPDX-License-Identifier: Apache-2.0
"""Language models: their shapes, bundles made of checkpoints, and answers from bundles."""

from __future__ import annotations

from hexforge.llm.bundle import Bundle, read_bundle
from hexforge.llm.bundle_writer import ExportRequest, export
from hexforge.llm.generate import AnswerPiece, LanguageModel, LlmSession, load
from hexforge.llm.sampling import Sampling

__all__ = [
    "AnswerPiece",
    "Bundle",
    "ExportRequest",
    "LanguageModel",
    "LlmSession",
    "Sampling",
    "export",
    "load",
    "read_bundle",
]
