# SPDX-License-Identifier: Apache-2.0
"""Runs models with the vendor's emulator, in the environment that has it: `vendor.py` starts this with its Python.

Only the package's documented API is used: the plugin is registered with onnxruntime, options choose the HTP library.
One line of JSON per case goes to standard output, so that what was done before a crash is not lost.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
import onnxruntime
import onnxruntime_qnn

EP = "QNNExecutionProvider"


def session(path: str, fp16: bool, soc_model: str) -> onnxruntime.InferenceSession:
    """The model on the emulator; nodes it refuses run on onnxruntime's CPU."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    chosen = {
        "backend_path": onnxruntime_qnn.get_qnn_htp_path(),
        "soc_model": soc_model,
        "offload_graph_io_quantization": "0",  # not the default: its numbers are compared, all of them
    }
    if fp16:
        chosen["enable_htp_fp16_precision"] = "1"
    options.add_provider_for_devices([d for d in onnxruntime.get_ep_devices() if d.ep_name == EP], chosen)
    return onnxruntime.InferenceSession(path, options)


def run(case: dict[str, Any], fp16: bool, soc_model: str) -> dict[str, Any]:
    """CPU seconds of each run, how many nodes each provider took; the outputs go to a file."""
    made = session(case["model"], fp16, soc_model)
    nodes: dict[str, int] = {}
    for part in made.get_provider_graph_assignment_info():
        nodes[part.ep_name] = nodes.get(part.ep_name, 0) + len(part.get_nodes())
    with np.load(case["feeds"]) as file:
        feeds = dict(file)
    cpu, wall, results = [], [], []
    for _ in range(case["runs"]):
        start = time.process_time(), time.perf_counter()
        results = made.run(None, feeds)
        cpu.append(time.process_time() - start[0])
        wall.append(time.perf_counter() - start[1])
    np.savez(case["outputs"], **{o.name: r for o, r in zip(made.get_outputs(), results, strict=True)})
    return {"cpu_s": cpu, "wall_s": wall, "nodes": nodes}


def main() -> None:
    """Run the job given as JSON on standard input."""
    job = json.load(sys.stdin)
    onnxruntime.register_execution_provider_library(EP, onnxruntime_qnn.get_library_path())
    for index, case in enumerate(job["cases"]):
        try:
            result = run(case, job["fp16"], job["soc_model"])
        except Exception as error:  # onnxruntime's errors have no class in common
            result = {"error": str(error)}
        print(json.dumps({"case": index, **result}), flush=True)


if __name__ == "__main__":
    main()
