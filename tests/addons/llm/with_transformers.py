# SPDX-License-Identifier: Apache-2.0
"""Run by an environment with transformers: random checkpoints of JSON's cases, and torch's logits beside each."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
import transformers


def drawn(model: torch.nn.Module, offset: float) -> None:
    """Random weights, norms and biases such that every one of them matters."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.copy_(torch.rand_like(weight) * 0.8 + 0.6 - offset)
            elif name.endswith("bias"):
                weight.normal_(0, 0.3)
            else:
                weight.normal_(0, 0.5 if "embed_tokens" in name else 1.5 / weight.shape[-1] ** 0.5)


def main(cases: str, folder: str) -> None:
    """A case has settings of the config, maybe `class`, `dtype` and `shard`, and what the written config is without."""
    for name, case in json.loads(Path(cases).read_text()).items():
        torch.manual_seed(7)
        settings = dict(case["config"])
        kind = settings.pop("model_type")
        config = transformers.AutoConfig.for_model(kind, **settings)
        made = getattr(transformers, case.get("class", "AutoModelForCausalLM"))
        model = made(config) if "class" in case else made.from_config(config)
        drawn(model, 1.0 if "gemma" in kind else 0.0)
        at = Path(folder) / name
        model.to(getattr(torch, case.get("dtype", "float32"))).save_pretrained(
            at, max_shard_size=case.get("shard", "5GB")
        )
        model = type(model).from_pretrained(at, dtype=torch.float32, attn_implementation="eager").eval()
        tokens = torch.randint(3, config.get_text_config().vocab_size, (1, 48))
        with torch.no_grad():
            logits = model(input_ids=tokens).logits[0]
        np.savez(at / "expected.npz", tokens=tokens[0].numpy(), logits=logits.numpy())
        said = {k: v for k, v in json.loads((at / "config.json").read_text()).items() if k not in case.get("drop", ())}
        (at / "config.json").write_text(json.dumps(said | case.get("set", {})))


if __name__ == "__main__":
    main(*sys.argv[1:])
