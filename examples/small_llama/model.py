# SPDX-License-Identifier: Apache-2.0
"""A Llama in plain torch: the names of its weights and of its configuration are those that transformers has."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a Llama, named as config.json names them."""

    vocab_size: int = 2048
    hidden_size: int = 256
    intermediate_size: int = 352
    num_hidden_layers: int = 3
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 64
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    max_position_embeddings: int = 1024

    def config(self, end: int) -> dict[str, Any]:
        """What config.json says; `end` is the token after a document."""
        return {
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float16",
            "hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "rope_scaling": None,
            "tie_word_embeddings": True, "bos_token_id": end, "eos_token_id": end, **asdict(self),
        }  # fmt: skip


class Norm(nn.Module):
    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.weight, self.epsilon = nn.Parameter(torch.ones(size)), epsilon

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon) * self.weight


def rotated(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cosines + torch.cat((-second, first), -1) * sines


class Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        queries, keys = shape.num_attention_heads * shape.head_dim, shape.num_key_value_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.hidden_size, queries, bias=False)
        self.k_proj = nn.Linear(shape.hidden_size, keys, bias=False)
        self.v_proj = nn.Linear(shape.hidden_size, keys, bias=False)
        self.o_proj = nn.Linear(queries, shape.hidden_size, bias=False)

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        batch, length, _ = x.shape
        query, key, value = (
            layer(x).view(batch, length, -1, self.shape.head_dim).transpose(1, 2)
            for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        mixed = functional.scaled_dot_product_attention(
            rotated(query, cosines, sines), rotated(key, cosines, sines), value, is_causal=True, enable_gqa=True
        )
        out: Tensor = self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))
        return out


class Gated(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.up_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.down_proj = nn.Linear(shape.intermediate_size, shape.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.self_attn, self.mlp = Attention(shape), Gated(shape)
        self.input_layernorm = Norm(shape.hidden_size, shape.rms_norm_eps)
        self.post_attention_layernorm = Norm(shape.hidden_size, shape.rms_norm_eps)

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cosines, sines)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.num_hidden_layers))
        self.norm = Norm(shape.hidden_size, shape.rms_norm_eps)


class Llama(nn.Module):
    """Logits for tokens; the head is the embedding."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape, self.model = shape, Decoder(shape)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                deep = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(parameter, std=0.02 / (2 * shape.num_hidden_layers) ** 0.5 if deep else 0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits [batch, length, vocabulary] for tokens [batch, length]."""
        half = torch.arange(0, self.shape.head_dim, 2, device=tokens.device, dtype=torch.float32)
        speeds = self.shape.rope_theta ** -(half / self.shape.head_dim)
        angles = torch.outer(torch.arange(tokens.shape[1], device=tokens.device, dtype=torch.float32), speeds)
        cosines, sines = (torch.cat((f(angles), f(angles)), -1) for f in (torch.cos, torch.sin))
        x = self.model.embed_tokens(tokens)
        for layer in self.model.layers:
            x = layer(x, cosines, sines)
        return functional.linear(self.model.norm(x), self.model.embed_tokens.weight)


@torch.no_grad()
def generated(model: Llama, prompt: list[int], count: int) -> list[int]:
    """The most likely next tokens, one after another, with the whole text computed anew for each."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(model(torch.tensor([tokens]))[0, -1].argmax()))
    return tokens[len(prompt) :]
