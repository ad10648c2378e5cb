# SPDX-License-Identifier: Apache-2.0
"""Needs: what a context takes in a session: weights, spill-fill, VTCM backup, adapters, a client's buffers."""

from __future__ import annotations

from hexforge.addons.device.codes import Code, DeviceError
from hexforge.addons.device.contexts.binary import GraphSpec
from hexforge.addons.device.contexts.handles import DeviceContext
from hexforge.addons.device.memory import CdspSession, Need


def needs_of(context: DeviceContext, session: CdspSession | None) -> list[Need]:
    """What a context needs in a session, including buffers of its group that the session does not have yet."""
    specs, config = context.specs(), context.config
    needs: list[Need] = []
    if config.switching:
        needs.append(("shared weights", context.binary.shared_bytes))
        needs += client_buffers(context)
        needs += [need for spec in specs if spec.name in first_graphs(context) for need in graph_needs(context, spec)]
    else:
        needs.append(("weights", context.binary.shared_bytes + sum(s.weights_bytes for s in specs)))
        if context.group is None:
            needs += [("spill-fill", s.spill_fill_bytes) for s in specs]
    backup = max((s.vtcm_bytes for s in specs), default=0)
    if context.group is None:
        needs.append(("VTCM backup", backup))
    else:
        needs += context.group.needs(context, session)
    adapters = [s.adapter_bytes for s in specs]
    if any(adapters):  # one blob as large as the largest, or one for each graph
        needs.append(("LoRA weights", max(adapters) if config.lora_weight_sharing_enabled else sum(adapters)))
    return [(what, size) for what, size in needs if size]


def client_buffers(context: DeviceContext) -> list[Need]:
    """Buffers that the client shares with the backend for graphs that are switched."""
    needs: list[Need] = []
    for what, given, most in (
        ("client spill-fill", context.config.spill_fill_buffer, max(s.spill_fill_bytes for s in context.specs())),
        ("client weights", context.config.weights_buffer, max(s.weights_bytes for s in context.specs())),
    ):
        if 0 < given < most:
            raise DeviceError(
                Code.QNN_CONTEXT_ERROR_INVALID_CONFIG,
                f"{context.binary.name}: a {what} buffer of {given:,} bytes is too small, a graph needs {most:,}; -1 "
                "takes what QNN says",
            )
        if given:
            needs.append((what, most if given == -1 else given))
    return needs


def graph_needs(context: DeviceContext, spec: GraphSpec) -> list[Need]:
    """What a graph that is switched in needs."""
    weights = 0 if context.config.weights_buffer else spec.weights_bytes
    spill = 0 if context.config.spill_fill_buffer else spec.spill_fill_bytes
    return [(what, size) for what, size in (("weights", weights), ("spill-fill", spill)) if size]


def first_graphs(context: DeviceContext) -> tuple[str, ...]:
    """Graphs that are loaded at once where graphs are switched: the retained ones, or the first."""
    return context.config.graph_retention_order or (context.specs()[0].name,)
