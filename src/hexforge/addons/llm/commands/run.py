# SPDX-License-Identifier: Apache-2.0
"""`hexforge llm run`: the text after a prompt."""

from __future__ import annotations

import time
from pathlib import Path

from hexforge.addons.llm.commands.command_model import loaded_model
from hexforge.addons.llm.commands.sampling_arguments import (
    AdapterName,
    BundleFolder,
    ContextLength,
    Count,
    LlmBackend,
    Penalty,
    Seed,
    Temperature,
    TopK,
    TopP,
)
from hexforge.cli.arguments import Json
from hexforge.cli.say import say
from hexforge.cli.screen import print_json
from hexforge.errors import CallError
from hexforge.request_fields import option, required


def run(
    bundle: BundleFolder,
    prompt: str = required("The text to continue.", "--prompt", "-p"),
    tokens: Count = 128,
    temperature: Temperature = 0.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    repetition_penalty: Penalty = 1.0,
    seed: Seed = None,
    stop: list[str] | None = option(None, "End before this text; several times."),
    draft: Path | None = option(None, "A bundle of a smaller model that guesses tokens."),
    adapter: AdapterName = "",
    ahead: int = option(4, "How many it guesses at a time.", min=1, max=64),
    backend: LlmBackend = "",
    context: ContextLength = 0,
    as_json: Json = False,
) -> None:
    """Say what a language model says after a prompt."""
    from hexforge.addons.llm import Sampling, load

    sampling = Sampling(temperature, top_k, top_p, repetition_penalty, seed)
    if "" in (stop or ()):
        raise CallError("--stop: an empty text ends nothing; give some text, or leave it out")
    began = time.perf_counter()
    model = loaded_model(bundle, backend, context)
    loaded = time.perf_counter()
    session = model.session(adapter)
    guesser = None if draft is None else load(draft, backend=backend)
    pieces, first = [], 0.0
    for piece in session.generate(prompt, tokens, sampling, stop or (), draft=guesser, ahead=ahead):
        first = first or time.perf_counter()
        pieces.append(piece)
        if not as_json:
            say(piece.text, nl=False)
    seconds = time.perf_counter() - first
    given = [piece.token for piece in pieces]
    if as_json:
        print_json(
            {
                "text": "".join(piece.text for piece in pieces), "tokens": given, "end": pieces[-1].end,
                "load_s": loaded - began, "first_token_s": first - loaded,
                "tokens_per_s": (len(given) - 1) / seconds if len(given) > 1 else None,
            }
        )  # fmt: skip
        return
    say("")
    if pieces[-1].end == "length" and len(given) < tokens:
        full = model.bundle.context
        say(f"ended after {len(given)} of {tokens} tokens: the context of {full} is full", err=True)
    if len(given) > 1:
        rate = (len(given) - 1) / seconds
        say(f"loaded in {loaded - began:.2f} s, first token {first - loaded:.3f} s, {rate:.1f} tokens/s here", err=True)
