# SPDX-License-Identifier: Apache-2.0
"""Grouping: which group a context joins when it is created, and what it must have for that."""

from __future__ import annotations

from hexforge.addons.device.codes import Code, DeviceError
from hexforge.addons.device.contexts.configs import GroupRegistration, SharingType
from hexforge.addons.device.contexts.groups import Group
from hexforge.addons.device.contexts.handles import DeviceContext


def join_registered_group(context: DeviceContext, given: GroupRegistration, *, concurrent: bool) -> Group:
    """The group that a context registers with; DeviceError where the context does not fit the group."""
    specs = context.specs()
    handle = given.first_group_handle
    if handle is None:
        group = Group(given.max_spill_fill_buffer, concurrent, priority=context.config.priority if concurrent else None)
        group.max_vtcm = max((s.vtcm_bytes for s in specs), default=0)
    else:
        first = next((known for known in context.client.contexts.values() if known is handle), None)
        if first is None:
            raise DeviceError(
                Code.QNN_CONTEXT_ERROR_INVALID_HANDLE,
                f"{context.label}: firstGroupHandle is none of this process",
            )
        first.require_alive()
        if first.group is None or first.group.concurrent != concurrent:
            raise _invalid(f"{context.label}: firstGroupHandle {first.label} began no such group of this process")
        group = first.group
        if given.max_spill_fill_buffer not in (0, group.max_spill_fill):
            raise _invalid(
                f"{context.label}: maxSpillFillBuffer {given.max_spill_fill_buffer:,} differs from the group's "
                f"{group.max_spill_fill:,}; give the same, or none"
            )
        if concurrent and context.config.priority is not group.priority:
            raise _invalid(f"{context.label}: contexts of a concurrent group have one priority, {group.priority!r}")
        if concurrent and max((s.vtcm_bytes for s in specs), default=0) > group.max_vtcm:
            raise _invalid(f"{context.label}: needs more VTCM than the group's first context, whose backup it shares")
    if concurrent and any(p is not context.config.priority for p in context.config.graph_priorities.values()):
        raise _invalid(f"{context.label}: graphs of a concurrent group have the context's priority")
    for spec in specs:
        if spec.spill_fill_bytes > group.max_spill_fill:
            raise _invalid(
                f"{context.label}: graph {spec.name!r} needs {spec.spill_fill_bytes:,} bytes of spill-fill, the group "
                f"has {group.max_spill_fill:,}; give the largest of all contexts"
            )
    return group


def list_group(contexts: list[DeviceContext], sharing: SharingType) -> Group:
    """What a list of contexts shares: buffers as large as the largest asks for."""
    specs = [spec for context in contexts for spec in context.specs()]
    concurrent = sharing is SharingType.CONCURRENT_OPTIMIZATION
    group = Group(max((s.spill_fill_bytes for s in specs), default=0), concurrent, sharing)
    group.max_vtcm = max((s.vtcm_bytes for s in specs), default=0)
    return group


def _invalid(message: str) -> DeviceError:
    return DeviceError(Code.QNN_CONTEXT_ERROR_INVALID_CONFIG, message)
