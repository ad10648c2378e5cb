# SPDX-License-Identifier: Apache-2.0
"""Configs: what contexts and graphs are created with, by QNN's names, and the priorities with their threads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from hexforge.addons.device.chip import ChipFacts
from hexforge.addons.device.codes import Code, DeviceError
from hexforge.chips.priority import Priority

THREAD_PRIORITIES: Mapping[Priority, tuple[int, int]] = {
    Priority.LOW: (0xC5, 0xC6),
    Priority.NORMAL: (0xC0, 0xC1),
    Priority.NORMAL_HIGH: (0xBD, 0xBE),
    Priority.HIGH: (0xBB, 0xBC),
}
"""QNN priority to the priority of HMX and of HVX threads, as published; a larger number is a lower priority."""
RESTRICTED = tuple(priority for priority in Priority if priority > Priority.NORMAL)
"""Not for general developers: NORMAL_HIGH and HIGH as published, and those above them, which would go before them."""


def thread_priorities(priority: Priority) -> tuple[int, int]:
    """HMX and HVX thread priority; between published ones the next lower is taken (assumed)."""
    known = max((p for p in THREAD_PRIORITIES if p <= priority), default=Priority.LOW)
    return THREAD_PRIORITIES[known]


class SharingType(StrEnum):
    """QNN_HTP_CONTEXT_CONFIG_OPTION_SHARE_RESOURCES_OPTIMIZATION_TYPE."""

    SEQUENTIAL_WITH_VA_OPTIMIZATION = "SEQUENTIAL_WITH_VA_OPTIMIZATION"
    SEQUENTIAL_WITHOUT_VA_OPTIMIZATION = "SEQUENTIAL_WITHOUT_VA_OPTIMIZATION"
    CONCURRENT_OPTIMIZATION = "CONCURRENT_OPTIMIZATION"


class FirstHandle(Protocol):
    """Qnn_ContextHandle_t: a context that was created before."""

    number: int


@dataclass(frozen=True, slots=True)
class GroupRegistration:
    """QnnHtpContext_GroupRegistration_t: a new group (first None), or the group of a context."""

    first_group_handle: FirstHandle | None = None
    max_spill_fill_buffer: int = 0
    """Bytes for all members; must be more than 0 for a new group, the same or not set for later members."""


@dataclass(frozen=True, slots=True)
class CreationConfig:
    """What one context is created with: QnnContext_Config_t and QnnHtpContext_CustomConfig_t."""

    priority: Priority = Priority.NORMAL
    register_multi_contexts: GroupRegistration | None = None
    register_concurrent_resource_sharing: GroupRegistration | None = None
    io_mem_estimation: bool = False
    file_read_memory_budget_in_mb: int = 0
    dsp_memory_profiling_enabled: bool = False
    init_acceleration: bool = False
    skip_validation_on_binary_section: bool = False
    lora_weight_sharing_enabled: bool = False
    prepare_only: bool = False
    defer_graph_init: bool = False
    is_persistent_binary: bool = False
    memory_limit_hint: int = 0
    """Any value but 0 turns graph switching on; how large it is does not matter."""
    enable_graphs: tuple[str, ...] | None = None
    graph_retention_order: tuple[str, ...] = ()
    spill_fill_buffer: int = 0
    """A client's buffer: exact bytes, 0 for none, -1 for as many as QNN says."""
    weights_buffer: int = 0
    reused_io_limit_bytes: int = 0
    """Inputs and outputs larger than this are mapped for each run and not kept; 0: all are kept."""
    binary_compatibility: str = "permissive"
    share_resources: bool = False
    """Only of a list (`ListConfig`); given for one context it is an error."""
    graph_priorities: Mapping[str, Priority] = field(default_factory=dict)

    @property
    def switching(self) -> bool:
        """Whether graphs are loaded when they are to run."""
        return self.memory_limit_hint > 0

    def check(self, chip: ChipFacts) -> None:
        """DeviceError for what cannot be, or not together."""
        multi, concurrent = self.register_multi_contexts, self.register_concurrent_resource_sharing
        if self.share_resources:
            raise _unsupported("SHARE_RESOURCES is a config of a list: QnnContext_createFromBinaryListAsync takes it")
        if multi is not None and concurrent is not None:
            raise _unsupported("REGISTER_MULTI_CONTEXTS and REGISTER_CONCURRENT_RESOURCE_SHARING exclude each other")
        if concurrent is not None:
            chip.require_concurrent("REGISTER_CONCURRENT_RESOURCE_SHARING")
        for given in (multi, concurrent):
            if given is None:
                continue
            size, first = given.max_spill_fill_buffer, given.first_group_handle
            if size < 0 or (first is None and not size):
                raise _invalid("maxSpillFillBuffer of a new group must be more than 0: the largest of its contexts")
        if self.switching:
            if not self.is_persistent_binary:
                raise _unsupported("graph switching (memory_limit_hint) needs is_persistent_binary")
            if multi is not None or concurrent is not None:
                raise _unsupported("graph switching does not go with a group of contexts")
        if self.enable_graphs is not None and not self.enable_graphs:
            raise _invalid("enable_graphs names no graph; leave it out for all of them")
        if len(set(self.graph_retention_order)) < len(self.graph_retention_order):
            raise _invalid("graph_retention_order names a graph twice")
        if self.memory_limit_hint < 0 or self.spill_fill_buffer < -1 or self.weights_buffer < -1:
            raise _invalid("memory_limit_hint is 0 or more; spill_fill_buffer and weights_buffer are -1, 0 or more")
        if self.file_read_memory_budget_in_mb < 0:
            raise _invalid("fileReadMemoryBudgetInMb is 0 or more")
        if self.dsp_memory_profiling_enabled and chip.platform not in ("android", "qnx"):
            raise _unsupported(f"DSP heap profiling is on Android and QNX, this is {chip.platform}")


