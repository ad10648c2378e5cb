# SPDX-License-Identifier: Apache-2.0
"""ExecuTorch's llama.py, from the installed wheel and unchanged, on a virtual phone, from export to its last line.

    python -m tests.addons.phone.llama_script FOLDER [--model stories260k] [--layers 2] [--mode kv|hybrid|lookahead]

What is not the script's own, and is said: weights are random, and tokenizers are made of the standard library's text
(tests/addons/phone/llama_models.py). So its words mean nothing; the script's comparison of the phone's logits with
torch's QDQ model (`SQNR Eval Score between CPU QDQ and QNN`) does, and so does how often both choose the same token.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hexforge.addons.phone.phones import add_phone, list_phones
from hexforge.addons.phone.script_folders import EXECUTORCH_BUILD, adb_folder, sdk_root
from tests.addons.phone.llama_models import MODELS, write_calibration, write_checkpoint, write_tokenizer

SCRIPT = "executorch.examples.qualcomm.oss_scripts.llama.llama"
PROMPT = "Wrap every paragraph of this text so that its lines are at most that wide, and indent them all."
CONTEXT = 64


@dataclass(frozen=True)
class Agreement:
    """The phone's logits behind each token of the prompt, and those of torch's QDQ model."""

    tokens: int
    same: int
    """Where both choose the same token."""
    sqnr: float

    def __str__(self) -> str:
        return f"the phone chooses torch's token behind {self.same} of {self.tokens} tokens, SQNR {self.sqnr:.1f} dB"


@dataclass(frozen=True)
class ScriptRun:
    """What to run llama.py for."""

    folder: Path
    model: str = "stories260k"
    layers: int = 0
    """0: all that it has."""
    mode: str = "hybrid"
    window: int = 0
    """Of local layers; 0: as wide as the model's."""
    vocabulary: int = 0
    """0: all of the model's tokens, which need far more memory than its layers."""
    serial: str = "example"
    soc: str = "SM8650"
    more: tuple[str, ...] = ()
    """More flags of the script's."""

    @property
    def artifacts(self) -> Path:
        """Where the script writes."""
        return self.folder / self.mode

    def run(self) -> None:
        """Run the script to its last line, on a phone that is added where there is none."""
        if self.serial not in [phone.serial for phone in list_phones()]:
            add_phone(self.serial, self.soc)
        os.environ["PATH"] = f"{adb_folder()}{os.pathsep}{os.environ['PATH']}"
        os.environ["QNN_SDK_ROOT"] = str(sdk_root())
        os.environ["HF_HUB_OFFLINE"] = "1"
        self.folder.mkdir(parents=True, exist_ok=True)
        from hexforge.addons.executorch import enable

        enable()
        configuration = MODELS[self.model].configuration(self.layers, self.window, self.vocabulary)
        said = configuration["n_layers"], MODELS[self.model].facts["n_layers"]
        print(
            f"stand-in: {self.model} is not downloaded; {said[0]} of its {said[1]} layers, random weights", flush=True
        )
        params, checkpoint = self.folder / "params.json", self.folder / "checkpoint.pt"
        params.write_text(json.dumps(configuration))
        write_checkpoint(self.model, configuration, checkpoint)
        tokenizer = write_tokenizer(self.model, self.folder)
        write_calibration(self.folder / "calibration.json")
        sys.argv = [
            "llama.py", "--decoder_model", self.model, "--checkpoint", str(checkpoint), "--params", str(params),
            *tokenizer, "--prompt", PROMPT, "--model_mode", self.mode, "--max_seq_len", str(CONTEXT),
            "--prefill_ar_len", "16", "--calib_samples", str(self.folder / "calibration.json"), "--soc_model", self.soc,
            "--build_folder", str(sdk_root() / EXECUTORCH_BUILD), "--device", self.serial, "--temperature", "0",
            "-a", str(self.artifacts), *self.more,
        ]  # fmt: skip
        if "--eval_methods" not in self.more:
            sys.argv += ["--eval_methods", "prompt_eval", *(["sqnr_eval"] if self.mode != "lookahead" else [])]
        print(" ".join(sys.argv), flush=True)
        os.chdir(self.folder)  # a tokenizer of the hub's name is found here
        runpy.run_module(SCRIPT, run_name="__main__", alter_sys=True)

    def agreement(self) -> Agreement:
        """Compare what the phone dumped for the prompt with torch's QDQ model, position by position."""
        import torch
        from executorch.examples.qualcomm.oss_scripts.llama.utils import retrieve_info_from_pte

        (pte,) = self.artifacts.glob("*_llama_qnn.pte")
        info = retrieve_info_from_pte(str(pte))
        tokens = np.fromfile(self.artifacts / "input_tokens.raw", np.uint64).astype(np.int32)
        codes = np.fromfile(self.artifacts / "outputs/all_logits.raw", np.uint16)
        codes = codes.reshape(-1, info["output_vocab_size"])[: len(tokens)]
        phone = (codes.astype(np.float32) - info["logits_zero_point"]) * info["logits_scale"]
        model = torch.export.load(str(self.artifacts / "decode_qdq.pt2")).module()
        _round_block_scales(model)
        torchs = self._qdq_logits(tokens, model)
        noise = np.square(phone - torchs, dtype=np.float64).sum()
        sqnr = 10 * np.log10(np.square(torchs, dtype=np.float64).sum() / max(noise, 1e-30))
        return Agreement(len(tokens), int((phone.argmax(-1) == torchs.argmax(-1)).sum()), float(sqnr))

    def _qdq_logits(self, tokens: np.ndarray[Any, Any], model: Any) -> np.ndarray[Any, Any]:
        import torch

        configuration = json.loads((self.folder / "params.json").read_text())
        ids = torch.zeros(1, CONTEXT, dtype=torch.int32)
        ids[0, : len(tokens)] = torch.from_numpy(tokens)
        ago = torch.arange(CONTEXT)[:, None] - torch.arange(CONTEXT)
        seen = [ago >= 0]
        if "sliding_window" in configuration:
            seen.append((ago >= 0) & (ago < configuration["sliding_window"]))
        masks = [torch.where(each, 0.0, -255.0)[None, None] for each in seen]
        heads = configuration["n_kv_heads"]
        wide = configuration.get("head_dim") or configuration["dim"] // configuration["n_heads"]
        layers = configuration["n_layers"]
        keys = [torch.zeros(1, heads, wide, 0)] * layers
        values = [torch.zeros(1, heads, 0, wide)] * layers
        with torch.no_grad():
            logits, *_ = model(ids, *masks, torch.arange(CONTEXT, dtype=torch.int32)[None], *keys, *values)
        result: np.ndarray[Any, Any] = logits[0, : len(tokens)].numpy()
        return result


