# SPDX-License-Identifier: Apache-2.0
"""Difference: two contexts, models, profiles or estimates beside each other: what changed, and why it is slower."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hexforge.addons.diagnosis.changes import Difference, compare_sides
from hexforge.addons.diagnosis.sides import read_side
from hexforge.chips.deployment import Deployment
from hexforge.errors import CallError
from hexforge.runtime.prepare import ModelRequest

__all__ = ["Difference", "diff"]


def diff(
    before: str | os.PathLike[str],
    after: str | os.PathLike[str],
    deployment: Deployment | str | None = None,
    *,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> Difference:
    """What changed from one context, ONNX model, profile or estimate to another of the same kind: bytes by layer,
    sharing, adapter slots, packing, placement, time by op; and why the second is slower or faster.

    A .pte is the contexts that its delegates hold: two of them can be compared, and one with a context. A profile is a
    profiling log, or the text that qnn-profile-viewer prints; an estimate is what `hexforge estimate --json` prints.
    Models are timed as `deployment`, or the chip of that name, says; of a context for several chips that one is taken.
    `dims` and `shapes` fix what either model leaves open; a batch is 1.
    """
    chosen = Deployment() if deployment is None else Deployment.of(deployment)
    request = ModelRequest(dims, shapes)
    sides = [read_side(Path(path), chosen, request) for path in (before, after)]
    if sides[0].kind != sides[1].kind:
        words = [f"{Path(path).name} is {_a(side.kind)}" for path, side in zip((before, after), sides, strict=True)]
        raise CallError(f"{words[0]} and {words[1]}: give two of one kind (compile, estimate or profile the other)")
    if unknown := sorted({*(dims or {}), *(shapes or {})} - sides[0].open_names - sides[1].open_names):
        raise CallError(f"{unknown[0]!r} is no input or named dimension of either; sizes are for ONNX models")
    if sides[0].name == sides[1].name:
        sides = [replace(side, name=os.fspath(path)) for side, path in zip(sides, (before, after), strict=True)]
    return compare_sides(*sides)


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"
