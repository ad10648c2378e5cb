# SPDX-License-Identifier: Apache-2.0
"""`hexforge llm llama-runner`: qnn_llama_runner's flags, files and last lines, over a bundle or a .pte."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hexforge.addons.llm.commands.runner_prompts import PROMPT_FORMS
from hexforge.errors import CallError, HexforgeError
from hexforge.formats.files import write_atomically
from hexforge.terminal_text import visible

if TYPE_CHECKING:
    from hexforge.addons.llm.commands.runner_models import RunnerModel

DEFAULT_PROMPT = "The answer to the ultimate question is"
KV, HYBRID, LOOKAHEAD = range(3)


def _flag(name: str, help: str, **more: Any) -> Any:
    return typer.Option(f"--{name}", help=help, **more)


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


def llama_runner(
    decoder_model_version: Annotated[str, _flag("decoder_model_version", "The kind of model: llama2, llama3, …")] = (
        "llama2"
    ),
    model_path: Annotated[
        Path, _flag("model_path", "The .pte of llama.py, or a bundle (`hexforge llm export`).")
    ] = Path("kv_llama_qnn.pte"),
    output_path: Annotated[Path, _flag("output_path", "Where prompts and answers are written.")] = Path("outputs.txt"),
    performance_output_path: Annotated[Path, _flag("performance_output_path", "Where tokens a second are written.")] = (
        Path("inference_speed.txt")
    ),
    dump_logits_path: Annotated[
        Path | None, _flag("dump_logits_path", "Where logits go, as the model gives them.")
    ] = None,
    tokenizer_path: Annotated[
        Path, _flag("tokenizer_path", "tokenizer.bin, tokenizer.json or tokenizer.model of the model.")
    ] = Path("tokenizer.bin"),
    prompt: Annotated[list[str] | None, _flag("prompt", "A prompt; several are turns of a conversation.")] = None,
    tokenized_prompt: Annotated[Path | None, _flag("tokenized_prompt", "Tokens as uint64 in a file.")] = None,
    system_prompt: Annotated[str, _flag("system_prompt", "What the model is told first.")] = "",
    temperature: Annotated[float, _flag("temperature", "0: the most likely token always.", min=0.0)] = 0.0,
    seq_len: Annotated[int, _flag("seq_len", "Tokens of prompt and answer together.")] = 128,
    eval_mode: Annotated[int, _flag("eval_mode", "0 token by token, 1 prompts at once, 2 lookahead.", min=0, max=2)] = (
        KV
    ),
    shared_buffer: Annotated[bool, typer.Option("--shared_buffer/--noshared_buffer", help="Changes nothing here.")] = (
        False
    ),
    kv_updater: Annotated[str, _flag("kv_updater", "SmartMask or ShiftPointer; caches stay in place here.")] = (
        "SmartMask"
    ),
    num_iters: Annotated[int, _flag("num_iters", "How often all prompts are given.", min=1)] = 1,
    ngram: Annotated[int, _flag("ngram", "Of lookahead.")] = 0,
    window: Annotated[int, _flag("window", "Of lookahead.")] = 0,
    gcap: Annotated[int, _flag("gcap", "Of lookahead.")] = 0,
    attention_sink_rope_path: Annotated[
        Path | None,
        _flag("attention_sink_rope_path", "A .pte that evicts old tokens, so that sequences go on."),
    ] = None,
    soc: Annotated[str, typer.Option("--soc", help="Report the times that this chip is estimated to take.")] = "",
) -> None:
    """Answer prompts with the flags, files and last lines of ExecuTorch's qnn_llama_runner."""
    try:
        del ngram, window, gcap
        if decoder_model_version not in PROMPT_FORMS:
            raise CallError(f"decoder_model_version {decoder_model_version!r}: Unsupported Decoder Model")
        if prompt and tokenized_prompt is not None:
            raise CallError("Only provide prompt or tokenized_input but not both.")
        if dump_logits_path is not None and eval_mode != KV:
            raise CallError("Only TokenGenerator(kv) mode is supported to dump all logits.")
        if kv_updater not in ("SmartMask", "ShiftPointer"):
            raise CallError(f"kv_updater {kv_updater!r}: SmartMask and ShiftPointer are")
        from hexforge.addons.llm.commands.runner_models import RunnerFiles, load_model

        began = time.time() * 1e3
        files = RunnerFiles(model_path, tokenizer_path, attention_sink_rope_path)
        model = load_model(files, decoder_model_version, soc, several=eval_mode != KV)
        _log(f"creating module: model_path={model_path}")
        _log(f"creating runner: tokenizer_path={tokenizer_path}")
        _log(f"eval mode={eval_mode}")
        if eval_mode == LOOKAHEAD:
            _log("lookahead gives the tokens of mode 1; they come as those do here")
        runner = _Runner(model, eval_mode, temperature, seq_len)
        runner.loaded = (began, time.time() * 1e3)
        for _ in range(num_iters):
            for text in (None,) if tokenized_prompt is not None else (prompt or [DEFAULT_PROMPT]):
                tokens = None if tokenized_prompt is None else _tokens_of(tokenized_prompt)
                given = "" if text is None else model.formatted(text, system_prompt)
                turn = runner.answer(tokens, given, dump=dump_logits_path is not None)
                sys.stdout.write(f"{turn.report()}\n")
                for line in turn.lines():
                    _log(line)
                write_atomically(performance_output_path, f"{turn.rate:g}".encode())
        write_atomically(output_path, "".join(runner.said).encode())
        if dump_logits_path is not None:
            write_atomically(dump_logits_path, b"".join(runner.logits))
    except HexforgeError as error:
        sys.stdout.write(visible(f"E executorch:runner] {error}\n"))
        raise


