"""Compatibility: whether a context, made for some chips, runs on another, and as fast as it could.

The rule is onnxruntime's QNN provider's: made for an older architecture than the device's it runs, but should be
prepared anew; made for a newer one it cannot run. VTCM is judged likewise: a graph that needs more than the device has
cannot run, one prepared for "all of it" on a chip with less leaves some unused. The versions are the container's.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hexforge.errors import CallError, FormatError, UnsupportedError
from hexforge.formats.container import Container, Source
from hexforge.formats.context import Info, Target
from hexforge.options import ProviderOptions
from hexforge.runtime.contexts.context import Context

BINARY_VERSION, CREATE_FROM_BINARY, BINARY_SUBOPTIMAL = 5004, 5005, 5011
"""QNN_CONTEXT_ERROR_… of QnnContext.h."""


class BinaryCompatibility(StrEnum):
    """QnnContext_BinaryCompatibilityType_t: what a context must be to be opened for a chip."""

    PERMISSIVE = "permissive"
    """It can run there. The default."""
    STRICT = "strict"
    """It can run there and uses all the chip has."""


class Verdict(StrEnum):
    """How well a context suits a chip, best first."""

    OPTIMAL = "optimal"
    SUBOPTIMAL = "sub-optimal"
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True, slots=True)
class Compatibility:
    """A verdict, and why it is not better."""

    verdict: Verdict
    reasons: tuple[str, ...] = ()
    target: Target | None = None
    """The chip of the file that was compared: of several the one that suits best."""

    def __str__(self) -> str:
        return f"{self.verdict}: {'; '.join(self.reasons)}" if self.reasons else str(self.verdict)


def device(soc: str = "0", htp_arch: int = 0) -> Target | None:
    """The chip that soc_model names, or one of an architecture; None where neither is given."""
    from hexforge.backends.htp.chip.soc import target

    if soc.strip() in ("", "0") and not htp_arch:
        return None
    found = target(soc, htp_arch)
    if found.soc is None:
        return Target("", 0, found.arch, 0)
    return Target(found.soc.name, found.soc.soc_model, found.arch, found.soc.vtcm_mb)


def compare(info: Info, chip: Target | None, backend: str = "htp") -> Compatibility:
    """How well a context suits a chip; of several chips in the file the best counts."""
    if info.backend != backend:
        reason = f"it was made for the {info.backend} backend, not {backend}; compile the model for {backend}"
        return Compatibility(Verdict.UNSUPPORTED, (reason,))
    if chip is None or not info.targets:
        return Compatibility(Verdict.OPTIMAL)
    found = [_against(info, made, chip) for made in info.targets]
    own = [c for c in found if c.target is not None and c.target.soc_model == chip.soc_model != 0]
    return min(own or found, key=_order)


def _order(found: Compatibility) -> tuple[int, int]:
    """Better verdicts first, then architectures nearer to the device's."""
    assert found.target is not None
    arch = found.target.arch
    return tuple(Verdict).index(found.verdict), arch if found.verdict is Verdict.UNSUPPORTED else -arch


def _against(info: Info, made: Target, chip: Target) -> Compatibility:
    there = f"{made.soc} (v{made.arch})" if made.soc_model else f"v{made.arch}"
    here = f"{chip.soc} (v{chip.arch})" if chip.soc else f"v{chip.arch}"
    again = f"compile the model with --soc {chip.soc}" if chip.soc else "compile the model for it"
    if made.arch > chip.arch:
        reason = f"it was made for {there}, newer than {here}; {again}"
        return Compatibility(Verdict.UNSUPPORTED, (reason,), made)
    reasons = []
    for graph in info.graphs if chip.vtcm_mb else ():
        needs = graph.vtcm_mb or made.vtcm_mb  # 0: all that the chip it was made for has
        if needs > chip.vtcm_mb:
            reason = f"graph {graph.name!r} needs {needs} MB of VTCM, {here} has {chip.vtcm_mb}; {again}"
            return Compatibility(Verdict.UNSUPPORTED, (reason,), made)
        if not graph.vtcm_mb and 0 < made.vtcm_mb < chip.vtcm_mb:
            reasons.append(f"graph {graph.name!r} uses the {made.vtcm_mb} MB of VTCM of {there}, not all of {here}")
    if made.arch < chip.arch:
        reasons.insert(0, f"it was made for {there}, older than {here}")
    if not reasons:
        return Compatibility(Verdict.OPTIMAL, (), made)
    return Compatibility(Verdict.SUBOPTIMAL, (*reasons, f"{again} to use it fully"), made)


def validate(source: Source, soc: str = "0", *, htp_arch: int = 0, backend: str = "htp") -> Compatibility:
    """The verdict on a file without creating anything of it, as QnnContext_validateBinary.

    A file of a newer format is unsupported; one that is damaged, or no context, is a FormatError.
    """
    chip = device(soc, htp_arch)
    try:
        container = Container(source)
        container.verify()
        info = Info.from_json(container.json("info", ""), container.where)
    except FormatError as error:
        if error.code != BINARY_VERSION:
            raise
        return Compatibility(Verdict.UNSUPPORTED, (str(error),))
    return compare(info, chip, backend)


def require(
    info: Info,
    chip: Target | None,
    mode: BinaryCompatibility = BinaryCompatibility.PERMISSIVE,
    *,
    backend: str = "htp",
    where: str = "context",
) -> Compatibility:
    """The verdict; UnsupportedError, with QNN's code, where the mode does not let it pass."""
    found = compare(info, chip, backend)
    if found.verdict is Verdict.UNSUPPORTED:
        raise UnsupportedError(f"{where}: cannot run: {'; '.join(found.reasons)}", CREATE_FROM_BINARY)
    if found.verdict is Verdict.SUBOPTIMAL and BinaryCompatibility(mode) is BinaryCompatibility.STRICT:
        raise UnsupportedError(f"{where}: is sub-optimal: {'; '.join(found.reasons)}", BINARY_SUBOPTIMAL)
    return found


def required(info: Info, options: ProviderOptions, *, strict: bool = False, where: str = "context") -> Compatibility:
    """As `require`, for the chip that provider options name."""
    chip = device(options.soc_model[0], options.htp_arch[0]) if options.backend == "htp" else None
    mode = BinaryCompatibility.STRICT if strict else BinaryCompatibility.PERMISSIVE
    return require(info, chip, mode, backend=options.backend, where=where)


def create(
    source: Source, soc: str = "0", mode: str = BinaryCompatibility.PERMISSIVE, *, where: str = ""
) -> tuple[Context, Compatibility]:
    """A context opened for a chip, as QnnContext_createFromBinary: checked first."""
    if mode not in tuple(BinaryCompatibility):
        raise CallError(f"compatibility {mode!r} is not one; it is {' or '.join(BinaryCompatibility)}")
    context = Context(source, where)
    chip = device(soc) if context.info.backend == "htp" else None
    found = require(context.info, chip, BinaryCompatibility(mode), backend=context.info.backend, where=context.where)
    return context, found
