# SPDX-License-Identifier: Apache-2.0
"""Opens models in the vendor's provider, in the environment that has it: `provider_process.py` starts this.

Only the package's documented API is used: the plugin is registered with onnxruntime, options choose the library, and
the session says which nodes each provider got. A request of JSON comes in on every line of standard input, an answer of
JSON goes out for it. The libraries write lines of their own, so standard output is moved away from them first.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import numpy as np
import onnxruntime
import onnxruntime_qnn

EP = "QNNExecutionProvider"


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The nodes of each provider, as [op type, name]; the outputs go to a file where inputs are given."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = request["log_level"]
    entries = {"session.record_ep_graph_assignment_info": "1", **request["session_options"]}
    for key, value in entries.items():
        options.add_session_config_entry(key, value)
    chosen = {"backend_path": onnxruntime_qnn.get_qnn_htp_path(), **request["provider_options"]}
    options.add_provider_for_devices([d for d in onnxruntime.get_ep_devices() if d.ep_name == EP], chosen)
    session = onnxruntime.InferenceSession(request["model"], options)
    session.disable_fallback()  # else a run that fails goes on with onnxruntime's CPU, silently
    nodes: dict[str, list[list[str]]] = {}
    for part in session.get_provider_graph_assignment_info():
        nodes.setdefault(part.ep_name, []).extend([n.op_type, n.name] for n in part.get_nodes())
    if request["feeds"] is None:
        return {"nodes": nodes}
    with np.load(request["feeds"]) as file:
        feeds = {value.name: file[value.name] for value in session.get_inputs()}
    times = []
    try:
        for _ in range(request["runs"]):
            begin = time.process_time()
            results = session.run(None, feeds)
            times.append(time.process_time() - begin)
    except Exception as error:  # onnxruntime's errors have no class in common
        return {"nodes": nodes, "run_error": str(error)}
    np.savez(request["outputs"], **{o.name: r for o, r in zip(session.get_outputs(), results, strict=True)})
    return {"nodes": nodes, "cpu_s": times}


def main() -> None:
    """Answer until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    onnxruntime.register_execution_provider_library(EP, onnxruntime_qnn.get_library_path())
    for line in sys.stdin:
        try:
            made = answer(json.loads(line))
        except Exception as error:  # onnxruntime's errors have no class in common
            made = {"error": str(error)}
        print(json.dumps(made), file=answers, flush=True)


if __name__ == "__main__":
    main()
