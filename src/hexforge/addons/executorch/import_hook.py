# SPDX-License-Identifier: Apache-2.0
"""The one module of ExecuTorch that hexforge answers for, put in place before ExecuTorch imports it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import sys
import types
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path

from hexforge.addons.executorch.missing_packages import TORCHVISION, MissingPackages, declare_torchvision_operators
from hexforge.addons.executorch.stock_modules import ADAPTOR, BINDINGS, LOADERS
from hexforge.errors import CallError

TESTED = {"executorch": "1.5.1", "torch": "2.13.0", "torchao": "0.18.0"}
"""The versions that the tests run with."""


class _Loads(Loader):
    """Fills the module with the adaptor's names."""

    def create_module(self, spec: ModuleSpec) -> types.ModuleType | None:
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        from hexforge.addons.executorch import adaptor

        for name in adaptor.__all__:
            setattr(module, name, getattr(adaptor, name))
        module.__doc__ = adaptor.__doc__


EXAMPLES = "examples"
"""The package of ExecuTorch's examples in its repository; installed it is a part of `executorch`."""
_SHORT_FLAGS = {"-b": "--build_folder", "-m": "--soc_model", "-s": "--device"}
"""Flags of its scripts, which ExecuTorch's tutorial has short, and which its scripts have no more."""


def examples_of_repository() -> list[str]:
    """Where the modules of the package `examples` are; scripts of it may be given the short flags of the tutorial."""
    enable()
    # by its installation: the tutorial has the folder above the repository on the path, which looks the same
    folder = Path(str(importlib.metadata.distribution("executorch").locate_file("executorch/examples")))
    if not folder.is_dir():
        raise CallError("the installed executorch has no examples; pip install executorch==1.5.1")
    if short := [flag for flag in sys.argv[1:] if flag in _SHORT_FLAGS]:
        named = ", ".join(f"{flag} is {_SHORT_FLAGS[flag]}" for flag in dict.fromkeys(short))
        print(f"hexforge: {named} in this version of ExecuTorch", file=sys.stderr)
        sys.argv[1:] = [_SHORT_FLAGS.get(flag, flag) for flag in sys.argv[1:]]
    return [str(folder)]


class ExamplesFinder(MetaPathFinder):
    """Finds the package `examples` of ExecuTorch's repository where there is no other."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        """The installed examples under the repository's name."""
        if fullname != EXAMPLES:
            return None
        spec = ModuleSpec(fullname, None, is_package=True)
        spec.submodule_search_locations = examples_of_repository()
        return spec


class AdaptorFinder(MetaPathFinder):
    """Finds hexforge where the stock module is asked for."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        """hexforge for the stock module, nothing for any other; before the runtime comes its QnnBackend."""
        if fullname == TORCHVISION:
            declare_torchvision_operators()
        if fullname == BINDINGS or fullname in LOADERS:
            _before_the_runtime(fullname)
        return ModuleSpec(fullname, _Loads(), origin="hexforge") if fullname == ADAPTOR else None


def _before_the_runtime(module: str) -> None:
    """Let ExecuTorch's runtime find hexforge's QnnBackend when it is loaded, where that can be built."""
    from hexforge.addons.executorch.running.stock_runtime import enable_runtime

    try:
        enable_runtime()
    except CallError as error:
        if module == BINDINGS:  # who only compiles needs no runtime
            warnings.warn(f"executorch.runtime keeps its own QnnBackend: {error}", UserWarning, stacklevel=3)


def enable() -> None:
    """Let ExecuTorch's Qualcomm backend compile with hexforge; before anything of that backend is imported."""
    if is_enabled():
        return
    _check_versions()
    if ADAPTOR in sys.modules:
        raise CallError(
            "ExecuTorch's Qualcomm backend is imported already and holds Qualcomm's library; import "
            "hexforge.addons.executorch before it, or run the script by `python -m hexforge.executorch SCRIPT`"
        )
    sys.meta_path.insert(0, AdaptorFinder())
    sys.meta_path.append(MissingPackages())
    sys.meta_path.append(ExamplesFinder())
    # ExecuTorch downloads Qualcomm's SDK unless this names a folder; hexforge's own stands for it.
    if not os.environ.get("QNN_SDK_ROOT"):
        os.environ["QNN_SDK_ROOT"] = str(Path(__file__).parent)


def is_enabled() -> bool:
    """True where ExecuTorch's Qualcomm backend compiles with hexforge."""
    return any(isinstance(finder, AdaptorFinder) for finder in sys.meta_path)


def is_installed() -> bool:
    """True where ExecuTorch is there; a folder of its name on the path, such as its repository's, is not enough."""
    try:
        importlib.metadata.version("executorch")
    except importlib.metadata.PackageNotFoundError:
        return False
    return importlib.util.find_spec("executorch") is not None


def _check_versions() -> None:
    missing, other = [], []
    for name, tested in TESTED.items():
        try:
            installed = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(f"{name}=={tested}")
            continue
        if installed.partition("+")[0] != tested:
            other.append(f"{name} {installed} is installed, {tested} was tested")
    if missing:
        raise CallError(f"hexforge.addons.executorch needs {', '.join(missing)}; pip install 'hexforge[executorch]'")
    if other:
        warnings.warn(
            f"hexforge.addons.executorch: {'; '.join(other)}; what fails may be due to that", UserWarning, stacklevel=3
        )
