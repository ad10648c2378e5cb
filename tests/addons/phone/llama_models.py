# SPDX-License-Identifier: Apache-2.0
"""The language models that ExecuTorch's llama.py exports: their configurations, and stand-ins for what a hub has.

The wheel has no configuration files, so the table says them (as the models' own config.json do). Weights are random;
tokenizers are trained on the standard library's text and have the models' own special tokens.
"""

from __future__ import annotations

import argparse
import base64
import json
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TURNS = (
    "{% for m in messages %}<start_of_turn>{{ m['role'] }}\n{{ m['content'] }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
ROLES = (
    "{% for m in messages %}<|start_of_role|>{{ m['role'] }}<|end_of_role|>{{ m['content'] }}<|end_of_text|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %}"
)
BARS = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
TOKENS = 2000
"""Of a trained tokenizer; the models' vocabularies are their own, and larger."""


@dataclass(frozen=True)
class LlamaModel:
    """One of llama.py's models: the facts of its configuration file, and what its tokenizer has."""

    facts: dict[str, Any]
    repo: str = ""
    """Its name on the hub; models of Meta's layout have none."""
    special: tuple[str, ...] = ()
    template: str = ""
    local_layers: str = ""
    """The layers that see a window, as they repeat: l local, g global."""
    tokens: int = TOKENS

    def configuration(self, layers: int, window: int, vocabulary: int) -> dict[str, Any]:
        """The params.json of so many of its layers and tokens; 0: all that it has."""
        some = {"n_layers": layers or self.facts["n_layers"], "vocab_size": vocabulary or self.facts["vocab_size"]}
        made = {**self.facts, **some}
        if self.local_layers:
            kinds = {"l": "sliding_attention", "g": "full_attention"}
            repeated = self.local_layers * made["n_layers"]
            made["layer_types"] = [kinds[kind] for kind in repeated[: made["n_layers"]]]
            made["sliding_window"] = window or made["sliding_window"]
        return made


def _facts(dim: int, layers: int, heads: int, cached: int, inner: int, vocabulary: int, **more: Any) -> dict[str, Any]:
    sizes = {"dim": dim, "n_layers": layers, "n_heads": heads, "n_kv_heads": cached, "hidden_dim": inner}
    return {**sizes, "vocab_size": vocabulary, "ffn_dim_multiplier": 1, **more}


QWEN = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
GEMMA = ("<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>")
_QWEN = {"rope_theta": 1e6, "use_hf_rope": True, "norm_eps": 1e-6}
_GEMMA = {"head_dim": 256, "norm_type": "gemma3", "norm_eps": 1e-6, "apply_embedding": True, "use_hf_rope": True}
_GEMMA_NORMS = {"post_attention_norm": True, "post_ffn_norm": True, "act_fn": "gelu_approx"}
MODELS = {
    "stories260k": LlamaModel(_facts(64, 5, 8, 4, 172, 512, multiple_of=4, max_seq_len=512), tokens=512),
    "stories110m": LlamaModel(_facts(768, 12, 12, 12, 2048, 32000, multiple_of=32, max_seq_len=1024)),
    "llama3_2-1b_instruct": LlamaModel(
        _facts(2048, 16, 32, 8, 8192, 128256, rope_theta=5e5, use_scaled_rope=True, rope_scale_factor=32)
    ),
    "llama3_2-3b_instruct": LlamaModel(
        _facts(3072, 28, 24, 8, 8192, 128256, rope_theta=5e5, use_scaled_rope=True, rope_scale_factor=32)
    ),
    "codegen2_1b": LlamaModel(
        _facts(2048, 16, 16, 16, 8192, 51200, use_hf_rope=True, partial_rotary_factor=0.5, use_ffn_norm=False,
               norm_type="layernorm", output_bias=True, model_architecture="CodeGenModel"),
        "Salesforce/codegen2-1B_P", ("<|endoftext|>",),
    ),
    "gemma-2b": LlamaModel(
        _facts(2048, 18, 8, 1, 16384, 256000, rope_theta=1e4, act_fn="gelu", **_GEMMA), "google/gemma-2b-it", GEMMA,
        TURNS,
    ),
    "gemma2-2b": LlamaModel(
        _facts(2304, 26, 8, 4, 9216, 256000, rope_theta=1e4, local_rope_theta=1e4, attn_logit_softcapping=50.0,
               final_logit_softcapping=30.0, sliding_window=4096, **_GEMMA, **_GEMMA_NORMS),
        "google/gemma-2-2b-it", GEMMA, TURNS, "lg",
    ),
    "gemma3-1b": LlamaModel(
        _facts(1152, 26, 4, 1, 6912, 262144, rope_theta=1e6, local_rope_theta=1e4, use_qk_norm=True,
               qk_norm_before_rope=True, sliding_window=512, **_GEMMA, **_GEMMA_NORMS),
        "google/gemma-3-1b-it", GEMMA, TURNS, "lllllg",
    ),
    "glm-1_5b": LlamaModel(
        _facts(2048, 28, 16, 4, 6144, 59264, head_dim=128, rope_theta=1e4, use_hf_rope=True,
               model_architecture="GlmForCausalLM"),
        "THUDM/glm-edge-1.5b-chat", ("<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>"), BARS,
    ),
    "granite_3_3-2b_instruct": LlamaModel(
        _facts(2048, 40, 32, 8, 8192, 49159, rope_theta=1e7, attention_multiplier=0.015625, residual_multiplier=0.22,
               logits_scaling=8.0, embedding_scale_factor=12.0),
        "ibm-granite/granite-3.3-2b-instruct", ("<|end_of_text|>", "<|start_of_role|>", "<|end_of_role|>"), ROLES,
    ),
    "phi_4_mini": LlamaModel(
        _facts(3072, 32, 24, 8, 8192, 200064, rope_theta=1e4, use_hf_rope=True, partial_rotary_factor=0.75),
        "microsoft/Phi-4-mini-instruct", ("<|endoftext|>", "<|end|>", "<|user|>", "<|system|>", "<|assistant|>"), BARS,
    ),
    "qwen2_5-0_5b": LlamaModel(
        _facts(896, 24, 14, 2, 4864, 151936, attention_qkv_bias=True, **_QWEN), "Qwen/Qwen2.5-0.5B", QWEN, CHATML
    ),
    "qwen2_5-1_5b": LlamaModel(
        _facts(1536, 28, 12, 2, 8960, 151936, attention_qkv_bias=True, **_QWEN), "Qwen/Qwen2.5-1.5B", QWEN, CHATML
    ),
    "qwen3-0_6b": LlamaModel(
        _facts(1024, 28, 16, 8, 3072, 151936, head_dim=128, use_qk_norm=True, qk_norm_before_rope=True, **_QWEN),
        "Qwen/Qwen3-0.6B", QWEN, CHATML,
    ),
    "qwen3-1_7b": LlamaModel(
        _facts(2048, 28, 16, 8, 6144, 151936, head_dim=128, use_qk_norm=True, qk_norm_before_rope=True, **_QWEN),
        "Qwen/Qwen3-1.7B", QWEN, CHATML,
    ),
    "smollm2_135m": LlamaModel(
        _facts(576, 30, 9, 3, 1536, 49152, rope_theta=1e5), "HuggingFaceTB/SmolLM2-135M-Instruct", QWEN, CHATML
    ),
    "smollm3-3b": LlamaModel(
        _facts(2048, 36, 16, 4, 11008, 128256, rope_theta=5e6, norm_eps=1e-6, no_rope_layer_interval=4),
        "HuggingFaceTB/SmolLM3-3B", QWEN, CHATML,
    ),
}  # fmt: skip


def write_checkpoint(name: str, configuration: dict[str, Any], path: Path) -> None:
    """Random weights under the names that the script's own model of this configuration has."""
    import torch
    from executorch.examples.models.llama.model_args import ModelArgs
    from executorch.examples.qualcomm.oss_scripts.llama import LLM_VARIANT_ARCHS
    from executorch.examples.qualcomm.oss_scripts.llama.model.static_llama import LlamaModel as Decoder

    if name in ("gemma-2b", "gemma3-1b"):  # as the script has it
        configuration = {**configuration, "norm_type": "rmsnorm"}
    facts = ModelArgs(**{**configuration, "max_seq_len": 8, "max_context_len": 8, "use_kv_cache": True})
    with torch.device("meta"):
        named = LLM_VARIANT_ARCHS.get(name, Decoder)(facts, ar_len=1).state_dict()
    random = torch.Generator().manual_seed(0)
    state = {}
    for key, value in named.items():
        if value.ndim == 2:
            scale = 1.0 if "tok_embeddings" in key else value.shape[1] ** -0.5
            state[key] = scale * torch.randn(value.shape, generator=random)
        elif key.endswith("bias"):
            state[key] = 0.1 * torch.randn(value.shape, generator=random)
        else:
            state[key] = 1 + 0.1 * torch.randn(value.shape, generator=random)
    torch.save({"model": state}, path)


def _text(folder: Path) -> Path:
    text = Path(textwrap.__file__).read_text() + Path(argparse.__file__).read_text()
    path = folder / "text.txt"
    path.write_text("\n".join(line.strip() for line in text.splitlines() if line.strip()))
    return path


def write_tokenizer(name: str, folder: Path) -> list[str]:
    """The tokenizer where the script looks for it; the flags that name it."""
    model = MODELS[name]
    if model.repo:
        _write_of_hub(model, folder)
        return []
    if name.startswith("llama3"):
        write_tiktoken(folder / "tokenizer.model", _text(folder), model.tokens)
        return ["--tokenizer_model", str(folder / "tokenizer.model")]
    _write_sentencepiece(folder, model.tokens)
    return ["--tokenizer_model", str(folder / "tokenizer.model"), "--tokenizer_bin", str(folder / "tokenizer.bin")]


def _write_sentencepiece(folder: Path, tokens: int) -> None:
    import sentencepiece
    from pytorch_tokenizers.llama2c import Llama2cTokenizer

    sentencepiece.SentencePieceTrainer.train(
        input=str(_text(folder)), model_prefix=str(folder / "tokenizer"), vocab_size=tokens,
        model_type="bpe", byte_fallback=True, character_coverage=1.0, bos_id=1, eos_id=2, unk_id=0, minloglevel=2,
    )  # fmt: skip
    Llama2cTokenizer(str(folder / "tokenizer.model")).export(str(folder / "tokenizer.bin"))


def _trained(text: Path, tokens: int, special: tuple[str, ...]) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    made.train([str(text)], trainers.BpeTrainer(vocab_size=tokens, special_tokens=list(special),
                                                initial_alphabet=letters, show_progress=False))  # fmt: skip
    return made


def _write_of_hub(model: LlamaModel, folder: Path) -> None:
    """A folder of the repository's name: `from_pretrained` takes it for the repository, where the script runs there."""
    from transformers import PreTrainedTokenizerFast

    made = PreTrainedTokenizerFast(
        tokenizer_object=_trained(_text(folder), model.tokens, model.special), bos_token=model.special[0],
        eos_token=model.special[0],
    )  # fmt: skip
    if model.template:
        made.chat_template = model.template
    (folder / model.repo).mkdir(parents=True, exist_ok=True)
    made.save_pretrained(folder / model.repo)


def write_tiktoken(path: Path, text: Path, tokens: int) -> None:
    """Tiktoken's form of a tokenizer: every token's bytes in base64, and its rank."""
    from tokenizers.pre_tokenizers import ByteLevel

    letters = sorted(ByteLevel.alphabet())
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    bytes_of = {chr(byte): byte for byte in plain}
    others = iter(range(256, 512))
    bytes_of |= {chr(next(others)): byte for byte in range(256) if byte not in plain}
    assert sorted(bytes_of) == letters
    named = _trained(text, tokens, ()).get_vocab()
    lines = [
        f"{base64.b64encode(bytes(bytes_of[letter] for letter in token)).decode()} {rank}"
        for token, rank in sorted(named.items(), key=lambda item: item[1])
    ]
    path.write_text("\n".join(lines) + "\n")


def write_calibration(path: Path) -> None:
    """A sentence to calibrate with."""
    said = {"messages": [{"role": "user", "content": "Wrap a single paragraph of text, returning a list of lines."}]}
    path.write_text(json.dumps([said]))
