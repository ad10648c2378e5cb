# SPDX-License-Identifier: Apache-2.0
"""A stand-in for onnxruntime: `import hexforge.ort as onnxruntime`.

What has to do with QNNExecutionProvider is hexforge's; every other name, submodules too, is the real onnxruntime's.
`python -m hexforge.ort SCRIPT` runs an unchanged script with it. Names are imported on use: a command that looks at a
model needs none of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from hexforge.ort.stand_in import alias_submodules as _alias_submodules
from hexforge.ort.stand_in import replace_function as _mend

if TYPE_CHECKING:
    from hexforge.ort.binding import IOBinding
    from hexforge.ort.model_compiler import ModelCompiler
    from hexforge.ort.options.notes import set_default_logger_severity
    from hexforge.ort.options.providers import get_available_providers
    from hexforge.ort.options.session_options import RunOptions, SessionOptions
    from hexforge.ort.provider_listing import (
        get_ep_devices,
        register_execution_provider_library,
        unregister_execution_provider_library,
    )
    from hexforge.ort.session import InferenceSession
    from hexforge.ort.values import OrtValue

__all__ = [
    "IOBinding",
    "InferenceSession",
    "ModelCompiler",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "get_available_providers",
    "get_ep_devices",
    "register_execution_provider_library",
    "set_default_logger_severity",
    "unregister_execution_provider_library",
]

_REAL = "onnxruntime"
_HOMES = (
    "binding",
    "provider_listing",
    "model_compiler",
    "options.notes",
    "options.session_options",
    "options.providers",
    "session",
    "values",
)


def __getattr__(name: str) -> object:
    """What is hexforge's own is imported from its module; everything else is onnxruntime's."""
    if name in __all__:
        for home in _HOMES:
            module = importlib.import_module(f"{__name__}.{home}")
            if name in vars(module):
                globals()[name] = vars(module)[name]
                return globals()[name]
    try:
        return getattr(importlib.import_module(_REAL), name)
    except AttributeError:
        raise AttributeError(f"module 'hexforge.ort' has no attribute {name!r}, and neither has onnxruntime") from None


def __dir__() -> list[str]:
    return sorted({*__all__, *dir(importlib.import_module(_REAL))})


_alias_submodules(__name__, _REAL)
_mend()
