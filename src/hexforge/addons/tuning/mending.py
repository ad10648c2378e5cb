# SPDX-License-Identifier: Apache-2.0
"""Mending: a model whose refused nodes are written as what the NPU takes, as far as rules of rewriting do that."""

from __future__ import annotations

from collections.abc import Collection

from hexforge.addons.tuning.advice.agreement import ReferenceOutputs
from hexforge.addons.tuning.rewrites import ONTO_THE_NPU, apply, find
from hexforge.backend import Backend
from hexforge.errors import HexforgeError
from hexforge.model.reader import Model
from hexforge.runtime.prepare import prepare_model


def mend(
    model: Model, backend: Backend, refused: Collection[str], *, verify: bool = False
) -> tuple[Model, tuple[str, ...]]:
    """The model rewritten, and which of its refused nodes are on the NPU then; the model itself where none would be.

    With `verify` it must compute what the model does on random inputs, to a rounding.
    """
    wanted = frozenset(refused)
    keys = {place.key for place in find(model.ir, ONTO_THE_NPU) if wanted.intersection(place.nodes)}
    if not keys:
        return model, ()
    rewritten = model.copied()
    touched = {name for change in apply(rewritten.ir, ONTO_THE_NPU, keys) for name in change.nodes}
    try:
        left = {row.node for row in prepare_model(rewritten, backend).refused}
    except HexforgeError:
        return model, ()
    mended = tuple(name for name in dict.fromkeys(refused) if name in touched and name not in left)
    # a rewrite may leave a node of its own behind; the fewer are refused then the better it is
    if not mended or len(left) >= len(wanted) or (verify and not ReferenceOutputs(model).error(rewritten)[1]):
        return model, ()
    return rewritten, mended
