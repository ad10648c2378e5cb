# SPDX-License-Identifier: Apache-2.0
"""Reading: codes and lines of logs become what happened, why, and what would work."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any, Literal

import yaml

from hexforge.amounts import size
from hexforge.chips.soc import find_chip
from hexforge.options import did_you_mean
from hexforge.qnn_api.error_codes import ErrorCode, FoundCodes, code_named, codes_of, error_codes, parse_number
from hexforge.results import Key, Result

HINTS = (
    "fail|err|unable|cannot|could not|can't|mismatch|support|requires|invalid|specified|arch |loaded|initializing|"
    "magic number|switching|selected|not equal|!=|skip load|newer|memory usage|unmap|incorrect|finalized|qnn_open|"
    "returned|not set|not found|missing|not possible|not initialized|no snapdragon|domain id|status 0x|done. status|"
    "dispatch|unsupported_key|unreachable|not available|not compatible|already compiled|winml|denied|elf segment|"
    "remoteproc|adding shared|instead of|unsuccessful|is unknown|creation failure|context fault|no context id|"
    "defaulting to|forcing|did you mean|chipset|wrong value|delegated|crashed|testsig|cache record|no such file|"
    "getplatforminfo|compatible with|not aligned|not implemented|not registered"
).split("|")
"""Words, one of which every line of the table has: a line without any need not be compared with all patterns."""
LineKind = Literal["cause", "consequence", "notice"]


@dataclass(frozen=True, slots=True)
class KnownLine:
    """A row of the table: a pattern, and what a line that has it means. Groups of it stand in the texts by name."""

    id: str
    pattern: re.Pattern[str]
    kind: LineKind
    happened: str
    why: str
    would_work: tuple[str, ...]
    sources: tuple[str, ...]
    proof: str


@functools.cache
def known_lines() -> tuple[KnownLine, ...]:
    """Every row of the table, in its order."""
    text = files(__package__).joinpath("log_lines.yaml").read_text(encoding="utf-8")
    return tuple(
        KnownLine(
            row["id"],
            re.compile(row["pattern"]),
            row["kind"],
            row["happened"],
            row.get("why", ""),
            tuple(row["would_work"]),
            tuple(row["sources"]),
            row.get("proof", ""),
        )
        for row in yaml.safe_load(text)
    )


def match_line(line: str) -> tuple[KnownLine, dict[str, str]] | None:
    """The first row whose pattern a line has, and the values of its groups."""
    lowered = line.lower()
    if not any(hint in lowered for hint in HINTS):
        return None
    for row in known_lines():
        if match := row.pattern.search(line):
            return row, {name: value for name, value in match.groupdict().items() if value is not None}
    return None


def filled(text: str, values: Mapping[str, str]) -> str:
    """A text of the table with the values of a line in it."""
    return text.format_map(_Values(values))


def bytes_of(values: Mapping[str, str], name: str) -> int | None:
    """The bytes that a line gives as NAME_kb or NAME_bytes, decimal or hexadecimal."""
    for unit, factor in (("kb", 1024), ("bytes", 1)):
        if given := values.get(f"{name}_{unit}"):
            return int(given, 0) * factor
    return None


class _Values(dict[str, Any]):
    """Values of a line, and what follows from them: sizes, the chip of a number, the parts that fit a limit."""

    def __missing__(self, name: str) -> str:
        if name == "chip":
            chip = find_chip(self["soc"])
            return f"{chip.name}, SoC {self['soc']}" if chip else f"SoC {self['soc']}"
        if name == "parts":
            need, limit = bytes_of(self, "need"), bytes_of(self, "limit")
            return str(math.ceil(need / limit)) if need and limit else "two"
        if name.endswith("_size") and (count := bytes_of(self, name.removesuffix("_size"))) is not None:
            return size(count)
        return "…"


LONGEST_LINE = 2000
"""Characters of a line that are looked at."""
LONGEST_EXCERPT = 240
MOST_FINDINGS = 1000
"""Different findings that are kept of a log."""

_NAME = re.compile(r"\b(?:QNN|QAIRT|AEE|GENIE)_[A-Z0-9_]*(?:ERROR|WARNING|AEE_E)[A-Z0-9_]+\b|\bAEE_E[A-Z0-9]+\b")
_NUMBER = re.compile(
    r"(?:\berr(?:or)?s?\b(?:[ _]?(?:code|no))?|\bcode\b|\bstatus\b|\brc\b|\bfailed\b|\breturn(?:ed|s)?\b)"
    r"[\s:=(\"'`,]*(?:with|is|error|err|code|status|and)?[\s:=(\"'`,]*(-?0[xX][0-9a-fA-F]+|-?\d+)\b",
    re.IGNORECASE,
)
_FASTRPC = re.compile(r"fastrpc|adsprpc|rpcmem|remote_|apps_(?:mem|std)|qnn_open|DspTransport|listener_", re.I)
_GENIE = re.compile(r"genie", re.IGNORECASE)
_SEVERE = re.compile(r"[Ee]rr|ERR|<E>|\bE\b|[Ff]ail|FAIL|[Ff]atal|FATAL|[Aa]bort|ABORT")
_ERROR_OF_QNN = re.compile(r"<E>|\[ ?ERROR ?\]|Qnn ExecuTorch\].*\bE\b")
"""Lines that QNN's libraries and tools mark as errors."""
_STAMP = re.compile(r"^\s*(?:[\d:.\-T]+(?:ms)?\s+)+")


