# SPDX-License-Identifier: Apache-2.0
"""Workers end with their node, whatever they are at, and `make cluster` finds what is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from tests import ROOT
from tests.addons.cluster.nothing_left import left_since, main, ray_processes

WORKER = """
import sys, time
from hexforge.addons.cluster.ray_actors import end_with_parent
end_with_parent(0.05)
print("ready", flush=True)
while True: sum(range(1000))
"""
NODE = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_worker_that_works_ends_when_its_node_is_killed() -> None:
    node = subprocess.Popen([sys.executable, "-c", NODE, WORKER], stdout=subprocess.PIPE, text=True)
    assert node.stdout is not None
    assert node.stdout.readline() == "ready\n"
    (worker,) = (int(n) for n in Path(f"/proc/{node.pid}/task/{node.pid}/children").read_text().split())
    os.kill(node.pid, signal.SIGKILL)
    node.wait()
    end = time.monotonic() + 30
    while Path(f"/proc/{worker}").exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert not Path(f"/proc/{worker}").exists()
    node.stdout.close()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_process_that_is_left_is_found(capfd: pytest.CaptureFixture[str]) -> None:
    before = ray_processes()
    named = subprocess.Popen(["bash", "-c", "exec -a ray::_Actor sleep 60"])
    try:
        time.sleep(0.2)
        assert named.pid in left_since(before, 0.5)
    finally:
        named.kill()
        named.wait()
    assert named.pid not in left_since(before, 1)
    assert main([sys.executable, "-c", "raise SystemExit(3)"]) == 3
    assert main([sys.executable, "-c", ""]) == 0
    assert capfd.readouterr().err == ""


def test_the_extra_has_what_two_machines_and_urls_take() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    names = {requirement.partition(">")[0] for requirement in extras["cluster"]}
    assert names == {"ray", "pyarrow", "fsspec", "pandas", "aiohttp", "requests"}
