# SPDX-License-Identifier: Apache-2.0
"""Asks the vendor's EP which nodes of a model it takes, in the environment that has it: `ep.py` starts this.

Only the package's documented API is used: the plugin is registered with onnxruntime, options choose the HTP library,
and the session says which nodes each provider got. A path comes in on every line of standard input, a line of JSON goes
out for it. The libraries write lines of their own, so standard output is moved away from them first.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import onnxruntime
import onnxruntime_qnn

EP = "QNNExecutionProvider"


def assignment(path: str, provider_options: dict[str, str], log_level: int) -> dict[str, Any]:
    """The nodes of each provider, as [op type, name]."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = log_level
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    chosen = {"backend_path": onnxruntime_qnn.get_qnn_htp_path(), **provider_options}
    options.add_provider_for_devices([d for d in onnxruntime.get_ep_devices() if d.ep_name == EP], chosen)
    session = onnxruntime.InferenceSession(path, options)
    nodes: dict[str, list[list[str]]] = {}
    for part in session.get_provider_graph_assignment_info():
        nodes.setdefault(part.ep_name, []).extend([n.op_type, n.name] for n in part.get_nodes())
    return {"nodes": nodes}


def main() -> None:
    """Answer until standard input ends; the first line has the provider options and the log level."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    job = json.loads(sys.stdin.readline())
    onnxruntime.register_execution_provider_library(EP, onnxruntime_qnn.get_library_path())
    for line in sys.stdin:
        try:
            answer = assignment(line.rstrip("\n"), job["provider_options"], job["log_level"])
        except Exception as error:  # onnxruntime's errors have no class in common
            answer = {"error": str(error)}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
