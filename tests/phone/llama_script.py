# SPDX-License-Identifier: Apache-2.0
"""ExecuTorch's llama.py, from the installed wheel and unchanged, on a virtual phone, from export to its last line.

    python -m tests.phone.llama_script FOLDER [--phone SERIAL] [--soc SM8650] [--mode kv|hybrid]

What is not the script's own, and is said: the weights of the small model (two layers of stories260k's width) are random
and its tokenizer is made of the standard library's text. So its words mean nothing; the script's comparison of the
phone's logits with torch's QDQ model (`SQNR Eval Score between CPU QDQ and QNN`) does.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
import textwrap
from pathlib import Path

from hexforge.phone.adb_folder import adb_folder
from hexforge.phone.phones import add_phone, list_phones
from hexforge.phone.sdk_root import EXECUTORCH_BUILD, sdk_root

SCRIPT = "executorch.examples.qualcomm.oss_scripts.llama.llama"
WIDE, LAYERS, HEADS, CACHED_HEADS, VOCABULARY, INNER = 64, 2, 8, 4, 512, 172


def write_model(folder: Path) -> None:
    """Random weights under the names of Meta's checkpoints, with their parameters."""
    import torch

    print("stand-in: stories260k is not downloaded, the weights are random", flush=True)
    torch.manual_seed(0)
    rows = CACHED_HEADS * WIDE // HEADS
    state = {"tok_embeddings": torch.randn(VOCABULARY, WIDE), "norm": torch.ones(WIDE)}
    state["output"] = 0.2 * torch.randn(VOCABULARY, WIDE)
    for layer in range(LAYERS):
        for name, shape in {
            "attention.wq": (WIDE, WIDE), "attention.wk": (rows, WIDE), "attention.wv": (rows, WIDE),
            "attention.wo": (WIDE, WIDE), "feed_forward.w1": (INNER, WIDE), "feed_forward.w2": (WIDE, INNER),
            "feed_forward.w3": (INNER, WIDE),
        }.items():  # fmt: skip
            state[f"layers.{layer}.{name}"] = torch.randn(shape) * shape[1] ** -0.5
        state[f"layers.{layer}.attention_norm"] = state[f"layers.{layer}.ffn_norm"] = torch.ones(WIDE)
    torch.save({"model": {f"{name}.weight": value for name, value in state.items()}}, folder / "stories.pt")
    sizes = {"dim": WIDE, "n_layers": LAYERS, "n_heads": HEADS, "n_kv_heads": CACHED_HEADS, "vocab_size": VOCABULARY}
    (folder / "params.json").write_text(json.dumps(sizes | {"multiple_of": 4, "max_seq_len": 512}))


def write_tokenizer(folder: Path) -> None:
    """A tokenizer of the text of two modules, and sentences to calibrate with."""
    import sentencepiece
    from pytorch_tokenizers.llama2c import Llama2cTokenizer

    text = Path(textwrap.__file__).read_text() + Path(argparse.__file__).read_text()
    (folder / "text.txt").write_text("\n".join(line.strip() for line in text.splitlines() if line.strip()))
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text.txt"), model_prefix=str(folder / "tokenizer"), vocab_size=VOCABULARY,
        model_type="bpe", byte_fallback=True, character_coverage=1.0, bos_id=1, eos_id=2, unk_id=0, minloglevel=2,
    )  # fmt: skip
    Llama2cTokenizer(str(folder / "tokenizer.model")).export(str(folder / "tokenizer.bin"))
    said = {"messages": [{"role": "user", "content": "Wrap a single paragraph of text, returning a list of lines."}]}
    (folder / "calibration.json").write_text(json.dumps([said]))


def run_script(folder: Path, serial: str, soc: str, mode: str) -> None:
    """Run llama.py on a phone, which is added where there is none."""
    if serial not in [phone.serial for phone in list_phones()]:
        add_phone(serial, soc)
    os.environ["PATH"] = f"{adb_folder()}{os.pathsep}{os.environ['PATH']}"
    os.environ["QNN_SDK_ROOT"] = str(sdk_root())
    folder.mkdir(parents=True, exist_ok=True)
    from hexforge.executorch import enable

    enable()
    write_model(folder)
    write_tokenizer(folder)
    sys.argv = [
        "llama.py", "--decoder_model", "stories260k", "--checkpoint", str(folder / "stories.pt"), "--params",
        str(folder / "params.json"), "--tokenizer_model", str(folder / "tokenizer.model"), "--tokenizer_bin",
        str(folder / "tokenizer.bin"), "--prompt", "Once upon a time", "--model_mode", mode, "--max_seq_len", "64",
        "--prefill_ar_len", "16", "--calib_samples", str(folder / "calibration.json"), "--soc_model", soc,
        "--build_folder", str(sdk_root() / EXECUTORCH_BUILD), "--device", serial, "--temperature", "0",
        "--eval_methods", "prompt_eval", "sqnr_eval", "-a", str(folder / mode),
    ]  # fmt: skip
    print(" ".join(sys.argv), flush=True)
    runpy.run_module(SCRIPT, run_name="__main__", alter_sys=True)


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--phone", default="example")
    parser.add_argument("--soc", default="SM8650")
    parser.add_argument("--mode", choices=("kv", "hybrid"), default="hybrid")
    given = parser.parse_args()
    run_script(given.folder.absolute(), given.phone, given.soc, given.mode)


if __name__ == "__main__":
    main()
