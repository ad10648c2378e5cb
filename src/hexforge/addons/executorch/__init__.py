# SPDX-License-Identifier: Apache-2.0
"""ExecuTorch's Qualcomm backend on hexforge: importing this module switches it on, where ExecuTorch is installed.

    import hexforge.executorch  # before executorch.backends.qualcomm is imported

`python -m hexforge.executorch SCRIPT ARGS` does the same for a script that is left as it is. `load` runs .pte files,
with torch or without; `enable_runtime` lets ExecuTorch's own runtime run them.
"""

from typing import TYPE_CHECKING, Any

from hexforge.addons.executorch.import_hook import TESTED, enable, examples_of_repository, is_enabled, is_installed

if TYPE_CHECKING:
    from hexforge.addons.executorch.running.pte_loading import PteModule, load
    from hexforge.addons.executorch.running.stock_runtime import enable_runtime

if is_installed():
    enable()

__all__ = [
    "TESTED", "PteModule", "enable", "enable_runtime", "examples_of_repository", "is_enabled", "is_installed", "load",
]  # fmt: skip
_LAZY = {"load": "pte_loading", "PteModule": "pte_loading", "enable_runtime": "stock_runtime"}


def __getattr__(name: str) -> Any:
    """What runs files, imported on use."""
    import importlib

    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.running.{_LAZY[name]}"), name)
