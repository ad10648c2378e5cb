# SPDX-License-Identifier: Apache-2.0
"""Packages that ExecuTorch's example scripts import whether they use them or not, where those cannot be had.

`torchtune` (made for an older torchao), `lm_eval` and `datasets` become modules whose names say so when they are used.
torchvision is used as it is: where its library is made for another torch, the operators that it asks for are declared.
"""

from __future__ import annotations

import functools
import importlib.util
import types
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from hexforge.errors import CallError

PACKAGES = ("torchtune", "lm_eval", "datasets")
"""What scripts import at their beginning, for models and tasks that most of them are not asked for."""
TORCHVISION = "torchvision"
_kept: list[Any] = []
"""A library of torch's ends with its object."""


class MissingName:
    """A function or class of a package that is not installed: it can be imported and derived from, not used."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        kind = next(c for c in type(self).__mro__ if MissingName in c.__bases__)
        package = kind.__module__.partition(".")[0]
        raise CallError(f"{kind.__module__}.{kind.__name__}: {package} is not installed: pip install {package}")


class _Missing(Loader):
    """Makes modules whose every name is a MissingName."""

    def create_module(self, spec: ModuleSpec) -> types.ModuleType | None:
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        module.__getattr__ = functools.partial(_missing_name, module.__name__)  # type: ignore[method-assign]


@functools.cache
def _missing_name(module: str, name: str) -> type[MissingName]:
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (MissingName,), {"__module__": module})


class MissingPackages(MetaPathFinder):
    """Finds what no other finder found, of the packages above; it comes last."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        """A module of missing names for a package that is not installed, nothing for any other."""
        if fullname.partition(".")[0] not in PACKAGES:
            return None
        return ModuleSpec(fullname, _Missing(), origin="hexforge", is_package=True)


def declare_torchvision_operators() -> None:
    """Declare the operators that torchvision needs in order to be imported, where its library does not load.

    They have no kernels: a model that uses one (`nms`) says that it does not exist for the CPU.
    """
    spec = PathFinder.find_spec(TORCHVISION)
    if _kept or spec is None or importlib.util.find_spec("torch") is None:
        return
    import torch

    built = [file for folder in spec.submodule_search_locations or () for file in Path(folder).glob("_C*.so")]
    try:
        for file in built:
            torch.ops.load_library(file)
    except OSError:
        built = []
    if not built:
        operators = torch.library.Library(TORCHVISION, "FRAGMENT")
        for name in ("nms", "qnms"):
            operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _kept.append(operators)
