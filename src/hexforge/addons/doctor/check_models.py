# SPDX-License-Identifier: Apache-2.0
"""What can be wrong with models and settings: made for another chip, or asking for what the chip has not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from hexforge.addons.doctor.facts import Facts
from hexforge.addons.doctor.models import ShippedModel
from hexforge.chips.soc import SESSION_BYTES, ChipTarget, Soc, find_chip, known_chip
from hexforge.errors import CallError
from hexforge.qnn_api.releases import IN_TREE_MAVEN, PLUGIN, as_version

_SIGNED = ("signed", "PD_SIGNED")


def context_chip(facts: Facts) -> Iterator[str]:
    """A context for a newer architecture than the chip's."""
    for model, made_for, chip in _contexts(facts):
        if made_for.htp_arch > chip.htp_arch:
            yield f"{model.path} is for {made_for.name} (v{made_for.htp_arch}), and {chip.name} is v{chip.htp_arch}."


def context_of_another_chip(facts: Facts) -> Iterator[str]:
    """A context for another chip of the same or an older architecture, which loads and may be slower."""
    for model, made_for, chip in _contexts(facts):
        if made_for.soc_model != chip.soc_model and made_for.htp_arch <= chip.htp_arch:
            yield f"{model.path} is for {made_for.name} (v{made_for.htp_arch}), and {chip.name} is v{chip.htp_arch}."


def context_file(facts: Facts) -> Iterator[str]:
    """A context model whose binary is not beside it, or is named outside of its folder."""
    for model in facts.models:
        for name in model.missing:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts:
                yield f"{model.path} names {name[:120]}, which is outside of its folder."
            else:
                yield f"{model.path} names {name[:120]}, which is not beside it."


def context_memory(facts: Facts) -> Iterator[str]:
    """A binary that one session on the DSP cannot map."""
    for model in facts.models:
        if model.largest_bytes > SESSION_BYTES:
            yield f"The binary of {model.path} has {model.largest_bytes / 2**30:.1f} GiB."


def float_chip(facts: Facts) -> Iterator[str]:
    """A float model for a chip that runs integers only."""
    for model, chip in _graphs(facts):
        if model.floats in ("float32", "float16") and not chip.float16:
            yield f"{model.path} computes in {model.floats}, and {chip.name} takes integers only."


def bfloat_chip(facts: Facts) -> Iterator[str]:
    """A bfloat16 model for a chip older than those that take it."""
    for model, chip in _graphs(facts):
        if model.floats == "bfloat16" and not ChipTarget(chip.htp_arch, chip).bfloat16:
            yield f"{model.path} computes in bfloat16, and {chip.name} (v{chip.htp_arch}) does not."


def sharing_chip(facts: Facts) -> Iterator[str]:
    """Weights that several graphs share, on an architecture that cannot."""
    for path, chip, key, value in _settings(facts):
        if "weight_sharing" in key and value in (True, 1, "1") and chip is not None and not chip.weight_sharing:
            yield f"{path} sets {key}, and {chip.name} is v{chip.htp_arch}."


def vtcm_chip(facts: Facts) -> Iterator[str]:
    """More VTCM than the chip has."""
    for path, chip, key, value in _settings(facts):
        asked = int(value) if key == "vtcm_mb" and str(value).isdecimal() else 0
        if chip is not None and asked > chip.vtcm_mb:
            mark = "" if chip.provenance("vtcm_mb").value == "published" else " (assumed)"
            yield f"{path} asks for {asked} MB of VTCM, and {chip.name} has {chip.vtcm_mb}{mark}."


def signed_pd(facts: Facts) -> Iterator[str]:
    """A signed process domain, which takes a signature that only device makers have."""
    for path, _, key, value in _settings(facts):
        if key in ("pd_session", "signed_pd") and str(value) in _SIGNED:
            yield f"{path} asks for a signed process domain ({key}: {value})."


def arch_option(facts: Facts) -> Iterator[str]:
    """htp_arch 79, which the provider inside onnxruntime does not know."""
    old = (*facts.versions(IN_TREE_MAVEN), *(p for p in facts.versions(PLUGIN) if as_version(p.version) < (2,)))
    for path, _, key, value in _settings(facts):
        if key == "htp_arch" and str(value) == "79" and old:
            yield f"{path} sets htp_arch 79, and {old[0].name} {old[0].version} does not know it."


def chip_number(facts: Facts) -> Iterator[str]:
    """A soc_model that is no chip of HTP, or settings of which none is for the chip that is asked about."""
    known: dict[int, str] = {}
    for path, _, key, value in _settings(facts):
        if key in ("soc_model", "soc_id") and str(value).strip() not in ("", "0"):
            try:
                chip = find_chip(str(value))
            except CallError as error:
                yield f"{path}: {error}."
            else:
                if chip is not None:
                    known.setdefault(chip.soc_model, f"{path} is for {chip.name} ({key} {value})")
    if facts.chip is not None and known and facts.chip.soc_model not in known:
        yield f"{next(iter(known.values()))}, and what is asked about is {facts.chip.name}."


def _contexts(facts: Facts) -> Iterator[tuple[ShippedModel, Soc, Soc]]:
    """The contexts, each with the chip it was made for and the one that is to load it."""
    for model in facts.models:
        if facts.chip is not None and model.chip is not None and model.is_context:
            yield model, model.chip, facts.chip


def _graphs(facts: Facts) -> Iterator[tuple[ShippedModel, Soc]]:
    """The models that are not compiled yet, each with the chip it is for."""
    for model in facts.models:
        chip = facts.chip or model.chip
        if not model.is_context and chip is not None:
            yield model, chip


def _settings(facts: Facts) -> Iterator[tuple[str, Soc | None, str, Any]]:
    """Path, chip, key and value of every setting in the JSON files."""
    for path, content in facts.settings.items():
        yield from _walk(path, facts.chip, content, 0)


def _walk(path: str, chip: Soc | None, content: Any, depth: int) -> Iterator[tuple[str, Soc | None, str, Any]]:
    if depth > 16:
        return
    if isinstance(content, list):
        for each in content:
            yield from _walk(path, chip, each, depth + 1)
    elif isinstance(content, dict):
        own = _chip_in(content) or chip
        for key, value in content.items():
            yield path, own, str(key), value
            yield from _walk(path, own, value, depth + 1)


def _chip_in(content: dict[str, Any]) -> Soc | None:
    """The chip that a group of settings names beside them."""
    for key in ("soc_model", "soc_id"):
        number = str(content.get(key) or "0")
        if number.isdecimal() and (chip := known_chip(number)) is not None:
            return chip
    return None
