# SPDX-License-Identifier: Apache-2.0
"""The nine models on the gpu backend: `python -m benchmarks.gpu [--model NAME] [--tinygrad CL,CUDA] [--kernels]`.

Milliseconds per inference, kernels alone and host overhead, the share of the device's fp32 peak (measured by a kernel
that works in registers alone), beside onnxruntime's CPU provider and tinygrad, interleaved in one run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import hexforge
from benchmarks.gpu_models import MODELS, GpuModel, feeds
from hexforge.backends.gpu.device import ClDevice, choose, opencl

ROUNDS = 5
BLOCK_S = 0.3


def peak_tflops(device: ClDevice, half: bool = False) -> float:
    """What a kernel that works in registers alone reaches; in half precision only with cl_khr_fp16."""
    if half and not device.half_math:
        return 0.0
    cl = opencl()
    type = "half" if half else "float"
    lanes, steps, chains = (8 if device.is_processor else 1), 2048, 16
    vector = f"{type}{lanes}" if lanes > 1 else type
    declare = "".join(f"{vector} a{i} = x + ({type}){i};" for i in range(chains))
    work = "".join(f"a{i} = a{i} * x + y;" for i in range(chains))
    total = " + ".join(f"a{i}" for i in range(chains))
    store = f"out[get_global_id(0)] = {'total.s0' if lanes > 1 else 'total'};"
    enable = "#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n" if half else ""
    source = (
        f"{enable}#pragma OPENCL FP_CONTRACT ON\nkernel void run(global {type}* out, {type} s) {{ "
        f"{vector} x = ({vector})(s), y = x; {declare} for (int i = 0; i < {steps}; i++) {{ {work} }} "
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


def milliseconds(run: Callable[[], object], seconds: float = BLOCK_S) -> float:
    """The median of runs that take about so long together."""
    run()
    times = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return 1e3 * float(np.median(times))


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


def measured(model: GpuModel, folder: Path, arguments: argparse.Namespace, peak: float) -> dict[str, Any]:
    """One row: our times, the peers' times, and how far the results are apart."""
    path = at_batch(model.at(folder), arguments.batch)
    data = feeds(path)
    options = {"gpu_tuning": "1"} if arguments.tune else {}
    begin = time.perf_counter()
    ours = session(path, options)
    made_s = time.perf_counter() - begin
    threads = onnxruntime.SessionOptions()
    threads.intra_op_num_threads = len(os.sched_getaffinity(0))
    theirs = onnxruntime.InferenceSession(str(path), threads, providers=["CPUExecutionProvider"])
    got, want = ours.run(None, data)[0], theirs.run(None, data)[0]
    scale = float(np.abs(want.astype(np.float64)).max())
    error = float(np.abs(got.astype(np.float64) - want.astype(np.float64)).max()) / scale
    times: dict[str, list[float]] = {"hexforge": [], "onnxruntime": []}
    for _ in range(ROUNDS):
        times["hexforge"].append(milliseconds(lambda: ours.run(None, data), arguments.seconds))
        times["onnxruntime"].append(milliseconds(lambda: theirs.run(None, data), arguments.seconds))
    program = ours.stages[0].runner
    inner = {v.name: data[v.name] for v in program.graph.inputs if v.name in data}
    row: dict[str, Any] = {"model": model.name, "error": error, "session_s": made_s}
    row |= {name: min(found) for name, found in times.items()}
    if len(ours.stages) == 1 and len(inner) == len(program.graph.inputs):
        runs = [program.profile(inner) for _ in range(9)]
        best = min(runs, key=lambda r: r.kernels_us)
        row |= {"kernels_ms": best.kernels_us / 1e3, "device_ms": min(r.device_us for r in runs) / 1e3}
        row["run_ms"] = milliseconds(lambda: program.run(inner), arguments.seconds)
        flops = sum(k.flops for k in best.kernels)
        row |= {"launches": len(best.kernels), "gflop": flops / 1e9}
        row["tflops"] = flops / max(best.kernels_us, 1e-9) / 1e6
        row["share"] = row["tflops"] / peak if peak else 0.0
        products = [k for k in best.kernels if k.name.startswith(("Conv", "FullyConnected", "MatMul", "Winograd"))]
        spent = sum(k.us for k in products)
        row["product_share"] = sum(k.flops for k in products) / max(spent, 1e-9) / 1e6 / peak if peak else 0.0
        # What the ops are by definition: Winograd's tiles multiply less.
        defined = 2 * sum(node.op.work(node.call).macs for node in program.graph.nodes)
        row["defined_share"] = defined / max(spent, 1e-9) / 1e6 / peak if peak else 0.0
        row["kernels"] = [(k.name, round(k.us, 2), k.flops, k.nodes[0]) for k in best.kernels]
    return row


