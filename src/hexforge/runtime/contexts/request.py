"""Asked: what a compilation is to make, checked before anything is compiled: chips, graph settings, names."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hexforge.backends.htp.config import GraphConfig
from hexforge.errors import CallError
from hexforge.formats.context import MOST_GRAPHS, Target
from hexforge.options import ProviderOptions
from hexforge.runtime.contexts.context import settings

DEFAULT_SOC = "SM8650"


def chosen_options(
    backend: str, soc: str | Sequence[str] | None, optimization: int, more: Mapping[str, str] | None
) -> ProviderOptions:
    """The provider options of a compilation: the backend, its chips and the level of optimization."""
    given = {"backend_type": backend, **(more or {})}
    if given["backend_type"] == "htp":
        listed = [soc] if isinstance(soc, str) else list(soc or ())
        if "soc_model" in given and listed:
            raise CallError("the chip is given twice: as soc and in the option soc_model; leave one out")
        if "soc_model" not in given:
            given["soc_model"] = ",".join(listed or [DEFAULT_SOC])
        key = "htp_graph_finalization_optimization_mode"
        if given.setdefault(key, str(optimization)) != str(optimization):
            raise CallError(f"optimization {optimization} and the option {key}={given[key]} contradict each other")
    elif soc:
        raise CallError(f"the {backend} backend runs on no chip; leave soc out, or use the htp backend")
    return ProviderOptions.parse(given)


def targets_of(options: ProviderOptions) -> tuple[Target, ...]:
    """The chips a context is made for; none for a backend that runs on no chip."""
    from hexforge.backends.htp.chip.soc import target

    if options.backend != "htp":
        return ()
    found: dict[str, Target] = {}
    archs = options.htp_arch if len(options.htp_arch) > 1 else options.htp_arch * len(options.soc_model)
    for key, arch in zip(options.soc_model, archs, strict=False):
        chip = target(key, arch)
        name = f"v{chip.arch}" if chip.soc is None else chip.soc.name
        if name in found:
            raise CallError(f"chip {name} is given twice")
        known = ("", 0, chip.arch, 0) if chip.soc is None else (name, chip.soc.soc_model, chip.arch, chip.soc.vtcm_mb)
        found[name] = Target(*known)
    return tuple(found.values())


def graph_fields(
    options: ProviderOptions, targets: Sequence[Target], threads: int | None, vtcm_mb: int | None, config: GraphConfig
) -> dict[str, Any]:
    """Fields of every graph's row of the table; CallError for what a chip cannot do."""
    if options.backend != "htp":
        asked = {
            "num_hvx_threads": threads, "vtcm_mb": vtcm_mb, "dlbc": config.dlbc, "dlbc_weights": config.dlbc_weights,
            "weights_packing": config.weights_packing, "slc_alloc_enable": config.slc_alloc_enable,
        }  # fmt: skip
        if wrong := [name for name, value in asked.items() if value]:
            raise CallError(f"{', '.join(wrong)}: configures the htp backend; leave it out for {options.backend}")
        return {}
    from hexforge.backends.htp.chip.power import Power
    from hexforge.backends.htp.chip.soc import find
    from hexforge.backends.htp.time import cost
    from hexforge.backends.htp.time.settings import Settings

    if config.optimization not in (1, 2, 3):
        raise CallError(f"optimization {config.optimization} is not a level; it is 1, 2 or 3")
    found = settings(targets, threads, vtcm_mb)
    for target in targets:
        if target.soc_model and (chip := find(target.soc)) is not None:
            Settings.of(cost.costs(chip), replace(config, **found), Power())
    return {**found, "optimization": config.optimization}


def shares_weights(asked: bool | None, models: int, targets: Sequence[Target], config: GraphConfig) -> bool:
    """Whether weights are stored once, which QNN does from v73 on and not with compressed weights."""
    limit = MOST_GRAPHS >> (config.dlbc + config.dlbc_weights)
    if models > limit:
        raise CallError(f"{models} models: a context holds {limit} graphs"
                        f"{' with DLBC' if limit < MOST_GRAPHS else ''}; make several contexts")  # fmt: skip
    older = [t.soc or f"v{t.arch}" for t in targets if t.arch < 73]
    if asked and older:
        raise CallError(f"weight_sharing needs v73 or newer, not {', '.join(older)}; leave it out")
    if asked and config.dlbc_weights:
        raise CallError("weight_sharing and dlbc_weights exclude each other; leave one out")
    return models > 1 and not older and not config.dlbc_weights if asked is None else asked


def names_of(sources: Sequence[Any], given: Sequence[str] | None) -> list[str]:
    """What the graph of each model is called."""
    if given is not None:
        if len(given) != len(sources):
            raise CallError(f"{len(given)} graph names for {len(sources)} models; give one for each")
        names = list(given)
    else:
        stems = [Path(s).stem if isinstance(s, (str, os.PathLike)) else f"model_{i}" for i, s in enumerate(sources)]
        names = [re.sub(r"[^\w.-]", "_", stem) for stem in stems]
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise CallError(f"two models have the graph name {', '.join(twice)}; give graph names, one for each model")
    if any(not n for n in names):
        raise CallError("a graph name is empty")
    return names


def item_of(given: Any, index: int, of: int, what: str) -> Any:
    """Of something given for all models, or for each, that of one."""
    if given is None or isinstance(given, Mapping):
        return given
    if len(given) != of:
        raise CallError(f"{what} has {len(given)} items for {of} models; give one for each, or one for all")
    return given[index]
