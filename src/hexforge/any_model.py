# SPDX-License-Identifier: Apache-2.0
"""Any model: estimates, profiles, gates and differences also of .pte files and of exported programs of torch."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from hexforge.addons.executorch.formats.pte import is_pte
from hexforge.analysis.estimate import estimate as _estimate
from hexforge.analysis.estimate import estimates as _estimates
from hexforge.analysis.gate import GateResult
from hexforge.analysis.gate import gate as _gate
from hexforge.analysis.profile.simulated import profile as _profile
from hexforge.analysis.spread.workers import Workers
from hexforge.chips.deployment import Deployment
from hexforge.errors import UnsupportedError

if TYPE_CHECKING:
    from hexforge.analysis.difference import Difference
    from hexforge.analysis.difference.sides import OpenedContexts

_Function = TypeVar("_Function", bound=Callable[..., Any])


def timeable(model: Any) -> Any:
    """The graphs of a .pte by its path or of an exported program, which is lowered; any other model as it is."""
    is_file = isinstance(model, str | os.PathLike) and is_pte(model)
    if not is_file and not type(model).__module__.startswith("torch."):
        return model
    from hexforge.addons.executorch.running.pte_graphs import timed_graphs_of

    graphs = timed_graphs_of(model)
    return model if graphs is None else graphs


def _of_any_model(function: _Function) -> _Function:
    """The function, taking also models that ExecuTorch's front end has to open first."""

    @functools.wraps(function)
    def with_opened_model(model: Any, *arguments: Any, **keywords: Any) -> Any:
        return function(timeable(model), *arguments, **keywords)

    return cast(_Function, with_opened_model)


estimate = _of_any_model(_estimate)
estimates = _of_any_model(_estimates)
profile = _of_any_model(_profile)


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
    from hexforge.analysis.difference import diff as of_files  # an estimate does without

    return of_files(before, after, deployment, dims=dims, shapes=shapes, open_contexts=_pte_contexts)


def _pte_contexts(path: Path) -> OpenedContexts | None:
    """The contexts of a .pte's delegates; None for any other file."""
    if not is_pte(path):
        return None
    from hexforge.addons.executorch.running.pte_graphs import lowered_methods
    from hexforge.analysis.difference.sides import OpenedContexts

    methods = lowered_methods(path)
    contexts = tuple(delegate.context for method in methods for delegate in method.delegates)
    left = tuple(row for method in methods for row in method.left_on_cpu)
    if not contexts:
        names = ", ".join(row.op_type for row in left[:3]) or "no operator"
        raise UnsupportedError(f"{path}: no QNN delegate is in it ({names} on the CPU); lower it for QNN first")
    return OpenedContexts(contexts, left)


def gate(
    budget: str | Path,
    baseline: str | Path | Mapping[str, float] | None = None,
    progress: Callable[[str], None] = lambda model: None,
    metric: str = "",
    workers: Workers = Workers(),  # noqa: B008 - it is frozen
) -> GateResult:
    """Measure every model of a budget file, whose paths are relative to it; a fault of one model is a failed check.

    `baseline` is a file that `hexforge gate --save-baseline` wrote, or the `figures()` of an earlier result. `metric`
    says what decisions are judged by in place of what the budget says.
    """
    return _gate(budget, baseline, progress, timeable, metric, workers)
