# SPDX-License-Identifier: Apache-2.0
"""How long people wait for commands: `python -m benchmarks.commands.cli_latency [--rounds N]`.

CPU seconds (user and system) and peak memory of whole commands on real models, each in a fresh process, the least of N
rounds. The peer of each row is onnxruntime running the float model on as many samples in a process of its own, in the
same rounds: what comes on top of it is hexforge's. The last column is the same command before it was made faster, from
the issue that asked for half of it.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from benchmarks.process_cost import python_process_cost
from hexforge.model.declarations import fix_shapes
from tests.light import light
from tests.models.fetch import FILES, fetch, stored

DNSMOS = "speechmos/dnsmos_models/sig_bak_ovr.onnx"
PACKAGES = {"speechmos==0.0.1.1": (DNSMOS,)}
OCR = "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx"
IMPROVED = "w8a8+bias+equalize+range+seqmse+adaround"
PROGRAM = "from hexforge.cli import main; main()"
PEER = """
import sys, onnxruntime
from hexforge.model.reader import read
from hexforge.quant.data.samples import samples
options = onnxruntime.SessionOptions()
options.add_session_config_entry("session.intra_op.allow_spinning", "0")
session = onnxruntime.InferenceSession(sys.argv[1], options)
for feeds in samples(sys.argv[2], read(sys.argv[1]).ir):
    session.run(None, dict(feeds))
"""


@dataclass(frozen=True, slots=True)
class TimedCommand:
    """A command, the float model and samples that its peer runs, and what it took before."""

    name: str
    arguments: tuple[str, ...]
    model: Path
    samples: str
    seconds_before: float = 0.0
    megabytes_before: float = 0.0


def squeezenet(target: Path) -> Path:
    """onnx's light SqueezeNet with weights drawn at random instead of constant ones, which quantize without loss."""
    model, random = onnx.load(light("squeezenet")), np.random.default_rng(0)
    sizes = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    kept = []
    for node in model.graph.node:
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        shape = tuple(int(size) for size in sizes[node.input[0]])
        width = np.sqrt(2 / np.prod(shape[1:])) if len(shape) > 1 else 0.05
        array = (width * random.standard_normal(shape)).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, node.output[0]))
    del model.graph.node[:]
    model.graph.node.extend(kept)
    onnx.save(model, target)
    return target


def timed_commands(folder: Path) -> list[TimedCommand]:
    """The models, made ready, and the commands."""
    fetch({**FILES, **PACKAGES})
    dnsmos, ocr = folder / "dnsmos.onnx", folder / "ocr_det.onnx"
    fix_shapes(stored(DNSMOS), dnsmos, {"input_1": [1, 144160]})
    fix_shapes(stored(OCR), ocr, {"x": [1, 3, 480, 640]})
    plain, quantized = squeezenet(folder / "squeezenet.onnx"), folder / "dnsmos.w8a8.onnx"
    made = ["quantize", str(dnsmos), "--data", "random:8", "-o"]
    python_process_cost(["-c", PROGRAM, *made, str(quantized)])
    improved = (
        "quantize",
        str(plain),
        "--data",
        "random:16",
        "--recipe",
        IMPROVED,
        "-o",
        str(folder / "improved.onnx"),
    )
    return [
        TimedCommand("compare, DNSMOS, 8 samples", ("compare", str(dnsmos), str(quantized), "--data", "random:8"),
                     dnsmos, "random:8", seconds_before=16),
        TimedCommand("quantize improved, SqueezeNet, 16 samples", improved, plain, "random:16", seconds_before=67),
        TimedCommand("quantize, DNSMOS, 8 samples", (*made, str(folder / "again.onnx")), dnsmos, "random:8",
                     megabytes_before=950),
        TimedCommand("advise, PP-OCR det at 480 x 640", ("advise", str(ocr)), ocr, "random:1", seconds_before=12),
    ]  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        print("command                                      CPU s   peer s   ratio     MB   peer MB   before")
        for command in timed_commands(Path(folder)):
            runs, peers = [], []
            for _ in range(rounds):
                runs.append(python_process_cost(["-c", PROGRAM, *command.arguments]))
                peers.append(python_process_cost(["-c", PEER, str(command.model), command.samples]))
            seconds, megabytes = (min(run[i] for run in runs) for i in (0, 1))
            peer_seconds, peer_megabytes = (min(peer[i] for peer in peers) for i in (0, 1))
            before = (
                f"{command.seconds_before:.0f} s" if command.seconds_before else f"{command.megabytes_before:.0f} MB"
            )
            print(
                f"{command.name:<42} {seconds:7.1f} {peer_seconds:8.1f} {seconds / peer_seconds:7.2f} {megabytes:6.0f} "
                f"{peer_megabytes:9.0f} {before:>8}",
                flush=True,
            )


if __name__ == "__main__":
    main()
