# SPDX-License-Identifier: Apache-2.0
"""Language models here: decode and prefill beside llama.cpp and onnxruntime, and what memory could do at best.

    python -m benchmarks.llm [llama-3.2-1b] [qwen3-0.6b] [--threads 1 2] [--context 256] [--prompt 128]

Weights are random, of 4 bits in blocks of 32, made on the fly. hexforge has float activations in a graph of its own,
and 16-bit ones in the bundle that `hexforge llm export` makes, run as `hexforge llm run` does. Every engine has a
process of its own and they take turns; of each the best turn counts, in processor time and in wall time. The read
floor is the time in which this machine reads the packed weights once, in the same turns. llama.cpp runs in the
interpreter that --llama names, in which `xllamacpp` or `llama-cpp-python`, and `gguf`, are installed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import ROOT
from benchmarks.arguments import add_names
from benchmarks.models.language import SHAPES, Shape, write_onnx

SOC = "SM8650"
ENGINES = ("hexforge", "hexforge w4a16", "onnxruntime", "llama.cpp", "read floor")
MODELS = {"llama-3.2-1b": "llama_v3_2_1b_instruct", "qwen3-0.6b": "qwen3_0_6b"}
"""What `hexforge llm export` calls the shapes."""


class Child:
    """An engine in a process of its own: a line asks for a turn, a line answers."""

    def __init__(self, engine: str, command: Sequence[str], threads: int) -> None:
        self.engine, self.best = engine, dict[str, dict[str, float]]()
        kept = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"OMP_NUM_THREADS": str(threads)}
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=kept, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.loaded = self.ask("load")

    def ask(self, what: str) -> dict[str, float]:
        """One turn; the best of each kind of turn is kept."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(what + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("{"):
                answer: dict[str, float] = json.loads(line)
                known = self.best.get(what, answer)
                self.best[what] = {key: min(value, known[key]) for key, value in answer.items()}
                return answer
        raise RuntimeError(f"{self.engine} ended with status {self._process.wait()}")

    def __enter__(self) -> Child:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class Hexforge:
    """Two graphs of one context, for a token and for a prompt, whose caches are updated in place."""

    def __init__(self, folder: Path, shape: Shape, prompt: int, context: int, threads: int) -> None:
        from hexforge.backends.htp.numbers.program import HtpProgram
        from hexforge.runtime.contexts.context import Context
        from hexforge.runtime.registry import backend

        file = Context(folder / "context.bin")
        htp = backend("htp", {"soc_model": SOC}, threads=threads)
        self._programs = {n: file.program(name, htp) for n, name in ((1, "token"), (prompt, "prompt"))}
        assert all(isinstance(p, HtpProgram) and not p.facts.references for p in self._programs.values())
        first: Any = self._programs[1]
        self._caches = {i: np.zeros(v.shape, np.float32) for v in first.inputs if (i := v.name).startswith("past")}
        self._targets = {o: self._caches[i] for o, i in first.states.items()}
        assert len(self._targets) == len(self._caches)

    def step(self, tokens: np.ndarray[Any, Any], at: int) -> None:
        """Some tokens from a position on."""
        feeds = {"tokens": tokens[None], "position": np.arange(at, at + len(tokens))} | self._caches
        self._programs[len(tokens)].run_into(feeds, self._targets)


class HexforgeBundle:
    """What `hexforge llm run` does with a bundle at w4a16; a thread has a processor."""

    def __init__(self, folder: Path, shape: Shape, prompt: int, context: int, threads: int) -> None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
        import hexforge

        self._session = hexforge.addons.llm.load(folder / "bundle").session()
        self._session.feed([3])

    def step(self, tokens: np.ndarray[Any, Any], at: int) -> None:
        """Some tokens from a position on, behind those that are there."""
        known = len(self._session.tokens)
        self._session.rewind(min(at, known))
        if len(tokens) == 1 and known < at:  # the tokens before were not read
            self._session.feed([3] * (at - known))
        self._session.feed(tokens.tolist())


class Onnxruntime:
    """GroupQueryAttention with buffers that past and present share, products with 8-bit activations inside."""

    def __init__(self, folder: Path, shape: Shape, prompt: int, context: int, threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        path, providers = str(folder / "fused.onnx"), ["CPUExecutionProvider"]
        self._session = onnxruntime.InferenceSession(path, options, providers=providers)
        size = (1, shape.groups, context, shape.head)
        self._caches = {
            f"{what}_{layer}": onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(size, np.float32))
            for what in ("key", "value")
            for layer in range(shape.layers)
        }

    def step(self, tokens: np.ndarray[Any, Any], at: int) -> None:
        """Some tokens from a position on."""
        binding, total = self._session.io_binding(), at + len(tokens)
        binding.bind_cpu_input("tokens", tokens[None])
        binding.bind_cpu_input("last", np.array([total - 1], np.int32))
        binding.bind_cpu_input("total", np.array([total], np.int32))
        for name, value in self._caches.items():
            binding.bind_ortvalue_input(f"past_{name}", value)
            binding.bind_ortvalue_output(f"present_{name}", value)
        binding.bind_output("logits")
        self._session.run_with_iobinding(binding)


class ReadFloor:
    """Every byte of the packed weights, read once by each thread's share."""

    def __init__(self, folder: Path, shape: Shape, prompt: int, context: int, threads: int) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self._parts = np.array_split(np.ones(shape.packed_bytes, np.uint8), threads)
        self._pool = ThreadPoolExecutor(threads)

    def step(self, tokens: np.ndarray[Any, Any], at: int) -> None:
        """As if for a token."""
        if len(tokens) == 1:
            list(self._pool.map(np.max, self._parts))


def serve(engine: str, folder: Path, shape: Shape, prompt: int, context: int, threads: int) -> None:
    """Answer turns until the input ends."""
    made: Any = None
    for line in sys.stdin:
        start, begun = time.perf_counter(), time.process_time()
        if line.strip() == "load":
            made = {
                "hexforge": Hexforge,
                "hexforge w4a16": HexforgeBundle,
                "onnxruntime": Onnxruntime,
                "read floor": ReadFloor,
            }[engine](folder, shape, prompt, context, threads)
        elif line.strip() == "prefill":
            made.step(np.arange(prompt, dtype=np.int64) + 3, 0)
        else:
            for at in range(prompt, prompt + int(line)):
                made.step(np.array([at % 50], np.int64), at)
        answer = {"wall": time.perf_counter() - start, "cpu": time.process_time() - begun, "resident": resident_gb()}
        print(json.dumps(answer), flush=True)


def resident_gb() -> float:
    """Memory of this process that is its own or mapped, now."""
    fields = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return float(fields["VmRSS"].split()[0]) / 1e6


def export(folder: Path, name: str, prompt: int, context: int) -> None:
    """Compile both graphs into a file, or export a bundle; tells processor time, wall time and the peak of memory."""
    import resource

    import hexforge

    start, begun = time.perf_counter(), time.process_time()
    if name in MODELS:
        bundle = hexforge.addons.llm.ExportRequest(SOC, context, (prompt, 1), "w4a16")
        hexforge.addons.llm.export(MODELS[name], folder / "bundle", bundle, random_seed=0)
    else:
        models = [folder / f"{name}.onnx" for name in ("token", "prompt")]
        request = hexforge.ContextRequest(graph_names=("token", "prompt"), weight_sharing=True)
        hexforge.compile(models, folder / "context.bin", SOC, request)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(json.dumps({"wall": time.perf_counter() - start, "cpu": time.process_time() - begun, "resident": peak}))


def measured(name: str, threads: int, given: argparse.Namespace, folder: Path) -> Table:
    """Interleaved turns of all engines, as a table."""
    shape, sizes = SHAPES[name], [given.prompt, given.context, threads]
    own = [sys.executable, "-m", "benchmarks.llm", "--serve"]
    commands = {e: [*own, e, str(folder), name, *map(str, sizes)] for e in ENGINES if e != "llama.cpp"}
    if (folder / "model.gguf").exists():
        script = ROOT / "benchmarks" / "peers" / "llama_process.py"
        commands["llama.cpp"] = [given.llama, str(script), str(folder / "model.gguf"), *map(str, sizes)]
    if not (folder / "bundle").exists():
        del commands["hexforge w4a16"]
    children = [Child(engine, command, threads) for engine, command in commands.items()]
    for _ in range(given.rounds):
        for child in children:
            child.ask(str(given.tokens))
            if child.engine != "read floor":
                child.ask("prefill")
    table = Table(
        "engine", "decode: ms a token (cpu)", "(wall)", "of llama.cpp's rate", "of the read floor's time",
        "prefill: tokens a second (cpu)", "(wall)", "resident GB", "of packed weights",
        title=f"{name}, {threads} thread{'s' * (threads > 1)}, {given.prompt} tokens before, context {given.context}",
    )  # fmt: skip
    best = {child.engine: child.best for child in children}
    what = "cpu" if threads == 1 else "wall"
    token = {e: b[str(given.tokens)][what] / given.tokens for e, b in best.items()}
    for child in children:
        decode, prefill = child.best[str(given.tokens)], child.best.get("prefill")
        cells = [child.engine, *(f"{1e3 * decode[k] / given.tokens:.1f}" for k in ("cpu", "wall"))]
        cells.append(f"{token['llama.cpp'] / token[child.engine]:.2f}" if "llama.cpp" in token else "")
        cells.append(f"{token[child.engine] / token['read floor']:.2f}")
        cells += [f"{given.prompt / prefill[k]:.1f}" for k in ("cpu", "wall")] if prefill else ["", ""]
        cells += [f"{decode['resident']:.2f}", f"{1e9 * decode['resident'] / shape.packed_bytes:.2f}"]
        table.add_row(*cells)
        child.__exit__(None, None, None)
    return table


def main() -> int:
    """Print a table for each shape and number of threads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_names(parser, "shape", SHAPES, ["llama-3.2-1b", "qwen3-0.6b"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=8, help="tokens of a turn")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--llama", default=str(ROOT / ".venv-llama" / "bin" / "python"))
    given = parser.parse_args()
    screen = Console(width=180)
    for name in given.shapes:
        with tempfile.TemporaryDirectory() as made:
            folder, shape = Path(made), SHAPES[name]
            write_onnx(folder / "token.onnx", shape, 1, given.context)
            write_onnx(folder / "prompt.onnx", shape, given.prompt, given.context)
            write_onnx(folder / "fused.onnx", shape, 0, given.context, fused=True)
            if Path(given.llama).exists():
                command = [given.llama, str(ROOT / "benchmarks" / "peers" / "llama_process.py"), "--write", name]
                subprocess.run([*command, str(folder / "model.gguf")], check=True)
            else:
                screen.print(f"no interpreter {given.llama}: llama.cpp is left out")
            for kind, made_file in (("graphs", "context.bin"), (name, "bundle/context.bin")):
                if kind == name and name not in MODELS:
                    continue
                own = [sys.executable, "-m", "benchmarks.llm", "--export", str(folder), kind]
                told = subprocess.run(
                    [*own, str(given.prompt), str(given.context)], check=True, cwd=ROOT, capture_output=True
                )
                cost = json.loads(told.stdout.splitlines()[-1])
                screen.print(
                    f"{name}: {made_file} made in {cost['wall']:.0f} s ({cost['cpu']:.0f} s of processor time), at "
                    f"most {cost['resident']:.1f} GB; it has {(folder / made_file).stat().st_size / 1e9:.2f} GB, the "
                    f"packed weights {shape.packed_bytes / 1e9:.2f} GB"
                )
            for threads in given.threads:
                screen.print(measured(name, threads, given, folder))
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        engine, folder, name, *sizes = sys.argv[2:]
        serve(engine, Path(folder), SHAPES[name], *map(int, sizes))
    elif sys.argv[1:2] == ["--export"]:
        export(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
    else:
        raise SystemExit(main())
