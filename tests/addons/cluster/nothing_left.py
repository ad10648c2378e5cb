# SPDX-License-Identifier: Apache-2.0
"""Run a command, and fail where a process of Ray's that was not there before is there 20 seconds after it.

python -m tests.addons.cluster.nothing_left COMMAND [ARGUMENT]...
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

WAIT_S = 20.0
"""What processes may take to end."""
OURS = ("ray::", "/raylet", "gcs_server")
"""What the command line of a process of Ray's has: its workers rename themselves."""


def ray_processes() -> dict[int, str]:
    """Process numbers and command lines."""
    found = {}
    for folder in Path("/proc").iterdir():
        try:
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
        except OSError:  # none, or it has just ended
            continue
        program = line.partition(" ")[0]
        if folder.name.isdecimal() and any(name in program for name in OURS):
            found[int(folder.name)] = line
    return found


def left_since(before: dict[int, str], wait_s: float = WAIT_S) -> dict[int, str]:
    """Processes that were not there before and do not end in that time."""
    end = time.monotonic() + wait_s
    while True:
        left = {number: line for number, line in ray_processes().items() if number not in before}
        if not left or time.monotonic() >= end:
            return left
        time.sleep(0.2)


def main(command: list[str]) -> int:
    """The exit code of the command; 1 where it left something."""
    before = ray_processes()
    code = subprocess.run(command).returncode
    left = left_since(before)
    for number, line in left.items():
        print(f"left running: {number} {line[:100]}", file=sys.stderr)
    return code or int(bool(left))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
