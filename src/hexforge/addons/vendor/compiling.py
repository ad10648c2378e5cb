# SPDX-License-Identifier: Apache-2.0
"""Compiling: models become the context binaries that devices take, made by the package's own offline preparer."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hexforge.addons.vendor.folder import flush_files
from hexforge.addons.vendor.process import VendorProcess
from hexforge.addons.vendor.session import VendorOptions, VendorPlacement, VendorSession
from hexforge.chips.soc import find_chip
from hexforge.errors import CallError, ModelError
from hexforge.formats.file_kinds import stem_of
from hexforge.request_fields import option
from hexforge.results import Key, Result, length

WEIGHT_SHARING = "enable_htp_weight_sharing"


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """How contexts are written; what a session of the package is made with is in `session`."""

    session: VendorOptions = field(default_factory=VendorOptions)
    share_weights: bool = option(False, "Graphs of one binary that has common weights once; for devices.", "--share")
    embed: bool = option(False, "The binary inside the context model.")
    node_name_prefix: str = option("", "Put before names of EPContext nodes.")

    def entries(self, target: Path) -> dict[str, str]:
        """The session's entries that write the context of a model."""
        entries = {
            **self.session.entries,
            "ep.context_enable": "1",
            "ep.context_file_path": str(target),
            "ep.context_embed_mode": str(int(self.embed)),
        }
        if self.node_name_prefix:
            entries["ep.context_node_name_prefix"] = self.node_name_prefix
        return entries


@dataclass(frozen=True, slots=True)
class CompiledFile(Result):
    """What the package made of a model."""

    model: str
    context_model: Path
    placement: VendorPlacement
    seconds: float

    described = (
        "model",
        Key("context_model", of="context_model.name"),
        Key("placed", of=length("placement.taken")),
        Key("left_on_cpu", of="placement.left"),
        Key("seconds", rounded=3),
    )


@dataclass(frozen=True, slots=True)
class CompiledFiles(Result):
    """What the package made of models: a context model each, and the files that they need."""

    contexts: tuple[CompiledFile, ...]
    files: tuple[Path, ...]

    described = ("contexts", Key("files", of=lambda made: {path.name: path.stat().st_size for path in made.files}))


def compile_contexts(
    models: Sequence[Path], folder: Path, options: CompileOptions, process: VendorProcess, names: Sequence[str] = ()
) -> CompiledFiles:
    """Context models of some models and their binaries, in a folder that must be there; all of them or none.

    `names` are the stems of the context models, those of the models unless given.
    """
    stems = list(names or (f"{stem_of(model)}_ctx" for model in models))
    if len(set(stems)) < len(stems):
        raise CallError("two of the models have one name; their contexts would overwrite each other")
    if options.share_weights and options.embed:
        raise CallError("weights are shared in a binary of its own; leave --embed out")
    staging = Path(tempfile.mkdtemp(dir=folder.absolute(), prefix=".vendor-"))
    try:
        contexts = [
            _compiled(model, staging / f"{stem}.onnx", options, process, last=model == models[-1], of=len(models))
            for model, stem in zip(models, stems, strict=True)
        ]
        made = sorted(path for path in staging.iterdir() if path.is_file())
        flush_files(staging)
        for path in made:
            path.replace(folder / path.name)
    except OSError as error:
        raise CallError(f"{folder}: contexts cannot be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    moved = tuple(replace(c, context_model=folder / c.context_model.name) for c in contexts)
    return CompiledFiles(moved, tuple(folder / path.name for path in made))


def _compiled(
    model: Path, target: Path, options: CompileOptions, process: VendorProcess, *, last: bool, of: int
) -> CompiledFile:
    entries, provider = options.entries(target), dict(options.session.provider_options)
    if options.share_weights and of > 1:
        chip = find_chip(options.session.soc)
        if chip is not None and not chip.weight_sharing:
            raise CallError(f"{chip.name}: shares no weights; chips from Hexagon v73 on do")
        provider[WEIGHT_SHARING] = "1"
        entries["ep.share_ep_contexts"] = "1"
        if last:
            entries["ep.stop_share_ep_contexts"] = "1"
    session = VendorSession(process, model, replace(options.session, provider_options=provider, entries=entries))
    if not target.is_file():
        left = ", ".join(dict.fromkeys(op for op, _ in session.placement.left)) or "nothing to compute"
        session.close()
        raise ModelError(f"{model.name}: the package took no node, so there is no context; it left {left} to the CPU")
    if not (options.share_weights and of > 1):
        session.close()
    return CompiledFile(model.name, target, session.placement, session.seconds)
