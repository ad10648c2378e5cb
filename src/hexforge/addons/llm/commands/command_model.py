# SPDX-License-Identifier: Apache-2.0
"""The model of a command: loaded, with a line on standard error where it says where it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hexforge.cli.say import say

if TYPE_CHECKING:
    from hexforge.addons.llm import LanguageModel


def loaded_model(folder: Path, backend: str, context: int) -> LanguageModel:
    """A bundle or an ONNX decoder that is ready to run."""
    from hexforge.addons.llm import load

    model = load(folder, backend=backend, context=context)
    for note in model.notes:
        say(note, err=True)
    return model
