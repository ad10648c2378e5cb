"""A stand-in for onnxruntime: `import hexforge.ort as onnxruntime`.

What has to do with QNNExecutionProvider is hexforge's; every other name, submodules too, is the real onnxruntime's.
`python -m hexforge.ort SCRIPT` runs an unchanged script with it.
"""

from __future__ import annotations

import onnxruntime as _real

from hexforge.ort.binding import IOBinding
from hexforge.ort.devices import (
    get_ep_devices,
    register_execution_provider_library,
    unregister_execution_provider_library,
)
from hexforge.ort.model_compiler import ModelCompiler
from hexforge.ort.options import RunOptions, SessionOptions
from hexforge.ort.preprocess import mend as _mend
from hexforge.ort.providers import PROVIDERS as _PROVIDERS
from hexforge.ort.session import InferenceSession
from hexforge.ort.stand_in import alias_submodules as _alias_submodules

__all__ = [
    "IOBinding",
    "InferenceSession",
    "ModelCompiler",
    "RunOptions",
    "SessionOptions",
    "get_available_providers",
    "get_ep_devices",
    "register_execution_provider_library",
    "unregister_execution_provider_library",
]


def get_available_providers() -> list[str]:
    """The execution providers a session can be made with, QNNExecutionProvider first."""
    return list(_PROVIDERS)


def __getattr__(name: str) -> object:
    """Everything else is onnxruntime's."""
    try:
        return getattr(_real, name)
    except AttributeError:
        raise AttributeError(f"module 'hexforge.ort' has no attribute {name!r}, and neither has onnxruntime") from None


def __dir__() -> list[str]:
    return sorted({*__all__, *dir(_real)})


_alias_submodules(__name__, _real.__name__)
_mend()
