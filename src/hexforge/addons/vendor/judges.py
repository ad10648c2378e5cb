# SPDX-License-Identifier: Apache-2.0
"""Judges: every tensor of a model as Qualcomm's package, hexforge and onnxruntime's CPU compute it from one input.

The package shows every tensor between units. Each unit is then computed by the two others from the package's own
tensors, so that a difference is the unit's own and nothing is carried on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hexforge.addons.vendor.process import VendorProcess
from hexforge.addons.vendor.session import VendorOptions, VendorSession
from hexforge.backend import Backend
from hexforge.frontends.onnx.placing import PlacedUnits
from hexforge.frontends.onnx.separate_units import MADE, UnitTensors, separated_model, shown_model, unit_tensors
from hexforge.ir import Array
from hexforge.model.reader import read
from hexforge.quant.steps import StepCounts, tolerance_of
from hexforge.results import Key, Result
from hexforge.runtime.cpu_part import WholeOnCpu
from hexforge.runtime.opening import open_stages

Feeds = Mapping[str, Array]
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class JudgedTensor(Result):
    """A tensor as three compute it: the package, hexforge, and onnxruntime's CPU."""

    tensor: str
    unit: str
    """The name of the node that the unit is about."""
    op: str
    dtype: str
    vendor_hexforge: StepCounts
    vendor_onnxruntime: StepCounts
    hexforge_onnxruntime: StepCounts

    described = (
        "tensor unit op dtype",
        Key("tolerance_steps", of="vendor_hexforge.tolerance"),
        "agree vendor_hexforge vendor_onnxruntime hexforge_onnxruntime verdict",
    )

    @classmethod
    def nothing_yet(cls, tensor: str, unit: UnitTensors, array: Array) -> JudgedTensor:
        """A tensor of which nothing is counted, with the type that the package gives it."""
        steps = tolerance_of(array.dtype).steps
        counts = StepCounts(steps), StepCounts(steps), StepCounts(steps)
        return cls(tensor, unit.name, unit.op, str(array.dtype), *counts)

    def add(self, vendor: Array, ours: Array, theirs: Array) -> None:
        """Count one sample: as the package, hexforge and onnxruntime's CPU compute it."""
        self.vendor_hexforge.add(vendor, ours)
        self.vendor_onnxruntime.add(vendor, theirs)
        self.hexforge_onnxruntime.add(ours, theirs)

    @property
    def agree(self) -> bool:
        """True where the package and hexforge agree."""
        return self.vendor_hexforge.agree

    @property
    def verdict(self) -> str:
        """Who is nearer to onnxruntime's CPU, which computes the same encodings in float32."""
        ours, theirs = self.hexforge_onnxruntime.mean, self.vendor_onnxruntime.mean
        if ours == theirs:
            return "both are as near to onnxruntime"
        return "hexforge is nearer to onnxruntime" if ours < theirs else "the package is nearer to onnxruntime"


@dataclass(frozen=True, slots=True)
class ShownTensors:
    """Every tensor between units that the package computes, for each sample, the inputs included."""

    by_sample: tuple[dict[str, Array], ...]
    unsteady: tuple[str, ...]
    """Tensors that were other numbers in one run than in others of the same input."""


def shown_tensors(
    placed: PlacedUnits, samples: Iterable[Feeds], options: VendorOptions, process: VendorProcess
) -> ShownTensors:
    """Run the package's emulator on a model that shows every tensor between its units."""
    session = VendorSession(process, shown_model(placed), options, placed.model.name)
    by_sample: list[dict[str, Array]] = []
    unsteady: dict[str, None] = {}
    try:
        for feeds in samples:
            outputs, moved = session.run_steadily(feeds)
            by_sample.append({**feeds, **outputs})
            unsteady.update(dict.fromkeys(moved))
    finally:
        session.close()
    return ShownTensors(tuple(by_sample), tuple(unsteady))


def judged_tensors(placed: PlacedUnits, tensors: Sequence[Feeds], backend: Backend) -> tuple[JudgedTensor, ...]:
    """Each tensor of the taken units, computed from the package's tensors by hexforge and by onnxruntime's CPU."""
    units = [unit for unit in unit_tensors(placed) if unit.taken]
    separated = separated_model(placed)
    plan, outputs = open_stages(separated, backend)
    exact = WholeOnCpu(separated, placed.model.name)
    names = [value.name for value in read(separated).inputs]
    judged: dict[str, JudgedTensor] = {}
    for sample in tensors:
        feeds = {name: sample[name] for name in names}
        ours, theirs = plan.run(feeds, outputs), exact.run(feeds)
        for unit in units:
            for tensor in unit.writes:
                vendor = np.asarray(sample[tensor])
                made = f"{tensor}{MADE}"
                row = judged.setdefault(tensor, JudgedTensor.nothing_yet(tensor, unit, vendor))
                row.add(vendor, np.asarray(ours[made]), np.asarray(theirs[made]))
    return tuple(judged.values())


def separate_options(options: VendorOptions) -> VendorOptions:
    """Options for units that read and write integers: nothing of them is left to the CPU."""
    return replace(options, provider_options={**options.provider_options, "offload_graph_io_quantization": "0"})
