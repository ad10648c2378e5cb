# SPDX-License-Identifier: Apache-2.0
"""GraphConfig: how a graph is finalized for a chip. Each option is declared here once, with all of its spellings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from hexforge.options import ConfigKey, OptionTable, flag, integer

if TYPE_CHECKING:
    from hexforge.chips.soc import Soc

DEFAULT_LEVEL = 2
"""What level 0 is: "default: 2" of the tools' config file, and "default" of the execution provider."""
BEST_LEVEL = 3
"""The level that plans furthest ahead, which contexts are compiled with unless told otherwise."""
THREADS, VTCM, LEVEL = "num_hvx_threads", "vtcm_mb", "optimization"
"""The settings that a graph has in a context: fields of GraphConfig by their names."""
SHORT_DEPTH_OFF = "short_depth_conv_on_hmx_off"
"""The option that messages about short convolutions name."""
TIME_ALONE = (
    LEVEL, SHORT_DEPTH_OFF, THREADS, VTCM, "vtcm_size", "dlbc", "dlbc_weights", "slc_alloc_enable", "num_cores",
)  # fmt: skip
"""Fields of GraphConfig that change a graph's time and neither its nodes nor need its weights."""
MB = 1 << 20
VTCM_GRANULE = 64 << 10
"""A VTCM size in bytes is a multiple of this."""
VTCM_BYTES_ARCH = 81
"""From here on VTCM can be asked for in bytes."""


def vtcm_text(size: int) -> str:
    """An amount of VTCM in the unit it is asked for in: MB, or bytes where it is no whole number of them; 0 is all."""
    return "all" if not size else f"{size:,} bytes" if size % MB else f"{size // MB} MB"


def _threads_on(count: Any, soc: Soc) -> str:
    fits = f"{count} of the {soc.hvx_threads} threads of {soc.name}"
    return fits if count <= soc.hvx_threads else f"refused: {soc.name} has {soc.hvx_threads} threads"


def _cores_on(count: Any, soc: Soc) -> str:
    fits = f"{count} of the {soc.nsp_cores} NSP cores of {soc.name}"
    return fits if count <= soc.nsp_cores else f"refused: {soc.name} has {soc.nsp_cores}"


def _vtcm_on(size_mb: Any, soc: Soc) -> str:
    if not size_mb:
        return f"all {soc.vtcm_mb} MB of {soc.name}"
    fits = f"{size_mb} of the {soc.vtcm_mb} MB of {soc.name}"
    return fits if size_mb <= soc.vtcm_mb else f"refused: {soc.name} has {soc.vtcm_mb} MB"


def _vtcm_bytes_on(size: Any, soc: Soc) -> str:
    if soc.htp_arch < VTCM_BYTES_ARCH:
        return f"refused: needs v{VTCM_BYTES_ARCH}, {soc.name} is v{soc.htp_arch}"
    return f"{size:,} bytes"


