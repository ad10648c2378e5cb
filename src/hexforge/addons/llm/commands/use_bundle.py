# SPDX-License-Identifier: Apache-2.0
"""Commands that use a bundle: `hexforge llm run`, `chat`, `serve` and `eval`."""

from __future__ import annotations

import secrets
import socket
import sys
import time
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hexforge.addons.llm.generate import ChatSampling, Sampling
from hexforge.cli.arguments import Json, Soc
from hexforge.cli.say import say
from hexforge.cli.screen import console, print_json, spinner, table
from hexforge.errors import CallError
from hexforge.options import did_you_mean
from hexforge.request_fields import argument, option, required, spelled

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


def serve(
    model: BundleToRun,
    port: int = option(8080, "The port, on this machine's own address.", min=1, max=65535),
    token: str = option("", "What clients must show; one is made if left out.", envvar="HEXFORGE_LLM_TOKEN"),
    together: int = option(8, "Answers at a time; others wait.", min=1, max=64),
    at_device_speed: bool = option(False, "Give tokens as fast as the chip is estimated to."),
    soc: Soc = "",
) -> None:
    """Serve a bundle on this machine as OpenAI's API: streams, stop texts, seeds, many clients."""
    from hexforge.addons.llm.serving.app import serve as served
    from hexforge.addons.llm.serving.requests import device_pace

    _refuse_a_taken_port(port)
    key = token or secrets.token_urlsafe(24)
    loaded = model.loaded()
    loaded.prepare_adapters()
    pace = device_pace(loaded.bundle, soc) if at_device_speed else None
    say(f"{loaded.bundle.name} at http://127.0.0.1:{port}/v1" + ("" if token else f" with the token {key}"))
    served(loaded, key, port=port, together=together, pace=pace)


def _refuse_a_taken_port(port: int) -> None:
    """CallError where nothing can be served at a port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise CallError(f"--port {port}: {error.strerror}; give another") from None


def evaluate(
    model: BundleToRun,
    checkpoint: Path = required("What it was exported from."),
    text: Path = required("A text that the model was not trained on."),
    length: int | None = option(None, "Tokens of a row; each row begins anew. [default: 256, or the context]", min=2),
    rows: int = option(0, "At most so many rows; 0: all.", min=0),
    blame: bool = option(False, "Say what each layer's rounding costs."),
    as_json: Json = False,
) -> None:
    """Say how well a bundle predicts a text, how near it is to its float model, and which layer is to blame."""
    from hexforge.addons.llm.exporting.evaluate import evaluate_bundle

    loaded = model.loaded()
    context = loaded.bundle.context
    if length is not None and length > context:
        raise CallError(f"--length {length}: a row does not fit the context of {context}; give 2 to {context}")
    with spinner("reading the text"):
        result = evaluate_bundle(
            loaded, checkpoint, text.read_text(encoding="utf-8", errors="replace"),
            length=length or min(256, context), rows=rows, blame=blame,
        )  # fmt: skip
    if as_json:
        print_json(asdict(result))
        return
    change = result.perplexity / result.float_perplexity - 1
    say(f"perplexity {result.perplexity:.3f}, of the float model {result.float_perplexity:.3f} ({change:+.2%})")
    say(f"the same first choice at {result.same_first:.2%} of {result.tokens:,} tokens")
    say(f"mean divergence of shares {result.divergence:.5f} nats")
    if result.blame:
        worst = sorted(result.blame.items(), key=lambda item: -item[1])
        rows_shown = [(name, f"{lost:.5f}") for name, lost in worst]
        console().print(table("Rounded alone", ("weights of", "divergence"), rows_shown))
