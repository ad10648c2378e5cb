# SPDX-License-Identifier: Apache-2.0
"""`hexforge llm`: language models from a checkpoint to answers, and how fast those come on a chip."""

from __future__ import annotations

from hexforge.addons.llm.commands.estimate import estimate, models
from hexforge.addons.llm.commands.export import export
from hexforge.addons.llm.commands.llama_runner import llama_runner
from hexforge.addons.llm.commands.use_bundle import chat, evaluate, run, serve
from hexforge.cli.request_options import CommandGroup

llm = CommandGroup(
    no_args_is_help=True,
    help="Language models: export a checkpoint, run it, chat with it, judge it, serve it, say how fast it is.",
)
for command in (export, run, chat, serve, estimate, models):
    llm.command()(command)
llm.command("eval")(evaluate)
llm.command("llama-runner")(llama_runner)
