"""hexforge: the Snapdragon NPU stack on any computer."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hexforge.backends.htp.options import GraphConfig
    from hexforge.backends.htp.power import Power
    from hexforge.errors import CallError, CapacityError, FormatError, HexforgeError, ModelError, UnsupportedError
    from hexforge.formats.adapter import Adapter
    from hexforge.options import ProviderOptions
    from hexforge.ort.model_compiler import ModelCompiler
    from hexforge.runtime.advise import Advice, advise
    from hexforge.runtime.compare import Comparison, compare
    from hexforge.runtime.compatibility import Compatibility, validate
    from hexforge.runtime.compile import Compiled, compile
    from hexforge.runtime.context import Context
    from hexforge.runtime.estimate import Estimate, estimate
    from hexforge.runtime.evaluate import Evaluation, evaluate
    from hexforge.runtime.fallback import RunOptions, SessionOptions
    from hexforge.runtime.loading import CancelledError, ContextConfig, Signal, load_context, load_contexts
    from hexforge.runtime.manage import ManagedSession
    from hexforge.runtime.quantize import Quantization, quantize
    from hexforge.runtime.session import InferenceSession

__all__ = [
    "Adapter",
    "Advice",
    "CallError",
    "CancelledError",
    "CapacityError",
    "Comparison",
    "Compatibility",
    "Compiled",
    "Context",
    "ContextConfig",
    "Estimate",
    "Evaluation",
    "FormatError",
    "GraphConfig",
    "HexforgeError",
    "InferenceSession",
    "ManagedSession",
    "ModelCompiler",
    "ModelError",
    "Power",
    "ProviderOptions",
    "Quantization",
    "RunOptions",
    "SessionOptions",
    "Signal",
    "UnsupportedError",
    "advise",
    "compare",
    "compile",
    "estimate",
    "evaluate",
    "load_context",
    "load_contexts",
    "quantize",
    "validate",
]

_HOMES = {
    "Adapter": "hexforge.formats.adapter",
    "CancelledError": "hexforge.runtime.loading",
    "ContextConfig": "hexforge.runtime.loading",
    "Signal": "hexforge.runtime.loading",
    "load_context": "hexforge.runtime.loading",
    "load_contexts": "hexforge.runtime.loading",
    "Compatibility": "hexforge.runtime.compatibility",
    "validate": "hexforge.runtime.compatibility",
    "Compiled": "hexforge.runtime.compile",
    "compile": "hexforge.runtime.compile",
    "Context": "hexforge.runtime.context",
    "ManagedSession": "hexforge.runtime.manage",
    "Advice": "hexforge.runtime.advise",
    "advise": "hexforge.runtime.advise",
    "InferenceSession": "hexforge.runtime.session",
    "Estimate": "hexforge.runtime.estimate",
    "GraphConfig": "hexforge.backends.htp.options",
    "ModelCompiler": "hexforge.ort.model_compiler",
    "Power": "hexforge.backends.htp.power",
    "ProviderOptions": "hexforge.options",
    "Quantization": "hexforge.runtime.quantize",
    "quantize": "hexforge.runtime.quantize",
    "RunOptions": "hexforge.runtime.fallback",
    "SessionOptions": "hexforge.runtime.fallback",
    "Comparison": "hexforge.runtime.compare",
    "compare": "hexforge.runtime.compare",
    "Evaluation": "hexforge.runtime.evaluate",
    "evaluate": "hexforge.runtime.evaluate",
    "estimate": "hexforge.runtime.estimate",
}


def __getattr__(name: str) -> Any:
    """Import on use: `import hexforge` alone loads nothing."""
    if name == "__version__":
        value: Any = importlib.import_module("importlib.metadata").version("hexforge")
    elif name in __all__:
        value = getattr(importlib.import_module(_HOMES.get(name, "hexforge.errors")), name)
    else:
        raise AttributeError(f"module 'hexforge' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
