# SPDX-License-Identifier: Apache-2.0
"""Proof: that what Qualcomm's package made of a model is what hexforge says of it: placement, context and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from hexforge.addons.vendor.groups import JudgedGroup, judged_groups
from hexforge.addons.vendor.judges import Feeds, JudgedTensor, Progress, ShownTensors, judged_tensors, shown_tensors
from hexforge.addons.vendor.placing import PlacementComparison, compare_placement
from hexforge.addons.vendor.process import VendorProcess
from hexforge.addons.vendor.session import VendorOptions, VendorSession
from hexforge.backend import Backend
from hexforge.errors import ModelError, PackageError
from hexforge.frontends.onnx.placing import PlacedUnits
from hexforge.model.reader import Model, read
from hexforge.quant.steps import ENOUGH
from hexforge.results import Key, Result, length
from hexforge.runtime import registry
from hexforge.runtime.prepare import ModelRequest, PreparedParts, prepare_model

OFFLOAD = "offload_graph_io_quantization"


@dataclass(frozen=True, slots=True)
class Proof(Result):
    """What was compared of a model on a chip, and what came out."""

    soc: str
    samples: int
    placement: PlacementComparison
    context_loads: bool | None
    """Whether the context loads and runs; None where there is none."""
    context_computes_alike: bool | None
    """Whether it gives the numbers of a fresh session; None where there is none, or where those change by the run."""
    tensors: tuple[JudgedTensor, ...]
    groups: tuple[JudgedGroup, ...] | None
    """The smallest groups that differ; None where they were not looked for."""
    unsteady: tuple[str, ...] = ()
    """Tensors of which the package's emulator gave other numbers in one run than in others; most runs count."""
    not_shown: str = ""
    """Why the package did not run the model with every tensor shown, where it did not."""

    described = (
        "soc samples holds placement context_loads context_computes_alike",
        Key("not_shown", of=lambda proof: proof.not_shown or None),
        Key("enough_within_tolerance", of=lambda proof: ENOUGH),
        Key("tensors_compared", of=length("tensors")),
        Key("tensors_that_agree", of=lambda proof: len(proof.tensors) - len(proof.disagreeing)),
        "unsteady tensors groups",
    )

    @property
    def disagreeing(self) -> tuple[JudgedTensor, ...]:
        """Tensors on which the package and hexforge disagree though they compute them from the same input."""
        return tuple(row for row in self.tensors if not row.agree)

    @property
    def holds(self) -> bool:
        """True where placement, context and every tensor agree; groups are reported and decide nothing."""
        context = self.context_loads is not False and self.context_computes_alike is not False
        return self.placement.alike and context and not self.not_shown and not self.disagreeing


@dataclass(frozen=True, slots=True, eq=False)
class RulePlacement:
    """A model with its placement by the provider's rules on a chip, ready to be compared."""

    model: Model
    backend: Backend
    parts: PreparedParts
    options: VendorOptions

    @property
    def placed(self) -> PlacedUnits:
        """The placed units; those that are not worth a graph are refused."""
        return replace(self.parts.placed, placements=self.parts.placements)


def place_by_the_rules(model: Path | bytes | Model, options: VendorOptions) -> RulePlacement:
    """A model placed as the provider would on the chip of the options."""
    backend = registry.backend(settings={"soc_model": options.soc} if options.soc else {})
    source = model if isinstance(model, Model) else read(model)
    source.require_static()
    offload = options.provider_options.get(OFFLOAD, "1") != "0"
    parts = prepare_model(source, backend, ModelRequest(offload_io_quantization=offload, obey_ep=True))
    return RulePlacement(source, backend, parts, options)


@dataclass(frozen=True, slots=True)
class ProofRequest:
    """What a proof is made on, and how far it goes."""

    samples: Sequence[Feeds]
    groups: bool = True
    """Look for groups of units that differ though each unit agrees."""
    progress: Progress = field(default=lambda what, done, of: None)


def prove(
    model: Path,
    options: VendorOptions,
    process: VendorProcess,
    request: ProofRequest,
    context_model: Path | None = None,
    ours: RulePlacement | None = None,
) -> tuple[Proof, RulePlacement, ShownTensors]:
    """The proof for a model and its context; the model as it was placed, and the package's tensors for each sample.

    `ours` is the model as `place_by_the_rules` placed it with these options, where that was done before.
    """
    if ours is None:
        request.progress("placing", 0, 1)
        ours = place_by_the_rules(model, options)
    session = VendorSession(process, model, options)
    placement = compare_placement(ours.parts, session.placement)
    loads = alike = None
    if context_model is not None:
        request.progress("loading the context", 0, 1)
        loads, alike = _context_runs(context_model, session, options, process, request.samples[:1])
    session.close()
    request.progress("showing every tensor", 0, 1)
    try:
        shown = shown_tensors(ours.placed, request.samples, options, process)
    except (ModelError, PackageError) as error:
        proof = Proof(options.soc, len(request.samples), placement, loads, alike, (), None, not_shown=str(error))
        return proof, ours, ShownTensors((), ())
    request.progress("judging every tensor", 0, 1)
    judged = judged_tensors(ours.placed, shown.by_sample, ours.backend)
    groups = None
    if request.groups:
        groups = judged_groups(ours.placed, shown.by_sample[:1], ours.backend, options, process, request.progress)
    return (
        Proof(options.soc, len(request.samples), placement, loads, alike, judged, groups, shown.unsteady),
        ours,
        shown,
    )


def _context_runs(
    context_model: Path, fresh: VendorSession, options: VendorOptions, process: VendorProcess, samples: Sequence[Feeds]
) -> tuple[bool, bool | None]:
    """Whether a context loads, and whether it gives a fresh session's numbers, where those do not change by the run."""
    loaded = VendorSession(process, context_model, options)
    try:
        if not any(op == "EPContext" for op, _ in loaded.placement.taken):
            return False, None
        for feeds in samples:
            if _same(fresh.run(feeds), loaded.run(feeds)):
                continue
            (expected, moved), (results, moved_too) = fresh.run_steadily(feeds), loaded.run_steadily(feeds)
            changes_by_run = moved or moved_too or _same(expected, results)
            return True, None if changes_by_run else False
        return True, True
    finally:
        loaded.close()


def _same(one: Feeds, other: Feeds) -> bool:
    """Whether two runs gave the same numbers, bit by bit."""
    return all(np.array_equal(one[name], other[name], equal_nan=True) for name in one)
