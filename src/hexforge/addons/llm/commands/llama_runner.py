# SPDX-License-Identifier: Apache-2.0
"""`hexforge llm llama-runner`: qnn_llama_runner's flags, prompts, files and last lines, over a bundle or a .pte."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hexforge.errors import CallError, HexforgeError
from hexforge.formats.files import write_atomically
from hexforge.ir import Array
from hexforge.request_fields import FlagsAsNamed, option
from hexforge.terminal_text import visible

if TYPE_CHECKING:
    from hexforge.addons.llm import LlmSession
    from hexforge.addons.llm.serving.requests import Pace
    from hexforge.ir import Array


@dataclass(frozen=True, slots=True)
class PromptForm:
    """The parts of a prompt in order: s what the model is told first, u what the user says, a how an answer begins."""

    order: str = "u"
    user: str = "{}"
    system: str = ""
    answer: str = ""
    ends: tuple[str, ...] = ()
    """Tokens that end an answer, where the tokenizer has them."""

    def formatted(self, prompt: str, system: str) -> str:
        """A prompt as the runner gives it to the model."""
        parts = {"u": self.user.format(prompt), "s": self.system.format(system) if system else "", "a": self.answer}
        return "".join(parts[part] for part in self.order)


_IM_USER, _IM_SYSTEM = "<|im_start|>user\n{}<|im_end|>\n", "<|im_start|>system\n{}<|im_end|>\n"
_IM_ENDS = ("<|im_end|>", "<|endoftext|>")
_TURN, _TURN_ENDS = "<start_of_turn>user\n{}<end_of_turn>\n", ("<end_of_turn>", "<eos>")
_GEMMA = PromptForm("uas", _TURN, "{}<end_of_turn>\n", "<start_of_turn>model\n", _TURN_ENDS)

PROMPT_FORMS: Mapping[str, PromptForm] = {
    "llama2": PromptForm(),
    "llama3": PromptForm(
        "sua", "<|start_header_id|>user<|end_header_id|>\n\n{}<|eot_id|>",
        "<|start_header_id|>system<|end_header_id|>\n\n{}<|eot_id|>",
        "<|start_header_id|>assistant<|end_header_id|>\n\n", ("<|eot_id|>", "<|eot|>", "<|end_of_text|>"),
    ),
    "gemma": _GEMMA,
    "gemma2": PromptForm("ua", _TURN, "", "<start_of_turn>model\n", _TURN_ENDS),
    "gemma3": _GEMMA,
    "granite": PromptForm(
        "sua", "<|start_of_role|>user<|end_of_role|>{}<|end_of_text|>\n",
        "<|start_of_role|>system<|end_of_role|>{}<|end_of_text|>\n", "<|start_of_role|>assistant<|end_of_role|>",
        ("<|end_of_text|>",),
    ),
    "phi_4_mini": PromptForm(
        "sua", "<|user|>{}<|end|>", "<|system|>{}<|end|>", "<|assistant|>", ("<|end|>", "<|endoftext|>")
    ),
    "qwen2_5": PromptForm(ends=_IM_ENDS),
    "qwen3": PromptForm("usa", _IM_USER, _IM_SYSTEM, "<|im_start|>assistant", _IM_ENDS),
    "smollm2_135m": PromptForm("sua", _IM_USER, _IM_SYSTEM, "<|im_start|>assistant\n\n", _IM_ENDS),
    "smollm3": PromptForm("sua", _IM_USER, "<|im_start|>system\n{}\n\n", "<|im_start|>assistant\n", _IM_ENDS),
    "codegen": PromptForm(ends=("<|endoftext|>",)),
    "glm": PromptForm("usa", "<|user|>\n{}", "<|system|>\n{}", "<|assistant|>\n", ("<|user|>",)),
}  # fmt: skip


KV, HYBRID, LOOKAHEAD = range(3)


@dataclass(frozen=True, slots=True)
class LlamaRunnerFlags(FlagsAsNamed):
    """The flags of qnn_llama_runner, under their own names."""

    decoder_model_version: str = option("llama2", "The kind of model: llama2, llama3, …")
    model_path: Path = option(Path("kv_llama_qnn.pte"), "The .pte of llama.py, or a bundle (`hexforge llm export`).")
    output_path: Path = option(Path("outputs.txt"), "Where prompts and answers are written.")
    performance_output_path: Path = option(Path("inference_speed.txt"), "Where tokens a second are written.")
    dump_logits_path: Path | None = option(None, "Where logits go, as the model gives them.")
    tokenizer_path: Path = option(
        Path("tokenizer.bin"), "tokenizer.bin, tokenizer.json or tokenizer.model of the model."
    )
    prompt: list[str] | None = option(None, "A prompt; several are turns of a conversation.")
    tokenized_prompt: Path | None = option(None, "Tokens as uint64 in a file.")
    system_prompt: str = option("", "What the model is told first.")
    temperature: float = option(0.0, "0: the most likely token always.", min=0.0)
    seq_len: int = option(128, "Tokens of prompt and answer together.")
    eval_mode: int = option(KV, "0 token by token, 1 prompts at once, 2 lookahead.", min=0, max=2)
    shared_buffer: bool = option(False, "Changes nothing here.", "--shared_buffer/--noshared_buffer")
    kv_updater: str = option("SmartMask", "SmartMask or ShiftPointer; caches stay in place here.")
    num_iters: int = option(1, "How often all prompts are given.", min=1)
    ngram: int = option(0, "Of lookahead.")
    window: int = option(0, "Of lookahead.")
    gcap: int = option(0, "Of lookahead.")
    attention_sink_rope_path: Path | None = option(None, "A .pte that evicts old tokens, so that sequences go on.")
    soc: str = option("", "Report the times that this chip is estimated to take.")

    @property
    def reads_pieces(self) -> bool:
        """Whether a prompt is read in pieces of several tokens where the model can."""
        return self.eval_mode != KV

    def require_sound(self) -> None:
        """CallError, in the runner's words, for flags that do not go together."""
        if self.decoder_model_version not in PROMPT_FORMS:
            raise CallError(f"decoder_model_version {self.decoder_model_version!r}: Unsupported Decoder Model")
        if self.prompt and self.tokenized_prompt is not None:
            raise CallError("Only provide prompt or tokenized_input but not both.")
        if self.dump_logits_path is not None and self.reads_pieces:
            raise CallError("Only TokenGenerator(kv) mode is supported to dump all logits.")
        if self.kv_updater not in ("SmartMask", "ShiftPointer"):
            raise CallError(f"kv_updater {self.kv_updater!r}: SmartMask and ShiftPointer are")


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
    from hexforge.addons.llm.serving.requests import device_pace

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
    from hexforge.addons.llm.decoder_graphs import DecoderFacts
    from hexforge.addons.llm.generate import LanguageModel
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


