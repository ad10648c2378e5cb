# SPDX-License-Identifier: Apache-2.0
"""Train a small Llama on text that ships with Python, and write it as any tool loads it.

    pip install torch tokenizers safetensors
    python -m examples.small_llama.train [FOLDER]

Writes config.json, tokenizer.json, tokenizer_config.json, generation_config.json, model.safetensors (float16, under
4 MB), held_out.txt (text that the training never saw) and reference.json (what torch generates). They are kept
in `tests/addons/llm/small`. It takes about eleven minutes on two processor cores, and a quarter of one on a GPU.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.nn import functional

from examples.small_llama.corpus import END, split_documents
from examples.small_llama.model import Llama, Shape, generated

HELD_OUT_CHARACTERS = 24_000
PROMPTS = ("Return the", "The following functions", "A class that", "If the file does not exist,")
TOKENS = 200
CHAT = "{% for message in messages %}{{ message['content'] }}\n\n{% endfor %}"


def trained_tokenizer(texts: list[str], vocabulary: int) -> Tokenizer:
    """Byte-level BPE: every text has tokens, and its tokens give it back."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def joined(tokenizer: Tokenizer, texts: list[str]) -> torch.Tensor:
    """All documents as one row of tokens, the end after each."""
    end = tokenizer.token_to_id(END)
    return torch.tensor([token for text in texts for token in (*tokenizer.encode(text).ids, end)])


@torch.no_grad()
def perplexity(model: Llama, tokens: torch.Tensor, length: int) -> float:
    """Over rows of `length` tokens, each of which begins anew."""
    rows = tokens[: (len(tokens) - 1) // length * length].view(-1, length)
    losses = [functional.cross_entropy(model(row[None, :-1])[0], row[1:]).item() for row in rows]
    return math.exp(sum(losses) / len(losses))


def train(model: Llama, tokens: torch.Tensor, held_out: torch.Tensor, arguments: argparse.Namespace) -> None:
    """AdamW with a warm-up and a cosine."""
    decayed = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=arguments.rate, betas=(0.9, 0.95))
    generator = torch.Generator().manual_seed(0)
    began, length = time.monotonic(), arguments.length
    for step in range(arguments.steps):
        share = step / arguments.steps
        rate = arguments.rate * min(1.0, (step + 1) / 50) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * share)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        starts = torch.randint(len(tokens) - length - 1, (arguments.batch,), generator=generator)
        rows = torch.stack([tokens[start : start + length + 1] for start in starts.tolist()])
        logits = model(rows[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0 or step + 1 == arguments.steps:
            print(
                f"step {step}: loss {loss.item():.3f}, held out perplexity {perplexity(model, held_out, length):.2f}, "
                f"{time.monotonic() - began:.0f} s",
                flush=True,
            )


def write(folder: Path, model: Llama, tokenizer: Tokenizer, held_out: list[str]) -> None:
    """The folder as transformers lays one out, and what torch computes with just these files."""
    folder.mkdir(parents=True, exist_ok=True)
    end, shape = tokenizer.token_to_id(END) or 0, model.shape
    (folder / "config.json").write_text(json.dumps(shape.config(end), indent=2) + "\n")
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    described = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": END, "eos_token": END, "add_bos_token": False,
        "clean_up_tokenization_spaces": False, "model_max_length": shape.max_position_embeddings, "chat_template": CHAT,
    }  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(described, indent=2) + "\n")
    ends = {"bos_token_id": end, "eos_token_id": end}
    (folder / "generation_config.json").write_text(json.dumps(ends, indent=2) + "\n")
    weights = {name: tensor.detach().cpu().half().contiguous() for name, tensor in model.state_dict().items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    text = f"\n{END}\n".join(held_out)[:HELD_OUT_CHARACTERS]
    (folder / "held_out.txt").write_text(text)
    (folder / "reference.json").write_text(json.dumps(reference(folder), indent=1) + "\n")


def reference(folder: Path) -> dict[str, object]:
    """What torch gives in float32 for the files of a folder: tokens after prompts, perplexity of held-out text."""
    described = json.loads((folder / "config.json").read_text())
    model = Llama(Shape(**{name: described[name] for name in Shape.__dataclass_fields__}))
    model.load_state_dict({name: tensor.float() for name, tensor in load_file(folder / "model.safetensors").items()})
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokens = torch.tensor(tokenizer.encode((folder / "held_out.txt").read_text()).ids)
    prompts = [(prompt, tokenizer.encode(prompt).ids) for prompt in PROMPTS]
    return {
        "perplexity": {"length": 256, "value": perplexity(model, tokens, 256)},
        "generated": [{"prompt": text, "ids": ids, "next": generated(model, ids, TOKENS)} for text, ids in prompts],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small Llama on text that ships with Python.")
    parser.add_argument("folder", type=Path, nargs="?", default=Path("small_llama"))
    parser.add_argument("--steps", type=int, default=700)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--texts", type=Path, help="JSON of two lists of documents, instead of this Python's own")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    texts, held_out = json.loads(arguments.texts.read_text()) if arguments.texts else split_documents()
    tokenizer = trained_tokenizer(texts, Shape().vocab_size)
    tokens, judged = (joined(tokenizer, part).to(arguments.device) for part in (texts, held_out))
    model = Llama(Shape()).to(arguments.device)
    print(f"{sum(p.numel() for p in model.parameters())} parameters, {len(tokens)} tokens, {len(judged)} held out")
    train(model, tokens, judged[:20_000], arguments)
    write(arguments.folder, model.cpu(), tokenizer, held_out)


if __name__ == "__main__":
    main()