def tinygrad_ms(path: Path, device: str, limit_s: float) -> float | str:
    """tinygrad on the same file, jitted, in a process of its own."""
    code = (
        "import sys, time, numpy as np, json\n"
        "from pathlib import Path\n"
        "from tinygrad import Tensor, TinyJit, Device\n"
        "from tinygrad.nn.onnx import OnnxRunner\n"
        "from benchmarks.gpu_models import feeds\n"
        f"path = Path({str(path)!r})\n"
        "runner = OnnxRunner(str(path))\n"
        "data = {k: Tensor(v).realize() for k, v in feeds(path).items()}\n"
        "run = TinyJit(lambda **k: next(iter(runner(k).values())).realize())\n"
        "for _ in range(4): run(**data).numpy()\n"
        "times = []\n"
        "for _ in range(60):\n"
        "    b = time.perf_counter(); run(**data); Device[Device.DEFAULT].synchronize()\n"
        "    times.append(time.perf_counter() - b)\n"
        "print(json.dumps(1e3 * float(np.median(times))))\n"
    )
    environment = {**os.environ, "DEV": device, device: "1"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=limit_s, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {limit_s:.0f} s"
    if done.returncode:
        return done.stderr.strip().splitlines()[-1][:120] if done.stderr.strip() else "failed"
    return float(json.loads(done.stdout.strip().splitlines()[-1]))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", action="append", help="only models whose names contain this")
    parser.add_argument("--folder", type=Path, default=Path("build/gpu-models"))
    parser.add_argument("--tinygrad", default="", help="devices of tinygrad to compare with: CL, CUDA, or both")
    parser.add_argument("--tinygrad-limit", type=float, default=60.0)
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
    rows = []
    for model in MODELS:
        if arguments.model and not any(part in model.name for part in arguments.model):
            continue
        row = measured(model, arguments.folder, arguments, peak)
        for name in filter(None, arguments.tinygrad.split(",")):
            row[f"tinygrad {name}"] = tinygrad_ms(at_batch(model.at(arguments.folder), arguments.batch), name,
                                                  arguments.tinygrad_limit)  # fmt: skip
        rows.append(row)
        peers = "  ".join(f"{k} {v if isinstance(v, str) else f'{v:.2f}'}" for k, v in row.items() if "tinygrad" in k)
        print(
            f"{row['model']:22} {row['hexforge']:8.3f} ms (program {row.get('run_ms', 0):.3f}, device "
            f"{row.get('device_ms', 0):.3f}, kernels {row.get('kernels_ms', 0):.3f} in {row.get('launches', 0)})  "
            f"{100 * row.get('share', 0):.1f} % of peak, products {100 * row.get('product_share', 0):.1f} % "
            f"({100 * row.get('defined_share', 0):.1f} % by definition)  "
            f"ort {row['onnxruntime']:.2f} ({row['hexforge'] / row['onnxruntime']:.2f}x)  {peers}  "
            f"error {row['error']:.1e}  session {row['session_s']:.1f} s",
            flush=True,
        )
        if arguments.kernels:
            for name, us, flops, node in sorted(row.get("kernels", ()), key=lambda k: -k[1])[:40]:
                print(f"    {us:9.2f} us  {flops / max(us, 1e-9) / 1e6:7.2f} TFLOP/s  {name}  {node}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"device": device.name, "peak": peak, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
