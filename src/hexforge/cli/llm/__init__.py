# SPDX-License-Identifier: Apache-2.0
"""`hexforge llm`: language models from a checkpoint to answers, and how fast those come on a chip."""

from __future__ import annotations

import typer

from hexforge.cli.llm.chat import chat
from hexforge.cli.llm.estimate import estimate
from hexforge.cli.llm.evaluate import evaluate
from hexforge.cli.llm.export import export
from hexforge.cli.llm.llama_runner import llama_runner
from hexforge.cli.llm.models import models
from hexforge.cli.llm.run import run
from hexforge.cli.llm.serve import serve

llm = typer.Typer(
    no_args_is_help=True,
    help="Language models: export a checkpoint, run it, chat with it, judge it, serve it, say how fast it is.",
)
for command in (export, run, chat, serve, estimate, models):
    llm.command()(command)
llm.command("eval")(evaluate)
llm.command("llama-runner")(llama_runner)
