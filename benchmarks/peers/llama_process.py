# SPDX-License-Identifier: Apache-2.0
"""llama.cpp in a process of its own, in an interpreter that has it: a line asks for a turn, a line answers.

python llama_process.py MODEL PROMPT CONTEXT THREADS
python llama_process.py --write SHAPE MODEL
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import Any

SHAPES = {
    "llama-3.2-1b": ("llama", 16, 2048, 32, 8, 64, 8192, 128256),
    "qwen3-0.6b": ("qwen3", 28, 1024, 16, 8, 128, 3072, 151936),
}
"""As benchmarks/models/language.py has them, which this interpreter cannot import."""


def write(name: str, path: str) -> None:
    """A GGUF file of a shape with random weights of type Q4_0, the embedding tied to the head."""
    import gguf
    import numpy as np

    kind, layers, hidden, heads, groups, head, inner, vocabulary = SHAPES[name]
    w = gguf.GGUFWriter(path, kind)
    w.add_context_length(4096)
    w.add_embedding_length(hidden)
    w.add_block_count(layers)
    w.add_feed_forward_length(inner)
    w.add_head_count(heads)
    w.add_head_count_kv(groups)
    w.add_key_length(head)
    w.add_value_length(head)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_freq_base(500000.0)
    w.add_rope_dimension_count(head)
    w.add_vocab_size(vocabulary)
    w.add_tokenizer_model("llama")
    w.add_token_list([b"<unk>", b"<s>", b"</s>", *(f"<{i}>".encode() for i in range(3, vocabulary))])
    w.add_token_scores([0.0] * vocabulary)
    w.add_token_types([2, 3, 3, *[1] * (vocabulary - 3)])
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    random = np.random.default_rng(0)

    def matrix(name: str, outputs: int, inputs: int) -> None:
        raw = (
            np.frombuffer(random.bytes(outputs * inputs // 32 * 18), np.uint8).reshape(outputs, inputs // 32, 18).copy()
        )
        step = 0.2 / inputs**0.5
        scales = random.uniform(0.5 * step, 1.5 * step, (outputs, inputs // 32)).astype(np.float16)
        raw[:, :, :2] = scales.view(np.uint8).reshape(outputs, inputs // 32, 2)
        w.add_tensor(name, raw.reshape(outputs, -1), raw_dtype=gguf.GGMLQuantizationType.Q4_0)

    def ones(name: str, size: int) -> None:
        w.add_tensor(name, np.ones(size, np.float32))

    matrix("token_embd.weight", vocabulary, hidden)
    ones("output_norm.weight", hidden)
    for i in range(layers):
        ones(f"blk.{i}.attn_norm.weight", hidden)
        ones(f"blk.{i}.ffn_norm.weight", hidden)
        matrix(f"blk.{i}.attn_q.weight", heads * head, hidden)
        matrix(f"blk.{i}.attn_k.weight", groups * head, hidden)
        matrix(f"blk.{i}.attn_v.weight", groups * head, hidden)
        matrix(f"blk.{i}.attn_output.weight", hidden, heads * head)
        if kind == "qwen3":
            ones(f"blk.{i}.attn_q_norm.weight", head)
            ones(f"blk.{i}.attn_k_norm.weight", head)
        matrix(f"blk.{i}.ffn_gate.weight", inner, hidden)
        matrix(f"blk.{i}.ffn_up.weight", inner, hidden)
        matrix(f"blk.{i}.ffn_down.weight", hidden, inner)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


class LlamaCpp:
    """The library as llama-cpp-python builds it for this machine."""

    def __init__(self, path: str, context: int, threads: int) -> None:
        import llama_cpp

        self._model = llama_cpp.Llama(
            path, n_ctx=context, n_batch=512, n_threads=threads, n_threads_batch=threads, verbose=False
        )

    def prefill(self, tokens: list[int]) -> dict[str, float]:
        """The first tokens; the time that they take."""
        self._model.reset()
        return timed(lambda: self._model.eval(tokens))

    def decode(self, count: int) -> dict[str, float]:
        """Some tokens, one after the other, behind those that are there."""
        kept = self._model.n_tokens
        took = timed(lambda: [self._model.eval([5 + i]) for i in range(count)])
        self._model.n_tokens = kept
        return took


class Prebuilt:
    """The library that xllamacpp brings, behind its server."""

    def __init__(self, path: str, context: int, threads: int) -> None:
        import xllamacpp

        given = xllamacpp.CommonParams()
        given.model.path = path
        given.n_ctx, given.n_parallel, given.warmup = context, 1, False
        given.cpuparams.n_threads = given.cpuparams_batch.n_threads = threads
        self._server, self._tokens = xllamacpp.Server(given), list[int]()

    def _complete(self, tokens: list[int], count: int) -> dict[str, float]:
        request = {"prompt": tokens, "n_predict": count, "ignore_eos": True, "cache_prompt": False, "temperature": 0}
        return timed(lambda: self._server.handle_completions(json.dumps(request), lambda _: False))

    def prefill(self, tokens: list[int]) -> dict[str, float]:
        """The first tokens; the time that they take."""
        self._tokens = tokens
        return self._complete(tokens, 1)

    def decode(self, count: int) -> dict[str, float]:
        """What so many more tokens take, behind a short prompt."""
        short, long = self._complete(self._tokens[:8], 1), self._complete(self._tokens[:8], 1 + count)
        return {key: long[key] - short[key] for key in long}


def timed(call: Any) -> dict[str, float]:
    """Wall and processor time of a call."""
    start, begun = time.perf_counter(), time.process_time()
    call()
    return {"wall": time.perf_counter() - start, "cpu": time.process_time() - begun}


def main(path: str, prompt: int, context: int, threads: int) -> None:
    """Answer turns until the input ends."""
    engine: Any = None
    tokens = [3 + i for i in range(prompt)]
    for line in sys.stdin:
        what = line.strip()
        if what == "load":
            kind = LlamaCpp if importlib.util.find_spec("llama_cpp") else Prebuilt
            start, begun = time.perf_counter(), time.process_time()
            engine = kind(path, context, threads)
            engine.prefill(tokens)
            took = {"wall": time.perf_counter() - start, "cpu": time.process_time() - begun}
        else:
            took = engine.prefill(tokens) if what == "prefill" else engine.decode(int(what))
        status = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
        print(json.dumps(took | {"resident": float(status["VmRSS"].split()[0]) / 1e6}), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--write":
        write(sys.argv[2], sys.argv[3])
    else:
        main(sys.argv[1], *map(int, sys.argv[2:]))
