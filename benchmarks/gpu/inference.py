# SPDX-License-Identifier: Apache-2.0
"""The nine models on the gpu backend, beside tinygrad where it is asked for.

    python -m benchmarks.gpu.inference [--model NAME] [--tinygrad CL,CUDA] [--kernels]

Milliseconds per inference, kernels alone and host overhead, the share of the device's fp32 peak (measured by a kernel
that works in registers alone), beside onnxruntime's CPU provider and tinygrad, interleaved in one run.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import hexforge
from benchmarks.models.gpu_architectures import MODELS, GpuModel, feeds
from benchmarks.peers.tinygrad_process import Tinygrad, median_ms
from hexforge.addons.gpu.device import ClDevice, choose, opencl

ROUNDS = 5
BLOCK_S = 0.3


def peak_tflops(device: ClDevice, half: bool = False) -> float:
    """What a kernel that works in registers alone reaches; in half precision only with cl_khr_fp16."""
    if half and not device.half_math:
        return 0.0
    cl = opencl()
    type = "half" if half else "float"
    lanes, steps, chains = (8 if device.is_processor else 2 if half else 1), 2048, 16
    vector = f"{type}{lanes}" if lanes > 1 else type
    own = f"({type})(get_global_id(0) & 7)"
    declare = "".join(f"{vector} a{i} = x + ({type}){i} + {own};" for i in range(chains))
    work = "".join(f"a{i} = a{i} * x + y;" for i in range(chains))
    total = " + ".join(f"a{i}" for i in range(chains))
    whole = " + ".join(f"total.s{i}" for i in range(lanes)) if lanes > 1 else "total"  # no lane can be left out
    store = f"out[get_global_id(0)] = {whole};"
    apart = ", ".join(f"({type}){1 - i / 64}f" for i in range(lanes))  # what is equal would be computed once
    enable = "#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n" if half else ""
    source = (
        f"{enable}#pragma OPENCL FP_CONTRACT ON\nkernel void run(global {type}* out, {type} s) {{ "
        f"const {vector} x = s * ({vector})({apart}), y = x; {declare} for (int i = 0; i < {steps}; i++) {{ {work} }} "
        f"{vector} total = {total}; {store} }}"
    )
    queue = device.queue(profiled=True)
    items = device.units * (64 if device.is_processor else 2048)
    buffer = cl.Buffer(device.context, cl.mem_flags.READ_WRITE, items * 4)
    kernel = cl.Kernel(cl.Program(device.context, source).build(options="-cl-mad-enable"), "run")
    kernel.set_args(buffer, np.float16(0.999) if half else np.float32(0.999))
    best = 0.0
    for _ in range(6):
        event = cl.enqueue_nd_range_kernel(queue, kernel, (items,), (64 if device.is_processor else 256,))
        event.wait()
        took = (event.profile.end - event.profile.start) * 1e-9
        best = max(best, 2 * items * lanes * steps * chains / took / 1e12)
    return best


def session(path: Path, options: dict[str, str]) -> Any:
    """A session whose model runs whole on the gpu backend."""
    strict = hexforge.SessionOptions()
    strict.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    chosen = {"backend_path": "QnnGpu.dll", **options}
    return hexforge.InferenceSession(
        str(path), sess_options=strict, providers=["QNNExecutionProvider"], provider_options=[chosen]
    )


def at_batch(path: Path, batch: int) -> Path:
    """The same model for several pictures at a time."""
    import onnx

    if batch == 1:
        return path
    target = path.with_name(f"{path.stem}_batch{batch}.onnx")
    if not target.is_file():
        model = onnx.load(str(path))
        for value in (*model.graph.input, *model.graph.output):
            value.type.tensor_type.shape.dim[0].dim_value = batch
        del model.graph.value_info[:]
        onnx.save(model, str(target))
    return target


def measured(model: GpuModel, peers: list[Tinygrad], arguments: argparse.Namespace, peak: float) -> dict[str, Any]:
    """One row: our times and the peers', measured in turns, and how far our results are from onnxruntime's."""
    path = at_batch(model.at(arguments.folder), arguments.batch)
    data = feeds(path)
    begin = time.perf_counter()
    ours = session(path, {"gpu_tuning": "1"} if arguments.tune else {})
    made_s = time.perf_counter() - begin
    threads = onnxruntime.SessionOptions()
    threads.intra_op_num_threads = len(os.sched_getaffinity(0))
    theirs = onnxruntime.InferenceSession(str(path), threads, providers=["CPUExecutionProvider"])
    got, want = ours.run(None, data)[0], theirs.run(None, data)[0]
    scale = float(np.abs(want.astype(np.float64)).max())
    error = float(np.abs(got.astype(np.float64) - want.astype(np.float64)).max()) / scale
    times: dict[str, list[float]] = {"hexforge": [], "onnxruntime": []}
    for _ in range(ROUNDS):
        times["hexforge"].append(median_ms(lambda: ours.run(None, data), arguments.seconds))
        times["onnxruntime"].append(median_ms(lambda: theirs.run(None, data), arguments.seconds))
        for peer in peers:
            peer.measure(arguments.seconds)
    row: dict[str, Any] = {"model": model.name, "error": error, "session_s": made_s, "rounds": times}
    row |= {name: min(each) for name, each in times.items()}
    for peer in peers:
        row[peer.name] = peer.best("resident")
        row[f"{peer.name} hosted"] = peer.best("hosted")
        row[f"{peer.name} about"] = {k: v for k, v in peer.about.items() if k != "result"}
    program = ours.stages[0].runner
    inner = {v.name: data[v.name] for v in program.graph.inputs if v.name in data}
    if len(ours.stages) == 1 and len(inner) == len(program.graph.inputs):
        row["run_ms"] = median_ms(lambda: program.run(inner), arguments.seconds)
        row |= kernel_figures(program, inner, peak)
    return row


def kernel_figures(program: Any, inner: dict[str, Any], peak: float) -> dict[str, Any]:
    """What the device's own clock says of a program's kernels, and their share of the peak."""
    runs = [program.timed(inner)[1] for _ in range(9)]
    each_us = min((times.kernels_us for times in runs), key=sum)
    kernels = list(zip(program.launches, each_us, strict=True))
    flops = sum(launch.flops for launch, _ in kernels)
    multiplying = ("Conv", "FullyConnected", "MatMul", "Winograd")
    products = [(launch.flops, us) for launch, us in kernels if launch.name.startswith(multiplying)]
    spent = max(sum(us for _, us in products), 1e-9)
    # What the ops are by definition: Winograd's tiles multiply less.
    defined = 2 * sum(node.op.work(node.call).macs for node in program.graph.nodes)
    tflops = flops / max(sum(each_us), 1e-9) / 1e6

    def share(of: float) -> float:
        return of / peak if peak else 0.0

    return {
        "kernels_ms": sum(each_us) / 1e3, "device_ms": min(times.span_us for times in runs) / 1e3,
        "launches": len(kernels), "gflop": flops / 1e9, "tflops": tflops, "share": share(tflops),
        "product_share": share(sum(flop for flop, _ in products) / spent / 1e6),
        "defined_share": share(defined / spent / 1e6),
        "kernels": [(x.name, round(us, 2), x.flops, x.nodes[0].name) for x, us in kernels],
    }  # fmt: skip


def started(models: list[GpuModel], arguments: argparse.Namespace) -> dict[str, list[Tinygrad]]:
    """The peers of every model, prepared all at once, since each takes a core for a while."""
    names = [name for name in arguments.tinygrad.split(",") if name]
    made = {m.name: [Tinygrad(at_batch(m.at(arguments.folder), arguments.batch), n) for n in names] for m in models}
    until = time.monotonic() + arguments.tinygrad_limit
    for peers in made.values():
        for peer in peers:
            peer.prepare(until)
    return made


def shown(row: dict[str, Any]) -> str:
    """A row as one line."""
    peers = "  ".join(
        f"{k} {v if isinstance(v, str) else f'{v:.2f}'}"
        for k, v in row.items()
        if k.startswith("tinygrad") and not k.endswith("about")
    )
    return (
        f"{row['model']:22} {row['hexforge']:8.3f} ms (program {row.get('run_ms', 0):.3f}, device "
        f"{row.get('device_ms', 0):.3f}, kernels {row.get('kernels_ms', 0):.3f} in {row.get('launches', 0)})  "
        f"{100 * row.get('share', 0):.1f} % of peak, products {100 * row.get('product_share', 0):.1f} % "
        f"({100 * row.get('defined_share', 0):.1f} % by definition)  "
        f"ort {row['onnxruntime']:.2f} ({row['hexforge'] / row['onnxruntime']:.2f}x)  {peers}  "
        f"error {row['error']:.1e}  session {row['session_s']:.1f} s"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", action="append", help="only models whose names contain this")
    parser.add_argument("--folder", type=Path, default=Path("build/gpu-models"))
    parser.add_argument("--tinygrad", default="", help="devices of tinygrad to compare with: CL, CUDA, or both")
    parser.add_argument("--tinygrad-limit", type=float, default=180.0)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=BLOCK_S)
    parser.add_argument("--tune", action="store_true", help="measure tiles first (gpu_tuning=1)")
    parser.add_argument("--kernels", action="store_true", help="every kernel's time")
    parser.add_argument("--json", type=Path, help="write all figures here")
    arguments = parser.parse_args()
    device = choose()
    peak, half_peak = peak_tflops(device), peak_tflops(device, half=True)
    print(f"{device.name} ({device.platform}), {device.units} units")
    print(f"peak by registers alone: fp32 {peak:.2f} TFLOP/s, fp16 {half_peak or 'not computed in'}", flush=True)
    models = [m for m in MODELS if not arguments.model or any(part in m.name for part in arguments.model)]
    peers = started(models, arguments)
    rows = []
    for model in models:
        row = measured(model, peers[model.name], arguments, peak)
        rows.append(row)
        print(shown(row), flush=True)
        for peer in peers[model.name]:
            peer.close()
        if arguments.kernels:
            for name, us, flops, node in sorted(row.get("kernels", ()), key=lambda k: -k[1])[:40]:
                print(f"    {us:9.2f} us  {flops / max(us, 1e-9) / 1e6:7.2f} TFLOP/s  {name}  {node}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"device": device.name, "peak": peak, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
