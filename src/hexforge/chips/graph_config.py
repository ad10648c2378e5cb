# SPDX-License-Identifier: Apache-2.0
"""GraphConfig: how a graph is finalized for a chip."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GraphConfig:
    """How a graph is finalized; numbers depend on it only where an activation is folded, or float16 overflows."""

    optimization: int = 0
    """1 keeps nodes apart, 2 (and 0) fuses them, 3 plans further ahead for the chip."""
    fold_relu_activation_into_conv_off: bool = False
    """Keep activations after convolutions as ops of their own: slower, and each keeps its own range and encoding."""
    short_depth_conv_on_hmx_off: bool = False
    """Convolutions of less than 32 channels run on HVX: slower; numbers are exact either way."""
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
    num_cores: int = 1
    """NSP cores that run the graph together."""
    fp16_clamp_overflow: bool = False
    """Results of float convolutions beyond 65504 are 65504, not infinite (v79 and newer)."""
    monolithic_lstm: bool = False
    """An Lstm or Gru runs as one op, not as one for each time step; numbers are the same."""
