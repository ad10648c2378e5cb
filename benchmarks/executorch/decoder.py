# SPDX-License-Identifier: Apache-2.0
"""A llama-shaped decoder with random weights, as ExecuTorch lowers one: kv, and hybrid (prefill and kv share weights).

Static shapes, as in ExecuTorch's own llama scripts: the cache goes in and out of the graph, right-aligned, and a mask
says which of it counts. `python -m benchmarks.executorch.models decoder` runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

import hexforge.addons.executorch
from hexforge.addons.executorch.formats.pte import read_pte

VOCABULARY, WIDTH, HEADS, KV_HEADS, HIDDEN, LAYERS, CONTEXT, PREFILL = 512, 128, 4, 2, 256, 3, 96, 16
MASKED = -100.0
HEAD = WIDTH // HEADS
Step = Callable[..., Sequence[Any]]


class Attention(nn.Module):
    """Grouped-query attention with rotary positions over what came before and what is new."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.o = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.k, self.v = (nn.Linear(WIDTH, KV_HEADS * HEAD, bias=False) for _ in range(2))

    def forward(self, x: Any, cos: Any, sin: Any, mask: Any, past_k: Any, past_v: Any) -> tuple[Any, Any, Any]:
        """The attended rows, and the keys and values of the new ones."""
        count = x.shape[1]
        q = rotated(self.q(x).view(1, count, HEADS, HEAD).transpose(1, 2), cos, sin)
        k = rotated(self.k(x).view(1, count, KV_HEADS, HEAD).transpose(1, 2), cos, sin)
        v = self.v(x).view(1, count, KV_HEADS, HEAD).transpose(1, 2)
        keys, values = torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)
        keys, values = (
            torch.cat([t[:, h * KV_HEADS // HEADS][:, None] for h in range(HEADS)], 1) for t in (keys, values)
        )
        scores = torch.matmul(q, keys.transpose(2, 3)) * HEAD**-0.5 + mask
        mixed = torch.matmul(torch.softmax(scores, -1), values).transpose(1, 2).reshape(1, count, WIDTH)
        return self.o(mixed), k, v


def rotated(x: Any, cos: Any, sin: Any) -> Any:
    """Rotary positions: halves of a head turned by their angles."""
    a, b = x[..., : HEAD // 2], x[..., HEAD // 2 :]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


class Block(nn.Module):
    """Attention and a gated feed-forward, each after a norm and beside a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.norm, self.after = Attention(), nn.RMSNorm(WIDTH, 1e-5), nn.RMSNorm(WIDTH, 1e-5)
        self.gate, self.up = (nn.Linear(WIDTH, HIDDEN, bias=False) for _ in range(2))
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: Any, *rest: Any) -> tuple[Any, Any, Any]:
        """The block's rows, and its keys and values."""
        y, k, v = self.attention(self.norm(x), *rest)
        x = x + y
        inner = self.after(x)
        return x + self.down(nn.functional.silu(self.gate(inner)) * self.up(inner)), k, v


class Decoder(nn.Module):
    """Tokens, positions, a mask and the cache to logits and the new part of the cache."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.RMSNorm(WIDTH, 1e-5), nn.Linear(WIDTH, VOCABULARY, bias=False)
        nn.init.normal_(self.head.weight, std=0.5)
        angles = torch.outer(torch.arange(CONTEXT), 10000.0 ** (-torch.arange(HEAD // 2) / (HEAD / 2)))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens: Any, positions: Any, mask: Any, *cache: Any) -> tuple[Any, ...]:
        """Logits, then keys and values of each layer."""
        x, cos, sin, new = self.embedding(tokens), self.cos[positions], self.sin[positions], []
        for i, block in enumerate(self.blocks):
            x, k, v = block(x, cos, sin, mask, cache[2 * i], cache[2 * i + 1])
            new += [k, v]
        return (self.head(self.norm(x)), *new)


def arguments(tokens: Sequence[int], seen: int, cache: Sequence[Any]) -> tuple[Any, ...]:
    """What a step is given: `seen` tokens are in the cache, at its right end."""
    count = len(tokens)
    past = CONTEXT - count
    mask = torch.full((1, 1, count, CONTEXT), MASKED)
    for row in range(count):
        mask[..., row, past - seen : past + row + 1] = 0
    kept = [c[:, :, c.shape[2] - past :] for c in cache]
    positions = torch.arange(seen, seen + count, dtype=torch.int32)
    return (torch.tensor([list(tokens)], dtype=torch.int32), positions, mask, *kept)


def empty_cache() -> list[Any]:
    """The cache before the first token."""
    return [torch.zeros(1, KV_HEADS, CONTEXT, HEAD) for _ in range(2 * LAYERS)]


def generate(prompt: Sequence[int], count: int, kv: Step, prefill: Step | None = None) -> list[int]:
    """Greedy tokens after a prompt, which is taken at once by `prefill` or token by token by `kv`."""
    cache, seen, made = empty_cache(), 0, list[int]()

    def step(run: Step, tokens: Sequence[int]) -> int:
        nonlocal cache, seen
        logits, *new = (torch.as_tensor(np.asarray(t)) for t in run(*arguments(tokens, seen, cache)))
        cache = [torch.cat([c, n], 2)[:, :, -CONTEXT:] for c, n in zip(cache, new, strict=True)]
        seen += len(tokens)
        return int(logits[0, -1].argmax())

    if prefill is not None:
        token = step(prefill, prompt)
    else:
        for given in prompt:
            token = step(kv, [given])
    for _ in range(count):
        made.append(token)
        token = step(kv, [token])
    return made


def decoder(count: int) -> int:
    """Compare the tokens of both ways with those of torch's QDQ models."""
    from executorch.backends.qualcomm.quantizer.quantizer import QnnQuantizer, QuantDtype
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    from benchmarks.executorch.models import lowered

    torch.manual_seed(0)
    model = Decoder().eval()
    prompt = torch.randint(0, VOCABULARY, (PREFILL,)).tolist()
    shapes = {"kv_forward": 1, "prefill_forward": PREFILL}
    inputs = {name: arguments(prompt[:size], 0, empty_cache()) for name, size in shapes.items()}
    qdq: dict[str, Any] = {}
    with torch.no_grad():
        for name, sample in inputs.items():
            quantizer = QnnQuantizer()
            quantizer.set_default_quant_config(QuantDtype.use_16a8w, is_linear_per_channel=True)
            prepared = prepare_pt2e(torch.export.export(model, sample, strict=True).module(), quantizer)
            step: Step = prepared
            if name == "kv_forward":
                generate(prompt, 24, step)
            else:
                for _ in range(4):
                    step(*arguments(torch.randint(0, VOCABULARY, (PREFILL,)).tolist(), 0, empty_cache()))
                step(*inputs[name])
            qdq[name] = convert_pt2e(prepared)
        kv = lowered({"forward": qdq["kv_forward"]}, {"forward": inputs["kv_forward"]})
        hybrid = lowered(qdq, inputs, weight_sharing=True)
        wanted = {
            "kv": generate(prompt, count, qdq["kv_forward"]),
            "hybrid": generate(prompt, count, qdq["kv_forward"], qdq["prefill_forward"]),
        }
    alone, both = hexforge.addons.executorch.load(kv), hexforge.addons.executorch.load(hybrid)

    def runs(module: Any, method: str) -> Step:
        return lambda *given: module.run(method, list(given))

    tokens = {
        "kv": generate(prompt, count, runs(alone, "forward")),
        "hybrid": generate(prompt, count, runs(both, "kv_forward"), runs(both, "prefill_forward")),
    }
    sizes = {
        name: sum(len(d.data) for p in read_pte(file).plans[:1] for d in p.delegates)
        for name, file in (("kv", kv), ("hybrid", hybrid))
    }
    print(
        f"{'decoder 16a8w, ' + str(LAYERS) + ' layers':<24} {'same tokens':>12} {'file bytes':>11} {'blob bytes':>11}"
    )
    for name, file in (("kv", kv), ("hybrid", hybrid)):
        same = sum(a == b for a, b in zip(tokens[name], wanted[name], strict=True))
        print(f"{name:<24} {same:>6} of {count:<3} {len(file):>10} {sizes[name]:>11}")
    print(f"hybrid holds two methods in {len(hybrid) / len(kv):.2f} times the bytes of one")
    return int(tokens != wanted)
