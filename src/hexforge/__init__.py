"""hexforge: the Snapdragon NPU stack on any computer."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hexforge.errors import (
        CallError as CallError,
        CapacityError as CapacityError,
        FormatError as FormatError,
        HexforgeError as HexforgeError,
        ModelError as ModelError,
        UnsupportedError as UnsupportedError,
    )
    from hexforge.options import ProviderOptions as ProviderOptions
    from hexforge.runtime.fallback import RunOptions as RunOptions, SessionOptions as SessionOptions
    from hexforge.runtime.session import InferenceSession as InferenceSession

__version__ = "0.1.0"

_ERRORS = ("CallError", "CapacityError", "FormatError", "HexforgeError", "ModelError", "UnsupportedError")
_HOMES = {
    "InferenceSession": "hexforge.runtime.session",
    "SessionOptions": "hexforge.runtime.fallback",
    "RunOptions": "hexforge.runtime.fallback",
    "ProviderOptions": "hexforge.options",
    **dict.fromkeys(_ERRORS, "hexforge.errors"),
}
__all__ = sorted(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    """Import on use: `import hexforge` alone loads nothing."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'hexforge' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
