# SPDX-License-Identifier: Apache-2.0
"""The backend that provider options name, made with those options that are the backend's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hexforge.backend import Backend, ContextBackend
from hexforge.chips.power import Power
from hexforge.chips.soc import SOCS
from hexforge.errors import CapacityError
from hexforge.formats.config_sections import PREPARE
from hexforge.ort.options.provider_options import ProviderOptions
from hexforge.runtime import registry


def backend_of(options: ProviderOptions, threads: int = 0, *, every_chip: bool = False, graph: str = "") -> Backend:
    """The backend that provider options name; of several chips the first runs, a context is made for every one.

    `graph` is what the model's graph is called in the file of backend_extensions.
    """
    made = registry.backend(options.backend, settings_for(options, graph), threads)
    _require_vtcm(options, made)
    if options.qnn_saver_path and options.backend != "saver":
        made = registry.with_recorder(made)
    return made if every_chip or not isinstance(made, ContextBackend) else made.for_chip(0)


def _require_vtcm(options: ProviderOptions, backend: Backend) -> None:
    """CapacityError where a chip has less VTCM than it is to give; the EP fails when it makes the graph."""
    if not isinstance(backend, ContextBackend):
        return
    asked = [int(size) for size in options.settings().get("vtcm_mb", "0").split(",")]
    for number, chip in enumerate(backend.targets):
        size = asked[min(number, len(asked) - 1)]
        room = chip.facts.get("vtcm_mb", 0) or max(soc.vtcm_mb for soc in SOCS)
        if size > room:
            raise CapacityError(
                f"vtcm_mb={size}: {chip.label if chip.name else 'every chip'} has at most {room} MB of VTCM; "
                f"give 1 to {room}, or 0 for all of it"
            )


def settings_for(options: ProviderOptions, graphs: str | Sequence[str]) -> dict[str, str]:
    """What the backend is made with for a graph, or several, by the options and the file of backend_extensions."""
    given = options.settings()
    if (file := options.extensions()) is None:
        return given
    from hexforge.runtime.tool_config import htp_settings

    settings = htp_settings(file, graphs, PREPARE)
    if "soc_model" in given or "htp_arch" in given:  # the chip as a whole
        settings.pop("soc_model", None)
        settings.pop("htp_arch", None)
    return {**settings, **given}


def power_of_options(options: ProviderOptions) -> Power:
    """How a chip is driven by the options' performance mode and control latency, and the file of backend_extensions."""
    if (file := options.extensions()) is None:
        return Power(options.htp_performance_mode, rpc_control_latency_us=options.rpc_control_latency)
    from hexforge.runtime.tool_config import power_of

    given = options.pairs()
    power = power_of(file, given.get("htp_performance_mode", ""))
    if "rpc_control_latency" in given:
        power = replace(power, rpc_control_latency_us=options.rpc_control_latency)
    return power
