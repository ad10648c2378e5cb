# SPDX-License-Identifier: Apache-2.0
"""Inlining: the functions of a model become nodes of its graph, in a time that grows with their number."""

from __future__ import annotations

from collections import Counter
from typing import Any

import onnx_ir
from onnx_ir import passes
from onnx_ir.passes import common
from onnx_ir.passes.common import inliner

from hexforge.errors import ModelError


def inline_functions(model: onnx_ir.Model, where: str) -> None:
    """Inline all functions; ModelError where that cannot be."""
    if not model.functions:
        return
    try:
        _Inliner()(model)
    except (passes.PassError, passes.PreconditionError, ValueError, KeyError) as error:
        raise ModelError(
            f"{where}: its functions cannot be inlined: {error.__cause__ or error}; export it without functions"
        ) from None


class _UsedNames(set[str]):
    """Names in use, and the number last given to each name that was used again."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: Counter[str] = Counter()


class _Inliner(common.InlinePass):
    """onnx_ir's own pass. It numbers a name that is there already by trying 2, 3 and so on each time, which takes n²
    tries for n calls; here the numbers that were tried are remembered, and the names are the same."""

    def _reset(self, model: onnx_ir.Model) -> None:
        super()._reset(model)
        self._used_value_names, self._used_node_names = _UsedNames(), _UsedNames()


def _unique_name(name: str, callstack: Any, used_names: set[str]) -> str:
    numbers = used_names.numbers if isinstance(used_names, _UsedNames) else Counter[str]()
    candidate = name
    if candidate in used_names:
        number = max(numbers[name], 1)
        while (candidate := f"{name}_{number + 1}") in used_names:
            number += 1
        numbers[name] = number + 1
    used_names.add(candidate)
    return candidate


inliner._make_unique_name = _unique_name