DEFAULT_PROMPT = "The answer to the ultimate question is"


@dataclass
class _Turn:
    """One prompt and its answer: counts, and when what happened, in ms."""

    load_start: float
    load_end: float
    start: float
    prompt_tokens: int = 0
    generated: int = 0
    first: float = 0.0
    end: float = 0.0

    def report(self) -> str:
        """The line that scripts look for, with ExecuTorch's own keys."""
        said = {
            "prompt_tokens": self.prompt_tokens, "generated_tokens": self.generated,
            "model_load_start_ms": int(self.load_start), "model_load_end_ms": int(self.load_end),
            "inference_start_ms": int(self.start), "inference_end_ms": int(self.end),
            "prompt_eval_end_ms": int(self.first), "first_token_ms": int(self.first),
            "aggregate_sampling_time_ms": 0, "SCALING_FACTOR_UNITS_PER_SECOND": 1000,
        }  # fmt: skip
        return f"PyTorchObserver {json.dumps(said, separators=(',', ':'))}"

    @property
    def rate(self) -> float:
        """Generated tokens a second, from the beginning of the prompt."""
        return 1e3 * self.generated / max(self.end - self.start, 1e-3)

    def lines(self) -> list[str]:
        """What the runner logs last."""
        read, answered = max(self.first - self.start, 1e-3), max(self.end - self.first, 1e-3)
        return [
            f"\tPrompt Tokens: {self.prompt_tokens}    Generated Tokens: {self.generated}",
            f"\tModel Load Time:\t\t{(self.load_end - self.load_start) / 1e3:f} (seconds)",
            f"\tTotal inference time:\t\t{(self.end - self.start) / 1e3:f} (seconds)\t\t"
            f" Rate: \t{self.rate:f} (tokens/second)",
            f"\t\tPrompt evaluation:\t{read / 1e3:f} (seconds)\t\t"
            f" Rate: \t{1e3 * self.prompt_tokens / read:f} (tokens/second)",
            f"\t\tGenerated {self.generated} tokens:\t{answered / 1e3:f} (seconds)\t\t"
            f" Rate: \t{1e3 * self.generated / answered:f} (tokens/second)",
            f"\tTime to first generated token:\t{read / 1e3:f} (seconds)",
            f"\tSampling time over {self.prompt_tokens + self.generated} tokens:\t{0:f} (seconds)",
        ]


