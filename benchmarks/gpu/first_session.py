# SPDX-License-Identifier: Apache-2.0
"""How long a first session on the gpu backend takes, with every cache empty, and a second one with what the first kept.

    python -m benchmarks.gpu.first_session [--model NAME] [--rounds 2]

Every session is made in a process of its own, whose imports are not counted. Our cache and NVIDIA's are new folders
(HEXFORGE_GPU_CACHE, CUDA_CACHE_PATH). `kernels` are those that had to be compiled, `result` is a checksum.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.models.architectures import efficientnet_b0
from benchmarks.models.gpu_architectures import MODELS, GpuModel, feeds

NETWORKS = (GpuModel("efficientnet_b0", efficientnet_b0, 1e-4), *MODELS)
DEFAULT = ("efficientnet_b0", "resnet_50_fp32", "mobilenetv2-7", "google_bert_fp32")


def one_session(path: Path) -> dict[str, Any]:
    """Make a session in this process: seconds, and a checksum of its result."""
    import hashlib

    import hexforge.addons.gpu.backend
    import hexforge.model.reader
    import hexforge.ort.session  # noqa: F401 - what is imported late else
    from benchmarks.gpu.inference import session
    from hexforge.addons.gpu.device import choose

    device = choose()
    begin = time.perf_counter()
    made = session(path, {})
    seconds = time.perf_counter() - begin
    result = made.run(None, feeds(path))[0]
    kernels = len({launch.key for stage in made.stages for launch in stage.runner.launches})
    digest = hashlib.blake2b(result.tobytes(), digest_size=8).hexdigest()
    return {"seconds": seconds, "kernels": kernels, "result": digest, "device": device.name}


def in_a_process(path: Path, caches: str) -> dict[str, Any]:
    """The same in a new process with its caches in a folder."""
    environment = os.environ | {"HEXFORGE_GPU_CACHE": f"{caches}/hexforge", "CUDA_CACHE_PATH": f"{caches}/cuda"}
    command = [sys.executable, "-m", "benchmarks.gpu.first_session", "--session", str(path)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", action="append", help="only models whose names contain this")
    parser.add_argument("--folder", type=Path, default=Path("build/gpu-models"))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--session", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.session:
        print(json.dumps(one_session(arguments.session)))
        return
    wanted = arguments.model or DEFAULT
    print("| model | kernels | first session, s | second, s | result |")
    print("|---|---:|---:|---:|---|", flush=True)
    for model in NETWORKS:
        if not any(part in model.name for part in wanted):
            continue
        path, first, second = model.at(arguments.folder), [], []
        for _ in range(arguments.rounds):
            with tempfile.TemporaryDirectory() as caches:
                first.append(in_a_process(path, caches))
                second.append(in_a_process(path, caches))
        results = {row["result"] for row in (*first, *second)}
        best, again = (min(row["seconds"] for row in rows) for rows in (first, second))
        same = results.pop() if len(results) == 1 else "DIFFERS"
        print(f"| {model.name} | {first[0]['kernels']} | {best:.2f} | {again:.2f} | {same} |", flush=True)


if __name__ == "__main__":
    main()
