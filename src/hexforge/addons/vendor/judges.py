# SPDX-License-Identifier: Apache-2.0
"""Judges: every tensor of a model as Qualcomm's package, hexforge and onnxruntime's CPU compute it from one input.

The package shows every tensor between units. Each unit is then computed by the two others from the package's own
tensors, so that a difference is the unit's own and nothing is carried on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hexforge.addons.vendor.process import VendorProcess
from hexforge.addons.vendor.session import VendorOptions, VendorSession
from hexforge.backend import Backend
from hexforge.frontends.onnx.placing import PlacedModel
from hexforge.frontends.onnx.separate_units import MADE, separated_model, shown_model, unit_tensors
from hexforge.ir import Array
from hexforge.model.reader import read
from hexforge.quant.steps import StepCounts, tolerance_of
from hexforge.results import Key, Result
from hexforge.runtime.cpu_part import WholeModel
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


def three_counts(dtype: np.dtype[Any]) -> tuple[StepCounts, StepCounts, StepCounts]:
    """Empty counts for a tensor: package and hexforge, package and onnxruntime, hexforge and onnxruntime."""
    steps = tolerance_of(dtype).steps
    return StepCounts(steps), StepCounts(steps), StepCounts(steps)


@dataclass(frozen=True, slots=True)
class ShownTensors:
    """Every tensor between units that the package computes, for each sample, the inputs included."""

    by_sample: tuple[dict[str, Array], ...]
    unsteady: tuple[str, ...]
    """Tensors that were other numbers in one run than in others of the same input."""


def shown_tensors(
    placed: PlacedModel, samples: Iterable[Feeds], options: VendorOptions, process: VendorProcess
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


def judged_tensors(placed: PlacedModel, tensors: Sequence[Feeds], backend: Backend) -> tuple[JudgedTensor, ...]:
    """Each tensor of the taken units, computed from the package's tensors by hexforge and by onnxruntime's CPU."""
    units = [unit for unit in unit_tensors(placed) if unit.taken]
    separated = separated_model(placed)
    plan, outputs = open_stages(separated, backend)
    exact = WholeModel(separated, placed.model.name)
    names = [value.name for value in read(separated).inputs]
    judged: dict[str, JudgedTensor] = {}
    for sample in tensors:
        feeds = {name: sample[name] for name in names}
        ours, theirs = plan.run(feeds, outputs), exact.run(feeds)
        for unit in units:
            for tensor in unit.writes:
                vendor = np.asarray(sample[tensor])
                if tensor not in judged:
                    judged[tensor] = JudgedTensor(
                        tensor, unit.name, unit.op, str(vendor.dtype), *three_counts(vendor.dtype)
                    )
                row, made = judged[tensor], f"{tensor}{MADE}"
                row.vendor_hexforge.add(vendor, np.asarray(ours[made]))
                row.vendor_onnxruntime.add(vendor, np.asarray(theirs[made]))
                row.hexforge_onnxruntime.add(np.asarray(ours[made]), np.asarray(theirs[made]))
    return tuple(judged.values())


def separate_options(options: VendorOptions) -> VendorOptions:
    """Options for units that read and write integers: nothing of them is left to the CPU."""
    return replace(options, provider_options={**options.provider_options, "offload_graph_io_quantization": "0"})
