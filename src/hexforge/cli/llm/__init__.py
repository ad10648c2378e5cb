# SPDX-License-Identifier: Apache-2.0
"""`hexforge llm`: language models from a checkpoint to answers, and how fast those come on a chip."""

from __future__ import annotations

import typer

from hexforge.cli.llm.chat import chat
from hexforge.cli.llm.estimate import estimate
from hexforge.cli.llm.export import export
from hexforge.cli.llm.models import models
from hexforge.cli.llm.run import run

llm = typer.Typer(
    no_args_is_help=True,
    help="Language models: export a checkpoint as a bundle, run it, chat with it, say how fast it answers on a chip.",
)
for command in (export, run, chat, estimate, models):
    llm.command()(command)
