# SPDX-License-Identifier: Apache-2.0
"""`hexforge llm`: language models from a checkpoint to answers."""

from __future__ import annotations

import typer

from hexforge.cli.llm.chat import chat
from hexforge.cli.llm.export import export
from hexforge.cli.llm.run import run

llm = typer.Typer(
    no_args_is_help=True,
    help="Language models: export a checkpoint as a bundle, run it, chat with it.",
)
for command in (export, run, chat):
    llm.command()(command)