@dataclass(frozen=True, slots=True)
class ExplainedLine(Result):
    """A code or a line that is explained, or one that is not known."""

    kind: str
    """cause, consequence or notice of a line; code, or unknown."""
    text: str
    """The line, or the code as it was given."""
    line: int = 0
    """Its number in the log, from 1; 0 of a code that was given alone."""
    id: str = ""
    happened: str = ""
    why: str = ""
    would_work: tuple[str, ...] = ()
    codes: tuple[ErrorCode, ...] = ()
    reading: str = ""
    sources: tuple[str, ...] = ()
    proof_kind: str = ""
    values: dict[str, str] = field(default_factory=dict)
    times: int = 1
    """How often it stands there."""
    proof: tuple[str, ...] = ()
    """What the model or the context says of it."""

    described = (
        "kind text",
        Key("line", of=lambda found: found.line or None),
        "id happened why would_work",
        Key("codes", of=lambda found: [{"name": code.name, "number": code.number} for code in found.codes]),
        "reading sources values times proof",
    )


@dataclass(frozen=True, slots=True)
class Explanation(Result):
    """What a code or a log means."""

    findings: tuple[ExplainedLine, ...]
    """In the order of the log; a line that repeats stands there once."""
    lines: int = 0
    left_out: int = 0
    """Findings past the first thousand, which are not kept."""

    described = (
        "lines",
        Key("first_cause", of=lambda told: told.findings.index(told.first_cause) if told.first_cause else None),
        "findings",
        Key("unknown", of=lambda told: len(told.of("unknown"))),
        "left_out",
    )

    @property
    def first_cause(self) -> ExplainedLine | None:
        """The line that the others follow from: the first cause, else the first code."""
        by_kind = {kind: next((f for f in self.findings if f.kind == kind), None) for kind in ("cause", "code")}
        return by_kind["cause"] or by_kind["code"] or next(iter(self.of("consequence")), None)

    def of(self, *kinds: str) -> tuple[ExplainedLine, ...]:
        """The findings of some kinds."""
        return tuple(finding for finding in self.findings if finding.kind in kinds)


def explain_text(text: str) -> Explanation:
    """What a code, a name of one, or the lines of a log mean; what is not known is a finding that says so."""
    if (alone := _alone(text.strip())) is not None:
        return Explanation((alone,))
    merged: dict[tuple[str, str, str], ExplainedLine] = {}
    left_out = lines = 0
    for lines, line in enumerate(text.rstrip("\n").split("\n"), 1):
        for finding in _of_line(line[:LONGEST_LINE], lines):
            key = (finding.id, finding.happened, "" if finding.id else _STAMP.sub("", finding.text))
            if key in merged:
                merged[key] = replace(merged[key], times=merged[key].times + 1)
            elif len(merged) < MOST_FINDINGS:
                merged[key] = finding
            else:
                left_out += 1
    return Explanation(tuple(merged.values()), lines, left_out)


