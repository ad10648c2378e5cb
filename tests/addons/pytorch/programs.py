# SPDX-License-Identifier: Apache-2.0
"""Programs of torch as people have them: convolutional, recurrent, transformers, open sizes, control flow, mutation."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


class Convolutional(nn.Module):
    """A stem, a depthwise block with a residual, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.Hardswish())
        self.depthwise = nn.Conv2d(16, 16, 5, padding=2, groups=16)
        self.pointwise = nn.Conv2d(16, 16, 1)
        self.head = nn.Linear(16, 10)

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        x = self.stem(picture)
        x = x + self.pointwise(torch.relu(self.depthwise(x)))
        return self.head(x.mean((2, 3)))


class Recurrent(nn.Module):
    """An LSTM over a sequence, of which the last state is used."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 16, num_layers=2, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(sequence)
        return self.head(states[:, -1])


class Upsampling(nn.Module):
    """An encoder and a decoder with a connection between them."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(2, 8)
        self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.out = nn.Conv2d(11, 3, 3, padding=1)

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        x = self.up(nn.functional.silu(self.norm(self.down(picture))))
        x = nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
        return self.out(torch.cat((nn.functional.avg_pool2d(x, 2), picture), 1))


class Attention(nn.Module):
    """An encoder layer of torch's own."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.encoder(tokens)


class Chosen(nn.Module):
    """Control flow that depends on the data."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: self.one(x), lambda x: self.other(x).relu(), (x,))


class Counting(nn.Module):
    """A buffer that every run changes."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return x + self.count


class Several(nn.Module):
    """Inputs by keyword, and outputs in a dictionary."""

    def forward(self, first: torch.Tensor, *, second: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"sum": first + second, "top": torch.topk(first * second, 2).values}


@contextmanager
def without_torchvision() -> Iterator[None]:
    """The torchvision beside ExecuTorch is its Python code alone, which fails when transformers looks at it."""
    before = sys.modules.get("torchvision")
    sys.modules["torchvision"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["torchvision"]
        if before is not None:
            sys.modules["torchvision"] = before


def _bert() -> tuple[nn.Module, tuple[Any, ...]]:
    with without_torchvision():
        from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    model = BertModel(BertConfig(vocab_size=100, max_position_embeddings=32, **sizes))
    return model, (torch.randint(0, 100, (1, 12)), torch.ones(1, 12, dtype=torch.int64))


def _vit() -> tuple[nn.Module, tuple[Any, ...]]:
    with without_torchvision():
        from transformers import ViTConfig, ViTModel

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    return ViTModel(ViTConfig(image_size=32, patch_size=8, **sizes)), (torch.randn(1, 3, 32, 32),)


def _llama() -> tuple[nn.Module, tuple[Any, ...]]:
    with without_torchvision():
        from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = LlamaConfig(vocab_size=64, intermediate_size=64, **sizes, use_cache=False)
    return LlamaForCausalLM(config), (torch.randint(0, 64, (1, 8)),)


BATCH = torch.export.Dim("batch", min=1, max=16)
PROGRAMS: dict[str, Callable[[], tuple[nn.Module, tuple[Any, ...], dict[str, Any], Any]]] = {
    "convolutional": lambda: (Convolutional(), (torch.randn(1, 3, 32, 32),), {}, None),
    "open_batch": lambda: (Convolutional(), (torch.randn(2, 3, 32, 32),), {}, {"picture": {0: BATCH}}),
    "recurrent": lambda: (Recurrent(), (torch.randn(1, 6, 8),), {}, None),
    "upsampling": lambda: (Upsampling(), (torch.randn(1, 3, 16, 16),), {}, None),
    "attention": lambda: (Attention(), (torch.randn(1, 6, 32),), {}, None),
    "chosen": lambda: (Chosen(), (torch.randn(2, 4),), {}, None),
    "several": lambda: (Several(), (torch.randn(1, 5),), {"second": torch.randn(1, 5)}, None),
    "bert": lambda: (*_bert(), {}, None),
    "vit": lambda: (*_vit(), {}, None),
    "llama": lambda: (*_llama(), {}, None),
}
"""Name -> module, inputs, inputs by keyword, and which sizes stay open."""
