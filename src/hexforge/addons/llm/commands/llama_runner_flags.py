# SPDX-License-Identifier: Apache-2.0
"""The flags of ExecuTorch's qnn_llama_runner, under their own names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hexforge.addons.llm.commands.runner_prompts import PROMPT_FORMS
from hexforge.errors import CallError
from hexforge.request_fields import FlagsAsNamed, option

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