class _Runner:
    """Prompts and answers over one session."""

    def __init__(self, model: RunnerModel, mode: int, temperature: float, seq_len: int) -> None:
        self.model, self.mode, self.temperature = model, mode, temperature
        self.said: list[str] = []
        self.logits: list[bytes] = []
        self.loaded = (0.0, 0.0)
        self.seq_len = seq_len
        if seq_len <= 0 or (seq_len > model.context and not model.endless):
            _log(f"Warning: seq_len ({seq_len}) is not from 1 to the context of the model. Using {model.context}.")
            self.seq_len = model.context

    def answer(self, tokens: list[int] | None, text: str, dump: bool) -> _Turn:
        """One turn; times are those of this computer, or of the chip."""
        from hexforge.addons.llm.sampling import Sampler, Sampling

        model, words = self.model, self.model.text
        turn = _Turn(*self.loaded, start=time.time() * 1e3)
        tokens = words.encode(text, not model.tokens) if tokens is None else tokens
        if len(model.tokens) + len(tokens) >= self.seq_len:
            raise CallError("sequence length exceeded - please increase the seq_len value")
        self.said.append(text)
        sampler, stream = Sampler(Sampling(self.temperature)), words.stream()
        turn.prompt_tokens, before = len(tokens), len(model.tokens)
        pieces = [[token] for token in tokens] if self.mode == KV else [tokens]
        for piece in pieces:
            logits = model.feed(piece)
            if dump:
                self.logits.append(model.raw_logits)
        turn.first = time.time() * 1e3
        while True:
            token = sampler.choose(sampler.shares(logits, model.tokens))
            if token in model.end_tokens:
                break
            self.said.append(stream.text(token))
            turn.generated += 1
            if len(model.tokens) + 1 >= self.seq_len:
                _log(f"Sequence length ({self.seq_len} tokens) reached!")
                break
            logits = model.feed([token])
            if dump:
                self.logits.append(model.raw_logits)
        turn.end = time.time() * 1e3
        if (spent := model.spent_ms(turn.prompt_tokens, before, turn.generated)) is not None:
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
