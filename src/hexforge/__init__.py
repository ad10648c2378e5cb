"""hexforge: the Snapdragon NPU stack on any computer."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hexforge.backends.htp.options import GraphConfig
    from hexforge.backends.htp.power import Power
    from hexforge.errors import CallError, CapacityError, FormatError, HexforgeError, ModelError, UnsupportedError
    from hexforge.options import ProviderOptions
    from hexforge.runtime.advise import Advice, advise
    from hexforge.runtime.compare import Comparison, compare
    from hexforge.runtime.estimate import Estimate, estimate
    from hexforge.runtime.evaluate import Evaluation, evaluate
    from hexforge.runtime.fallback import RunOptions, SessionOptions
    from hexforge.runtime.quantize import Quantization, quantize
    from hexforge.runtime.session import InferenceSession

__all__ = [
    "Advice",
    "CallError",
    "CapacityError",
    "Comparison",
    "Estimate",
    "Evaluation",
    "FormatError",
    "GraphConfig",
    "HexforgeError",
    "InferenceSession",
    "ModelError",
    "Power",
    "ProviderOptions",
    "Quantization",
    "RunOptions",
    "SessionOptions",
    "UnsupportedError",
    "advise",
    "compare",
    "estimate",
    "evaluate",
    "quantize",
]

_HOMES = {
    "Advice": "hexforge.runtime.advise",
    "advise": "hexforge.runtime.advise",
    "InferenceSession": "hexforge.runtime.session",
    "Estimate": "hexforge.runtime.estimate",
    "GraphConfig": "hexforge.backends.htp.options",
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
