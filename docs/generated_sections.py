# SPDX-License-Identifier: Apache-2.0
"""Sections of written pages that are made out of tables: what stands between `<!-- NAME: generated -->` and
`<!-- end of NAME -->`."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from docs.doctor_tables import checks_table, questions_table, releases_table
from hexforge.addons.device.codes import codes_table
from hexforge.addons.device.scenario.steps import steps_table
from hexforge.addons.llm.serving.fields import fields_table
from hexforge.qnn_api.calls import calls_table
from hexforge.qnn_api.enumerations import unconfirmed_table

FOLDER = Path(__file__).parent
SNIPPETS = FOLDER.parent / "tests" / "addons" / "capi" / "guide_snippets.c"


def snippets() -> list[tuple[int, str]]:
    """The examples in C of Qualcomm's guide: the line of its text, and what each sets."""
    found = re.findall(r"^// (\d+)\nQnn_ErrorHandle_t (\w+)\(", SNIPPETS.read_text(encoding="ascii"), re.M)
    return [(int(line), name) for line, name in found]


def _snippets_table() -> str:
    """The examples as a table, several to a row."""
    cells = [f"{line}: {name.replace('_', ' ')}" for line, name in snippets()]
    rows = [cells[i : i + 4] for i in range(0, len(cells), 4)]
    lines = [f"| {' | '.join([*row, *[''] * (4 - len(row))])} |" for row in rows]
    return "\n".join(["| line: what is set | | | |", "|---|---|---|---|", *lines])


SECTIONS: dict[str, dict[str, Callable[[], str]]] = {
    "c_api.md": {"snippets": _snippets_table, "unconfirmed numbers": unconfirmed_table},
    "device.md": {"calls": calls_table, "codes": codes_table, "steps": steps_table},
    "language_models.md": {"fields of requests": fields_table},
    "doctor.md": {"checks": checks_table, "questions": questions_table},
    "versions.md": {"releases": releases_table},
}
"""By page and name: what writes the section."""


def with_sections(page: str, text: str) -> str:
    """The text of a page with its sections as the tables have them; KeyError for a section that has no place there."""
    for name, write in SECTIONS[page].items():
        begin, end = f"<!-- {name}: generated -->\n", f"<!-- end of {name} -->\n"
        if begin not in text or end not in text:
            raise KeyError(f"docs/{page} has no place for its section {name!r}: {begin}{end}")
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}{write()}\n{end}{rest.partition(end)[2]}"
    return text
