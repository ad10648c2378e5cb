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
    vtcm_mb: int = 0
    """Vector memory the graph may use, in MB; 0: all of the chip's."""
    vtcm_size: int = 0
    """The same in bytes (v81 and newer), a multiple of 64 KB; 0: as vtcm_mb says."""
    dlbc: bool = False
    """Activations are compressed on their way to and from DRAM."""
    dlbc_weights: bool = False
    """Weights are compressed in DRAM; not together with weight sharing."""
    weights_packing: bool = False
    """8-bit weights whose values are in the 4-bit range lie in DRAM as 4 bits."""
    slc_alloc_enable: bool = False
    """Spilled activations are kept in the system level cache."""
