# SPDX-License-Identifier: Apache-2.0
"""What `hexforge llm llama-runner` runs: a session over a bundle, or over the decoder in a .pte with its tokenizer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hexforge.addons.llm.commands.llama_runner_flags import LlamaRunnerFlags
from hexforge.addons.llm.commands.runner_prompts import PROMPT_FORMS
from hexforge.errors import CallError
from hexforge.ir import Array

if TYPE_CHECKING:
    from hexforge.addons.llm import LlmSession
    from hexforge.addons.llm.serve_answers import Pace

AS_THEY_ARE = ("llama2", "codegen")
"""Models whose bundles take a prompt without a chat template."""
ENDLESS = 1 << 62
"""The context of a session whose caches evict tokens."""


@dataclass(frozen=True, slots=True)
class RunnerSession:
    """A session, and what is a bundle's own way, or that of a .pte."""

    session: LlmSession
    context: int
    """The most tokens of a sequence that nothing is evicted from."""
    formatted: Callable[[str, str], str]
    """A prompt with what the model is told first, as the model was taught to read it."""
    dumped: Callable[[Array], bytes]
    """The logits of the last token that was read, as they are dumped."""
    now_ms: Callable[[], float] = lambda: time.time() * 1e3
    """The clock that runs take time of: this computer's, or a simulated device's."""
    pace: Pace | None = None
    """How fast a chip is estimated to answer, where that is asked for."""

    @property
    def endless(self) -> bool:
        """Whether sequences go on past the context."""
        return self.session.model.bundle.context == ENDLESS


def load_model(flags: LlamaRunnerFlags) -> RunnerSession:
    """The model of a path: a .pte, or a bundle."""
    path = flags.model_path
    if path.suffix == ".pte" and not (path.parent / "bundle.json").is_file():
        return _pte_model(flags)
    return _bundle_model(flags)


def _bundle_model(flags: LlamaRunnerFlags) -> RunnerSession:
    """A bundle of `hexforge llm export`, with its own chat template; its times are the estimate's."""
    from hexforge.addons.llm import load
    from hexforge.addons.llm.serve_answers import device_pace

    path, tokenizer = flags.model_path, flags.tokenizer_path
    if flags.attention_sink_rope_path is not None:
        raise CallError(f"{flags.attention_sink_rope_path}: evicts tokens of a .pte; {path} is a bundle")
    model = load(path if path.is_dir() else path.parent)
    own = model.bundle.folder / "tokenizer.json"
    if tokenizer != type(flags)().tokenizer_path:
        if not tokenizer.is_file():
            raise CallError(f"{tokenizer}: Failed to load tokenizer: no such file")
        if tokenizer.read_bytes() != own.read_bytes():
            raise CallError(f"{tokenizer}: is another model's tokenizer; the bundle's is {own}")
    pace = device_pace(model.bundle, flags.soc) if flags.soc else None

    def formatted(prompt: str, system: str) -> str:
        if flags.decoder_model_version in AS_THEY_ARE:
            return prompt
        before = [{"role": "system", "content": system}] if system else []
        return model.text.chat([*before, {"role": "user", "content": prompt}])

    return RunnerSession(model.session(), model.bundle.context, formatted, lambda logits: logits.tobytes(), pace=pace)


def _pte_model(flags: LlamaRunnerFlags) -> RunnerSession:
    """A decoder of ExecuTorch's llama.py, with the words that qnn_llama_runner puts around a prompt."""
    from hexforge.addons.executorch.running.attention_sink import SinkEvictor
    from hexforge.addons.executorch.running.decoder import PteGraphs, read_decoder
    from hexforge.addons.llm.generate import LanguageModel
    from hexforge.addons.llm.graphs.decoder_graphs import DecoderFacts
    from hexforge.addons.llm.tokenizer_files import read_tokenizer

    decoder, sink = read_decoder(flags.model_path, flags.soc), flags.attention_sink_rope_path
    evictor = None if sink is None else SinkEvictor(sink, decoder, flags.soc)
    graphs, form = PteGraphs(decoder, flags.reads_pieces, evictor), PROMPT_FORMS[flags.decoder_model_version]
    text = read_tokenizer(flags.tokenizer_path, decoder.vocabulary)
    # What the tokenizer says, and the words of the version that are tokens; else what the file says.
    ends = {number for word in form.ends if (number := text.number(word)) is not None} | text.end_tokens
    # Where every method takes several tokens, caches are full before the context is; the last token is not fed.
    context = min(decoder.context, max(method.room for method in graphs.methods) + 2)
    room, ends = context if evictor is None else ENDLESS, ends or set(decoder.end_tokens)
    facts = DecoderFacts(decoder.folder, decoder.name, room, decoder.vocabulary, decoder.layers, tuple(ends))
    session = LanguageModel(facts, graphs, text=text).session()
    model = RunnerSession(session, context, form.formatted, lambda logits: graphs.raw.tobytes())
    return replace(model, now_ms=lambda: graphs.spent_ms) if flags.soc else model
