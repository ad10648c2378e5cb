# SPDX-License-Identifier: Apache-2.0
"""The htp backend: what the NPU computes, by native kernels, and how long it takes there."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from hexforge import _native
from hexforge.backend import (
    Compatibility,
    ContextBackend,
    Get,
    GraphSettings,
    PlacingTraits,
    Read,
    Schematic,
    SharedWork,
    Target,
    TimedBackend,
    Verdict,
    processors,
)
from hexforge.backends.htp import activations, numeric_switches, preparation, support
from hexforge.backends.htp.block_weights import to_lpbq
from hexforge.backends.htp.masked_softmax import why_not_fused
from hexforge.backends.htp.numbers import half_range
from hexforge.backends.htp.numbers.bfloat16 import BFloat16Program, to_bfloat16
from hexforge.backends.htp.numbers.halves import LARGEST_FLOAT16
from hexforge.backends.htp.numbers.program import HtpProgram
from hexforge.backends.htp.pipeline import lower_graph, prepare_graph
from hexforge.backends.htp.symmetric_weights import round_weights, weights_remark
from hexforge.chips.deployment import AS_IS, Deployment
from hexforge.chips.graph_config import BEST_LEVEL, LEVEL, MB, THREADS, VTCM, VTCM_BYTES_ARCH, VTCM_GRANULE, GraphConfig
from hexforge.chips.htp_config import HtpConfig
from hexforge.chips.power import BURST, Power
from hexforge.chips.soc import SOCS, ChipTarget, Soc, require_chip, require_cores, target
from hexforge.errors import CallError
from hexforge.ir import Graph, Node, Value
from hexforge.ir.verify import verify
from hexforge.options import OptionTable
from hexforge.timeline import Accelerator, Timeline, Timing

if TYPE_CHECKING:
    from hexforge.backends.htp.timing import Clock

MOST_GRAPHS = 64
LARGE_BYTES = 4 << 20
"""Constants from which on it is worth the time to give memory that was freed back to the system."""
SCHEMATIC_COLUMNS = ("name", "op", "start_us", "us", "cycles", "bound", "weight_bytes", "spill_bytes", "nodes")


class HtpBackend(ContextBackend, TimedBackend):
    """Places, compiles, runs and times graphs as the Hexagon Tensor Processor does."""

    name = "htp"
    Config: ClassVar[type[OptionTable]] = HtpConfig
    ep_limited = True
    config: HtpConfig

    def __init__(
        self,
        config: HtpConfig | None = None,
        threads: int = 0,
        *,
        floats_stand_for_integers: bool = False,
        cost_file: str = "",
    ) -> None:
        super().__init__(config, threads)
        self._cost_file = cost_file
        self._promised = floats_stand_for_integers
        self._session_threads = threads
        self.threads = self.config.graph.num_hvx_threads or max(threads, 0) or processors()
        count = len(self.config.soc_model)
        archs = self.config.htp_arch if len(self.config.htp_arch) == count else self.config.htp_arch[:1] * count
        self._chips = tuple(
            replace(target(soc, arch), bfloat16_math=self.config.htp_bf16_enable)
            for soc, arch in zip(self.config.soc_model, archs, strict=True)
        )
        self.target = self._chips[0]
        """The chip that programs run on here."""
        for chip in self._chips:
            if chip.soc is not None:
                require_cores(chip.soc, self.config.graph.num_cores, "num_cores")
        if self.config.htp_bf16_enable and not self.target.bfloat16:
            raise CallError(f"htp_bf16_enable=1 needs soc_model 88 or newer, this is {self.target.name}")
        if (option := self.config.newer_than(min(chip.arch for chip in self._chips))) is not None:
            raise CallError(f"{option.key}=1 needs v{option.since} or newer, this is {self.target.name}")

    @classmethod
    def for_deployment(cls, deployment: Deployment, threads: int = 0) -> Self:
        """The backend that places, times and compiles for a deployment."""
        config, promised = HtpConfig.of(deployment.soc, deployment.config), deployment.quantizes_floats
        return cls(config, threads, floats_stand_for_integers=promised, cost_file=deployment.cost_file)

    # -- numbers ------------------------------------------------------------------------------------------------------

    def unsupported(self, node: Node) -> str | None:
        """Why HTP refuses the node on one of the chips, or None."""
        for chip in self._chips:
            if (reason := support.unsupported(node, self._placed_on(chip))) is not None:
                return reason if len(self._chips) == 1 else f"on {chip.soc.name if chip.soc else chip.name}: {reason}"
        return None

    @property
    def placing_traits(self) -> PlacingTraits | None:
        """What the rules look at of the chip; None where there are several."""
        if len(self._chips) > 1:
            return None
        chip = self._placed_on(self.target)
        return PlacingTraits(support.traits(chip), chip.name)

    def _placed_on(self, chip: ChipTarget) -> ChipTarget:
        return replace(chip, soc=None, arch=max(chip.arch, 69)) if self._promised else chip

    @property
    def largest_float(self) -> float:
        """The largest number of float16; there are more, up to 131008, but not for every op."""
        return math.inf if self.config.htp_bf16_enable else LARGEST_FLOAT16

    def float16_hazard(self, node: Node) -> str | None:
        """Why float16, or a Relu's encoding, cannot hold a node's numbers, and what would work; None where it can."""
        if self.config.graph.folds_activations and (hazard := activations.encoding_hazard(node)) is not None:
            return hazard
        return None if self.config.htp_bf16_enable else half_range.float16_hazard(node)

    def remark(self, node: Node) -> str | None:
        """Why an attention's Softmax is not fused with its mask, or what the matrix unit loses of weights."""
        return why_not_fused(node) or weights_remark(node)

    @property
    def numeric_switches(self) -> Mapping[str, str]:
        """What the chip may compute otherwise, by name, and what each means."""
        return {name: switch.title for name, switch in numeric_switches.SWITCHES.items()}

    def switchable_nodes(self, graph: Graph, switch: str) -> tuple[Node, ...]:
        """The nodes of a graph that a numeric switch changes."""
        return numeric_switches.switchable_nodes(graph, switch)

    def switch_nodes(self, graph: Graph, switch: str, names: Collection[str]) -> None:
        """Let some nodes of a graph compute as a numeric switch says."""
        numeric_switches.switch_nodes(graph, switch, names)

    def prepared(self, graph: Graph) -> Graph:
        """The graph after HTP's passes: what is lowered and what is timed."""
        if self.config.enable_block_quant_weight_optimization:
            to_lpbq(graph)
        own = self.config.graph
        keep_short = own.short_depth_conv_on_hmx_off
        rounds = None if own.exact_weights else functools.partial(round_weights, keep_short=keep_short)
        return prepare_graph(graph, self._folds, rounds)

    @property
    def _folds(self) -> bool:
        """Whether convolutions take the place of activations after them, whatever their encodings are."""
        return self.config.graph.folds_activations and not self.config.graph.exact_relu

    def compile(self, graph: Graph) -> HtpProgram | BFloat16Program:
        """Lower the graph to native steps; the level of finalization chooses how far to fuse."""
        graph.sort()
        cast = to_bfloat16(graph) if self.config.htp_bf16_enable else frozenset()
        verify(graph)
        large = support.require_fit(graph) > LARGE_BYTES
        program = HtpProgram.of(
            graph, lower_graph(self.prepared(graph), self.config.graph, self.target.arch), self.threads
        )
        program.running.spinning, program.packs_weights = self.spinning, self.config.graph.weights_packing
        if large:
            _native.release_free_memory()  # packing weights takes several times their size for a moment
        return BFloat16Program(program, cast) if self.config.htp_bf16_enable else program

    def load(
        self, name: str, inputs: Sequence[Value], outputs: Sequence[Value], read: Read, get: Get
    ) -> HtpProgram | BFloat16Program:
        """A program from a context file, over the file's own bytes."""
        taken = 0

        def counted(offset: int, size: int) -> memoryview:
            nonlocal taken
            taken += size
            return get(offset, size)

        program, cast = HtpProgram.load(name, inputs, outputs, read, counted, self.threads)
        program.running.spinning = self.spinning
        if taken > LARGE_BYTES:
            _native.release_free_memory()
        return program if cast is None else BFloat16Program(program, frozenset(cast))

    # -- time: importing it is left to those who ask ------------------------------------------------------------------

    @property
    def chips(self) -> tuple[str, ...]:
        """Every chip that can be timed."""
        return tuple(soc.name for soc in SOCS)

    @property
    def chip_name(self) -> str:
        """The chip that is timed."""
        return self._soc().name

    def require_chip(self, name: str) -> None:
        """CallError unless it is one chip by any of its names."""
        if len(self._chips) > 1:
            raise CallError(f"{name}: an estimate is for one chip; give one of them")
        require_chip(name)

    @property
    def graph_config(self) -> GraphConfig:
        """How graphs are finalized."""
        return self.config.graph

    def timing(
        self,
        graph: Graph,
        precision: str = AS_IS,
        runtime: str = "qnn_dlc",
        batch: int = 1,
        power: Power = BURST,
        shared: SharedWork | None = None,
    ) -> Timing:
        """One inference of a prepared graph on the chip, driven as `power` says."""
        return self._clock(power).timing(graph, precision, runtime, batch, shared)

    def mixed_us(
        self, graph: Graph, precision: str, runtime: str, nodes: Collection[str], power: Power = BURST
    ) -> float | None:
        """The latency with some 8-bit nodes at 16 bit, conversions included; None where none of them is 8-bit."""
        return self._clock(power).mixed_us(graph, precision, runtime, nodes)

    def accelerator(self) -> Accelerator:
        """What models on the chip share."""
        from hexforge.backends.htp.time import cost

        return cost.accelerator(self._soc())

    def _soc(self) -> Soc:
        if self.target.soc is not None:
            return self.target.soc
        like = [soc for soc in SOCS if soc.htp_arch == self.target.arch and not self.config.soc_model[0].strip("0")]
        return like[0] if like else require_chip(self.config.soc_model[0])

    def _clock(self, power: Power) -> Clock:
        from hexforge.backends.htp.timing import Clock

        return Clock(self._soc(), self.config.graph, power, self._cost_file)

    # -- contexts -----------------------------------------------------------------------------------------------------

    @functools.cached_property
    def targets(self) -> tuple[Target, ...]:
        """The chips that contexts are made for."""
        return preparation.context_targets(self._chips)

    def for_chip(self, index: int) -> Self:
        """The same backend for one of its chips."""
        return self._with(self.config.for_chip(index))

    def at_level(self, level: int) -> Self:
        """The same backend at another level of finalization."""
        if level not in range(1, BEST_LEVEL + 1):
            raise CallError(f"optimization {level} is not a level; it is 1, 2 or 3")
        return self._with(replace(self.config, graph=replace(self.config.graph, optimization=level)))

    def _with(self, config: HtpConfig) -> Self:
        made = type(self)(
            config, self._session_threads, floats_stand_for_integers=self._promised, cost_file=self._cost_file
        )
        made.spinning = self.spinning
        return made

    def graph_settings(
        self, changes: Mapping[str, int | None] | None = None, before: GraphSettings | None = None
    ) -> dict[str, int]:
        """HVX threads, VTCM and level of a graph for all chips; CallError for what one of them cannot do."""
        own = self.config.graph
        given = {THREADS: own.num_hvx_threads or None, VTCM: own.vtcm_needed_mb or None}
        wanted = {**({} if before else given), **(changes or {})}
        settings = preparation.graph_settings(self.targets, wanted, before, own.level)
        for chip in self._chips:
            if chip.soc is not None:
                self._checked(chip.soc, settings)
        return settings

    def _checked(self, soc: Soc, settings: GraphSettings) -> None:
        from hexforge.backends.htp.time.settings import fitted_settings

        fitted_settings(soc, self.config.graph.prepared(settings), BURST)

    def schematic(
        self, graph: Graph, target: Target, settings: GraphSettings, power: Power = BURST
    ) -> Schematic | None:
        """The graph's timeline on a chip, compact, and the spill-fill buffer it needs there."""
        from hexforge.backends.htp.timing import Clock

        soc = self._chips[[t.label for t in self.targets].index(target.label)].soc
        if soc is None:
            return None
        line = Clock(soc, self.config.graph.prepared(settings), power).timeline(graph, AS_IS, "qnn_dlc")
        return Schematic(_schematic(line, target.name, settings), line.spill_fill_bytes)

    def fits(self, graph: Graph) -> bool:
        """Whether all of a graph fits the least VTCM that is tried on the chips, so that nothing is cut or spilled."""
        least = VTCM_GRANULE if max(chip.arch for chip in self._chips) >= VTCM_BYTES_ARCH else MB
        # a code of 8 bits may be computed with in 16, and a tensor fits where it takes half of VTCM
        return sum(v.type.nbytes for v in graph.values.values()) <= least // 4

    def compatibility(self, targets: Sequence[Target], graphs: Mapping[str, GraphSettings]) -> Compatibility:
        """How well a context suits the chip; anything does where no chip is named."""
        known = self.target.soc is not None or self.config.htp_arch[0]
        chip = preparation.context_target(self.target) if known else Target("", "any chip", preparation.NO_FACTS)
        if not known and not self.config.vtcm_mb[0]:
            return Compatibility(Verdict.OPTIMAL)
        return preparation.compatibility(targets, graphs, chip, self.config.vtcm_mb[0])

    def no_weight_sharing(self, settings: Sequence[GraphSettings] = ()) -> str | None:
        """Why graphs with these settings cannot share weights on the chips, or None where they can."""
        return self.config.graph.no_weight_sharing or preparation.no_weight_sharing(self.targets, settings)

    @property
    def most_graphs(self) -> int:
        """How many graphs one context holds: half as many with each kind of DLBC."""
        return MOST_GRAPHS >> self.config.graph.kinds_of_dlbc

    @property
    def needs_spill_fill_size(self) -> bool:
        """Whether context models say how large a spill-fill buffer their graphs need."""
        return self.config.enable_htp_spill_fill_buffer

    @property
    def float_io(self) -> bool:
        """Whether programs take and give float32 for graphs in bfloat16."""
        return self.config.htp_bf16_enable

    def blob_info(self, settings: GraphSettings, spill_fill_bytes: int) -> dict[str, int]:
        """The settings of a graph as qnn-context-binary-utility names them."""
        return {
            "spillFillBufferSize": spill_fill_bytes,
            "vtcmSize": settings.get(VTCM, 0),
            "vtcmSizeInBytes": self.config.graph.vtcm_of(settings),
            "optimizationLevel": settings.get(LEVEL, 0),
            "numHvxThreads": settings.get(THREADS, 0),
        }


def _schematic(line: Timeline, soc: str, settings: GraphSettings) -> dict[str, Any]:
    rows = [
        [r.name, r.op, round(r.start_us, 3), round(r.us, 3), r.cycles, r.bound, r.weight_bytes, r.spill_bytes,
         list(r.ops)]
        for r in line.rows
    ]  # fmt: skip
    return {
        "soc": soc,
        THREADS: settings[THREADS],
        VTCM: settings[VTCM],
        "core_mhz": round(line.core_mhz, 1),
        "accelerator_us": round(line.accelerator_us, 3),
        "latency_us": round(line.latency_us, 3),
        "dram_bytes": line.dram_bytes,
        "vtcm_peak_bytes": line.vtcm_peak_bytes,
        "columns": list(SCHEMATIC_COLUMNS),
        "rows": rows,
    }
