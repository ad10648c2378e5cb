"""Pointwise ops, which compute each output element from the elements at its place alone, whatever the layout."""

from __future__ import annotations

_NAMED = frozenset(
    "Relu Relu1 Relu6 ReluMinMax Sigmoid Tanh Elu Gelu HardSwish Prelu Quantize Dequantize Convert IsInf IsNan".split()
)


def is_pointwise(op: str) -> bool:
    """True for an op that may broadcast its inputs but otherwise looks at one element of each."""
    return op.startswith("ElementWise") or op in _NAMED
