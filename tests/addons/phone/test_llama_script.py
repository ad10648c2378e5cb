# SPDX-License-Identifier: Apache-2.0
"""ExecuTorch's llama.py, unchanged, from export over a virtual phone's adb to its last line, and torch's numbers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

pytest.importorskip("torch")
pytest.importorskip("executorch")
pytestmark = [pytest.mark.executorch, pytest.mark.filterwarnings("ignore")]


def script(folder: Path, *flags: str) -> str:
    """What the script says, run in a process of its own."""
    command = [sys.executable, "-m", "tests.addons.phone.llama_script", str(folder), *flags]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ}, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout + done.stderr


def agreement(said: str) -> tuple[int, int, float]:
    match = re.search(r"torch's token behind (\d+) of (\d+) tokens, SQNR ([\d.]+) dB", said)
    assert match is not None, said[-2000:]
    return int(match[1]), int(match[2]), float(match[3])


def test_a_model_of_stories(phones: Path, tmp_path: Path) -> None:
    same, tokens, sqnr = agreement(script(tmp_path, "--layers", "2", "--mode", "hybrid"))
    assert same == tokens > 40
    assert sqnr > 50


def test_a_model_with_local_layers_of_weights_in_blocks(phones: Path, tmp_path: Path) -> None:
    """Gemma 3's width with few tokens, five local layers and a global one: two masks and 8-bit caches."""
    flags = ("--model", "gemma3-1b", "--layers", "6", "--vocabulary", "8192", "--sliding_window", "16", "--mode", "kv")
    same, tokens, sqnr = agreement(script(tmp_path, *flags))
    assert same == tokens > 16
    assert sqnr > 30  # codes of 8 bits that round the other way


def test_a_sequence_longer_than_the_context(phones: Path, tmp_path: Path) -> None:
    """The evictor that llama.py exports keeps the runner going; the script's own SQNR does not take such a length."""
    flags = ("--use_attention_sink", "4,16", "--max_context_len", "64", "--max_seq_len", "128")
    said = script(tmp_path, "--layers", "1", "--mode", "kv", *flags, "--eval_methods", "prompt_eval")
    assert "Sequence length (128 tokens) reached!" in said
