# SPDX-License-Identifier: Apache-2.0
"""A gate's result as others read it: JUnit XML for a CI server, Markdown for a comment on a change."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from hexforge.addons.budgets.gate import GateCheck, GateResult
from hexforge.results import select


def junit(result: GateResult) -> bytes:
    """One test case for each check."""
    failed = sum(bool(check.fault) for check in result.checks)
    root = ET.Element("testsuites")
    suite = ET.SubElement(root, "testsuite", name="hexforge gate", tests=str(len(result.checks)), failures=str(failed))
    for check in result.checks:
        case = ET.SubElement(suite, "testcase", classname=_plain(check.model), name=_plain(check.what))
        if check.fault:
            ET.SubElement(case, "failure", message=_plain(check.fault)).text = _plain(check.fault)
    return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True))


def markdown(result: GateResult) -> str:
    """A table for a comment, with what changed since the baseline; what fails first."""
    failed = [check for check in result.checks if check.fault]
    verdict = (
        f"**{len(failed)} of {len(result.checks)} checks fail**" if failed else f"all {len(result.checks)} checks pass"
    )
    lines = [
        f"### hexforge gate: {verdict}",
        "",
        "| | " + " | ".join(column.name for column in select(GateCheck.described)) + " |",
        "|---|---|---|---|---|---|---|",
    ]
    for check in [*failed, *(check for check in result.checks if not check.fault)]:
        cells = ("fails" if check.fault else "ok", *(str(column.cell(check)) for column in select(GateCheck.described)))
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    lines += ["", *(f"- {check.key}: {check.fault}" for check in failed), *(f"- {note}" for note in result.notes)]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Text that XML can hold."""
    return "".join(c for c in text if c in "\t\n\r" or ord(c) >= 0x20)