def _alone(text: str) -> ExplainedLine | None:
    """The finding of a text that is one code and nothing else; None for any other text."""
    if (number := parse_number(text)) is not None:
        return _finding_of_codes(text, codes_of(number))
    if re.fullmatch(r"(?:QNN|QAIRT|AEE|GENIE)_\w+", text, re.IGNORECASE):
        code = code_named(text)
        return _unknown_name(text) if code is None else _finding_of_codes(text, FoundCodes(code.number, (code,)))
    return None


def _of_line(line: str, number: int) -> Iterator[ExplainedLine]:
    if not line or line.isspace():
        return
    text = line.strip()[:LONGEST_EXCERPT]
    if (known := match_line(line)) is not None:
        yield _finding_of_line(text, number, *known)
        return
    names = dict.fromkeys(_NAME.findall(line)) if "_E" in line or "_W" in line else {}
    for name in names:
        code = code_named(name)
        finding = _unknown_name(name) if code is None else _finding_of_codes(name, FoundCodes(code.number, (code,)))
        yield replace(finding, text=text, line=number)
    if names or not _SEVERE.search(line):
        return
    explained = False
    for given in dict.fromkeys(_NUMBER.findall(line)):
        if (found_codes := _codes_in(line, given)) is not None:
            explained = True
            yield replace(_finding_of_codes(given, found_codes), text=text, line=number)
    if not explained and _ERROR_OF_QNN.search(line):
        yield ExplainedLine("unknown", text, number, happened="This error line is not known, and has no code.")


def _codes_in(line: str, given: str) -> FoundCodes | None:
    """What a number in a line stands for; None for small ones where neither FastRPC nor Genie speaks."""
    number = parse_number(given)
    if number is None or number == 0:
        return None
    if _FASTRPC.search(line):
        of_fastrpc = codes_of(number, fastrpc=True)
        return of_fastrpc if of_fastrpc.codes else codes_of(number)
    if abs(number) < 1000:
        small = codes_of(number, fastrpc=False)
        return small if _GENIE.search(line) and small.codes else None
    return codes_of(number)


def _finding_of_codes(text: str, meant: FoundCodes) -> ExplainedLine:
    if not meant.codes:
        why = meant.reading or "no documented code of QNN, Genie or FastRPC has this number"
        return ExplainedLine("unknown", text, happened=f"{text} is not known: {why}.")
    first = meant.codes[0]
    return ExplainedLine(
        "code",
        text,
        happened=first.happened,
        would_work=(first.would_work,),
        codes=meant.codes,
        reading=meant.reading,
        sources=(first.source,),
        proof_kind=_PROOFS.get(first.number, "") if not first.name.startswith("AEE_") else "",
    )


_PROOFS = {1002: "memory", 3110: "node", 5000: "chip", 5004: "chip", 5005: "chip", 5008: "chip", 5011: "chip",
           6005: "node", 8003: "memory"}  # fmt: skip
"""What is looked up in a model or a context for a code."""


def _unknown_name(name: str) -> ExplainedLine:
    near = did_you_mean(name, (code.name for code in error_codes()))
    return ExplainedLine("unknown", name, happened=f"{name} is no documented name of a code{near}.".replace("?.", "?"))


def _finding_of_line(text: str, number: int, row: KnownLine, values: dict[str, str]) -> ExplainedLine:
    for name in ("code", "why_not"):
        if (other := values.pop(f"{name}2", None)) is not None:
            values.setdefault(name, other)
    codes: tuple[ErrorCode, ...] = ()
    reading = ""
    if (given := parse_number(values.get("code", ""))) is not None:
        meant = codes_of(given, fastrpc=bool(_FASTRPC.search(text)))
        meant = meant if meant.codes else codes_of(given)
        codes, reading = meant.codes, meant.reading
    return ExplainedLine(
        row.kind,
        text,
        number,
        row.id,
        filled(row.happened, values),
        filled(row.why, values),
        tuple(filled(one, values) for one in row.would_work),
        codes,
        reading,
        row.sources,
        row.proof,
        values,
    )
