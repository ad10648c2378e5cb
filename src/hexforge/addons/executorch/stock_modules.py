# SPDX-License-Identifier: Apache-2.0
"""The modules of ExecuTorch that hexforge has to do with, by name, and one that it mends."""

from __future__ import annotations

import builtins
import sys

ADAPTOR = "executorch.backends.qualcomm.python.PyQnnManagerAdaptor"
"""The one that opens Qualcomm's libraries, which hexforge answers for."""
PREPROCESSING = "executorch.backends.qualcomm.qnn_preprocess"
"""What turns a partition into QNN's ops."""
BINDINGS = "executorch.extension.pybindings._C"
"""The Python bindings of ExecuTorch's runtime, which load the wheel's own QnnBackend."""
LOADERS = ("executorch.kernels.quantized", "executorch.extension.llm.custom_ops.custom_ops")
"""Modules whose libraries load the runtime with its backends, too."""


def restore_builtins() -> None:
    """Let ExecuTorch's preprocessing have Python's `range` and others again, where it has torch's.

    Where ExecuTorch 1.5.1 meets an op that it has no builder for, and where it lowers a context binary, it copies all
    of torch into that module; whatever is lowered after that in the same process would fail.
    """
    module, torch = sys.modules.get(PREPROCESSING), sys.modules.get("torch")
    for name in vars(builtins) if module is not None and torch is not None else ():
        if name in vars(module) and vars(module)[name] is vars(torch).get(name):
            delattr(module, name)
