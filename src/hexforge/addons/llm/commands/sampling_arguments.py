# SPDX-License-Identifier: Apache-2.0
"""Options of commands that choose tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

BundleFolder = Annotated[
    Path,
    typer.Argument(
        help="A bundle (`hexforge llm export`), or a folder of onnxruntime-genai's builder or optimum.",
        show_default=False,
    ),
]
Count = Annotated[int, typer.Option("--tokens", "-n", help="At most so many tokens an answer.")]
Temperature = Annotated[float, typer.Option("--temperature", help="0: the most likely token always.")]
TopK = Annotated[int, typer.Option("--top-k", help="Only so many of the most likely; 0: all.")]
TopP = Annotated[float, typer.Option("--top-p", help="Only the most likely that have this share together.")]
Penalty = Annotated[float, typer.Option("--repetition-penalty", help="Above 1: what was there is less likely.")]
Seed = Annotated[int | None, typer.Option("--seed", help="The same seed chooses the same tokens.")]
AdapterName = Annotated[str, typer.Option("--adapter", help="A LoRA adapter of the bundle; the base if left out.")]
LlmBackend = Annotated[
    str, typer.Option("--backend", help="Run the ONNX models on cpu, htp or gpu, not the compiled context.")
]
ContextLength = Annotated[
    int,
    typer.Option(
        "--context", help="Tokens that caches of an ONNX folder hold; 0: those it was made for, up to 4096.", min=0
    ),
]
