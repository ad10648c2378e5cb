# SPDX-License-Identifier: Apache-2.0
"""Compatibility: whether a context, made for some chips, runs on another, and as fast as it could.

What suits a chip is its backend's to judge; here a verdict becomes what QNN's calls do with it.
"""

from __future__ import annotations

from enum import StrEnum

from hexforge.backend import Backend, Compatibility, ContextBackend, Verdict
from hexforge.errors import CallError, FormatError, UnsupportedError
from hexforge.formats.container import Container, Source
from hexforge.formats.context import Info
from hexforge.runtime import registry
from hexforge.runtime.contexts.context import Context

BINARY_VERSION, CREATE_FROM_BINARY, BINARY_SUBOPTIMAL = 5004, 5005, 5011
"""QNN_CONTEXT_ERROR_… of QnnContext.h."""


class BinaryCompatibility(StrEnum):
    """QnnContext_BinaryCompatibilityType_t: what a context must be to be opened for a chip."""

    PERMISSIVE = "permissive"
    """It can run there. The default."""
    STRICT = "strict"
    """It can run there and uses all the chip has."""


def compare(info: Info, backend: Backend) -> Compatibility:
    """How well a context suits the chip that a backend was made for; of several chips in the file the best counts."""
    if info.backend != backend.name:
        name = backend.name
        reason = f"it was made for the {info.backend} backend, not {name}; compile the model for {name}"
        return Compatibility(Verdict.UNSUPPORTED, (reason,))
    if not info.targets or not isinstance(backend, ContextBackend):
        return Compatibility(Verdict.OPTIMAL)
    return backend.compatibility(info.targets, {graph.name: graph.settings for graph in info.graphs})


def validate(source: Source, soc: str = "0", *, htp_arch: int = 0, backend: str = registry.DEFAULT) -> Compatibility:
    """The verdict on a file without creating anything of it, as QnnContext_validateBinary.

    A file of a newer format is unsupported; one that is damaged, or no context, is a FormatError.
    """
    chosen = chip_backend(backend, soc, htp_arch)
    try:
        container = Container(source)
        container.verify()
        info = Info.from_json(container.json("info", ""), container.where)
    except FormatError as error:
        if error.code != BINARY_VERSION:
            raise
        return Compatibility(Verdict.UNSUPPORTED, (str(error),))
    return compare(info, chosen)


def chip_backend(name: str, soc: str = "0", htp_arch: int = 0) -> Backend:
    """A backend for a chip; one that runs on no chip as it is."""
    chosen = registry.backend(name)
    if not isinstance(chosen, ContextBackend):
        return chosen
    return registry.backend(name, {"soc_model": soc.strip() or "0", "htp_arch": str(htp_arch)})


def require_compatible(
    info: Info, backend: Backend, mode: BinaryCompatibility = BinaryCompatibility.PERMISSIVE, *, where: str = "context"
) -> Compatibility:
    """The verdict; UnsupportedError, with QNN's code, where the mode does not let it pass."""
    judged = compare(info, backend)
    if judged.verdict is Verdict.UNSUPPORTED:
        raise UnsupportedError(f"{where}: cannot run: {'; '.join(judged.reasons)}", CREATE_FROM_BINARY)
    if judged.verdict is Verdict.SUBOPTIMAL and BinaryCompatibility(mode) is BinaryCompatibility.STRICT:
        raise UnsupportedError(f"{where}: is sub-optimal: {'; '.join(judged.reasons)}", BINARY_SUBOPTIMAL)
    return judged


def create_context(
    source: Source, soc: str = "0", mode: str = BinaryCompatibility.PERMISSIVE, *, where: str = ""
) -> tuple[Context, Compatibility]:
    """A context opened for a chip, as QnnContext_createFromBinary: checked first."""
    if mode not in tuple(BinaryCompatibility):
        raise CallError(f"compatibility {mode!r} is not one; it is {' or '.join(BinaryCompatibility)}")
    context = Context(source, where)
    backend = chip_backend(context.info.backend, soc)
    return context, require_compatible(context.info, backend, BinaryCompatibility(mode), where=context.where)
