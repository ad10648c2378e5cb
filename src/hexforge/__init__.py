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
    from hexforge.runtime.contexts.compatibility import Compatibility, validate
    from hexforge.runtime.contexts.compile import Compiled, compile
    from hexforge.runtime.contexts.context import Context
    from hexforge.runtime.contexts.loading import CancelledError, ContextConfig, Signal, load_context, load_contexts
    from hexforge.runtime.contexts.manage import ManagedSession
    from hexforge.runtime.estimate import Estimate, estimate
    from hexforge.runtime.fallback import RunOptions, SessionOptions
    from hexforge.runtime.quality.compare import Comparison, compare
    from hexforge.runtime.quality.evaluate import Evaluation, evaluate
    from hexforge.runtime.quality.quantize import Quantization, quantize
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
    "CancelledError": "hexforge.runtime.contexts.loading",
    "ContextConfig": "hexforge.runtime.contexts.loading",
    "Signal": "hexforge.runtime.contexts.loading",
    "load_context": "hexforge.runtime.contexts.loading",
    "load_contexts": "hexforge.runtime.contexts.loading",
    "Compatibility": "hexforge.runtime.contexts.compatibility",
    "validate": "hexforge.runtime.contexts.compatibility",
    "Compiled": "hexforge.runtime.contexts.compile",
    "compile": "hexforge.runtime.contexts.compile",
    "Context": "hexforge.runtime.contexts.context",
    "ManagedSession": "hexforge.runtime.contexts.manage",
    "Advice": "hexforge.runtime.advise",
    "advise": "hexforge.runtime.advise",
    "InferenceSession": "hexforge.runtime.session",
    "Estimate": "hexforge.runtime.estimate",
    "GraphConfig": "hexforge.backends.htp.options",
    "ModelCompiler": "hexforge.ort.model_compiler",
    "Power": "hexforge.backends.htp.power",
    "ProviderOptions": "hexforge.options",
    "Quantization": "hexforge.runtime.quality.quantize",
    "quantize": "hexforge.runtime.quality.quantize",
    "RunOptions": "hexforge.runtime.fallback",
    "SessionOptions": "hexforge.runtime.fallback",
    "Comparison": "hexforge.runtime.quality.compare",
    "compare": "hexforge.runtime.quality.compare",
    "Evaluation": "hexforge.runtime.quality.evaluate",
    "evaluate": "hexforge.runtime.quality.evaluate",
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