def _round_block_scales(model: Any) -> None:
    """Round the scales of weights in blocks as ExecuTorch's builders do: 1 to 16 parts of a channel's largest / 16.

    The script saves its QDQ model before that, so that what it compares with is not what the phone was given.
    """
    import torch

    for node in model.graph.nodes:
        if node.op == "call_function" and "dequantize_affine" in str(node.target):
            scale = getattr(model, node.args[2].target)
            part = scale.flatten(1).amax(1) / 16
            part = part.reshape(-1, *[1] * (scale.ndim - 1))
            with torch.no_grad():
                scale.copy_(torch.clamp(torch.round(scale / part), 1, 16) * part)


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", choices=MODELS, default="stories260k")
    parser.add_argument("--layers", type=int, default=0, help="How many of the model's layers; all where it is 0.")
    parser.add_argument("--vocabulary", type=int, default=0, help="How many of the model's tokens; all where it is 0.")
    parser.add_argument("--sliding_window", type=int, default=0, help="How many tokens local layers see.")
    parser.add_argument("--phone", default="example")
    parser.add_argument("--soc", default="SM8650")
    parser.add_argument("--mode", choices=("kv", "hybrid", "lookahead"), default="hybrid")
    given, more = parser.parse_known_args()
    folder = given.folder.absolute()
    run = ScriptRun(
        folder, given.model, given.layers, given.mode, given.sliding_window, given.vocabulary, given.phone, given.soc,
        tuple(more),
    )  # fmt: skip
    began = time.monotonic()
    run.run()
    print(f"llama.py ran to its end in {time.monotonic() - began:.0f} s", flush=True)
    if (run.artifacts / "outputs/all_logits.raw").is_file():
        print(run.agreement(), flush=True)


if __name__ == "__main__":
    main()
