# SPDX-License-Identifier: Apache-2.0
"""Page: an estimate as one HTML file that needs nothing else, no network and no server.

The page is `assets/page.html` with the style, the script and the data put in; the script draws everything from the
data. Names in a model are not trusted: they reach the page only as escaped text or inside JSON that cannot end its
element, the script sets text and never HTML, and the page's own policy lets no other script run and nothing be loaded:
pictures are in the page itself.

More sections need no script of their own:

    from hexforge.report import Bars, Column, Plot, Section, Series, Table, page

    quality = Section(
        "Quantization",
        [
            Bars(["conv1", "conv2"], [41.2, 38.7], unit="dB", title="SQNR by layer"),
            Plot("bits", "SQNR dB", [Series("conv1", [(4, 20.1), (8, 41.2)])], lines=True),
            Table((Column("layer"), Column("SQNR dB", "number", 1)), [("conv1", 41.2), ("conv2", 38.7)], sort=1),
        ],
        note="Signal to quantization noise, each layer alone.",
    )
    page(estimate, sections=[quality])
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hexforge.addon import addons, import_target
from hexforge.analysis.estimate import Estimate
from hexforge.report import timing
from hexforge.report.formatting import npu_part_only
from hexforge.report.placement import chips_section, placement_section
from hexforge.report.section import Section

ASSETS = Path(__file__).parent / "assets"
SCRIPTS = ("draw.js", "shell.js", "table.js", "charts.js", "graph.js", "paint.js", "timeline.js", "page.js")
SIMULATED = "Simulated by hexforge: no device was measured for this page."


def page(
    estimate: Estimate,
    placement: Mapping[str, Any] | None = None,
    sections: Sequence[Section] = (),
    others: Iterable[Estimate | tuple[str, str]] | None = None,
    *,
    lead: Sequence[Section] = (),
    title: str = "",
) -> str:
    """The page: `placement` as `hexforge check --json` prints it, `others` the estimates of other chips.

    `lead` is what the page is about where that is not the time alone, and comes first; `title` is the file's name.
    """
    line = estimate.timeline
    shown = [
        *([chips_section(estimate, others)] if others is not None else []),
        *([placement_section(placement)] if placement is not None else []),
        *sections,
        *_sections_of_addons(estimate),
    ]
    name = title or estimate.model
    content = {
        "summary": timing.summary(estimate) | {"model": name},
        "lead": [section.to_json() for section in lead],
        "timeline": timing.timeline(line),
        "ops": timing.ops(line).to_json(),
        "kinds": timing.kinds(line).to_json(),
        "sections": [section.to_json() for section in shown],
    }
    part = f" ({npu_part_only(estimate)})" if estimate.left_on_cpu else ""
    heading = f"{_text(name)} on {estimate.soc}: {estimate.latency_ms:.3f} ms{part}"
    return assemble_page(heading, content, SCRIPTS, SIMULATED)


def _sections_of_addons(estimate: Estimate) -> Iterator[Section]:
    for addon in addons():
        for target in addon.sections:
            section: Section | None = import_target(target)(estimate)
            if section is not None:
                yield section


def sections_page(name: str, sections: Sequence[Section]) -> str:
    """A page that is about something else than one inference: its sections alone."""
    lead = [section.to_json() for section in sections]
    content = {"summary": {"model": name}, "lead": lead, "timeline": None, "sections": []}
    return assemble_page(_text(name), content, SCRIPTS, SIMULATED)


def assemble_page(title: str, content: Any, scripts: Sequence[str], footer: str) -> str:
    """The file: style, scripts and data put into the page, and a policy that lets nothing else run."""
    style = (ASSETS / "page.css").read_text("utf-8")
    script = "\n".join((ASSETS / name).read_text("utf-8") for name in scripts)
    script = f'"use strict";\n(() => {{\n{script}\n}})();\n'
    fields = {
        "title": html.escape(title),
        "footer": html.escape(footer),
        "policy": f"default-src 'none'; img-src data:; style-src '{_digest(style)}'; script-src '{_digest(script)}'",
        "style": style,
        "data": _embedded(content),
        "script": script,
    }
    template = (ASSETS / "page.html").read_text("utf-8")
    # one pass, so that nothing in a field is taken for another field
    return re.sub(r"\{\{(\w+)\}\}", lambda match: fields[match[1]], template)


def _embedded(content: Any) -> str:
    """JSON for inside a script element: nothing in it can be read as markup."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _text(name: str) -> str:
    """A name as UTF-8 can write it: a file's may have bytes that are no text."""
    return name.encode("utf-8", "replace").decode()


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
