# SPDX-License-Identifier: Apache-2.0
"""Preparation: what contexts must know of chips: what graphs may use there, and on which other chips they run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hexforge.backend import Compatibility, GraphSettings, Target, Verdict
from hexforge.chips import soc as chips
from hexforge.chips.graph_config import LEVEL, THREADS, VTCM
from hexforge.errors import CallError

DEFAULT_HVX_THREADS, DEFAULT_VTCM_MB = 4, 4
"""QNN writes 4 threads and takes 4 MB in an offline prepare that does not say."""
SHARING_ARCH = 73
"""The first architecture whose graphs can share weights: "Hexagon v73 and onward"."""
NO_FACTS = {"htp_arch": 0, "soc_model": 0, "vtcm_mb": 0}


def context_target(chip: chips.ChipTarget) -> Target:
    """A chip as contexts keep it."""
    facts = {**NO_FACTS, "htp_arch": chip.arch}
    if chip.soc is None:
        return Target("", chip.name, facts)
    return Target(chip.soc.name, chip.name, {**facts, "soc_model": chip.soc.soc_model, "vtcm_mb": chip.soc.vtcm_mb})


def context_targets(chosen: Sequence[chips.ChipTarget]) -> tuple[Target, ...]:
    """The chips a context is made for, each once."""
    targets = tuple(map(context_target, chosen))
    labels = [target.name or target.label for target in targets]
    if twice := [label for label in labels if labels.count(label) > 1]:
        raise CallError(f"chip {twice[0]} is given twice")
    return targets


def graph_settings(
    targets: Sequence[Target], changes: Mapping[str, int | None], before: GraphSettings | None, level: int
) -> dict[str, int]:
    """HVX threads, VTCM and level of a graph for all of some chips; CallError for more than one of them has.

    What is not given stays as before.
    """
    if strange := sorted(changes.keys() - {THREADS, VTCM, LEVEL}):
        raise CallError(f"a graph has no setting {strange[0]!r}; it has {THREADS}, {VTCM} and {LEVEL}")
    known = [chip for t in targets if t.facts.get("soc_model", 0) and (chip := chips.find_chip(t.name)) is not None]
    most = min((c.hvx_threads for c in known), default=DEFAULT_HVX_THREADS)
    room = min((t.facts.get("vtcm_mb", 0) for t in targets if t.facts.get("vtcm_mb", 0)), default=DEFAULT_VTCM_MB)
    names = ", ".join(c.name for c in known) or "an unknown chip"
    threads, vtcm_mb = changes.get(THREADS), changes.get(VTCM)
    if threads is not None and not 1 <= threads <= most:
        raise CallError(f"{THREADS} {threads}: {names} can have 1 to {most}")
    if vtcm_mb is not None and not 0 <= vtcm_mb <= room:
        raise CallError(f"{VTCM} {vtcm_mb}: {names} can have 1 to {room}, or 0 for all of it")
    old = before or {THREADS: min(DEFAULT_HVX_THREADS, most), VTCM: min(DEFAULT_VTCM_MB, room), LEVEL: level}
    return {
        THREADS: old.get(THREADS, 0) if threads is None else threads,
        VTCM: old.get(VTCM, 0) if vtcm_mb is None else vtcm_mb,
        LEVEL: old.get(LEVEL, 0),
    }


def no_weight_sharing(targets: Sequence[Target], settings: Sequence[GraphSettings] = ()) -> str | None:
    """Why graphs with these settings cannot share weights on all of these chips."""
    for target in targets:
        if target.facts.get("htp_arch", 0) < SHARING_ARCH:
            return (
                f"graphs share weights on v{SHARING_ARCH} and newer, this is {target.name or 'a chip'} "
                f"(v{target.facts['htp_arch']})"
            )
        has = target.facts.get("vtcm_mb", 0)
        sizes = sorted({own.get(VTCM, 0) or has for own in settings})
        if len(sizes) > 1:
            listed = " and ".join(f"{size or 'all'} MB" for size in sizes)
            return f"graphs share weights where they have the same VTCM, these have {listed}"
    return None


def compatibility(
    targets: Sequence[Target], graphs: Mapping[str, GraphSettings], chip: Target, vtcm_mb: int
) -> Compatibility:
    """How well a context suits a chip; of several chips in the context the best counts.

    The rule is onnxruntime's QNN provider's: made for an older architecture than the device's it runs, but should be
    prepared anew; made for a newer one it cannot run. VTCM is judged likewise: a graph that needs more than the device
    has, or than `vtcm_mb` allows, cannot run; one prepared for "all of it" on a chip with less leaves some unused.
    """
    verdicts = [_compare_target(made, graphs, chip, vtcm_mb) for made in targets]
    model = chip.facts["soc_model"]
    own = [v for v in verdicts if v.target is not None and v.target.facts.get("soc_model") == model != 0]
    return min(own or verdicts, key=_order, default=Compatibility(Verdict.OPTIMAL))


def _order(compatibility: Compatibility) -> tuple[int, int]:
    """Better verdicts first, then architectures nearer to the device's."""
    assert compatibility.target is not None
    arch = compatibility.target.facts.get("htp_arch", 0)
    return tuple(Verdict).index(compatibility.verdict), arch if compatibility.verdict is Verdict.UNSUPPORTED else -arch


def _compare_target(made: Target, graphs: Mapping[str, GraphSettings], chip: Target, vtcm_mb: int) -> Compatibility:
    there, here = made.label, chip.label
    again = f"compile the model with --soc {chip.name}" if chip.name else "compile the model for it"
    arch, room = made.facts.get("htp_arch", 0), chip.facts["vtcm_mb"]
    if arch > chip.facts["htp_arch"] > 0:
        reason = f"it was made for {there}, newer than {here}; {again}"
        return Compatibility(Verdict.UNSUPPORTED, (reason,), made)
    reasons = []
    for name, settings in graphs.items():
        own = settings.get(VTCM, 0)
        needs = own or made.facts.get("vtcm_mb", 0)  # 0: all that the chip it was made for has
        if vtcm_mb and needs > vtcm_mb:
            reason = (
                f"graph {name!r} was prepared for {needs} MB of VTCM, and vtcm_mb={vtcm_mb} allows less; compile the "
                "model with that vtcm_mb"
            )
            return Compatibility(Verdict.UNSUPPORTED, (reason,), made)
        if room and needs > room:
            reason = f"graph {name!r} needs {needs} MB of VTCM, {here} has {room}; {again}"
            return Compatibility(Verdict.UNSUPPORTED, (reason,), made)
        if room and not own and 0 < made.facts.get("vtcm_mb", 0) < room:
            reasons.append(
                f"graph {name!r} uses the {made.facts.get('vtcm_mb', 0)} MB of VTCM of {there}, not all of {here}"
            )
    if arch < chip.facts["htp_arch"]:
        reasons.insert(0, f"it was made for {there}, older than {here}")
    if not reasons:
        return Compatibility(Verdict.OPTIMAL, (), made)
    return Compatibility(Verdict.SUBOPTIMAL, (*reasons, f"{again} to use it fully"), made)
