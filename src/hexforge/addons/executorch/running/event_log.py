# SPDX-License-Identifier: Apache-2.0
"""EventLog: what runs of a method did, kept for an etdump file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hexforge.addons.executorch.blob import ops_key
from hexforge.addons.executorch.formats.etdump import LoggedTensor, ProfileEvent, RunLog, TensorStore, scalar_type
from hexforge.addons.executorch.running.delegate import QnnDelegate
from hexforge.chips.graph_config import THREADS
from hexforge.ir import Array

EXECUTE, INIT, LOAD = "Method::execute", "Method::init", "Program::load_method"
DELEGATE, OPERATOR = "DELEGATE_CALL", "OPERATOR_CALL"
"""What ExecuTorch's runtime calls these events."""
FIRST_OP = 2
"""The number of a graph's first op in QNN's profiles."""
BASIC, DETAILED = 1, 2
"""Profile levels: what a delegate spent as a whole, and what each of its ops did."""


class EventLog:
    """Collects events of runs; a level of 0 leaves it to what a delegate was compiled with. Times are
    nanoseconds of this computer, cycles of a chip where the name says so.
    """

    def __init__(self, profile_level: int = 0, tensors: TensorStore | None = None) -> None:
        self.profile_level = profile_level
        self.tensors = tensors
        self.runs: list[RunLog] = []

    def begin(self, name: str) -> None:
        """A run begins."""
        self.runs.append(RunLog(name))

    def profile(self, name: str, start_ns: int, end_ns: int, instruction: int = -1) -> None:
        """Something that took time."""
        self.runs[-1].events.append(ProfileEvent(name, start_ns, end_ns, instruction))

    def kernel(self, index: int, name: str, start_ns: int, end_ns: int, outputs: Sequence[Array]) -> None:
        """An operator was run."""
        self.profile(f"native_call_{name.partition('::')[2]}", start_ns, end_ns, index)
        self.profile(OPERATOR, start_ns, end_ns, index)
        for output in outputs:
            self._log(name, output, index)

    def delegate(self, index: int, delegate: QnnDelegate, start_ns: int, end_ns: int, outputs: Sequence[Array]) -> None:
        """A delegate was run."""
        for name, count in measures(delegate, end_ns - start_ns, self.profile_level):
            self.runs[-1].events.append(ProfileEvent("", 0, count, index, name))
        self.profile(DELEGATE, start_ns, end_ns, index)
        for tensor in delegate.last:
            self._log(tensor.name, tensor.array, index, tensor.name)
        for value, output in zip(delegate.outputs, outputs, strict=True):
            self._log(value.name, output, index, value.name)

    def output(self, array: Array) -> None:
        """An output of the run."""
        self._log("output", array, -1, is_output=True)

    def _log(self, name: str, array: Array, index: int, delegate: str = "", is_output: bool = False) -> None:
        kind = scalar_type(array.dtype)
        offset = None if self.tensors is None or kind is None else self.tensors.put(array)
        if offset is not None and kind is not None:
            self.runs[-1].events.append(
                LoggedTensor(name, kind, tuple(array.shape), offset, index, delegate, is_output)
            )


def measures(delegate: QnnDelegate, elapsed_ns: int, level: int) -> list[tuple[str, int]]:
    """What QNN's profiling says of a graph, in its words; on the chip that the context was made for.

    A level of 0 leaves it to what the delegate was compiled with.
    """
    level = level or (delegate.options.profile_level if delegate.options is not None else 0)
    if level < BASIC:
        return []
    rows = [("QNN (execute) time", elapsed_ns // 1000)]
    chip: Any = delegate.context.schematic(delegate.graph)
    if chip is None:
        return rows
    accelerator = round(chip["accelerator_us"])
    rows += [
        ("Number of HVX threads used", chip[THREADS]),
        ("RPC (execute) time", round(chip["latency_us"])),
        ("QNN accelerator (execute) time", accelerator),
        ("Num times yield occured", 0),
        ("Accelerator (execute) time (cycles)", round(chip["accelerator_us"] * chip["core_mhz"])),
        ("Accelerator (execute) time", accelerator),
        ("Accelerator (execute excluding wait) time", accelerator),
    ]
    if level < DETAILED:
        return rows
    cycles, nodes = chip["columns"].index("cycles"), chip["columns"].index("nodes")
    # of ops that run as one task the first has its cycles; an op that passes removed has none
    spent = {row[nodes][0]: row[cycles] for row in chip["rows"] if row[nodes]}
    known = [node for row in chip["rows"] for node in row[nodes]]
    listed = delegate.context.info.metadata.get(ops_key(delegate.graph), "").splitlines()
    names = dict.fromkeys([*listed, *(node for node in known if node not in listed)])
    numbered = enumerate(["Input", "Output", *names], FIRST_OP)
    return rows + [(f"{node}:OpId_{number} (cycles)", spent.get(node, 0)) for number, node in numbered]