@dataclass(frozen=True, slots=True)
class GraphConfig(OptionTable):
    """How a graph is finalized; numbers depend on it only where an activation is folded, weights are rounded, or
    float16 overflows."""

    optimization: int = integer(
        0,
        "effort spent on preparing graphs: 1 keeps nodes apart, 2 fuses them, 3 plans further ahead for the chip; "
        "numbers are the same",
        zero="; 0 is 2",
        key="htp_graph_finalization_optimization_mode",
        high=3,
        least=1,
        provider=True,
        config_file=ConfigKey("O", default=DEFAULT_LEVEL, is_number=True, multiple_of=1),
        command_line="--optimization",
        idle="levels differ in how much of VTCM holds weights fetched ahead, and no wait is shorter or longer for it; "
        "what else QNN does at a level is not published",
    )
    fold_relu_activation_into_conv_off: bool = flag(
        False,
        "keep activations after convolutions as ops of their own: slower, and each keeps its own range and encoding",
        config_file=ConfigKey("fold_relu_activation_into_conv_off", default=False),
        compile_spec="not use_fold_relu",
        command_line="--fold-relu-off",
        idle="no activation follows a convolution: a quantized model's Relu and Clip are the range of the "
        "convolution's own result",
    )
    short_depth_conv_on_hmx_off: bool = flag(
        False,
        "run convolutions of less than 32 channels on HVX: slower, and exact also with exact_weights=0",
        config_file=ConfigKey("short_depth_conv_on_hmx_off", default=False),
        compile_spec="not use_conv_hmx",
        command_line="--short-depth-conv-off",
        idle="no convolution reads less than 32 channels",
    )
    num_hvx_threads: int = integer(
        0,
        "vector threads that run a graph",
        zero="; 0 leaves it to the session, or is all of the chip's",
        least=1,
        config_file=ConfigKey("hvx_threads", decides="4 offline, all online", per_graph=True),
        command_line="--hvx-threads",
        on_chip=_threads_on,
    )
    vtcm_mb: int = integer(
        0,
        "vector memory that a graph may use in MB; 0 is all of the chip's",
        config_file=ConfigKey("vtcm_mb", per_graph=True),
        command_line="--vtcm-mb",
        on_chip=_vtcm_on,
    )
    vtcm_size: int = integer(
        0,
        f"vector memory in bytes, a multiple of 64 KB (v{VTCM_BYTES_ARCH} and newer); 0: as vtcm_mb says",
        config_file=ConfigKey(
            "vtcm_size",
            multiple_of=VTCM_GRANULE,
            excludes=("graphs.vtcm_mb", "{place}: vtcm_mb and vtcm_size both say how much VTCM; leave one out"),
        ),
        command_line="--vtcm-size",
        on_chip=_vtcm_bytes_on,
    )
    dlbc: bool = flag(
        False,
        "compress activations on their way to and from DRAM; not together with weight sharing",
        config_file=ConfigKey(
            "dlbc",
            default=0,
            is_number=True,
            excludes=(
                "context.weight_sharing_enabled",
                "{place}.dlbc and context.weight_sharing_enabled exclude each other",
            ),
        ),
        compile_spec="use_dlbc",
        command_line="--dlbc",
        idle="no activation passes through DRAM that anything waits for",
        ability="dlbc",
    )
    dlbc_weights: bool = flag(
        False,
        "compress weights in DRAM; not together with weight sharing",
        config_file=ConfigKey(
            "dlbc_weights",
            default=0,
            is_number=True,
            offline=True,
            excludes=(
                "context.weight_sharing_enabled",
                "{place}.dlbc_weights and context.weight_sharing_enabled exclude each other",
            ),
        ),
        command_line="--dlbc-weights",
        idle="nothing waits for weights",
        ability="dlbc",
    )
    weights_packing: bool = flag(
        False,
        "keep 8-bit weights whose values are in the 4-bit range in 4 bits",
        config_file=ConfigKey("weights_packing", default=False),
        command_line="--weights-packing",
    )
    slc_alloc_enable: bool = flag(
        False,
        "keep spilled activations in the system level cache",
        config_file=ConfigKey("slc_alloc_enable", default=0, is_number=True, offline=True),
        compile_spec="use_slc_allocator",
        command_line="--slc",
        idle="no activation passes through DRAM that anything waits for",
        ability="slc",
    )
    num_cores: int = integer(
        1,
        "NSP cores that run a graph together",
        zero="; 0 is 1",
        key="htp_num_cores",
        high=16,
        least=1,
        unset=0,
        provider=True,
        config_file=ConfigKey("num_cores", default=1, offline=True),
        command_line="--num-cores",
        on_chip=_cores_on,
    )
    fp16_clamp_overflow: bool = flag(
        False,
        "results of float convolutions beyond 65504 are 65504 instead of 65536; v79 and newer",
        key="enable_htp_fp16_clamp_overflow",
        provider=True,
        since=79,
    )
    monolithic_lstm: bool = flag(
        False,
        "one op for an Lstm or Gru instead of one for each time step: faster, the same numbers",
        key="enable_htp_monolithic_lstm",
        provider=True,
        command_line="--monolithic-lstm",
        idle="there is no Lstm and no Gru",
    )
    exact_relu: bool = flag(
        True,
        "do not fold a Relu whose encoding has room outside its range: what it cuts stays cut, as in ONNX; 0: QNN's "
        "default, which lets it through",
    )

    exact_weights: bool = flag(
        True,
        "multiply with 8-bit weights that have a zero point as they are, as in ONNX; 0: as HTP's matrix unit has them, "
        "rounded to 255 symmetric steps for each output channel of a convolution",
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_cores", self.num_cores or 1)

    @classmethod
    def title(cls) -> str:
        """What one of the options is called in messages."""
        return "option of a graph"

    @property
    def level(self) -> int:
        """How far graphs are fused and planned ahead: 1 to 3."""
        return self.optimization or DEFAULT_LEVEL

    @property
    def folds_activations(self) -> bool:
        """Whether a convolution computes the activation after it."""
        return not self.fold_relu_activation_into_conv_off

    @property
    def kinds_of_dlbc(self) -> int:
        """How many kinds of data are compressed on their way to DRAM."""
        return self.dlbc + self.dlbc_weights

    @property
    def no_weight_sharing(self) -> str | None:
        """Why graphs that are prepared so cannot share weights, or None where they can."""
        kind = "dlbc_weights" if self.dlbc_weights else "dlbc"
        return f"weight_sharing and {kind} exclude each other" if self.kinds_of_dlbc else None

    @property
    def reads_weights(self) -> str | None:
        """How the command line spells an option that is set and looks at the values of 8-bit weights, or None."""
        return "--weights-packing" if self.weights_packing else None

    @property
    def vtcm_bytes(self) -> int:
        """The VTCM that is asked for in MB or in bytes; 0: all of the chip's."""
        return self.vtcm_size or self.vtcm_mb * MB

    def with_vtcm(self, size_mb: int) -> GraphConfig:
        """The same with another size of VTCM."""
        return replace(self, vtcm_mb=size_mb, vtcm_size=0)

    @property
    def vtcm_needed_mb(self) -> int:
        """How many MB of VTCM a chip must have for it; 0: all of the chip's."""
        return -(-self.vtcm_bytes // MB)

    def vtcm_of(self, settings: Mapping[str, int]) -> int:
        """Bytes of VTCM that a graph with these settings was prepared for; 0: all of the chip's."""
        own = settings.get(VTCM, 0)
        return self.vtcm_bytes if own and own == self.vtcm_needed_mb else own * MB

    def threads_on(self, soc: Soc) -> int:
        """The vector threads that run a graph on a chip."""
        return self.num_hvx_threads or soc.hvx_threads

    def on_top_of(self, prepared: GraphConfig) -> GraphConfig:
        """What a graph was prepared with, and what of these options differs from the defaults in its place."""
        plain = GraphConfig()
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(prepared, **{name: value for name, value in given.items() if value != getattr(plain, name)})

    def prepared(self, settings: Mapping[str, int]) -> GraphConfig:
        """How a graph with these settings was prepared; VTCM that was asked for in bytes stays so."""
        in_bytes = self.vtcm_size and settings[VTCM] == self.vtcm_needed_mb
        return replace(self, num_hvx_threads=settings[THREADS], vtcm_mb=0 if in_bytes else settings[VTCM])

    def running(self, settings: Mapping[str, int], soc: Soc) -> GraphConfig:
        """How a graph with these settings runs on a chip, as far as the chip has what they ask for."""
        vtcm_mb = min(settings.get(VTCM) or soc.vtcm_mb, soc.vtcm_mb)
        size = self.vtcm_size if self.vtcm_size < vtcm_mb * MB else 0
        return replace(
            self,
            optimization=settings.get(LEVEL, 0),
            num_hvx_threads=min(settings.get(THREADS, 0), soc.hvx_threads),
            vtcm_mb=0 if size else vtcm_mb,
            vtcm_size=size,
        )
