# SPDX-License-Identifier: Apache-2.0
"""What a process costs: processor time and memory, of one that is started and of the one that asks."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def python_process_cost(arguments: Sequence[str]) -> tuple[float, float]:
    """CPU seconds, user and system, and peak megabytes of one Python process; SystemExit where it fails."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    quiet = subprocess.DEVNULL
    process = subprocess.Popen([sys.executable, *arguments], stdout=quiet, stderr=quiet, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"python {' '.join(arguments)}: exit code {process.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def peak_bytes() -> int:
    """Most memory that this process ever held."""
    status = Path("/proc/self/status")
    if status.exists():  # on Linux getrusage's peak starts with that of the process that started this one
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