def llama_runner(flags: LlamaRunnerFlags) -> None:
    """Answer prompts with the flags, files and last lines of ExecuTorch's qnn_llama_runner."""
    try:
        flags.require_sound()

        began = time.time() * 1e3
        model = load_model(flags)
        _log(f"creating module: model_path={flags.model_path}")
        _log(f"creating runner: tokenizer_path={flags.tokenizer_path}")
        _log(f"eval mode={flags.eval_mode}")
        if flags.eval_mode == LOOKAHEAD:
            _log("lookahead gives the tokens of mode 1; they come as those do here")
        runner = _Runner(flags, model, (began, time.time() * 1e3))
        for _ in range(flags.num_iters):
            if flags.tokenized_prompt is not None:
                runner.answer(_tokens_of(flags.tokenized_prompt), "")
                continue
            for prompt in flags.prompt or [DEFAULT_PROMPT]:
                runner.answer(None, model.formatted(prompt, flags.system_prompt))
        write_atomically(flags.output_path, "".join(runner.said).encode())
        if flags.dump_logits_path is not None:
            write_atomically(flags.dump_logits_path, b"".join(runner.logits))
    except HexforgeError as error:
        sys.stdout.write(visible(f"E executorch:runner] {error}\n"))
        raise


class _Runner:
    """Prompts and answers over one session."""

    def __init__(self, flags: LlamaRunnerFlags, model: RunnerSession, loaded: tuple[float, float]) -> None:
        self.flags, self.model, self.loaded = flags, model, loaded
        self.said: list[str] = []
        self.logits: list[bytes] = []
        self.seq_len = flags.seq_len
        if self.seq_len <= 0 or (self.seq_len > model.context and not model.endless):
            _log(f"Warning: seq_len ({self.seq_len}) is not from 1 to the context of the model. Using {model.context}.")
            self.seq_len = model.context

    def answer(self, tokens: list[int] | None, text: str) -> None:
        """One turn, and what the runner says of it."""
        turn = self._turn(tokens, text)
        sys.stdout.write(f"{turn.report()}\n")
        for line in turn.lines():
            _log(line)
        write_atomically(self.flags.performance_output_path, f"{turn.rate:g}".encode())

    def _turn(self, tokens: list[int] | None, text: str) -> _Turn:
        """One turn; times are those of this computer, or of the chip."""
        from hexforge.addons.llm.generate import Sampler, Sampling

        model, session, words = self.model, self.model.session, self.model.session.model.text
        turn = _Turn(*self.loaded, start=time.time() * 1e3)
        tokens = words.encode(text, not session.tokens) if tokens is None else tokens
        if len(session.tokens) + len(tokens) >= self.seq_len:
            raise CallError("sequence length exceeded - please increase the seq_len value")
        self.said.append(text)
        sampler, stream, began = Sampler(Sampling(self.flags.temperature)), words.stream(), model.now_ms()
        turn.prompt_tokens, before = len(tokens), len(session.tokens)

        def read(piece: Sequence[int]) -> Array:
            logits = session.feed(piece)
            if self.flags.dump_logits_path is not None:
                self.logits.append(model.dumped(logits))
            return logits

        for piece in [tokens] if self.flags.reads_pieces or not tokens else [[token] for token in tokens]:
            logits = read(piece)
        prompted = model.now_ms()
        while (token := sampler.choose(sampler.shares(logits, session.tokens))) not in session.model.bundle.end_tokens:
            self.said.append(stream.text(token))
            turn.generated += 1
            if len(session.tokens) + 1 >= self.seq_len:
                _log(f"Sequence length ({self.seq_len} tokens) reached!")
                break
            logits = read([token])
        spent = (prompted - began, model.now_ms() - prompted)
        if model.pace is not None:
            later = (model.pace.token(before + turn.prompt_tokens + i) for i in range(1, turn.generated))
            spent = (1e3 * model.pace.first_token(turn.prompt_tokens), 1e3 * sum(later))
        turn.first = turn.start + spent[0]
        turn.end = turn.first + spent[1]
        return turn


def _log(line: str) -> None:
    sys.stderr.write(visible(f"I executorch:runner] {line}\n"))


def _tokens_of(path: Path) -> list[int]:
    import numpy as np

    if not path.is_file() or path.stat().st_size % 8 or not path.stat().st_size:
        raise CallError(f"Unable to read tokenized prompt from file: {path}")
    return [int(token) for token in np.fromfile(path, "<u8")]
