# SPDX-License-Identifier: Apache-2.0
"""BundleToRun: the language model that a command runs, and where."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hexforge.cli.say import say
from hexforge.request_fields import argument, option, spelled

if TYPE_CHECKING:
    from hexforge.addons.llm import LanguageModel

ADAPTER = spelled("A LoRA adapter of the bundle; the base if left out.")
TOKENS = spelled("At most so many tokens an answer.", "--tokens", "-n")


@dataclass(frozen=True, slots=True)
class BundleToRun:
    """A bundle, or an ONNX decoder of others, and where it runs."""

    bundle: Path = argument(
        "A bundle (`hexforge llm export`), or a folder of onnxruntime-genai's builder or optimum.", show_default=False
    )
    backend: str = option("", "Run the ONNX models on cpu, htp or gpu, not the compiled context.")
    context: int = option(0, "Tokens that caches of an ONNX folder hold; 0: those it was made for, up to 4096.", min=0)

    def loaded(self) -> LanguageModel:
        """The model, ready to run; where it runs is said on standard error."""
        from hexforge.addons.llm import load

        model = load(self.bundle, backend=self.backend, context=self.context)
        for note in model.notes:
            say(note, err=True)
        return model
