# SPDX-License-Identifier: Apache-2.0
"""Contexts of programs in C for the simulated device: what it must know of them, and whether they suit a chip.

A library asks the device itself (`hexforge device serve`) for everything else, by the same messages as Python does.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hexforge.addons.device import Binary
from hexforge.addons.device.chip import ChipFacts
from hexforge.addons.device.shared.binaries import binary_to_json, config_from_json
from hexforge.chips.soc import DEFAULT_SOC, SOCS, Soc, require_chip
from hexforge.runtime.contexts.compatibility import BinaryCompatibility, chip_backend, require_compatible
from hexforge.runtime.contexts.context import Context


@dataclass(slots=True)
class _Unplaced:
    """The first context of a group, where no device has it."""

    number: int


@functools.lru_cache(256)
def described(context: bytes, soc: str) -> bytes:
    """A context as the device is told of it; it is called by its graphs, as C gives it no name."""
    binary = Binary.of(context, require_chip(soc))
    named = replace(binary, name="+".join(graph.name for graph in binary.graphs))
    return json.dumps(binary_to_json(named), allow_nan=False).encode()


def check_config(config: dict[str, Any], options: Mapping[str, str]) -> None:
    """Refuse what a context cannot be created with on a chip, by its options; DeviceError with QNN's code."""
    soc = _chip(options)
    config_from_json(config, _Unplaced).check(ChipFacts(soc.name, soc.htp_arch, "android"))


def require_suits(context: bytes, options: Mapping[str, str], strict: bool) -> None:
    """Refuse a context that does not suit a chip, or, where that is asked for, that uses not all of it."""
    opened = Context(context, "the context binary")
    chip, arch = options.get("soc_model", "0"), int(options.get("htp_arch", "0"))
    backend = chip_backend(opened.info.backend, chip, htp_arch=arch)
    mode = BinaryCompatibility.STRICT if strict else BinaryCompatibility.PERMISSIVE
    require_compatible(opened.info, backend, mode, where=opened.where)


def _chip(options: Mapping[str, str]) -> Soc:
    """The chip that is named by its number, else the first of the architecture that is."""
    model, arch = options.get("soc_model", "0"), int(options.get("htp_arch", "0"))
    of_arch = [soc for soc in SOCS if soc.htp_arch == arch]
    return of_arch[0] if model == "0" and of_arch else require_chip(DEFAULT_SOC if model == "0" else model)
