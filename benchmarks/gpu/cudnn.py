# SPDX-License-Identifier: Apache-2.0
"""torchvision's networks on the gpu backend, beside cuDNN with CUDA graphs: `python -m benchmarks.gpu.cudnn`.

    python -m benchmarks.gpu.cudnn [--model efficientnet] [--kernels] [--json FILE]

Both compute in float32 (TF32 is off) at batch 1, in turns in one run. cuDNN may search for its fastest algorithms and
has its input and its result on the device: a replay of the graph and the wait for it are measured, in both memory
formats. Ours takes an array of the host and gives one back. Needs an NVIDIA GPU, torch and torchvision.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.inference import kernel_figures, session
from benchmarks.peers.tinygrad_process import median_ms

NETWORKS = (
    "resnet18", "resnet50", "mobilenet_v2", "mobilenet_v3_large", "efficientnet_b0", "squeezenet1_0",
    "shufflenet_v2_x1_0", "densenet121", "regnet_y_400mf", "convnext_tiny", "vit_b_16",
)  # fmt: skip
ROUNDS = 5


def exported(name: str, folder: Path, dynamo: bool) -> tuple[Any, Path]:
    """A network of torchvision with random weights, and the same as ONNX by either of torch's exporters."""
    import torch
    import torchvision

    torch.manual_seed(0)
    network = getattr(torchvision.models, name)(weights=None).eval()
    for parameter in network.parameters():
        if not parameter.any():  # else a transformer's last layer gives nothing but zeros
            torch.nn.init.normal_(parameter, std=0.02)
    path = folder / f"torchvision_{name}{'_dynamo' if dynamo else ''}.onnx"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        image = torch.zeros(1, 3, 224, 224)
        torch.onnx.export(
            network, (image,), str(path), input_names=["image"], dynamo=dynamo, external_data=False, opset_version=18
        )
    return network, path


def graphed(network: Any, image: np.ndarray, channels_last: bool) -> tuple[Callable[[], None], np.ndarray]:
    """A replay of the network as a CUDA graph that waits for its end, and what it computes."""
    import torch

    layout = torch.channels_last if channels_last else torch.contiguous_format
    network = network.cuda().to(memory_format=layout)
    x = torch.from_numpy(image).cuda().to(memory_format=layout)
    with torch.inference_mode():
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(5):
                network(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = network(x)

    def replay() -> None:
        graph.replay()
        torch.cuda.synchronize()

    replay()
    return replay, result.cpu().numpy()


def measured(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """One row: our times and cuDNN's, measured in turns."""
    network, path = exported(name, arguments.folder, arguments.dynamo)
    image = np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32)
    begin = time.perf_counter()
    ours = session(path, {})
    made_s = time.perf_counter() - begin
    (got,) = ours.run(None, {"image": image})
    peers, want = {}, np.zeros(0)
    for label, last in (("nchw", False), ("nhwc", True)):
        peers[label], want = graphed(network, image, last)
    rounds: dict[str, list[float]] = {key: [] for key in ("ours", *peers)}
    for _ in range(ROUNDS):
        rounds["ours"].append(median_ms(lambda: ours.run(None, {"image": image}), arguments.seconds))
        for label, replay in peers.items():
            rounds[label].append(median_ms(replay, arguments.seconds))
    best = {key: min(times) for key, times in rounds.items()}
    error = float(np.abs(got - want).max() / np.abs(want).max())
    row: dict[str, Any] = {"network": name, "error": error, "session_s": made_s, "rounds": rounds, **best}
    row["cudnn"] = min(best[label] for label in peers)
    program = ours.stages[0].runner
    row |= kernel_figures(program, {v.name: image for v in program.graph.inputs}, 0.0)
    return row


def main() -> None:
    """Print the table."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", action="append", help="only networks whose names contain this")
    parser.add_argument("--folder", type=Path, default=Path("build/gpu-models"))
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--dynamo", action="store_true", help="torch's newer exporter: needs onnxscript")
    parser.add_argument("--kernels", action="store_true", help="every kernel's time")
    parser.add_argument("--json", type=Path, help="write all figures here")
    arguments = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    print("| network | hexforge | device | launches | cuDNN | ratio | error |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    rows = []
    for name in NETWORKS:
        if arguments.model and not any(part in name for part in arguments.model):
            continue
        row = measured(name, arguments)
        rows.append(row)
        print(
            f"| {name} | {row['ours']:.3f} | {row['device_ms']:.3f} | {row['launches']} | {row['cudnn']:.3f} | "
            f"{row['ours'] / row['cudnn']:.2f} | {row['error']:.1e} |",
            flush=True,
        )
        if arguments.kernels:
            for kernel, us, _, node in row["kernels"]:
                print(f"    {us:9.2f} us  {kernel}  {node}")
        if arguments.json:
            arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
