# SPDX-License-Identifier: Apache-2.0
"""Checks page: the doctor's tables and that of releases, as the documentation has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hexforge.addons.doctor.answers import DEVICE, MACHINE
from hexforge.addons.doctor.checks import CHECKS
from hexforge.addons.doctor.symptoms import Check
from hexforge.qnn_api.releases import blob_version, releases


def checks_table() -> str:
    """Every check of files: what is looked for, what to do, the evidence."""
    return _rows(CHECKS)


def questions_table() -> str:
    """Every question to a device and to this machine."""
    return _rows((*DEVICE, *MACHINE))


def releases_table() -> str:
    """Every release, with what it stands on."""
    rows = (
        (f"`{r.package}`", r.version, r.qairt or "not known", r.onnxruntime, blob_version(r.qairt), r.source)
        for r in releases()
    )
    return _table(("package", "version", "QAIRT", "onnxruntime", "context blob", "source"), rows)


def _rows(checks: Iterable[Check[Any]]) -> str:
    cells = (
        (f"`{check.id}`", _sentence(check.looks.__doc__), check.would_work, f"<{check.evidence}>") for check in checks
    )
    return _table(("id", "what is looked for", "what to do", "evidence"), cells)


def _sentence(text: str | None) -> str:
    return " ".join((text or "").split())


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines)
