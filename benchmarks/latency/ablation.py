# SPDX-License-Identifier: Apache-2.0
"""Each mechanism removed, and what the outer folds say then: `python -m benchmarks.latency --ablate`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from hexforge.addons.latency import fitting, least_squares
from hexforge.addons.latency.error_figures import figures, select
from hexforge.addons.latency.held_out import folds
from hexforge.addons.latency.measurements import MEASURED_PRECISIONS, TARGET_DEVICES, MeasuredFamily, Measurement
from hexforge.addons.latency.terms import PARAMETER_INDEX
from hexforge.addons.latency.tiled_graphs import TiledGraphs
from hexforge.backends.htp.time import schedule, tile, work
from hexforge.ir import Graph

Patch = tuple[Any, str, Any]


def held(*names: str, at: float = 1e-4) -> list[Patch]:
    """Parameters that may not be anything but a value, by their bounds and their prior."""
    bounds, prior = fitting.BOUNDS.copy(), fitting.PRIOR.copy()
    where = [PARAMETER_INDEX[name] for name in names]
    bounds[:, where], prior[where] = np.log(at), np.log(at)
    return [(fitting, "BOUNDS", bounds), (fitting, "PRIOR", prior)]


def one_host() -> list[Patch]:
    """The host's factor shrunk as those of the accelerator, and none for a call through onnx."""
    apart = fitting.CHIP_BELIEF.copy()
    apart[-2] *= fitting.ELSEWHERE / fitting.TOGETHER
    apart[-1] *= 1e4
    return [(fitting, "CHIP_BELIEF", apart)]


def unpadded_3d(task: tile.Task, node: Any, out: Sequence[int]) -> None:
    """A convolution over frames as it was counted before: a product, without padding."""
    work.other_op(task, node, 0.0)


DEVIATIONS = [name for name in PARAMETER_INDEX if name.startswith("deviation.")]
WITHOUT: Mapping[str, Callable[[], list[Patch]]] = {
    "nothing removed": list,
    "shallow tensors lie flat when they move": lambda: [(tile, "FLAT", 1 << 40)],
    "shallow images have half a tile": lambda: [(tile, "LANES", 32)],
    "groups of whole tiles are dense": lambda: [(work, "WHOLE_GROUP", 1 << 20)],
    "five axes are moved without padding": lambda: [(schedule, "TILE_AXES", 9)],
    "slices of rows cost more in float onnx graphs": lambda: [(schedule, "SLICED_ALONE", set())],
    "zeros around a window are part of it": lambda: [(schedule, "_pads_a_window", lambda node: False)],
    "small ops have a part of the fixed cost": lambda: [(work, "WHOLE_BYTES", 1e-9)],
    "norms of pixels are tiled with their neighbours": lambda: [(schedule, "ROW_NORMS", set())],
    "cuts of channels are tiled with their neighbours": lambda: [(schedule, "CUTS", set())],
    "3-D convolutions are padded": lambda: [(schedule, "convolution_3d", unpadded_3d)],
    "a learned slope is a look-up (else as a division)": lambda: [
        (schedule, "ARITHMETIC", {**schedule.ARITHMETIC, "Prelu": "divide"})
    ],
    "a fixed-point image is strided as it is packed": lambda: [(work, "STRIDED_AS_PACKED", set())],
    "onnx normalises channel-last what stays in VTCM": lambda: [(schedule, "STAYS", 1 << 20)],
    "what tiles read arrives while they work": lambda: [(tile, "_last", lambda group: range(len(group)))],
    "a host has its own time, and one for onnx": one_host,
    "dilation costs more": lambda: held("share.dilation"),
    "HMX and HVX overlap in part (else not at all)": lambda: held("serial", at=1.0),
    "precisions deviate": lambda: held(*DEVIATIONS, at=1.0),
    "far rows pull less (else as much as near ones)": lambda: [(least_squares, "TAIL", 1e3)],
    "bagging": lambda: [(fitting, "MEMBERS", 0)],
}


@contextmanager
def patched(patches: Sequence[Patch]) -> Iterator[None]:
    """Modules with other values, for a while."""
    before = [(module, name, getattr(module, name)) for module, name, _ in patches]
    try:
        for module, name, value in patches:
            setattr(module, name, value)
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def ablate(folder: Path, rows: Sequence[Measurement], families: Mapping[str, MeasuredFamily]) -> None:
    """Print a line for each mechanism: median and mean error on the target devices, qnn_dlc and onnx together."""
    some = [r for r in rows if r.device in TARGET_DEVICES and r.runtime != "tflite"]
    graphs: dict[str, Graph] = {}
    print("median and mean error in %, float, w8a8, w8a16; mean of all logarithmic errors")
    for name, patches in WITHOUT.items():
        with patched(patches()):
            problem = fitting.FitProblem(TiledGraphs(folder, graphs), some, families)
            members = 0 if name != "nothing removed" else fitting.MEMBERS
            logs = np.zeros(len(some))
            for train, test in folds(problem.fold):
                logs[test] = problem.predict(problem.fit(train, members), test)
        cells = []
        for precision in MEASURED_PRECISIONS:
            f = figures(problem, logs, select(problem, precision, TARGET_DEVICES))
            cells.append(f"{100 * f['median']:5.1f} {100 * f['mean']:5.1f}")
        print(f"| {name:50} | {' | '.join(cells)} | {100 * np.abs(logs - problem.log_us).mean():.2f} |", flush=True)
