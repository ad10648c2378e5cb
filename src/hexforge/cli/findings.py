# SPDX-License-Identifier: Apache-2.0
"""Findings: what is wrong and where, as SARIF for code scanning and as annotations of a change on GitHub."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hexforge.cli.say import say
from hexforge.formats.files import require_writable, write_atomically
from hexforge.request_fields import option

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_MOST = 5000
"""Findings in one file: code scanning takes no more."""
_WORDS = {"note": "notice"}
"""GitHub's word for a level, where it is another than SARIF's."""


@dataclass(frozen=True, slots=True)
class FileFinding:
    """Something that is wrong."""

    rule: str
    """What kind of thing it is; the same word for all of its kind."""
    level: Literal["error", "warning", "note"]
    message: str
    file: Path
    line: int = 1
    node: str = ""
    """The model's node that it is about."""


@dataclass(frozen=True, slots=True)
class FindingFiles:
    """How findings are given to other programs."""

    sarif: Path | None = option(None, "Write what is wrong as SARIF, for code scanning.", dir_okay=False)
    annotations: bool = option(False, "Print what is wrong as GitHub's annotations of a change.")

    def check(self) -> None:
        """An error where the file could not be written, before anything is measured."""
        require_writable(self.sarif)

    def give(self, findings: Iterable[FileFinding]) -> None:
        """Write and print the findings as it is asked for."""
        found = list(findings)
        if self.sarif is not None:
            write_atomically(self.sarif, json.dumps(sarif(found), indent=2).encode() + b"\n")
        if self.annotations:
            for finding in found:
                say(annotation(finding), err=True)


def sarif(findings: Sequence[FileFinding]) -> dict[str, Any]:
    """The findings as a SARIF 2.1.0 log; files are named relative to the working folder where they lie below it."""
    from importlib.metadata import version

    rules = sorted({finding.rule for finding in findings})
    described = [{"id": rule, "shortDescription": {"text": rule.replace("-", " ").replace("_", " ")}} for rule in rules]
    driver = {"name": "hexforge", "version": version("hexforge"), "rules": described}
    results = [_result(finding, rules.index(finding.rule)) for finding in findings[:_MOST]]
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def _result(finding: FileFinding, rule: int) -> dict[str, Any]:
    place = {"artifactLocation": {"uri": _relative(finding.file)}, "region": {"startLine": finding.line}}
    location: dict[str, Any] = {"physicalLocation": place}
    if finding.node:
        location["logicalLocations"] = [{"name": finding.node, "kind": "member"}]
    return {
        "ruleId": finding.rule,
        "ruleIndex": rule,
        "level": finding.level,
        "message": {"text": finding.message or finding.rule},
        "locations": [location],
    }


def annotation(finding: FileFinding) -> str:
    """A finding as a line that GitHub shows beside the file."""
    word = _WORDS.get(finding.level, finding.level)
    where = f"file={_property(_relative(finding.file))},line={finding.line}"
    message = f"{finding.node}: {finding.message}" if finding.node else finding.message
    return f"::{word} {where},title={_property(finding.rule)}::{_escaped(message)}"


def _relative(file: Path) -> str:
    whole = file.absolute()
    return (whole.relative_to(Path.cwd()) if whole.is_relative_to(Path.cwd()) else file).as_posix()


def _escaped(text: str) -> str:
    """A text that ends no line and begins no command."""
    plain = "".join(c if c.isprintable() or c in "\r\n" else " " for c in text)
    return plain.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")
