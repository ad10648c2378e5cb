# SPDX-License-Identifier: Apache-2.0
"""Priority: which of several graphs goes first on an accelerator, by QNN's names."""

from __future__ import annotations

from enum import IntEnum

from hexforge.errors import CallError
from hexforge.qnn_api.enumerations import value_of


class Priority(IntEnum):
    """Qnn_Priority_t: a higher number goes first. Those beside the four published are what onnxruntime-qnn passes."""

    LOW = value_of("QNN_PRIORITY_LOW")
    NORMAL_LOW = 50
    NORMAL = value_of("QNN_PRIORITY_NORMAL")
    NORMAL_HIGH = value_of("QNN_PRIORITY_NORMAL_HIGH")
    HIGH = value_of("QNN_PRIORITY_HIGH")
    HIGH_PLUS = 300
    CRITICAL = 400
    CRITICAL_PLUS = 500

    @classmethod
    def of(cls, name: str) -> Priority:
        """The priority of that name, as in the option qnn_context_priority; default is normal."""
        wanted = "NORMAL" if name == "default" else name.upper()
        if wanted not in cls.__members__:
            raise CallError(f"priority {name!r} is not known; it is one of {', '.join(p.name.lower() for p in cls)}")
        return cls[wanted]
