"""Graph options of HTP that onnxruntime's provider has no key for, by QNN's names (QnnHtpGraph_CustomConfig_t)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GraphConfig:
    """How a graph is finalized; no option changes a number."""

    optimization: int = 0
    """1 keeps nodes apart, 2 fuses chains into tables, 3 (and 0) puts tables into convolutions."""
    fold_relu_activation_into_conv_off: bool = False
    """Keep activations as steps of their own, whatever the optimization."""
    num_hvx_threads: int = 0
    """Threads that run the graph; 0 leaves it to the session."""
