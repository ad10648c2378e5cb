# SPDX-License-Identifier: Apache-2.0
"""What qnn_llama_runner puts around a prompt for each --decoder_model_version, and which tokens end an answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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
