# SPDX-License-Identifier: Apache-2.0
"""A program for tests of shared devices.

`python -m tests.addons.device.shared_program NAME PRIORITY US TASKS COUNT PAUSE_US`.

It prints a line when it is attached, runs its graph so often, recovers from faults, and prints what each run took.
"""

from __future__ import annotations

import json
import sys

from hexforge.addons.device.codes import DeviceError
from hexforge.addons.device.contexts.binary import Binary, GraphSpec
from hexforge.addons.device.contexts.configs import CreationConfig
from hexforge.addons.device.graph_time import DeclaredTime
from hexforge.addons.device.shared.remote import connect
from hexforge.chips.priority import Priority

MB = 1 << 20


def main(name: str, priority: str, us: str, tasks: str, count: str, pause_us: str) -> None:
    """All of it."""
    qnn = connect().qnn(name, privileged=True)
    print("attached", flush=True)
    qnn.use_profile("burst")
    time = DeclaredTime(float(us), int(tasks), rpc_us=100, vtcm_bytes=8 * MB)
    binary = Binary("m", (GraphSpec("g", 100 * MB, vtcm_bytes=8 * MB, time=time),))
    context = qnn.QnnContext_createFromBinary(binary, CreationConfig(priority=Priority[priority]))
    rows, crashes = [], 0
    for _ in range(int(count)):
        try:
            done = qnn.QnnGraph_execute(context.graphs["g"])
        except DeviceError as error:
            crashes += error.name == "QNN_COMMON_ERROR_SYSTEM_COMMUNICATION"
            qnn.recover(context)
            continue
        rows.append((round(done.latency_us, 3), done.yields))
        if float(pause_us):
            qnn.sleep(float(pause_us))
    qnn.QnnContext_free(context)
    qnn.client.close()
    print(json.dumps({"runs": rows, "crashes": crashes}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
