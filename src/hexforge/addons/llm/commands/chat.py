# SPDX-License-Identifier: Apache-2.0
"""`hexforge llm chat`: a conversation on the terminal."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import dataclass, field

from hexforge.addons.llm.commands.bundle_to_run import ADAPTER, TOKENS, BundleToRun
from hexforge.addons.llm.sampling import ChatSampling
from hexforge.cli.say import say
from hexforge.errors import CallError
from hexforge.options import did_you_mean
from hexforge.request_fields import option

HELP = (
    "/undo forgets the last turn, /reset all of them, /adapter NAME goes on with a LoRA adapter (no name: the base), "
    "/help says this, /end leaves; Ctrl-C stops an answer."
)
COMMANDS = ("/undo", "/reset", "/adapter", "/help", "/end")


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """How a conversation goes."""

    tokens: int = field(default=256, metadata=TOKENS)
    sampling: ChatSampling = field(default_factory=ChatSampling)
    system: str = option("", "What the model is told before the first turn.")
    adapter: str = field(default="", metadata=ADAPTER)


def chat(model: BundleToRun, request: ChatRequest) -> None:
    """Chat with a language model; what was said stays in its caches from turn to turn."""
    from hexforge.addons.llm.conversation import Conversation

    loaded = model.loaded()
    loaded.prepare_adapters()
    conversation = Conversation(loaded, request.system)
    conversation.use(request.adapter)
    if sys.stdin.isatty():
        say(HELP, err=True)
    while True:
        try:
            line = input("> " if sys.stdin.isatty() else "").strip()
        except EOFError:
            return
        except KeyboardInterrupt:
            say("")
            continue
        if line == "/end":
            return
        if line in ("/undo", "/reset"):
            conversation.undo(whole=line == "/reset")
            continue
        if not line:
            continue
        command = line.split()[0]
        if command == "/help":
            say(HELP, err=True)
            continue
        try:
            if command.startswith("/") and command[1:].isalpha() and command not in COMMANDS:
                raise CallError(f"{command}: is no command{did_you_mean(command, COMMANDS)}; /help lists them")
            if command == "/adapter":
                conversation.use(line.removeprefix("/adapter").strip())
                continue
            with closing(conversation.answer(line, request.tokens, request.sampling)) as pieces:
                for piece in pieces:
                    say(piece.text, nl=False)
            say("")
        except KeyboardInterrupt:
            say("\n(stopped)", err=True)
        except CallError as error:
            remedy = "" if line.startswith("/") else "; /reset begins anew"
            say(f"{error}{remedy}", err=True, colour="red")