@dataclass(frozen=True, slots=True)
class ListConfig:
    """What a list of contexts is created with (QnnContext_createFromBinaryListAsync)."""

    share_resources: bool = False
    share_resources_optimization_type: SharingType = SharingType.SEQUENTIAL_WITH_VA_OPTIMIZATION
    """Looked at only where resources are shared."""

    def check(self, chip: ChipFacts, members: tuple[CreationConfig, ...]) -> None:
        """DeviceError for what cannot be, or not together."""
        if chip.platform not in ("android", "windows"):
            raise DeviceError(
                Code.QNN_COMMON_ERROR_PLATFORM_NOT_SUPPORTED,
                f"QnnContext_createFromBinaryListAsync is on mobile and Windows, this is {chip.platform}",
            )
        for config in members:
            if config.register_multi_contexts is not None or config.register_concurrent_resource_sharing is not None:
                raise _unsupported("REGISTER_* is for QnnContext_createFromBinary, not for a list; use SHARE_RESOURCES")
            if self.share_resources and config.switching:
                raise _unsupported("SHARE_RESOURCES and graph switching exclude each other")
        if not self.share_resources:
            return
        if self.share_resources_optimization_type is SharingType.CONCURRENT_OPTIMIZATION:
            chip.require_concurrent("CONCURRENT_OPTIMIZATION")
        elif (
            self.share_resources_optimization_type is SharingType.SEQUENTIAL_WITH_VA_OPTIMIZATION
            and chip.arch < VA_ARCH
        ):
            raise _unsupported(
                f"{chip.name} (v{chip.arch}) has no VA optimization (assumed from v{VA_ARCH} on); use "
                "SEQUENTIAL_WITHOUT_VA_OPTIMIZATION"
            )


VA_ARCH = 75
"""Assumed: "only on specific SoCs"; which, no source says."""


def _unsupported(message: str) -> DeviceError:
    return DeviceError(Code.QNN_CONTEXT_ERROR_UNSUPPORTED_FEATURE, message)


def _invalid(message: str) -> DeviceError:
    return DeviceError(Code.QNN_CONTEXT_ERROR_INVALID_CONFIG, message)
