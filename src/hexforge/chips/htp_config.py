# SPDX-License-Identifier: Apache-2.0
"""HtpConfig: what the htp backend is made with: the chips that graphs are prepared for, and how.

Keys are spelled as the QNN execution provider's options where it has one, else as QnnHtpGraph_CustomConfig_t.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from hexforge.chips.graph_config import GraphConfig
from hexforge.options import ConfigKey, Option, OptionTable, flag, numbers, texts

_CHIP_NAMES = r"[0-9]+|[A-Za-z]+[0-9][A-Za-z0-9_-]*"


@dataclass(frozen=True, slots=True)
class HtpConfig(OptionTable):
    """The chips that graphs are prepared for, and how."""

    ARCHITECTURES: ClassVar = (68, 69, 73, 75, 79, 81, 85)
    soc_model: tuple[str, ...] = texts(
        ("0",),
        r"[^,]+",
        "a model number, a chip name such as SM8750, or a comma list of them",
        "the chip to prepare for, which says what ops and data types it takes; 0 is unknown; of several the first runs",
        provider=True,
        provider_pattern=_CHIP_NAMES,
        compile_spec="soc_model",
    )
    htp_arch: tuple[int, ...] = numbers(
        0,
        "HTP architecture, one per SoC; a known soc_model wins; 0 is that of soc_model, or 73",
        choices=" ".join(map(str, (0, *ARCHITECTURES))),
        provider=True,
    )
    vtcm_mb: tuple[int, ...] = numbers(
        0,
        "VTCM size in MB, one per SoC; 0 leaves it to the backend. A context that needs more is refused",
        provider=True,
    )
    graph: GraphConfig = field(default_factory=GraphConfig)
    htp_bf16_enable: bool = flag(
        False, "compute float32 models in bfloat16; needs soc_model 88 or newer", provider=True
    )
    enable_htp_spill_fill_buffer: bool = flag(
        False, "say in a context model how large a spill-fill buffer its graphs need (max_size)", provider=True
    )
    enable_block_quant_weight_optimization: bool = flag(
        False,
        "int4 weights with a float scale per block as LPBQ: an integer scale per block times a float one per channel",
        provider=True,
    )
    extended_udma: bool = flag(
        False,
        "64-bit uDMA, v81 and newer; a context that has it takes no buffers of a client's",
        provider=True,
        since=81,
    )
    lora_weight_sharing: bool = flag(
        False,
        "graphs of a context have one place for an adapter's weights; one must be applied before they run",
        config_file=ConfigKey("lora_weight_sharing", "context", default=False, offline=True),
    )

    def __post_init__(self) -> None:
        own = replace(self.graph, vtcm_mb=self.vtcm_mb[0])  # of several chips the first runs
        object.__setattr__(self, "graph", own)

    @classmethod
    def title(cls) -> str:
        """What one of the options is called in messages."""
        return "option of the htp backend"

    @classmethod
    def of(cls, soc: str, graph: GraphConfig) -> HtpConfig:
        """The options of a chip, or a comma list of them, and of its graphs."""
        return replace(cls.parse({"soc_model": soc}), vtcm_mb=(graph.vtcm_mb,), graph=graph)

    def for_chip(self, index: int) -> HtpConfig:
        """The options of one of the chips."""

        def one(values: tuple[int, ...]) -> tuple[int, ...]:
            return values[index : index + 1] if len(values) > 1 else values

        soc_model = self.soc_model[index : index + 1]
        return replace(self, soc_model=soc_model, htp_arch=one(self.htp_arch), vtcm_mb=one(self.vtcm_mb))

    def newer_than(self, arch: int) -> Option | None:
        """An option that is set and that an architecture does not have, or None."""
        given = self.pairs()
        return next((option for option in self.table() if option.since > arch and option.key in given), None)

    def _conflicts(self) -> list[str]:
        faults = []
        if self.htp_bf16_enable and not all(not s.isdigit() or int(s) >= 88 for s in self.soc_model):
            faults.append("htp_bf16_enable=1 needs soc_model 88 or newer")
        counts = {len(v) for v in (self.soc_model, self.htp_arch, self.vtcm_mb) if len(v) > 1}
        if len(counts) > 1:
            faults.append("soc_model, htp_arch and vtcm_mb list different numbers of SoCs; give one entry for each SoC")
        return faults
