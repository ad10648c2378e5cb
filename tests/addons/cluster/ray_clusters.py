# SPDX-License-Identifier: Apache-2.0
"""Ray clusters: several nodes on this machine, and an engine that notes every run, so that work is counted."""

from __future__ import annotations

import os
import signal
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hexforge.ir import Array
from hexforge.quant.data.feeds import Feeds
from hexforge.runtime.cpu_part import WholeOnCpu

_STARTS = 5
NODE = {"num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False}


class LocalCluster:
    """A cluster on this machine that grows."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        # Ray's workers step back behind other processes, which would take minutes of a test on a busy machine
        first = NODE | {"_system_config": {"worker_niceness": 0}}
        self._cluster = Cluster(initialize_head=True, head_node_args=first)
        self._nodes = 1

    def of(self, nodes: int) -> str:
        """The address of the cluster when it has so many nodes."""
        while self._nodes < nodes:
            self.add_node()
            self._nodes += 1
        return str(self._cluster.address)

    def add_node(self) -> Any:
        """One more, to be killed."""
        for _ in range(_STARTS):
            try:
                node = self._cluster.add_node(**NODE)
                break
            except Exception as error:  # Ray waits half a minute for a node, which a busy machine may need
                late = error
        else:
            raise late
        self._cluster.wait_for_nodes()
        return node

    def kill(self, node: Any) -> None:
        """End a node as a machine ends that loses its power."""
        self._cluster.remove_node(node, allow_graceful=False)

    def close(self) -> None:
        """End all nodes."""
        import ray

        ray.shutdown()
        self._cluster.shutdown()


class WorkerKilling:
    """Kills with -9 the first worker of this process's clusters that is seen at work."""

    def __init__(self) -> None:
        self.killed = 0
        self._ended = threading.Event()
        self._watching = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> WorkerKilling:
        self._watching.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._ended.set()
        self._watching.join()

    def _watch(self) -> None:
        while not self.killed and not self._ended.wait(0.005):
            for process in (int(p.name) for p in Path("/proc").iterdir() if p.name.isdecimal()):
                if _words(process, "cmdline").startswith("ray::_Actor.work") and _descends(process):
                    os.kill(process, signal.SIGKILL)
                    self.killed = process
                    break


def _words(process: int, file: str) -> str:
    try:
        return Path(f"/proc/{process}/{file}").read_text()
    except OSError:
        return ""


def _descends(process: int) -> bool:
    """Whether this process started it, or one that did."""
    while process > 1 and process != os.getpid():
        process = int((_words(process, "stat").rpartition(") ")[2].split() or "00")[1])
    return process == os.getpid()


def digest(feeds: Feeds) -> str:
    """What tells a sample from others."""
    return f"{zlib.crc32(b''.join(np.ascontiguousarray(a).tobytes() for a in feeds.values())):08x}"


@dataclass(frozen=True)
class NotingEngine:
    """Runs models in onnxruntime, not fast, and notes each run in a file of its process."""

    folder: str
    seconds: float = 0.005

    def __str__(self) -> str:
        return "noting engine"

    def open_engine(self, model: Path | bytes, name: str) -> Callable[[Feeds], dict[str, Array]]:
        """What runs a model."""
        run = WholeOnCpu(model, name, 1).run
        notes = os.open(Path(self.folder) / str(os.getpid()), os.O_WRONLY | os.O_CREAT | os.O_APPEND)

        def noted(feeds: Feeds) -> dict[str, Array]:
            os.write(notes, digest(feeds).encode() + b"\n")
            time.sleep(self.seconds)
            return run(feeds)

        return noted

    def runs(self) -> Counter[str]:
        """How often each sample was run."""
        return Counter(line for file in Path(self.folder).iterdir() for line in file.read_text().split())

    def processes(self) -> list[int]:
        """Those that have run samples."""
        return [int(file.name) for file in Path(self.folder).iterdir()]
