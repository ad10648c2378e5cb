# SPDX-License-Identifier: Apache-2.0
"""Deploy: a model becomes a folder to ship: its contexts by Qualcomm's package, how to run them, and the proof."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from hexforge.addon import Hook, hook
from hexforge.addons.vendor.compiling import CompileOptions, compile_contexts
from hexforge.addons.vendor.folder import (
    CONTEXT,
    MODEL,
    PAGE,
    changed_files,
    example_files,
    read_manifest,
    read_samples,
    whole_folder,
    write_manifest,
    write_samples,
)
from hexforge.addons.vendor.judges import Progress
from hexforge.addons.vendor.package import PACKAGE, WANTED, InstalledPackage, find_package, require_package
from hexforge.addons.vendor.process import DEFAULT_LIMITS, ProcessLimits, VendorProcess
from hexforge.addons.vendor.proof import Proof, ProofRequest, RulePlacement, place_by_the_rules, prove
from hexforge.addons.vendor.session import VendorOptions
from hexforge.chips.soc import require_chip
from hexforge.errors import CallError, ModelError, PackageError, UnsupportedError
from hexforge.frontends.onnx.ep_limits import EP_VERSION
from hexforge.frontends.onnx.separate_units import units_alone
from hexforge.ir import Array
from hexforge.model.extraction import model_bytes
from hexforge.model.reader import Model, read
from hexforge.qnn_api.releases import pair_for, qairt_of
from hexforge.results import Key, Result
from hexforge.runtime.cpu_part import QNN

MAKE = "python make_contexts.py"
"""The one command that makes the contexts where the package is."""
GROUPS_WRITTEN = 24


@dataclass(frozen=True, slots=True)
class DeployRequest:
    """What a model is deployed for and how it is proven."""

    socs: Sequence[str]
    samples: Sequence[Mapping[str, Array]]
    provider_options: Mapping[str, str] = field(default_factory=dict)
    groups: bool = True
    overwrite: bool = False
    only_possible: bool = False
    """Whether a chip that the model cannot be deployed for is left out; it is an error otherwise."""
    limits: ProcessLimits = DEFAULT_LIMITS
    page: Callable[[DeployResult], str] | None = None
    """Draws the page of the folder."""
    progress: Progress = field(default=lambda what, done, of: None)


@dataclass(frozen=True, slots=True)
class DeployResult(Result):
    """What was deployed and what was proven of it."""

    model: str
    folder: Path
    package: InstalledPackage | None
    proofs: Mapping[str, Proof]
    """By chip; empty where the package is not there."""
    left_on_cpu: Mapping[str, tuple[tuple[str, str], ...]]
    """Nodes and reasons by chip, as the provider's rules say it."""
    contexts: Mapping[str, int]
    """Bytes of each chip's binary."""
    doctor: Sequence[Mapping[str, str]] = ()
    """What the doctor finds in the folder."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Chips that the model cannot be deployed for, and why."""

    described = (
        "model folder",
        Key("package", of=lambda result: None if result.package is None else result.package.version),
        "contexts left_on_cpu",
        Key("holds", of=lambda result: result.holds if result.proofs else None),
        "proofs doctor left_out",
        Key("make", of=lambda result: None if result.contexts else MAKE),
    )

    @property
    def holds(self) -> bool:
        """True where all that could be proven holds."""
        return all(proof.holds for proof in self.proofs.values())


def deploy(model: Path | Model, folder: Path, request: DeployRequest) -> DeployResult:
    """Write the folder to ship; it appears whole or not at all.

    Without the package everything but the contexts is written. ModelError where the provider takes no node.
    """
    source = model if isinstance(model, Model) else read(model)
    source.require_static()
    chips = [require_chip(soc).name for soc in request.socs]
    if not chips or len(set(chips)) < len(chips):
        raise CallError("no chip is named, or one twice; give --soc SM8650,SM8750")
    package = find_package()
    with whole_folder(folder, request.overwrite) as staging:
        shipped = staging / MODEL
        shipped.write_bytes(model_bytes(source))
        write_samples(staging, request.samples)
        left, ours, left_out = {}, {}, {}
        for chip in chips:
            request.progress(f"checking for {chip}", 0, 1)
            ours[chip] = place_by_the_rules(shipped, VendorOptions(chip, request.provider_options))
            left[chip] = tuple((str(row), row.reason or "") for row in ours[chip].parts.left_on_cpu)
            if not any(row.where == QNN for row in ours[chip].parts.rows):
                fault = ModelError(
                    f"{source.name}: the QNN provider takes no node of it on {chip}; `hexforge check` says why"
                )
                if not request.only_possible:
                    raise fault
                left_out[chip] = str(fault)
        if not (chips := [chip for chip in chips if chip not in left_out]):
            raise ModelError(
                f"{source.name}: the QNN provider takes no node of it on any chip; `hexforge check` says why"
            )
        left = {chip: left[chip] for chip in chips}
        proofs, contexts = {}, {}
        if package is not None:
            package = require_package()
            with VendorProcess(package, request.limits) as process:
                for chip in chips:
                    contexts[chip] = _compile_for(chip, staging, request, process)
                    proofs[chip] = _prove(ours[chip], staging, request, process)
        options = {chip: VendorOptions(chip, request.provider_options).options() for chip in chips}
        for name, text in example_files(MODEL, chips[0], options[chips[0]]).items():
            (staging / name).parent.mkdir(parents=True, exist_ok=True)
            (staging / name).write_text(text, "utf-8")
        (staging / "provider_options.json").write_text(json.dumps(options, indent=1) + "\n")
        result = DeployResult(source.name, folder, package, proofs, left, contexts, _examined(staging), left_out)
        if request.page is not None:
            (staging / PAGE).write_text(request.page(result), "utf-8")
        write_manifest(staging, _facts(result, options))
    return result


