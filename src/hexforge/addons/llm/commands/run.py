# SPDX-License-Identifier: Apache-2.0
"""`hexforge llm run`: the text after a prompt."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from hexforge.addons.llm.commands.bundle_to_run import ADAPTER, TOKENS, BundleToRun
from hexforge.addons.llm.sampling import Sampling
from hexforge.cli.arguments import Json
from hexforge.cli.say import say
from hexforge.cli.screen import print_json
from hexforge.errors import CallError
from hexforge.request_fields import option, required


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What is continued, and how."""

    prompt: str = required("The text to continue.", "--prompt", "-p")
    tokens: int = field(default=128, metadata=TOKENS)
    sampling: Sampling = field(default_factory=Sampling)
    stop: list[str] | None = option(None, "End before this text; several times.")
    draft: Path | None = option(None, "A bundle of a smaller model that guesses tokens.")
    adapter: str = field(default="", metadata=ADAPTER)
    ahead: int = option(4, "How many it guesses at a time.", min=1, max=64)

    def __post_init__(self) -> None:
        """CallError for a stop text that ends nothing."""
        if "" in (self.stop or ()):
            raise CallError("--stop: an empty text ends nothing; give some text, or leave it out")


def run(model: BundleToRun, request: RunRequest, as_json: Json = False) -> None:
    """Say what a language model says after a prompt."""
    from hexforge.addons.llm import load

    began = time.perf_counter()
    running = model.loaded()
    loaded = time.perf_counter()
    session = running.session(request.adapter)
    draft = None if request.draft is None else load(request.draft, backend=model.backend)
    sampling, stop = request.sampling, request.stop or ()
    pieces, first = [], 0.0
    for piece in session.generate(request.prompt, request.tokens, sampling, stop, draft=draft, ahead=request.ahead):
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
    if pieces[-1].end == "length" and len(given) < request.tokens:
        full = running.bundle.context
        say(f"ended after {len(given)} of {request.tokens} tokens: the context of {full} is full", err=True)
    if len(given) > 1:
        rate = (len(given) - 1) / seconds
        say(f"loaded in {loaded - began:.2f} s, first token {first - loaded:.3f} s, {rate:.1f} tokens/s here", err=True)
