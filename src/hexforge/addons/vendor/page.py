# SPDX-License-Identifier: Apache-2.0
"""The page of a deployed folder: what was made for which chip, and what was proven of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hexforge.addons.vendor.deploy import MAKE, DeployResult
from hexforge.addons.vendor.judges import JudgedTensor
from hexforge.addons.vendor.proof import Proof
from hexforge.amounts import size
from hexforge.quant.steps import BY_BITS, ENOUGH, REAL
from hexforge.report.page import sections_page
from hexforge.report.section import Column, Figure, Figures, Section, SectionPart, Table

_JUDGED = (
    Column("tensor"),
    Column("op", choose=True),
    Column("type", choose=True),
    Column("package, hexforge", "share", about="The share of numbers that are within the tolerance."),
    Column("package, onnxruntime", "share"),
    Column("hexforge, onnxruntime", "share"),
    Column("largest", "number", about="Steps between the package and hexforge."),
    Column("verdict", choose=True),
)


def deployment_page(result: DeployResult) -> str:
    """A page about a deployed folder."""
    return sections_page(f"{result.model}, deployed", deployment_sections(result))


def deployment_sections(result: DeployResult) -> list[Section]:
    """What is shipped for which chip, and its proofs."""
    return [_overview(result), *proof_sections(result.proofs)]


def proof_sections(proofs: Mapping[str, Proof]) -> list[Section]:
    """What was proven for each chip: numbers, then placement."""
    return [part for chip, proof in proofs.items() for part in (_numbers(chip, proof), _placement(chip, proof))]


def _overview(result: DeployResult) -> Section:
    rows = [
        (
            chip,
            size(result.contexts[chip]) if chip in result.contexts else f"none; {MAKE}",
            "not proven" if (proof := result.proofs.get(chip)) is None else "holds" if proof.holds else "does not hold",
            len(left),
        )
        for chip, left in result.left_on_cpu.items()
    ]
    columns = (Column("chip"), Column("context"), Column("proof"), Column("nodes on the CPU", "number", 0))
    package = "not installed" if result.package is None else result.package.version
    figures = Figures([Figure("model", result.model), Figure("onnxruntime-qnn", package)])
    left = [(chip, node, why) for chip, nodes in result.left_on_cpu.items() for node, why in nodes]
    parts: list[SectionPart] = [figures, Table(columns, rows)]
    if left:
        parts.append(Table((Column("chip", choose=True), Column("node"), Column("left to the CPU because")), left))
    return Section("What is shipped", parts)


def _numbers(chip: str, proof: Proof) -> Section:
    agree = len(proof.tensors) - len(proof.disagreeing)
    note = (
        f"Each op is computed from the package's own input of it. Two agree on a tensor where {100 * ENOUGH:g} % of it "
        f"is within {BY_BITS[8].about}, {BY_BITS[16].about}, or of real numbers {REAL.about}."
    )
    if proof.unsteady:
        note += f" The package's emulator gave other numbers from run to run in {', '.join(proof.unsteady[:4])}."
    if proof.not_shown:
        note += f" No tensor could be compared: {proof.not_shown}"
    figures = [
        Figure("tensors that agree", f"{agree} of {len(proof.tensors)}"),
        Figure("samples", str(proof.samples)),
        Figure("context loads", {None: "not tried", True: "yes", False: "no"}[proof.context_loads]),
        Figure("groups that differ", "not looked for" if proof.groups is None else str(len(proof.groups))),
    ]
    parts: list[SectionPart] = [
        Figures(figures, "The proof holds." if proof.holds else "The proof does not hold."),
        Table(_JUDGED, _judged(sorted(proof.tensors, key=lambda row: row.vendor_hexforge.share))),
    ]
    if proof.groups:
        rows = [(group.title, *_judged([group.judged])[0]) for group in proof.groups]
        title = "groups of ops that differ though each op agrees"
        parts.append(Table((Column("group", choose=True), *_JUDGED), rows, title))
    return Section(f"{chip}: numbers by three judges", parts, note)


def _judged(rows: Sequence[JudgedTensor]) -> list[tuple[str | float, ...]]:
    return [
        (r.tensor, r.op, r.dtype, r.vendor_hexforge.share, r.vendor_onnxruntime.share, r.hexforge_onnxruntime.share,
         min(r.vendor_hexforge.largest, 1e9), r.verdict)
        for r in rows
    ]  # fmt: skip


def _placement(chip: str, proof: Proof) -> Section:
    placement = proof.placement
    verdict = "all placed alike" if placement.alike else f"{len(placement.differences)} nodes are placed otherwise"
    rows = [(row.node, row.op, row.vendor, row.hexforge, row.reason) for row in placement.differences]
    columns = tuple(map(Column, ("node", "op", "package", "hexforge", "hexforge's reason")))
    figures = Figures(
        [Figure("nodes compared", str(placement.compared)), Figure("on the NPU", str(placement.on_npu))], verdict
    )
    return Section(f"{chip}: placement", [figures, *([Table(columns, rows)] if rows else [])])