def _examined(folder: Path) -> Sequence[Mapping[str, str]]:
    """What would stop sessions of the folder; nothing where the add-on that looks is not there."""
    try:
        examine = hook(Hook.EXAMINE_FOLDER)
    except UnsupportedError:
        return ()
    found: Sequence[Mapping[str, str]] = examine(folder)
    return found


def _compile_for(chip: str, staging: Path, request: DeployRequest, process: VendorProcess) -> int:
    request.progress(f"compiling for {chip}", 0, 1)
    (staging / chip).mkdir()
    options = CompileOptions(VendorOptions(chip, request.provider_options))
    made = compile_contexts([staging / MODEL], staging / chip, options, process, [CONTEXT])
    return sum(path.stat().st_size for path in made.files)


def _prove(placed: RulePlacement, folder: Path, request: DeployRequest, process: VendorProcess) -> Proof:
    """Prove one chip's context, and write down what disagrees as models of a few nodes."""
    options, chip = placed.options, placed.options.soc
    asked = ProofRequest(
        request.samples, request.groups, lambda what, d, of: request.progress(f"{chip}: {what}", d, of)
    )
    proof, ours, shown = prove(folder / MODEL, options, process, asked, folder / chip / f"{CONTEXT}.onnx", placed)
    (folder / chip / "proof.json").write_text(json.dumps(proof.to_json(), indent=1) + "\n")
    if shown.by_sample:
        _write_disagreements(folder / chip / "disagreements", proof, ours, shown.by_sample[0])
    return proof


def _write_disagreements(folder: Path, proof: Proof, ours: RulePlacement, tensors: Mapping[str, Array]) -> None:
    """A model of a few nodes with its tensors for each unit and each group that differs."""
    numbers = {name: i for i, p in enumerate(ours.placed.placements) if p.taken
               for name in (str(o.value.name) for o in p.unit.outputs if o is not None)}  # fmt: skip
    alone = [((numbers[row.tensor],), row.op, row.tensor) for row in proof.disagreeing]
    together = [(group.units, group.title, group.judged.tensor) for group in (proof.groups or ())]
    for count, (units, title, tensor) in enumerate([*alone, *together][:GROUPS_WRITTEN]):
        folder.mkdir(exist_ok=True)
        stem = folder / f"{count:02}_{title.replace(' + ', '_').replace(':', '_')}"
        data = units_alone(ours.placed, units, [tensor])
        stem.with_suffix(".onnx").write_bytes(data)
        feeds = {value.name: tensors[value.name] for value in read(data).inputs}
        np.savez_compressed(stem.with_suffix(".npz"), allow_pickle=False, **feeds)


def _facts(result: DeployResult, options: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    package = result.package
    return {
        "model": MODEL,
        "made_of": result.model,
        "versions": {
            "hexforge": version("hexforge"),
            "rules_of_the_provider": EP_VERSION,
            PACKAGE: None if package is None else package.version,
            "onnxruntime": None if package is None else package.onnxruntime,
            "android": asdict(pair_for(qairt_of(PACKAGE, WANTED))),
        },
        "doctor": list(result.doctor),
        "chips": {
            chip: {
                "provider_options": dict(given),
                "context_model": f"{chip}/{CONTEXT}.onnx" if chip in result.contexts else None,
                "context_bytes": result.contexts.get(chip),
                "proof_holds": result.proofs[chip].holds if chip in result.proofs else None,
                "left_on_cpu": [{"node": node, "reason": why} for node, why in result.left_on_cpu[chip]],
            }
            for chip, given in options.items()
        },
        "make_contexts": None if result.contexts else MAKE,
    }


@dataclass(frozen=True, slots=True)
class VerifyResult(Result):
    """What a repeated proof of a folder says."""

    folder: Path
    changed: tuple[str, ...]
    """Files that are missing, were changed or were added."""
    proofs: Mapping[str, Proof]
    missing: tuple[str, ...]
    """Chips that have no context."""

    described = ("folder", "holds", "changed", Key("without_context", of="missing"), "proofs")

    @property
    def holds(self) -> bool:
        """True where every file is as deployed, every chip has a context, and every proof holds again."""
        return not self.changed and not self.missing and all(proof.holds for proof in self.proofs.values())


def verify(
    folder: Path,
    *,
    groups: bool = False,
    limits: ProcessLimits = DEFAULT_LIMITS,
    progress: Progress = lambda what, done, of: None,
) -> VerifyResult:
    """Repeat the proof of a deployed folder on its own samples, checksums first; nothing is written.

    PackageError without Qualcomm's package, which says whether the checksums hold.
    """
    manifest = read_manifest(folder)
    changed = changed_files(folder, manifest)
    missing = tuple(chip for chip, facts in manifest.chips.items() if not facts.context_model)
    proofs: dict[str, Proof] = {}
    if not changed:
        try:
            package = require_package()
        except PackageError as error:
            count = len(manifest.files)
            raise PackageError(
                f"{folder}: all {count} files are as deployed; the rest is not proven: {error}"
            ) from None
        samples = read_samples(folder, read(folder / manifest.model).inputs)
        with VendorProcess(package, limits) as process:
            for chip, facts in manifest.chips.items():
                given = {k: v for k, v in facts.provider_options.items() if k != "soc_model"}
                context = folder / facts.context_model if facts.context_model else None
                asked = ProofRequest(samples, groups, lambda what, d, of, chip=chip: progress(f"{chip}: {what}", d, of))  # type: ignore[misc]
                proofs[chip] = prove(folder / manifest.model, VendorOptions(chip, given), process, asked, context)[0]
    return VerifyResult(folder, tuple(changed), proofs, missing)
