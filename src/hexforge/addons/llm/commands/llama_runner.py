# SPDX-License-Identifier: Apache-2.0
"""`hexforge llm llama-runner`: qnn_llama_runner's flags, files and last lines, over a bundle or a .pte."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hexforge.addons.llm.commands.llama_runner_flags import LOOKAHEAD, LlamaRunnerFlags
from hexforge.errors import CallError, HexforgeError
from hexforge.formats.files import write_atomically
from hexforge.terminal_text import visible

if TYPE_CHECKING:
    from hexforge.addons.llm.commands.runner_session import RunnerSession
    from hexforge.ir import Array

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
        from hexforge.addons.llm.commands.runner_session import load_model

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
        from hexforge.addons.llm.sampling import Sampler, Sampling

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
