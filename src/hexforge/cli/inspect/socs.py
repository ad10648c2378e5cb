# SPDX-License-Identifier: Apache-2.0
"""`hexforge socs`: the chips, what they have, and where each figure comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hexforge.cli.arguments import Json
from hexforge.cli.screen import console, print_json, table
from hexforge.request_fields import argument

if TYPE_CHECKING:
    from hexforge.chips.soc import Soc


def socs(
    name: str = argument("One chip in full, by name or number.", default="", show_default=False), as_json: Json = False
) -> None:
    """List the chips: architecture, VTCM, HVX threads, clocks, memory and abilities, each figure marked by source."""
    from hexforge.chips.claims import SOURCES
    from hexforge.chips.soc import ABILITIES, FIGURES, SOCS, Provenance, names_of, require_chip

    chosen = require_chip(name) if name else None
    if as_json:
        print_json(_facts(chosen) if chosen else [_facts(soc) for soc in SOCS])
        return
    screen = console()
    if chosen:
        facts = _facts(chosen)
        rows = [(key, _text(facts, key)) for key in (*FIGURES, "dram_fitted_gbps", *ABILITIES)]
        rows += [(f"clock at {corner}", f"{mhz:g} MHz") for corner, mhz in facts["clock_mhz"].items()]
        rows[-1] = (rows[-1][0], f"{rows[-1][1]} {chosen.provenance('core_mhz').mark}")
        title = ", ".join((f"{chosen.name} (soc_model {chosen.soc_model})", *names_of(chosen)[1:]))
        screen.print(table(title, ("", "value"), rows))
        said = [
            (c["name"], _number(c["soc_model"]), _arch(c["htp_arch"]), c["sold_as"], c["source"])
            for c in facts["sources"]
        ]
        screen.print(table("what sources say", ("name", "no.", "arch", "sold as", "source"), said))
        for source in dict.fromkeys(claim["source"] for claim in facts["sources"]):
            screen.print(f"{source}: {SOURCES[source]}", highlight=False)
        screen.print(f"latencies measured: {'yes' if facts['measured'] else 'no'}; costs {facts['costs']}")
    else:
        shown = ("vtcm_mb", "hvx_threads", "core_mhz", "dram_gbps", "dram_fitted_gbps")
        able = ("float16", "bfloat16", "weight_sharing", "dlbc", "slc")
        lines = []
        for soc in SOCS:
            facts = _facts(soc)
            cells = (_text(facts, key) for key in ("htp_arch", *shown, *able))
            measured = "yes" if facts["measured"] else ""
            lines.append((soc.name, str(soc.soc_model), *cells, measured, ", ".join(soc.aliases)))
        figures = ("arch", "VTCM MB", "HVX", "MHz", "DRAM GB/s", "fitted", "fp16", "bf16", "shared weights", "DLBC")
        least = ("VTCM MB", "fp16", "measured", "HVX", "MHz", "DRAM GB/s", "fitted", "bf16", "shared weights", "DLBC")
        columns = ("chip", "no.", *figures, "SLC", "measured", "sold as")
        screen.print(table("", columns, lines, optional=(*least, "SLC"), whole=True))
    screen.print("; ".join(f"{p.mark}: {p}" for p in Provenance) + ". Clocks below the highest corner are assumed.")


def _facts(soc: Soc) -> dict[str, Any]:
    """All that is known of a chip, with the provenance of each figure."""
    from hexforge.chips.deployment import Deployment
    from hexforge.chips.names import DEVICES
    from hexforge.chips.power import Corner
    from hexforge.chips.soc import ABILITIES, FIGURES, ChipTarget, claims_of_chip
    from hexforge.runtime.registry import timed_backend

    target, shared = ChipTarget(soc.htp_arch, soc), timed_backend(Deployment(soc.name)).accelerator()
    abilities = {key: getattr(target if key.startswith(("float", "bfloat")) else soc, key) for key in ABILITIES}
    marks = {key: soc.provenance(key).value for key in (*FIGURES, "clock_mhz", *ABILITIES)}
    return {
        "name": soc.name,
        "aliases": list(soc.aliases),
        "devices": list(DEVICES.get(soc.name, ())),
        "soc_model": soc.soc_model,
        **{key: getattr(soc, key) for key in FIGURES},
        "dram_fitted_gbps": round((1 << 20) / 1e3 / shared.us_per_mb, 1),
        **abilities,
        "clock_mhz": {corner.name.lower(): round(soc.clock_mhz(corner), 1) for corner in Corner},
        "sources": [
            {"name": c.name, "soc_model": c.soc_model, "htp_arch": c.htp_arch, "sold_as": c.sold_as, "source": c.source}
            for c in claims_of_chip(soc)
        ],
        "measured": shared.provenance == "fitted",
        "costs": shared.provenance,
        "provenance": {**marks, "dram_fitted_gbps": shared.provenance.split()[0]},
    }


def _number(value: int) -> str:
    """A soc_model as a source gives it; nothing where it gives none."""
    return str(value or "")


def _arch(value: int) -> str:
    """An architecture as a source gives it; nothing where it gives none."""
    return f"v{value}" if value else ""


def _text(facts: dict[str, Any], key: str) -> str:
    """A figure and its mark: 8p, yes p."""
    value, mark = facts[key], facts["provenance"][key][0]
    if isinstance(value, bool):
        return f"{'yes' if value else 'no'} {mark}"
    return f"{'v' if key == 'htp_arch' else ''}{value:g}{mark}"
