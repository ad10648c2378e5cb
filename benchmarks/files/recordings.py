# SPDX-License-Identifier: Apache-2.0
"""A whole model recorded, replayed and made smaller: `python -m benchmarks.files.recordings [--model NAME]`.

Each variant of ResNet50 runs once in a session whose calls the Saver records. The recording is replayed on the htp
backend, where every output must have the recording's bits, and on the cpu backend, whose numbers may differ by
roundings (SQNR of at least 40 dB). Then a wrong kernel is planted: the htp backend adds the first input to itself
wherever a graph adds two, and the recording is minimised against the cpu backend: one node must be left. What recording
costs is the processor time of a session with its first run against the same session without a Saver. Exits 1 where a
limit is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hexforge
from benchmarks.models.quantized import MODELS, VARIANTS, file
from hexforge.addons.saver.minimise import minimise
from hexforge.addons.saver.recorded_graphs import RecordedSession, read_session
from hexforge.addons.saver.recording import Recording
from hexforge.addons.saver.replay import copy_graph, replay
from hexforge.backends.cpu import CpuBackend
from hexforge.backends.htp.backend import HtpBackend
from hexforge.chips.htp_config import HtpConfig
from hexforge.ir import Graph
from hexforge.runtime import registry

QNN = "QNNExecutionProvider"
CHIP = "57"
LEAST_DB = 40.0
PLANTED = "ElementWiseAdd"


class WrongAdd(HtpBackend):
    """The htp backend with a wrong kernel: a sum has its first input twice."""

    def compile(self, graph: Graph) -> Any:
        """Compile the graph with every sum wrong."""
        wrong = copy_graph(graph)
        for node in [node for node in wrong if node.op.name == PLANTED]:
            wrong.set_inputs(node, [node.inputs[0]] * 2)
        return super().compile(wrong)


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Work in a folder: recordings go where the process runs."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def ran(model: Path, feeds: dict[str, Any], backend: str) -> float:
    """Processor seconds of a session and its first run."""
    start = time.process_time()
    session = hexforge.InferenceSession(str(model), providers=[(QNN, {"backend_type": backend, "soc_model": CHIP})])
    session.run(None, feeds)
    return time.process_time() - start


def recorded(model: Path, feeds: dict[str, Any], folder: Path) -> tuple[RecordedSession, float, int]:
    """A recording of one run, how much dearer it was, and its bytes."""
    with inside(folder):
        ran(model, feeds, "htp")  # imports, and files in the cache
        plain = ran(model, feeds, "htp")
        cost = ran(model, feeds, "saver") / plain
    where = folder / "saver_output"
    return read_session(Recording(where)), cost, sum(path.stat().st_size for path in where.iterdir())


def smallest(session: RecordedSession) -> tuple[int, int, list[str]]:
    """What the planted kernel is minimised to: nodes of the graph, nodes that are left, their ops."""
    graph = next(g for g in session.graphs.values() if g.executions)
    smaller = minimise(graph, WrongAdd(HtpConfig.parse({"soc_model": CHIP})), CpuBackend())
    return len(graph.graph), len(smaller.graph), [node.op.name for node in smaller.graph]


def main(arguments: list[str]) -> int:
    """Print the table; 1 where a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet50", choices=list(MODELS))
    name = parser.parse_args(arguments).model
    missed = False
    print(f"{'variant':12} {'MB':>6} {'recording':>10} {'htp':>10} {'cpu dB':>7}  planted wrong {PLANTED} minimised")
    for variant in VARIANTS:
        feeds = MODELS[name].feeds(1000)
        with tempfile.TemporaryDirectory() as folder:
            session, cost, size = recorded(file(name, variant), feeds, Path(folder))
            same = [row.equal for row in replay(session, registry.backend("htp", session.settings))]
            near = min(row.sqnr_db for row in replay(session, CpuBackend()))
            whole, left, ops = smallest(session)
        good = all(same) and near >= LEAST_DB and ops == [PLANTED]
        missed |= not good
        equal = "bit-equal" if all(same) else "DIFFERS"
        cells = f"{size / 1e6:6.1f} {cost:9.2f}x {equal:>10} {near:7.1f}"
        print(f"{variant:12} {cells}  {whole} nodes to {left}: {', '.join(ops)}{'' if good else '  MISSED'}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
