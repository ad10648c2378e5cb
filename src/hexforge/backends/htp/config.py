# SPDX-License-Identifier: Apache-2.0
"""Config: what the htp backend is made with, and how its graphs are finalized.

Keys are spelled as the QNN execution provider's options where it has one, else as QnnHtpGraph_CustomConfig_t.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hexforge.chips.graph_config import GraphConfig
from hexforge.options import OptionTable, flag, integer, numbers, texts

DEFAULT_LEVEL = 2
"""What level 0 is: "default: 2" of the tools' config file, and "default" of the execution provider."""


@dataclass(frozen=True, slots=True)
class HtpConfig(OptionTable):
    """The chips that graphs are prepared for, and how."""

    soc_model: tuple[str, ...] = texts(
        ("0",),
        r"[^,]+",
        "a model number, a chip name such as SM8750, or a comma list of them",
        "the chips to prepare for; 0 is unknown",
    )
    htp_arch: tuple[int, ...] = numbers(
        0,
        "HTP architecture, one per SoC; a known soc_model wins; 0 is that of soc_model, or 73",
        choices="0 68 69 73 75 79 81",
    )
    vtcm_mb: tuple[int, ...] = numbers(0, "VTCM size in MB, one per SoC; 0 leaves it to the backend")
    htp_graph_finalization_optimization_mode: int = integer(0, "effort spent on preparing graphs; 0 is 2", high=3)
    htp_bf16_enable: bool = flag(False, "compute float32 models in bfloat16; needs soc_model 88 or newer")
    enable_htp_spill_fill_buffer: bool = flag(False, "say in context models how large a spill-fill buffer is needed")
    num_hvx_threads: int = integer(0, "threads that run a graph; 0 leaves it to the session")
    vtcm_size: int = integer(0, "VTCM size in bytes, v81 and newer; 0: as vtcm_mb says")
    fold_relu_activation_into_conv_off: bool = flag(False, "keep activations as steps of their own")
    exact_relu: bool = flag(
        False, "do not fold a Relu whose encoding has room outside its range: what it cuts stays cut, as in ONNX"
    )
    short_depth_conv_on_hmx_off: bool = flag(False, "run convolutions of short depth on HVX")
    dlbc: bool = flag(False, "compress activations on their way to and from DRAM")
    dlbc_weights: bool = flag(False, "compress weights in DRAM; not together with weight sharing")
    weights_packing: bool = flag(False, "keep 8-bit weights whose values are in the 4-bit range in 4 bits")
    slc_alloc_enable: bool = flag(False, "keep spilled activations in the system level cache")
    htp_num_cores: int = integer(0, "NSP cores that run a graph together; 0 is 1", high=16)
    enable_block_quant_weight_optimization: bool = flag(False, "4-bit weights with scales per block as LPBQ")
    lora_weight_sharing: bool = flag(False, "graphs of a context have one place for an adapter's weights")
    enable_htp_fp16_clamp_overflow: bool = flag(
        False, "float convolutions saturate at 65504 instead of overflowing; v79 and newer"
    )
    enable_htp_monolithic_lstm: bool = flag(False, "an LSTM is timed as one op, not as a cell for each time step")
    extended_udma: bool = flag(False, "64-bit uDMA, v81 and newer; such a context takes no buffers of a client's")

    @classmethod
    def title(cls) -> str:
        """What one of the options is called in messages."""
        return "option of the htp backend"

    @classmethod
    def of(cls, soc: str, graph: GraphConfig) -> HtpConfig:
        """The options of a chip, or a comma list of them, and of its graphs."""
        return replace(
            cls.parse({"soc_model": soc}),
            vtcm_mb=(graph.vtcm_mb,),
            htp_graph_finalization_optimization_mode=graph.optimization,
            num_hvx_threads=graph.num_hvx_threads,
            vtcm_size=graph.vtcm_size,
            fold_relu_activation_into_conv_off=graph.fold_relu_activation_into_conv_off,
            short_depth_conv_on_hmx_off=graph.short_depth_conv_on_hmx_off,
            dlbc=graph.dlbc,
            dlbc_weights=graph.dlbc_weights,
            weights_packing=graph.weights_packing,
            slc_alloc_enable=graph.slc_alloc_enable,
            htp_num_cores=graph.num_cores if graph.num_cores > 1 else 0,
            enable_htp_fp16_clamp_overflow=graph.fp16_clamp_overflow,
            enable_htp_monolithic_lstm=graph.monolithic_lstm,
        )

    @property
    def graph(self) -> GraphConfig:
        """How graphs are finalized."""
        return GraphConfig(
            optimization=self.htp_graph_finalization_optimization_mode,
            fold_relu_activation_into_conv_off=self.fold_relu_activation_into_conv_off,
            short_depth_conv_on_hmx_off=self.short_depth_conv_on_hmx_off,
            num_hvx_threads=self.num_hvx_threads,
            vtcm_mb=self.vtcm_mb[0],
            vtcm_size=self.vtcm_size,
            dlbc=self.dlbc,
            dlbc_weights=self.dlbc_weights,
            weights_packing=self.weights_packing,
            slc_alloc_enable=self.slc_alloc_enable,
            num_cores=max(1, self.htp_num_cores),
            fp16_clamp_overflow=self.enable_htp_fp16_clamp_overflow,
            monolithic_lstm=self.enable_htp_monolithic_lstm,
        )

    def only(self, index: int) -> HtpConfig:
        """The options of one of the chips."""

        def one(values: tuple[int, ...]) -> tuple[int, ...]:
            return values[index : index + 1] if len(values) > 1 else values

        soc_model = self.soc_model[index : index + 1]
        return replace(self, soc_model=soc_model, htp_arch=one(self.htp_arch), vtcm_mb=one(self.vtcm_mb))

    def _conflicts(self) -> list[str]:
        faults = []
        if self.htp_bf16_enable and not all(not s.isdigit() or int(s) >= 88 for s in self.soc_model):
            faults.append("htp_bf16_enable=1 needs soc_model 88 or newer")
        counts = {len(v) for v in (self.soc_model, self.htp_arch, self.vtcm_mb) if len(v) > 1}
        if len(counts) > 1:
            faults.append("soc_model, htp_arch and vtcm_mb list different numbers of SoCs; give one entry for each SoC")
        return faults
